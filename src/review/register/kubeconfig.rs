//! The cluster that is registered, as a kubeconfig has it.

use std::path::Path;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use kube::{
    Config,
    config::{KubeConfigOptions, Kubeconfig},
};

use crate::{
    review::decide::config::is_api_server,
    runtime::{controller::explain_kubeconfig, printable::printable},
};

#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    #[error("no usable kubeconfig: {0}. Name another one with --kubeconfig")]
    Unusable(String),
    #[error("the kubeconfig has no current context. Name one with --context: {0}")]
    NoCurrent(String),
    #[error("the kubeconfig has no context {}. Name one with --context: {known}", printable(.context))]
    NoContext { context: String, known: String },
    #[error(
        "context {} does not verify the API server's certificate (insecure-skip-tls-verify), so anybody could answer \
         for it, and tokens are sent to it. Put its CA there as certificate-authority-data",
        printable(.0)
    )]
    Insecure(String),
    #[error(
        "the API server of the kubeconfig is {}, and tokens are sent to https://HOST:PORT without a path only. Name \
         its address with --api-server, as trustplane review reaches it",
        printable(.0)
    )]
    Address(String),
    #[error(
        "the kubeconfig expects a certificate for {}, another name than that of the server. Name an address that the \
         certificate is for with --api-server",
        printable(.0)
    )]
    ServerName(String),
}

/// How to reach a cluster, now and later.
pub struct Target {
    /// With the rights of whoever registers it.
    pub config: Config,
    /// As the configuration has it.
    pub api_server: String,
    /// The CAs that are trusted, in PEM. Those of the machine if there are none.
    pub ca: Option<String>,
}

/// With the name of its context.
async fn read(path: &Path, context: Option<&str>) -> Result<(String, Config), TargetError> {
    let unusable = |error| TargetError::Unusable(explain_kubeconfig(&error));
    let read = Kubeconfig::read_from(path).map_err(unusable)?;
    let known: Vec<_> = read.contexts.iter().map(|it| printable(&it.name).into_owned()).collect();
    let chosen = context.map(str::to_owned).or_else(|| read.current_context.clone());
    let chosen = chosen.ok_or_else(|| TargetError::NoCurrent(known.join(", ")))?;
    if !read.contexts.iter().any(|it| it.name == chosen) {
        return Err(TargetError::NoContext { context: chosen, known: known.join(", ") });
    }
    let options = KubeConfigOptions { context: Some(chosen.clone()), ..Default::default() };
    let config = Config::from_custom_kubeconfig(read, &options).await.map_err(unusable)?;
    Ok((chosen, config))
}

/// For somebody who only removes what is there.
pub async fn config(path: &Path, context: Option<&str>) -> Result<Config, TargetError> {
    read(path, context).await.map(|(_, config)| config)
}

/// `api_server` is the address for later, if it is another than for now.
pub async fn target(
    path: &Path,
    context: Option<&str>,
    api_server: Option<&str>,
) -> Result<Target, TargetError> {
    let (context, config) = read(path, context).await?;
    if config.accept_invalid_certs {
        return Err(TargetError::Insecure(context));
    }
    let address = match (api_server, &config.tls_server_name) {
        (Some(address), _) => address.to_owned(),
        (None, Some(name)) => return Err(TargetError::ServerName(name.clone())),
        (None, None) => config.cluster_url.to_string(),
    };
    let address = address.trim_end_matches('/').to_owned();
    if !is_api_server(&address) {
        return Err(TargetError::Address(address));
    }
    let ca = config.root_cert.as_ref().filter(|all| !all.is_empty());
    let ca = ca.map(|all| all.iter().map(|der| pem(der)).collect());
    Ok(Target { config, api_server: address, ca })
}

/// Made from what was read, so that nothing else of a file is passed on, such as a key that lies beside it.
fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use serde_json::{Value, json};

    use super::*;

    fn kubeconfig(cluster: &Value) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        let config = json!({
            "apiVersion": "v1", "kind": "Config",
            "clusters": [{ "name": "c", "cluster": cluster }],
            "users": [{ "name": "u", "user": { "token": "t" } }],
            "contexts": [{ "name": "there", "context": { "cluster": "c", "user": "u" } }],
        });
        std::fs::write(&path, config.to_string()).unwrap();
        (folder, path)
    }

    async fn target_of(cluster: &Value, api_server: Option<&str>) -> Result<Target, TargetError> {
        let (_folder, path) = kubeconfig(cluster);
        target(&path, Some("there"), api_server).await
    }

    #[tokio::test]
    async fn address_and_ca_are_those_of_the_context_and_a_key_beside_the_ca_is_not() {
        let ca = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap();
        let file = format!("{}{}", ca.signing_key.serialize_pem(), ca.cert.pem());
        let data = STANDARD.encode(file);
        let cluster =
            json!({ "server": "https://a.test:6443/", "certificate-authority-data": data });
        let target = target_of(&cluster, None).await.ok().unwrap();
        assert_eq!(target.api_server, "https://a.test:6443");
        let kept = target.ca.unwrap();
        assert!(!kept.contains("KEY"), "{kept}");
        assert_eq!(kept.replace("\r\n", "\n"), ca.cert.pem().replace("\r\n", "\n"));
    }

    #[tokio::test]
    async fn another_address_for_later_is_taken_and_checked() {
        let cluster = json!({ "server": "https://127.0.0.1:1", "tls-server-name": "a.test" });
        let named = target_of(&cluster, Some("https://a.test")).await.ok().unwrap();
        assert_eq!((named.api_server.as_str(), named.ca), ("https://a.test", None));
        let error = target_of(&cluster, None).await.err().unwrap().to_string();
        assert!(error.contains("expects a certificate for a.test"), "{error}");
    }

    #[tokio::test]
    async fn what_tokens_must_not_be_sent_to_is_refused_with_what_to_do() {
        let insecure = json!({ "server": "https://a.test", "insecure-skip-tls-verify": true });
        let error = target_of(&insecure, None).await.err().unwrap().to_string();
        assert!(error.contains("certificate-authority-data"), "{error}");
        for server in ["http://a.test", "https://rancher.test/k8s/clusters/c-1"] {
            let error =
                target_of(&json!({ "server": server }), None).await.err().unwrap().to_string();
            assert!(error.contains(server) && error.contains("--api-server"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_context_that_is_not_there_is_told_with_those_that_are() {
        let (_folder, path) = kubeconfig(&json!({ "server": "https://a.test" }));
        for (context, words) in [(Some("other"), "no context other"), (None, "no current context")]
        {
            let error = target(&path, context, None).await.err().unwrap().to_string();
            assert!(error.contains(words) && error.ends_with("--context: there"), "{error}");
        }
        let error = target(Path::new("/nonexistent"), None, None).await.err().unwrap().to_string();
        assert!(error.contains("kubeconfig /nonexistent can't be read"), "{error}");
    }
}

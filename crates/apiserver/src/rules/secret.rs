//! Secrets. Values are never quoted.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rustls::{
    Error, InconsistentKeys,
    crypto::aws_lc_rs::sign::any_supported_type,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::{
    LARGEST, data_keys, decoded_length, finalizer_names, kept_immutable, remove, unchanged,
};
use crate::{api_error::Cause, kinds::text};

const ACCOUNT: &str = "kubernetes.io/service-account.name";

pub(super) fn default(object: &mut Value) {
    if let Some(Value::Object(texts)) = object.get_mut("stringData").map(Value::take) {
        if !object["data"].is_object() {
            object["data"] = json!({});
        }
        for (key, text) in texts {
            object["data"][key] = STANDARD.encode(text.as_str().unwrap_or_default()).into();
        }
    }
    remove(object, "stringData");
    if object.get("type").is_none() {
        object["type"] = "Opaque".into();
    }
}

pub(super) fn prepare_update(object: &mut Value, current: &Value) {
    if text(object, &["type"]).is_empty() {
        object["type"] = current["type"].clone();
    }
}

pub(super) fn validate(object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let data = &object["data"];
    data_keys(data, "data", &mut causes);
    let values = data.as_object().into_iter().flat_map(|data| data.values());
    let size: usize = values.filter_map(Value::as_str).map(decoded_length).sum();
    if size > LARGEST {
        causes.push(Cause::too_long("data", LARGEST));
    }
    let needs = |keys: &[&str]| -> Vec<Cause> {
        let missing = keys.iter().filter(|key| data.get(**key).is_none());
        missing.map(|key| Cause::required(format!("data[{key}]"), "")).collect()
    };
    causes.extend(match text(object, &["type"]) {
        "kubernetes.io/tls" => needs(&["tls.crt", "tls.key"]),
        "kubernetes.io/dockercfg" => docker(data, ".dockercfg"),
        "kubernetes.io/dockerconfigjson" => docker(data, ".dockerconfigjson"),
        "kubernetes.io/basic-auth" => match needs(&["username", "password"]) {
            missing if missing.len() == 2 => missing,
            _ => Vec::new(),
        },
        "kubernetes.io/ssh-auth" if text(data, &["ssh-privatekey"]).is_empty() => {
            vec![Cause::required("data[ssh-privatekey]", "")]
        }
        "kubernetes.io/service-account-token"
            if text(object, &["metadata", "annotations", ACCOUNT]).is_empty() =>
        {
            vec![Cause::required(format!("metadata.annotations[{ACCOUNT}]"), "")]
        }
        _ => Vec::new(),
    });
    causes
}

/// The API server's warning about an unusable pair.
pub(super) fn warning(object: &Value) -> Option<String> {
    if text(object, &["type"]) != "kubernetes.io/tls" {
        return None;
    }
    let decoded = |key| STANDARD.decode(text(&object["data"], &[key])).unwrap_or_default();
    let (certificate, key) = (decoded("tls.crt"), Zeroizing::new(decoded("tls.key")));
    let is_pem = |text: &[u8]| text.windows(10).any(|part| part == b"-----BEGIN");
    let problem = match () {
        () if !is_pem(&certificate) => "failed to find any PEM data in certificate input",
        () if !is_pem(&key) => "failed to find any PEM data in key input",
        () if is_mismatch(&certificate, &key) => "private key does not match public key",
        () => return None,
    };
    Some(format!("tls: {problem}"))
}

/// Whether the key does not belong to the first certificate. An unreadable pair is no mismatch.
fn is_mismatch(certificate: &[u8], key: &[u8]) -> bool {
    let Ok(certificate) = CertificateDer::from_pem_slice(certificate) else { return false };
    let Ok(key) = PrivateKeyDer::from_pem_slice(key) else { return false };
    let Ok(key) = any_supported_type(&key) else { return false };
    let matched = CertifiedKey::new(vec![certificate], key).keys_match();
    matched == Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch))
}

fn docker(data: &Value, key: &str) -> Vec<Cause> {
    let field = format!("data[{key}]");
    let Some(content) = data.get(key).and_then(Value::as_str) else {
        return vec![Cause::required(field, "")];
    };
    let content = STANDARD.decode(content).unwrap_or_default();
    match serde_json::from_slice::<Value>(&content) {
        Ok(Value::Object(_) | Value::Null) => Vec::new(),
        _ => {
            let shown = "\"<secret contents redacted>\"";
            vec![Cause::invalid(field, shown, "invalid character in what should be a JSON object")]
        }
    }
}

pub(super) fn validate_update(object: &Value, current: &Value) -> Vec<Cause> {
    let mut causes: Vec<Cause> = unchanged(object, current, "type", "type").into_iter().collect();
    causes.extend(kept_immutable(object, current, &["data"]));
    causes.extend(validate(object));
    causes.extend(finalizer_names(&object["metadata"]["finalizers"], "metadata.finalizers"));
    causes
}

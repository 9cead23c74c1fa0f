//! `trustplane review explain`.

use std::{
    fmt::Write as _,
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow, bail};
use chrono::{DateTime, Utc};
use clap::Args;
use serde_json::json;
use zeroize::Zeroizing;

use crate::{
    cli::{
        Exit,
        cluster::{self, namespace_name},
        output::{self, Output, print},
        relative::relative,
    },
    names::NAMESPACE,
    review::{
        decide::{
            config::{Config, read},
            explain::{Claims, Conclusion, Explanation, KeyRelation, Relation, explain},
            token::LONGEST,
        },
        inspect::{Access, keys_in},
    },
    runtime::{
        clock::Clock,
        controller::Unable,
        printable::{self, printable},
        terminal::paragraph,
    },
};

/// Tells which cluster a token belongs to, and why.
///
/// It decides as trustplane review does: by the issuer, and by the key that signed the token. The token is sent
/// nowhere and never printed. Only the keys of the configured clusters are fetched, with our own credentials, or
/// read from files with --keys. Whether the token still counts is for its cluster to say, and is not asked.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  A token in a file, and one from the standard input:
    trustplane review explain token.txt --config clusters.yaml
    kubectl create token default | trustplane review explain --config clusters.yaml

  Without any connection, by keys that somebody saved for each cluster:
    kubectl --context b get --raw /openid/v1/jwks > keys/cluster-b.json
    trustplane review explain token.txt --config clusters.yaml --keys keys

Exit codes: 0 it belongs to a configured cluster; 1 it is refused: it is nobody's, or it has expired; 2 that can't
be told: the token or the configuration can't be read, or the keys of a cluster are not known.")]
pub(super) struct Explain {
    /// The file with the token; - is the standard input
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,

    /// The configuration
    #[arg(
        long,
        env = "TRUSTPLANE_REVIEW_CONFIG",
        default_value = "/etc/trustplane/review/clusters.yaml",
        value_name = "FILE"
    )]
    config: PathBuf,

    /// Read the keys of each cluster from NAME.json in this folder, and connect to nothing
    #[arg(long, value_name = "FOLDER")]
    keys: Option<PathBuf>,

    /// The namespace of trustplane review, whose Secret has the renewed credentials
    #[arg(long, short, env = "POD_NAMESPACE", value_parser = namespace_name, default_value = NAMESPACE, value_name = "NAME")]
    namespace: String,

    /// The output format
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value = "text")]
    output: Output,
}

impl Explain {
    pub async fn run(self) -> anyhow::Result<()> {
        let config = self.config().map_err(Unable)?;
        let token = token(&self.file).map_err(Unable)?;
        let clock = Clock::system();
        let (keys, noted) = match &self.keys {
            Some(folder) => (keys_in(folder, &config), Default::default()),
            None => {
                let here = cluster::config().await.map_err(|error| error.to_string());
                let access = Access::open(&config, here, &self.namespace, clock.clone()).await;
                (access.keys().await, access.noted)
            }
        };
        let now = clock.now();
        let explanation =
            explain(token.trim_end_matches(['\r', '\n']), &config, &keys, &noted, now);
        print(&match self.output {
            Output::Text => text(&explanation, now, output::width()),
            Output::Json => printable::json(&format!("{:#}\n", json!(explanation))),
        })?;
        match explanation.conclusion {
            Conclusion::Of { .. } => Ok(()),
            Conclusion::Expired { .. } | Conclusion::Refused { .. } => bail!(Exit::Reported),
            Conclusion::Undecided { .. } => bail!(Exit::NotAsked),
        }
    }

    fn config(&self) -> anyhow::Result<Config> {
        let path = self.config.display();
        let text =
            fs::read_to_string(&self.config).with_context(|| format!("{path} can't be read"))?;
        read(&text).map_err(|faults| {
            let first = faults.first().map(ToString::to_string).unwrap_or_default();
            anyhow!(
                "{path} has faults: {first}. See all of them with: trustplane review check {path}"
            )
        })
    }
}

fn token(path: &Path) -> anyhow::Result<Zeroizing<String>> {
    let shown = match path == Path::new("-") {
        true => "the standard input".to_owned(),
        false => path.display().to_string(),
    };
    let mut token = Zeroizing::new(String::new());
    let mut read = || -> io::Result<()> {
        let source: Box<dyn Read> = match path == Path::new("-") {
            true => Box::new(io::stdin()),
            false => Box::new(File::open(path)?),
        };
        // What is longer is no token, and needs not be read to its end.
        source.take(2 * LONGEST as u64).read_to_string(&mut token)?;
        Ok(())
    };
    read().with_context(|| format!("{shown} can't be read"))?;
    match token.trim().is_empty() {
        true => Err(anyhow!("{shown} is empty. Name a file with a token, or pipe one in")),
        false => Ok(token),
    }
}

fn text(explanation: &Explanation, now: DateTime<Utc>, width: usize) -> String {
    let mut text = String::new();
    if let Some(claims) = &explanation.claims {
        text.push_str(&claims_text(claims, now));
    }
    for relation in &explanation.clusters {
        let _ = writeln!(text, "{:<12} {}", relation.cluster, relation_text(relation));
    }
    let text = printable::lines(&text).into_owned();
    let gap = if text.is_empty() { "" } else { "\n" };
    format!("{text}{gap}{}", paragraph(&conclusion_text(&explanation.conclusion), width))
}

fn claims_text(claims: &Claims, now: DateTime<Utc>) -> String {
    let mut lines = Vec::new();
    let mut line = |label: &str, text: &str| {
        lines.push(format!("{label:<12} {}\n", printable(printable::shortened(text, 300))));
    };
    let kid = claims.kid.as_ref().map_or_else(|| "no kid".to_owned(), |it| format!("kid {it}"));
    line("header", &format!("{}, {kid}", claims.algorithm));
    line("issuer", &claims.issuer);
    line("account", &format!("{} (uid {})", claims.username, claims.uid));
    for (name, values) in &claims.extra {
        let name = name.rsplit('/').next().unwrap_or(name);
        line(name, &values.join(", "));
    }
    match &claims.audiences {
        Some(audiences) => line("audiences", &audiences.join(", ")),
        None => line("audiences", "none, so it is for the API server (a legacy token)"),
    }
    if let Some(issued) = claims.issued {
        line("issued", &format!("{} ({})", issued.to_rfc3339(), relative(issued, now)));
    }
    match claims.expires {
        Some(end) => line("expires", &format!("{} ({})", end.to_rfc3339(), relative(end, now))),
        None => line("expires", "never (a legacy token)"),
    }
    lines.concat()
}

fn relation_text(relation: &Relation) -> String {
    let issuer = if relation.has_issuer { "" } else { "has another issuer, and " };
    let key = match &relation.key {
        KeyRelation::Signed => "its key signed the token".to_owned(),
        KeyRelation::SignedButNotItsOwn => {
            "publishes the key that signed the token, but that is another cluster's, or nobody's"
                .to_owned()
        }
        KeyRelation::DidNotSign => "its key of that name did not sign the token".to_owned(),
        KeyRelation::NoSuchKey => "publishes no key of that name".to_owned(),
        KeyRelation::Unknown(why) => format!("its keys are not known: {why}"),
    };
    format!("{issuer}{key}")
}

fn conclusion_text(conclusion: &Conclusion) -> String {
    match conclusion {
        Conclusion::Of { cluster } => format!(
            "It is a token of {cluster}. trustplane review asks that cluster, and no other, whether it still counts."
        ),
        Conclusion::Expired { cluster } => {
            format!("It was a token of {cluster}, and has expired. It is refused.")
        }
        Conclusion::Refused { reason } => format!("It is refused: {reason}."),
        Conclusion::Undecided { clusters } => format!(
            "Whose it is can't be told without the keys of {}. See what is wrong: trustplane review check",
            clusters.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::printable::{HOSTILE, is_harmless};

    fn explanation() -> Explanation {
        let claims = Claims {
            algorithm: "ES256".into(),
            kid: Some("k".into()),
            issuer: "https://kubernetes.default.svc".into(),
            username: "system:serviceaccount:shop:cart".into(),
            uid: "u-1".into(),
            extra: [("authentication.kubernetes.io/pod-name".into(), vec!["cart-0".into()])].into(),
            audiences: Some(vec!["shop".into(), "till".into()]),
            issued: None,
            expires: Some("2030-06-15T13:00:00Z".parse().unwrap()),
        };
        let relation =
            |cluster: &str, key| Relation { cluster: cluster.into(), has_issuer: true, key };
        Explanation {
            claims: Some(claims),
            clusters: vec![
                relation("a", KeyRelation::DidNotSign),
                relation("cluster-b", KeyRelation::Signed),
            ],
            conclusion: Conclusion::Of { cluster: "cluster-b".into() },
        }
    }

    fn noon() -> DateTime<Utc> {
        "2030-06-15T12:00:00Z".parse().unwrap()
    }

    #[test]
    fn people_see_what_a_token_says_and_then_whose_it_is() {
        let expected = "\
header       ES256, kid k
issuer       https://kubernetes.default.svc
account      system:serviceaccount:shop:cart (uid u-1)
pod-name     cart-0
audiences    shop, till
expires      2030-06-15T13:00:00+00:00 (in 60m)
a            its key of that name did not sign the token
cluster-b    its key signed the token

It is a token of cluster-b. trustplane review asks that cluster, and no other, whether it still
counts.
";
        assert_eq!(text(&explanation(), noon(), 100), expected);
    }

    #[test]
    fn whatever_a_token_says_what_is_shown_is_harmless() {
        let mut hostile = explanation();
        let claims = hostile.claims.as_mut().unwrap();
        claims.kid = Some(HOSTILE.into());
        claims.issuer = HOSTILE.repeat(100);
        claims.audiences = Some(vec![HOSTILE.into()]);
        hostile.clusters[0].key = KeyRelation::Unknown(HOSTILE.into());
        let shown = text(&hostile, noon(), 100);
        assert!(is_harmless(&shown), "{shown}");
        assert!(shown.lines().all(|line| line.len() < 1500), "{shown}");
    }

    #[test]
    fn a_token_that_is_none_is_told_in_one_sentence() {
        let conclusion = Conclusion::Refused { reason: "the token names no issuer".into() };
        let none = Explanation { claims: None, clusters: vec![], conclusion };
        assert_eq!(text(&none, noon(), 100), "It is refused: the token names no issuer.\n");
    }

    #[test]
    fn an_empty_file_is_told_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "\n").unwrap();
        let error = token(&path).unwrap_err().to_string();
        assert!(error.contains("is empty. Name a file with a token"), "{error}");
        assert!(token(folder.path()).unwrap_err().to_string().contains("can't be read"));
        fs::write(&path, "a".repeat(100_000)).unwrap();
        assert_eq!(token(&path).unwrap().len(), 2 * LONGEST);
    }
}

//! Judges how it stands with the configured clusters, for `trustplane review check`.

use std::{path::PathBuf, sync::Arc};

use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;

use super::{
    config::{ClusterConfig, Renewal},
    credential::Life,
    directory::{PublishedKey, SharedKey},
    renewal::{Policy, renew_at},
    token::Token,
};
use crate::k8s::api_error::ApiError;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    Ok,
    /// It works, but somebody should look at it.
    Warning,
    /// Somebody has to act.
    Act,
    /// It could not be asked. That may end by itself.
    NotAsked,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Names the check for scripts, and never changes.
    pub check: &'static str,
    pub subject: &'static str,
    pub severity: Severity,
    pub found: String,
    pub todo: Option<String>,
}

impl Finding {
    fn todo(self, todo: impl Into<String>) -> Self {
        Self { todo: Some(todo.into()), ..self }
    }
}

#[derive(Clone, Copy)]
struct Subject(&'static str, &'static str);

const REACH: Subject = Subject("reach", "API server");
const CREDENTIAL: Subject = Subject("credential", "our credential");
const RIGHTS: Subject = Subject("rights", "our rights");
const ISSUER: Subject = Subject("issuer", "issuer");
const KEYS: Subject = Subject("keys", "keys");
const SHARED: Subject = Subject("shared-keys", "shared key");
const CONFIG: Subject = Subject("configuration", "configuration");

impl Subject {
    fn finding(self, severity: Severity, found: impl Into<String>) -> Finding {
        let Self(check, subject) = self;
        Finding { check, subject, severity, found: found.into(), todo: None }
    }
}

pub type Answer<T> = Result<T, ApiError>;

/// What keeps us from asking a cluster at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    #[error("{0} can't be read: {1}")]
    Unreadable(PathBuf, String),
    #[error("{0} holds no certificate in PEM")]
    NoCertificate(PathBuf),
    #[error("{0} holds no token that can be used: {1}")]
    NoToken(PathBuf, String),
    #[error("{0}")]
    NoConnection(String),
}

/// The token that is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InUse {
    /// Namespace and name.
    pub account: String,
    pub life: Life,
    /// Where it is from, for people.
    pub source: String,
    /// Whether it is one that we renewed. What a server grants it beyond what was asked for is no reason to ask again.
    pub is_renewed: bool,
}

/// The rights that we need there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    Review,
    Renew,
}

impl Right {
    fn text(self) -> &'static str {
        match self {
            Self::Review => "create tokenreviews",
            Self::Renew => "create serviceaccounts/token for its own account",
        }
    }
}

/// What was fetched from `/openid/v1/jwks`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeysFound {
    pub keys: Vec<PublishedKey>,
    /// Keys that sign no token that we take.
    pub skipped: usize,
    /// Whether one of them signed our own token; none if we have none.
    pub signed_ours: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeysError {
    Call(ApiError),
    /// An answer that is no list of keys.
    Content(String),
}

/// What a cluster answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answers {
    pub reach: Answer<()>,
    /// Those that are missing.
    pub rights: Answer<Vec<Right>>,
    /// What its tokens name.
    pub issuer: Option<String>,
    pub keys: Result<KeysFound, KeysError>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterFacts {
    pub address: String,
    /// None for the cluster that we run in.
    pub credential: Option<Result<InUse, FileError>>,
    /// An error if nothing could be asked.
    pub answers: Result<Answers, FileError>,
}

/// Whether one of these keys signed a token.
pub fn has_signed(keys: &[PublishedKey], token: &str) -> bool {
    Token::read(token)
        .is_ok_and(|token| keys.iter().any(|key| token.jws.is_signed_by(&key.key, token.algorithm)))
}

fn severity(error: &ApiError) -> Severity {
    match error {
        _ if is_about_certificate(error) => Severity::Act,
        ApiError::Timeout(_)
        | ApiError::Unreachable { .. }
        | ApiError::Server { .. }
        | ApiError::TooManyRequests { .. }
        | ApiError::Undecodable => Severity::NotAsked,
        _ => Severity::Act,
    }
}

fn is_about_certificate(error: &ApiError) -> bool {
    matches!(error, ApiError::Unreachable { why } if why.contains("certificate"))
}

pub fn cluster(
    name: &str,
    config: &ClusterConfig,
    facts: &ClusterFacts,
    renewal: Renewal,
    now: DateTime<Utc>,
) -> Vec<Finding> {
    let again = format!("trustplane review register {name} --kubeconfig FILE brings it");
    let refused = match &facts.answers {
        Ok(Answers { rights: Err(ApiError::Unauthorized), .. }) => true,
        Ok(_) | Err(_) => false,
    };
    let credential = facts.credential.as_ref().map(|it| match it {
        Ok(_) if refused => CREDENTIAL
            .finding(Severity::Act, "the API server refuses it (HTTP 401)")
            .todo(format!("Is its account still there? {again} and a new token.")),
        Ok(in_use) => credential(in_use, renewal, now, &again),
        Err(error) => {
            CREDENTIAL.finding(Severity::Act, error.to_string()).todo(format!("{again}."))
        }
    });
    let answers = match &facts.answers {
        Ok(answers) => answers,
        // It was told with the credential.
        Err(FileError::NoToken(..)) => return credential.into_iter().collect(),
        Err(error) if facts.credential.as_ref().is_some_and(|it| it.as_ref() == Err(error)) => {
            return credential.into_iter().collect();
        }
        Err(error) => {
            let not_asked = REACH.finding(Severity::Act, format!("not asked: {error}"));
            return [not_asked].into_iter().chain(credential).collect();
        }
    };
    let mut findings = vec![reach(&facts.address, config, &answers.reach, &again)];
    findings.extend(credential);
    if answers.reach.is_err() || refused {
        return findings;
    }
    findings.push(rights(&answers.rights, &again));
    findings.extend(answers.issuer.as_ref().map(|it| issuer(it, config)));
    findings.push(keys(&answers.keys));
    findings
}

fn reach(address: &str, config: &ClusterConfig, reach: &Answer<()>, again: &str) -> Finding {
    let Err(error) = reach else {
        return REACH.finding(Severity::Ok, format!("{address} answers"));
    };
    let finding = REACH.finding(severity(error), format!("{address}: {error}"));
    let ca = config.remote.as_ref().and_then(|it| it.ca_cert.as_ref());
    match (is_about_certificate(error), ca) {
        (true, Some(ca)) => finding.todo(format!(
            "Its certificate is not of a CA in {}, or not for this address. {again}.",
            ca.display()
        )),
        (true, None) => finding.todo(
            "Its certificate is not of a CA that this machine trusts, or not for this address. \
             Name its CA with ca_cert.",
        ),
        (false, _) => finding.todo(
            "Does api_server name it, and does a firewall or a NetworkPolicy let us through?",
        ),
    }
}

fn credential(in_use: &InUse, renewal: Renewal, now: DateTime<Utc>, again: &str) -> Finding {
    let InUse { account, life, source, is_renewed } = in_use;
    let until = life.expires.to_rfc3339();
    if life.expires <= now {
        let found = format!("{account}, from {source}: expired on {until}");
        return CREDENTIAL.finding(Severity::Act, found).todo(format!("{again} and a new token."));
    }
    let found = format!("{account}, from {source}: valid until {until}");
    let delta = |it| TimeDelta::from_std(it).unwrap_or(TimeDelta::MAX);
    let policy = Policy {
        token_duration: match is_renewed {
            true => TimeDelta::MAX,
            false => delta(renewal.token_duration),
        },
        renew_before: delta(renewal.renew_before),
    };
    // It is looked at once in every interval, and tried again after a failure.
    let patience = delta(renewal.interval).min(TimeDelta::days(1)) * 2;
    if renew_at(*life, policy).max(life.issued) + patience < now {
        let found = format!("{found}, and should have been renewed");
        return CREDENTIAL.finding(Severity::Warning, found).todo(
            "Does trustplane review run, and does one replica lead? Its metric \
             trustplane_review_renewals_total tells how it went.",
        );
    }
    CREDENTIAL.finding(Severity::Ok, found)
}

fn rights(missing: &Answer<Vec<Right>>, again: &str) -> Finding {
    match missing {
        Ok(missing) if missing.is_empty() => {
            RIGHTS.finding(Severity::Ok, "it may review tokens, and renew its own")
        }
        Ok(missing) => {
            let missing: Vec<_> = missing.iter().map(|it| it.text()).collect();
            RIGHTS
                .finding(Severity::Act, format!("it may not {}", missing.join(", nor ")))
                .todo(format!("{again}, and so does kubectl apply -k deploy/review/remote there."))
        }
        Err(error) => RIGHTS.finding(severity(error), format!("they can't be asked for: {error}")),
    }
}

fn issuer(issuer: &str, config: &ClusterConfig) -> Finding {
    if config.issuers.contains(issuer) {
        return ISSUER.finding(Severity::Ok, issuer);
    }
    let found = format!("its tokens name {issuer}, which its entry does not list: all are refused");
    ISSUER.finding(Severity::Act, found).todo(
        "Write it as its issuer, and the one before under additional_issuers until its tokens have ended.",
    )
}

fn keys(found: &Result<KeysFound, KeysError>) -> Finding {
    let KeysFound { keys, skipped, signed_ours } = match found {
        Ok(found) => found,
        Err(KeysError::Call(error)) => {
            let finding = KEYS.finding(severity(error), format!("/openid/v1/jwks: {error}"));
            return match error {
                ApiError::Forbidden => finding.todo(
                    "Bind ClusterRole system:service-account-issuer-discovery to the account there: \
                     kubectl apply -k deploy/review/remote does.",
                ),
                _ => finding,
            };
        }
        Err(KeysError::Content(why)) => {
            return KEYS.finding(Severity::Act, format!("/openid/v1/jwks: {why}"));
        }
    };
    let count = match keys.len() {
        1 => "1 key".to_owned(),
        many => format!("{many} keys"),
    };
    match (keys.is_empty(), skipped, signed_ours) {
        (true, ..) => KEYS.finding(Severity::Act, "it publishes no key that signs a token"),
        (_, _, Some(false)) => KEYS
            .finding(Severity::Warning, format!("{count}, of which none signed our own token"))
            .todo(
                "Tokens that are signed with a key that the cluster does not publish are refused. That ends by \
                 itself while it rotates its keys.",
            ),
        (_, 0, _) => KEYS.finding(Severity::Ok, count),
        (_, skipped, _) => {
            KEYS.finding(Severity::Ok, format!("{count}, and {skipped} of a kind that signs no token"))
        }
    }
}

/// `is_noted` tells whether our Secret, which has whose each key was first, could be read.
pub fn shared(shared: &[SharedKey], is_noted: bool) -> Vec<Finding> {
    let finding = |it: &SharedKey| {
        let kid = it.kid.as_deref().unwrap_or("without a kid");
        let by: Vec<&str> = it.published_by.iter().map(|name| &**name).collect();
        let by = by.join(", ");
        let kids = "write its kid under kids in the entry of the cluster that it belongs to";
        match (&it.owner, is_noted) {
            (Some(owner), _) => SHARED
                .finding(Severity::Warning, format!("{kid} is {owner}'s, and published by {by}"))
                .todo(format!(
                    "Somebody copied it, or two entries are one cluster. If it is not {owner}'s, {kids}."
                )),
            (None, true) => SHARED
                .finding(Severity::Act, format!("{kid} is published by {by}, so it is nobody's"))
                .todo(format!("Tokens that it signed are refused. Find out whose it is, and {kids}.")),
            (None, false) => SHARED
                .finding(Severity::Warning, format!("{kid} is published by {by}"))
                .todo(format!(
                    "It belongs to the one that had it first, which Secret trustplane-review knows. If it has \
                     none, {kids}."
                )),
        }
    };
    shared.iter().map(finding).collect()
}

pub fn config(faults: &[super::config::Fault], clusters: usize) -> Vec<Finding> {
    if faults.is_empty() {
        let count = if clusters == 1 { "cluster" } else { "clusters" };
        return vec![CONFIG.finding(Severity::Ok, format!("{clusters} {count}"))];
    }
    let finding = |fault: &super::config::Fault| CONFIG.finding(Severity::Act, fault.to_string());
    faults.iter().map(finding).collect()
}

/// That our Secret could not be read.
pub fn without_state(why: &str) -> Finding {
    CONFIG.finding(Severity::Warning, format!("renewed credentials are not known: {why}")).todo(
        "Run it where trustplane review runs, or with a kubeconfig that may read Secret trustplane-review.",
    )
}

/// The name of a cluster with what was found of it.
pub type Findings = Vec<(Arc<str>, Vec<Finding>)>;

/// The worst of all, and `Act` before `NotAsked`: somebody can act right now.
pub fn worst<'a>(all: impl IntoIterator<Item = &'a Finding>) -> Severity {
    let rank = |severity: &Severity| match severity {
        Severity::Ok => 0,
        Severity::Warning => 1,
        Severity::NotAsked => 2,
        Severity::Act => 3,
    };
    all.into_iter().map(|it| it.severity).max_by_key(rank).unwrap_or(Severity::Ok)
}

#[cfg(test)]
mod tests;

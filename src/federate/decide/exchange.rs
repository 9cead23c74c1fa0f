//! A bundle as a file, for clusters whose administrators share no kubeconfig. Pure.
//!
//! The administrators of one cluster export the file, send it, and tell its fingerprint over another channel.
//! Those of the other cluster import it. The fingerprint covers everything in the file, so a file can't be
//! replaced by another, and the time of the export, so an old file can't be sent again.

mod error;

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, SubsecRound, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    api::spire_server::Profile,
    federate::decide::{
        bootstrap::{Facts, ImportPlan, Listing, Offer},
        validate,
    },
    spiffe::{
        bundle::{self, Bundle},
        id::{SpiffeId, TrustDomain},
    },
};

pub use error::ImportError;

pub const KIND: &str = "TrustplaneFederationExport";
/// The only format version that we write and read.
pub const VERSION: u64 = 1;
/// In bytes. The largest bundle that we fetch fits in, escaped as JSON.
pub const LONGEST: usize = 2 * 1024 * 1024;
/// How far the clocks of two organisations may differ.
const SKEW: TimeDelta = TimeDelta::minutes(5);

#[derive(Clone, Debug)]
pub struct Export {
    pub offer: Offer,
    /// When the bundle was fetched.
    pub made_at: DateTime<Utc>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ExportFile {
    kind: String,
    version: u64,
    trust_domain: String,
    bundle_endpoint_url: String,
    bundle_endpoint_profile: Profile,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    endpoint_spiffe_id: Option<String>,
    made_at: DateTime<Utc>,
    /// Exactly as the endpoint served it, because the fingerprint covers every character.
    bundle: String,
    fingerprint: String,
}

/// The part that all versions share.
#[derive(Deserialize)]
struct Header {
    kind: Option<String>,
    version: Option<u64>,
}

impl Export {
    pub fn new(offer: Offer, now: DateTime<Utc>) -> Self {
        Self { offer, made_at: now.trunc_subsecs(0) }
    }

    /// Identifies this export, for people to compare.
    pub fn fingerprint(&self) -> String {
        fingerprint(&self.file(String::new()))
    }

    /// The content of the file.
    pub fn text(&self) -> String {
        let file = self.file(self.fingerprint());
        // Strings, numbers and a time always serialize.
        let text = serde_json::to_string_pretty(&file).unwrap_or_default();
        format!("{text}\n")
    }

    fn file(&self, fingerprint: String) -> ExportFile {
        let offer = self.offer.clone();
        ExportFile {
            kind: KIND.to_owned(),
            version: VERSION,
            trust_domain: offer.trust_domain,
            bundle_endpoint_url: offer.url,
            bundle_endpoint_profile: offer.profile,
            endpoint_spiffe_id: offer.endpoint_id,
            made_at: self.made_at,
            bundle: offer.document,
            fingerprint,
        }
    }

    pub fn read(text: &[u8], expected: &str) -> Result<Self, ImportError> {
        if text.len() > LONGEST {
            return Err(ImportError::TooLong);
        }
        let unreadable = |error: serde_json::Error| match error.is_eof() {
            true => ImportError::Cut,
            false => ImportError::NotAnExport,
        };
        let header: Header = serde_json::from_slice(text).map_err(unreadable)?;
        if header.kind.as_deref() != Some(KIND) {
            return Err(ImportError::NotAnExport);
        }
        if header.version != Some(VERSION) {
            return Err(ImportError::OtherVersion);
        }
        let malformed = |error: serde_json::Error| match error.is_eof() {
            true => ImportError::Cut,
            false => ImportError::Malformed(format!(
                "it is not what version {VERSION} has (line {})",
                error.line()
            )),
        };
        let file: ExportFile = serde_json::from_slice(text).map_err(malformed)?;
        // Checked first: a file by somebody else needs no other error.
        let found = fingerprint(&file);
        if digits(&found) != digits(expected) {
            return Err(match digits(&file.fingerprint) == digits(expected) {
                true => ImportError::Changed,
                false => ImportError::OtherFingerprint { found, expected: expected.to_owned() },
            });
        }
        file.checked()
    }
}

impl ExportFile {
    fn checked(self) -> Result<Export, ImportError> {
        let wrong = |what: &str, why: &dyn std::fmt::Display| {
            ImportError::Malformed(format!("{what}: {why}"))
        };
        TrustDomain::parse(&self.trust_domain).map_err(|why| wrong("trustDomain", &why))?;
        validate::https_url(&self.bundle_endpoint_url)
            .map_err(|why| wrong("bundleEndpointUrl", &why))?;
        match (self.bundle_endpoint_profile, &self.endpoint_spiffe_id) {
            (Profile::HttpsWeb, None) => {}
            (Profile::HttpsSpiffe, Some(id)) => {
                let id = SpiffeId::parse(id).map_err(|why| wrong("endpointSpiffeId", &why))?;
                if id.trust_domain().as_str() != self.trust_domain {
                    return Err(wrong("endpointSpiffeId", &"it is of another trust domain"));
                }
            }
            (Profile::HttpsWeb, Some(_)) | (Profile::HttpsSpiffe, None) => {
                return Err(wrong("endpointSpiffeId", &"https_spiffe has one, and https_web none"));
            }
        }
        let bundle = Bundle::parse(self.bundle.as_bytes()).map_err(|why| wrong("bundle", &why))?;
        let offer = Offer {
            trust_domain: self.trust_domain,
            url: self.bundle_endpoint_url,
            profile: self.bundle_endpoint_profile,
            endpoint_id: self.endpoint_spiffe_id,
            bundle,
            document: self.bundle,
        };
        Ok(Export { offer, made_at: self.made_at })
    }
}

fn fingerprint(file: &ExportFile) -> String {
    let made_at = file.made_at.to_rfc3339_opts(SecondsFormat::AutoSi, true);
    let mut hash = Sha256::new();
    let mut counted = |part: &str| {
        // With the lengths, different files never hash the same bytes.
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    };
    counted(KIND);
    counted(&VERSION.to_string());
    counted(&file.trust_domain);
    counted(&file.bundle_endpoint_url);
    counted(file.bundle_endpoint_profile.as_str());
    counted(file.endpoint_spiffe_id.as_deref().unwrap_or_default());
    counted(&made_at);
    counted(&file.bundle);
    bundle::in_groups(&hash.finalize())
}

/// A fingerprint without its separators.
pub fn digits(fingerprint: &str) -> String {
    fingerprint.chars().filter(char::is_ascii_hexdigit).collect::<String>().to_lowercase()
}

/// Chosen by the administrator.
#[derive(Clone, Copy, Debug)]
pub struct ImportRules {
    pub max_age: Duration,
    /// Whether to accept a trust domain that the SpireServer does not list.
    pub unlisted: bool,
    /// Whether to accept a file older than `max_age`, or than what the cluster knows already.
    pub older: bool,
}

#[derive(Clone, Debug)]
pub struct FileImportPlan {
    pub write: ImportPlan,
    pub listing: Listing,
}

pub fn plan(
    export: &Export,
    facts: &Facts,
    rules: ImportRules,
    now: DateTime<Utc>,
) -> Result<FileImportPlan, ImportError> {
    let Export { offer, made_at } = export;
    let trust_domain = || offer.trust_domain.clone();
    let listing = Listing::of(&facts.server, offer);
    let write = facts.plan(offer).map_err(|_| ImportError::OwnTrustDomain(trust_domain()))?;
    if listing == Listing::Unlisted && !rules.unlisted {
        let listed =
            facts.server.spec.peers().iter().map(|peer| peer.trust_domain.clone()).collect();
        return Err(ImportError::Unlisted { trust_domain: trust_domain(), listed });
    }
    check_validity(&offer.bundle, now)?;
    if *made_at > now + SKEW {
        return Err(ImportError::FromTheFuture { made_at: *made_at, now });
    }
    if !rules.older {
        let age = (now - *made_at).to_std().unwrap_or_default();
        if age > rules.max_age {
            return Err(ImportError::TooOld { made_at: *made_at, max_age: rules.max_age });
        }
        check_order(offer, facts)?;
    }
    Ok(FileImportPlan { write, listing })
}

fn check_validity(bundle: &Bundle, now: DateTime<Utc>) -> Result<(), ImportError> {
    if bundle.x509.iter().any(|authority| authority.is_valid_at(now)) {
        return Ok(());
    }
    let coming = bundle.x509.iter().map(|it| it.not_before).filter(|it| *it > now).min();
    Err(match (coming, bundle.latest_expiry()) {
        (Some(from), _) => ImportError::NotYetValid { from },
        (None, Some(ended)) => ImportError::Ended { ended },
        (None, None) => ImportError::NoAuthority,
    })
}

/// Refuses a file that is older than what is known of the trust domain: the last import, and what trustplane
/// federate fetched since.
fn check_order(offer: &Offer, facts: &Facts) -> Result<(), ImportError> {
    let peers = facts.server.status.peers();
    let peer = peers.iter().find(|it| it.trust_domain == offer.trust_domain);
    let brought = facts.brought(&offer.trust_domain);
    let known = [peer.and_then(|it| it.sequence), brought.as_ref().and_then(|it| it.sequence)];
    let known = known.into_iter().flatten().max();
    if let (Some(found), Some(known)) = (offer.bundle.sequence, known) {
        return match found < known {
            true => Err(ImportError::OlderSequence { found, known }),
            false => Ok(()),
        };
    }
    // Without sequence numbers, the youngest authorities are compared.
    let youngest = |bundle: &Bundle| bundle.x509.iter().map(|it| it.not_before).max();
    match (youngest(&offer.bundle), brought.as_ref().and_then(youngest)) {
        (Some(found), Some(known)) if found < known => {
            Err(ImportError::OlderAuthorities { found, known })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;

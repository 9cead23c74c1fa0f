//! A bundle as a file, for clusters whose administrators have no kubeconfig in common. Pure.
//!
//! The administrators of one cluster export, send the file, and tell its fingerprint over another channel.
//! Those of the other import it. The fingerprint covers everything in the file that means something, so that
//! a file can't be put in the place of another, and the time at which it was made, so that an old one can't be
//! sent again in the place of a new one.

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

/// What such a file calls itself.
pub const KIND: &str = "TrustplaneFederationExport";
/// The version of the form that we write, and the only one that we read.
pub const VERSION: u64 = 1;
/// In bytes: a bundle that an endpoint may serve fits in, escaped as JSON escapes it.
pub const LONGEST: usize = 2 * 1024 * 1024;
/// By so much clocks of two organisations may differ.
const SKEW: TimeDelta = TimeDelta::minutes(5);

/// What one organisation sends another.
#[derive(Clone, Debug)]
pub struct Export {
    /// The bundle, and whose it is.
    pub offer: Offer,
    /// When it was read.
    pub made_at: DateTime<Utc>,
}

/// The file.
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
    /// As its endpoint served it: to the letter, because the fingerprint is one of letters.
    bundle: String,
    fingerprint: String,
}

/// What every version has.
#[derive(Deserialize)]
struct Header {
    kind: Option<String>,
    version: Option<u64>,
}

impl Export {
    /// An offer as of now.
    pub fn new(offer: Offer, now: DateTime<Utc>) -> Self {
        Self { offer, made_at: now.trunc_subsecs(0) }
    }

    /// What tells this export from every other, for people to tell each other.
    pub fn fingerprint(&self) -> String {
        fingerprint(&self.file(String::new()))
    }

    /// The text of the file.
    pub fn text(&self) -> String {
        let file = self.file(self.fingerprint());
        // Of texts, numbers and a time there is always JSON.
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

    /// Reads a file that must have this fingerprint.
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
        // Before anything in it is judged: what somebody else wrote deserves no better answer.
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
        // With the lengths, no two files are the same sequence of bytes.
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

/// A fingerprint without what makes it easier to read.
pub fn digits(fingerprint: &str) -> String {
    fingerprint.chars().filter(char::is_ascii_hexdigit).collect::<String>().to_lowercase()
}

/// What an administrator allows.
#[derive(Clone, Copy, Debug)]
pub struct ImportRules {
    /// The oldest file that is taken.
    pub max_age: Duration,
    /// A trust domain that the SpireServer does not list.
    pub unlisted: bool,
    /// A file that is older than `max_age`, or older than what is known here already.
    pub older: bool,
}

/// What an import does.
#[derive(Clone, Debug)]
pub struct FileImportPlan {
    /// What is to be written.
    pub write: ImportPlan,
    /// What the SpireServer says of the trust domain.
    pub listing: Listing,
}

/// What importing a file would do in the cluster where these facts hold.
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
        let federation = facts.server.spec.federation.as_ref();
        let peers = federation.map(|it| &*it.federates_with).unwrap_or_default();
        let listed = peers.iter().map(|peer| peer.trust_domain.clone()).collect();
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

/// Whether the file is at least as new as what is known of the trust domain here: what was brought before,
/// and what trustplane federate fetched since.
fn check_order(offer: &Offer, facts: &Facts) -> Result<(), ImportError> {
    let status = facts.server.status.federation.as_ref();
    let peer =
        status.and_then(|it| it.peers.iter().find(|it| it.trust_domain == offer.trust_domain));
    let brought = facts.brought(&offer.trust_domain);
    let known = [peer.and_then(|it| it.sequence), brought.as_ref().and_then(|it| it.sequence)];
    let known = known.into_iter().flatten().max();
    if let (Some(found), Some(known)) = (offer.bundle.sequence, known) {
        return match found < known {
            true => Err(ImportError::OlderSequence { found, known }),
            false => Ok(()),
        };
    }
    // Without numbers, by the youngest of the authorities.
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

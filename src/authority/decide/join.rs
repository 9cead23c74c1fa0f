//! Whether somebody who presents an SVID may join, and as whom.
//!
//! In this order: the signature, the SVID's time and the request's own signature; the token; the federation
//! of the SVID's trust domain; the chain; the token's rules. The caller learns none of it: a refusal is for
//! the audit log.

use chrono::{DateTime, SubsecRound, TimeDelta, Utc};
use sha2::{Digest as _, Sha256};

use super::challenge::{self, Signed};
use crate::{
    api::join_token::{JoinToken, JoinTokenStatus, Role, Use},
    spiffe::{
        bundle::Bundle,
        id::{SpiffeId, TrustDomain},
        key::PublicKey,
        pattern::IdPattern,
        svid::{PresentedSvid, SvidError},
    },
};

/// Of the certificate that a client gets.
pub const LONGEST_LIFE: TimeDelta = TimeDelta::hours(1);
/// Uses that are noted of a token that may be used without end: the newest.
const MOST_NOTED: usize = 100;
/// A longer SPIFFE ID is noted by its digest, so that a thousand fit into an object.
const LONGEST_NOTED: usize = 256;

/// Everything that a join is judged by.
pub struct Facts<'a> {
    /// Ours.
    pub trust_domain: &'a TrustDomain,
    pub nonce: &'a [u8],
    pub signature: &'a [u8],
    pub signed: Signed<'a>,
    pub svid: &'a PresentedSvid<'a>,
    pub svid_key: &'a PublicKey,
    /// None if the request's own signature is not valid.
    pub new_key: Option<&'a PublicKey>,
    pub role: Role,
    /// The token of that name, if there is one.
    pub token: Option<&'a JoinToken>,
    /// The bundle that counts for the SVID's trust domain, if there is one.
    pub bundle: Option<&'a Bundle>,
    pub now: DateTime<Utc>,
}

/// What a client gets.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    pub id: SpiffeId,
    pub not_after: DateTime<Utc>,
    /// To be written before anything is signed; none for a renewal.
    pub new_use: Option<JoinTokenStatus>,
}

/// Why nobody joins. For the audit log, never for the caller.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    #[error("the signature is not the SVID's over this request, this nonce and our trust domain")]
    Signature,
    #[error("the certificate signing request is not signed by its own key")]
    Request,
    #[error("the SVID: {0}")]
    Svid(SvidError),
    #[error("there is no such token")]
    NoToken,
    #[error("the token has expired")]
    TokenExpired,
    #[error("the token is used up")]
    TokenSpent,
    #[error("the token is not for this role")]
    Role,
    #[error("no SPIFFEFederation counts for the SVID's trust domain")]
    NoFederation,
    #[error("the SVID's chain: {0}")]
    Chain(SvidError),
    #[error("no rule of the token allows this SPIFFE ID")]
    NotAllowed,
    #[error("the SPIFFE ID of the new certificate is not valid")]
    Id,
    #[error("the client asks for a certificate that has ended already")]
    Ended,
}

impl Refusal {
    /// A bounded label for metrics, and the failed check in the audit log.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Signature | Self::Request | Self::Svid(_) => "proof",
            Self::NoToken | Self::TokenExpired | Self::TokenSpent | Self::Role | Self::Ended => {
                "token"
            }
            Self::NoFederation => "federation",
            Self::Chain(_) => "chain",
            Self::NotAllowed | Self::Id => "rules",
        }
    }
}

pub fn judge(facts: &Facts<'_>) -> Result<Grant, Refusal> {
    let id = check_proof(facts)?;
    let token = check_token(facts, id)?;
    let bundle = facts.bundle.ok_or(Refusal::NoFederation)?;
    match facts.svid.verify(bundle, facts.now) {
        // A client's certificate must be for clients, too.
        Ok(Some(_)) => return Err(Refusal::Chain(SvidError::ExtendedKeyUsage)),
        Ok(None) => {}
        Err(error) => return Err(Refusal::Chain(error)),
    }
    let rules = token.spec.spiffe.allow.iter();
    // The API server refuses patterns that can't be read; such a one matches nothing.
    let is_allowed = |pattern: IdPattern| pattern.matches(id);
    if !rules.filter_map(|it| IdPattern::parse(&it.spiffe_id).ok()).any(is_allowed) {
        return Err(Refusal::NotAllowed);
    }
    Ok(Grant {
        id: new_id(facts, token, id)?,
        not_after: end(facts)?,
        new_use: new_use(token, id, facts.now),
    })
}

fn check_proof<'a>(facts: &Facts<'a>) -> Result<&'a SpiffeId, Refusal> {
    let message = challenge::message(facts.trust_domain.as_str(), facts.nonce, &facts.signed);
    if !facts.svid_key.has_signed(&message, facts.signature) {
        return Err(Refusal::Signature);
    }
    facts.svid.check_time(facts.now).map_err(Refusal::Svid)?;
    facts.new_key.ok_or(Refusal::Request)?;
    facts.svid.id().map_err(Refusal::Svid)
}

fn check_token<'a>(facts: &Facts<'a>, id: &SpiffeId) -> Result<&'a JoinToken, Refusal> {
    let is_there = |it: &&JoinToken| it.metadata.deletion_timestamp.is_none();
    let token = facts.token.filter(is_there).ok_or(Refusal::NoToken)?;
    let spec = &token.spec;
    if spec.expires.is_some_and(|at| facts.now >= at) {
        return Err(Refusal::TokenExpired);
    }
    let most = spec.max_uses.map_or(usize::MAX, |it| it as usize);
    let used_by = &token.status.used_by;
    if !is_noted(token, id) && used_by.len() >= most {
        return Err(Refusal::TokenSpent);
    }
    match spec.roles.contains(&facts.role) {
        true => Ok(token),
        false => Err(Refusal::Role),
    }
}

fn new_id(facts: &Facts<'_>, token: &JoinToken, id: &SpiffeId) -> Result<SpiffeId, Refusal> {
    let path = match facts.role {
        Role::Bot => format!("bot/{}", token.spec.bot_name.as_deref().ok_or(Refusal::Id)?),
        Role::Agent => format!("agent/{}", agent_uuid(id)),
    };
    SpiffeId::parse(&format!("spiffe://{}/{path}", facts.trust_domain)).map_err(|_| Refusal::Id)
}

/// The client's wish only shortens.
fn end(facts: &Facts<'_>) -> Result<DateTime<Utc>, Refusal> {
    let longest = (facts.now + LONGEST_LIFE).trunc_subsecs(0);
    let wished = match facts.signed.expires {
        0 => longest,
        seconds => DateTime::from_timestamp(seconds, 0).ok_or(Refusal::Ended)?,
    };
    let end = wished.min(longest);
    (end > facts.now).then_some(end).ok_or(Refusal::Ended)
}

fn new_use(token: &JoinToken, id: &SpiffeId, now: DateTime<Utc>) -> Option<JoinTokenStatus> {
    if is_noted(token, id) {
        return None;
    }
    let mut used_by = token.status.used_by.clone();
    used_by.push(Use { spiffe_id: noted(id), first_joined_at: now.trunc_subsecs(0) });
    if token.spec.max_uses.is_none() {
        used_by.drain(..used_by.len().saturating_sub(MOST_NOTED));
    }
    Some(JoinTokenStatus { uses: token.status.uses.saturating_add(1), used_by })
}

fn is_noted(token: &JoinToken, id: &SpiffeId) -> bool {
    let noted = noted(id);
    token.status.used_by.iter().any(|it| it.spiffe_id == noted)
}

/// As `usedBy` has it.
fn noted(id: &SpiffeId) -> String {
    let id = id.to_string();
    match id.len() > LONGEST_NOTED {
        true => format!("sha256:{}", hex::encode(Sha256::digest(&id))),
        false => id,
    }
}

/// The same for the same foreign ID, so an agent keeps its name over renewals and replicas. Version 8 of
/// RFC 9562: made of what we like.
fn agent_uuid(id: &SpiffeId) -> String {
    let digest = Sha256::new().chain_update(b"trustplane.dev/agent").chain_update(id.to_string());
    let mut bytes: [u8; 32] = digest.finalize().into();
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = hex::encode(&bytes[..16]);
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests;

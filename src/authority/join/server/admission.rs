//! Judges a join, notes its use, and signs: in this order, so that no crash in between gives two clients a
//! certificate for one use.

use std::{net::IpAddr, sync::Arc, time::Duration};

use aws_lc_rs::rand;
use chrono::{DateTime, SecondsFormat, SubsecRound as _, Utc};
use tokio::time::Instant;
use tonic::Status;

use super::JoinService;
use crate::{
    api::join_token::{JoinToken, Role},
    authority::{
        decide::{
            challenge::Signed,
            join::{self, Facts, Grant, Refusal},
            join_audit::{self, Attempt, IssuedNames, Recorded},
        },
        join::{messages::Certs, view::Issuer},
    },
    k8s::{api_error::ApiError, events::Message},
    runtime::{
        failpoints::{self, Bug},
        lock::lock,
    },
    spiffe::{Summary, id::SpiffeId, key::PublicKey, svid::PresentedSvid},
};

/// A refusal takes this long whatever its reason, so that its time does not tell whether a token exists.
const REFUSAL_TIME: Duration = Duration::from_millis(50);
/// Writes of one use that may collide with other replicas.
const MOST_CONFLICTS: usize = 20;

/// Everything that a client claims. Nothing of it is proved.
pub(super) struct Claim<'a> {
    pub(super) nonce: &'a [u8],
    pub(super) signature: &'a [u8],
    pub(super) signed: Signed<'a>,
    pub(super) svid: &'a PresentedSvid<'a>,
    pub(super) svid_key: &'a PublicKey,
    pub(super) new_key: Option<&'a PublicKey>,
    pub(super) role: Role,
    pub(super) node_name: &'a str,
    pub(super) address: IpAddr,
}

pub(super) struct Admitted {
    pub(super) certs: Certs,
    /// Of the SVID that it joined with.
    pub(super) foreign: SpiffeId,
    /// When the certificate ends.
    pub(super) until: DateTime<Utc>,
}

/// A client that may join, with its use written.
struct Granted {
    grant: Grant,
    token: Arc<JoinToken>,
    is_renewal: bool,
}

enum NotAdmitted {
    Refused(Refusal),
    /// The API server, our CA or the audit log can't be used.
    Unavailable,
}

impl From<Refusal> for NotAdmitted {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl JoinService {
    pub(super) fn check_ready(&self) -> Result<Issuer, Status> {
        self.view.check_ready(Instant::now()).map_err(|unready| {
            tracing::warn!(%unready, "nobody can join");
            self.unavailable()
        })
    }

    fn unavailable(&self) -> Status {
        self.metrics.joined("unavailable");
        Status::unavailable("nobody can join at this server now; try again later")
    }

    pub(super) async fn admit(&self, claim: &Claim<'_>) -> Result<Admitted, Status> {
        let begun = Instant::now();
        self.check_ready()?;
        let reference = reference().ok_or_else(|| self.unavailable())?;
        let svid = claim.svid.summary();
        let id = claim.svid.id().ok();
        let attempt = claim.attempt(&reference, &svid, id, self.clock.now());
        self.metrics.began();
        let granted = self.grant(claim).await;
        let admitted = granted.and_then(|granted| {
            self.issue(claim, &granted, &attempt).inspect(|admitted| {
                if !granted.is_renewal {
                    self.publish_join(&granted.token, id, &admitted.certs.spiffe_id);
                }
            })
        });
        self.metrics.ended();
        match admitted {
            Ok(admitted) => {
                self.metrics.joined("ok");
                Ok(admitted)
            }
            Err(NotAdmitted::Unavailable) => Err(self.unavailable()),
            Err(NotAdmitted::Refused(refusal)) => {
                self.refused(&attempt, &refusal);
                tokio::time::sleep_until(begun + REFUSAL_TIME).await;
                Err(Status::permission_denied(format!(
                    "joining is refused; the server's audit log has the reason under {reference}"
                )))
            }
        }
    }

    /// Judges, and writes the use if it is a new one.
    async fn grant(&self, claim: &Claim<'_>) -> Result<Granted, NotAdmitted> {
        let name = claim.signed.token;
        let known = self.view.token(name);
        let grant = self.judge(claim, known.as_ref().map(|it| &*it.token))?;
        // Without a token, nothing is granted.
        let known = known.ok_or(Refusal::NoToken)?;
        if grant.new_use.is_none() {
            return Ok(Granted { grant, token: known.token, is_renewal: true });
        }
        let _turn = known.writing.lock().await;
        let mut token = self.view.token(name).map(|it| it.token);
        let mut is_renewal = true;
        for _ in 0..MOST_CONFLICTS {
            // Also after the write: it may have taken long, and what was trusted before may count no more.
            let grant = self.judge(claim, token.as_deref())?;
            let current = token.ok_or(Refusal::NoToken)?;
            let Some(status) = &grant.new_use else {
                return Ok(Granted { grant, token: current, is_renewal });
            };
            token = match self.writer.write_use(&current, status).await {
                Ok(written) => {
                    is_renewal = false;
                    let is_known = self.view.update_token(&written);
                    let written = Arc::new(written);
                    if failpoints::has(Bug::NotJudgedAgain) {
                        return Ok(Granted { grant, token: written, is_renewal });
                    }
                    // If not, it was deleted meanwhile, or is too new for the watch to have brought it.
                    if is_known { Some(written) } else { self.load(name).await? }
                }
                Err(ApiError::Conflict) if failpoints::has(Bug::ConflictIsSuccess) => {
                    return Ok(Granted { grant, token: current, is_renewal: false });
                }
                Err(ApiError::Conflict | ApiError::NotFound) => self.load(name).await?,
                Err(error) => return Err(self.api_failed(&error)),
            };
        }
        Err(self.api_failed(&ApiError::Conflict))
    }

    fn judge(&self, claim: &Claim<'_>, token: Option<&JoinToken>) -> Result<Grant, Refusal> {
        let trusted = self.view.trusted();
        // An SVID of our own trust domain is no foreign one: it has no federation.
        let trust_domain = claim.svid.id().ok().map(SpiffeId::trust_domain);
        let bundle =
            trust_domain.filter(|it| **it != self.trust_domain).and_then(|it| trusted.bundle(it));
        join::judge(&Facts {
            trust_domain: &self.trust_domain,
            nonce: claim.nonce,
            signature: claim.signature,
            signed: claim.signed,
            svid: claim.svid,
            svid_key: claim.svid_key,
            new_key: claim.new_key,
            role: claim.role,
            token,
            bundle: bundle.as_deref(),
            now: self.clock.now(),
        })
    }

    /// The token after somebody else has changed it.
    async fn load(&self, name: &str) -> Result<Option<Arc<JoinToken>>, NotAdmitted> {
        let loaded = self.writer.load_token(name).await.map_err(|error| self.api_failed(&error))?;
        Ok(loaded.map(|token| {
            self.view.update_token(&token);
            Arc::new(token)
        }))
    }

    fn api_failed(&self, error: &ApiError) -> NotAdmitted {
        tracing::warn!(%error, "the use of a token can't be written");
        self.metrics.api_failed(error.category());
        NotAdmitted::Unavailable
    }

    /// Signs and audits. Without a record there is no certificate.
    fn issue(
        &self,
        claim: &Claim<'_>,
        Granted { grant, is_renewal, .. }: &Granted,
        attempt: &Attempt<'_>,
    ) -> Result<Admitted, NotAdmitted> {
        let key = claim.new_key.ok_or(Refusal::Request)?;
        let foreign = claim.svid.id().map_err(Refusal::Svid)?.clone();
        // Asked again: writing the use may have taken long.
        let issuer = self.view.check_ready(Instant::now()).map_err(|_| NotAdmitted::Unavailable)?;
        let now = self.clock.now();
        let ttl = issuer.ttl.min(grant.not_after - now.trunc_subsecs(0));
        let issued = issuer.signer.sign_for(key, &grant.id, ttl, now).map_err(|error| {
            tracing::error!(%error, "no certificate for a client that may join");
            NotAdmitted::Unavailable
        })?;
        let names = IssuedNames {
            spiffe_id: grant.id.to_string(),
            serial: issued.serial,
            expires: issued.not_after.to_rfc3339_opts(SecondsFormat::Secs, true),
            ca: issuer.signer.ca_id().to_owned(),
            is_renewal: *is_renewal,
        };
        if !self.record(&join_audit::success(attempt, names)) {
            return Err(NotAdmitted::Unavailable);
        }
        let until = issued.not_after;
        let certs = Certs {
            x509_svid: issued.chain.iter().map(|it| it.to_vec()).collect(),
            spiffe_id: grant.id.to_string(),
            expires: until.timestamp(),
        };
        Ok(Admitted { certs, foreign, until })
    }

    fn refused(&self, attempt: &Attempt<'_>, refusal: &Refusal) {
        let check = refusal.category();
        self.metrics.joined(check);
        let known = self.view.token(attempt.token);
        let token = known.as_ref().map(|it| it.token.name());
        if lock(&self.refusals).add(attempt, check, token) == Recorded::Whole {
            self.record(&join_audit::failure(attempt, refusal));
        }
    }

    /// Of a new use alone: a thousand agents renew every half an hour.
    fn publish_join(&self, token: &JoinToken, foreign: Option<&SpiffeId>, ours: &str) {
        let Some(foreign) = foreign else { return };
        self.publish(Message {
            regarding: token.reference(),
            kind: "Normal",
            reason: "Joined",
            action: "Join",
            note: format!("{foreign} joined as {ours}"),
            topic: None,
        });
    }
}

impl<'a> Claim<'a> {
    fn attempt(
        &self,
        reference: &'a str,
        svid: &'a Summary,
        id: Option<&'a SpiffeId>,
        now: DateTime<Utc>,
    ) -> Attempt<'a> {
        Attempt {
            reference,
            role: self.role,
            address: self.address,
            token: self.signed.token,
            node_name: self.node_name,
            svid,
            id,
            now,
        }
    }
}

fn reference() -> Option<String> {
    let mut bytes = [0; 8];
    rand::fill(&mut bytes).ok()?;
    Some(hex::encode(bytes))
}

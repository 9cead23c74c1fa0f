//! A tour of joining: a partner's pipeline and an agent get identities of our trust domain, and a workload
//! beside the agent gets every trusted bundle, through rotations and to the end of the trust.
//!
//! Every step acts as an administrator would, and then polls until it sees the expected result: what the
//! join service answers to a client, what the workload has from the agent's socket, the uses of the
//! JoinToken, the status of the SPIFFEFederation, and the audit record.

pub mod expect;
pub mod printer;
mod replay;
pub mod stage;
pub mod steps;
pub mod workload;

use std::sync::Mutex;

use rustls::pki_types::CertificateDer;

use self::{
    expect::{Expected, JoinedAs, Seen, TokenStatus, WorkloadStatus},
    stage::Stage,
    steps::{Act, ActError, Step},
    workload::Identity,
};
use super::{authority::expect::Signer, walk::Scenario};
use crate::{authority::join::client::Joined, runtime::lock::lock, spiffe::id::SpiffeId};

/// Path of the partner's workload.
const WORKLOAD: &str = "/shop";

pub struct Tour {
    pub stage: Stage,
    /// What is done now.
    act: Mutex<Act>,
    /// How the join service answered to a replay.
    replayed: Mutex<Option<Result<JoinedAs, String>>>,
    /// An SVID of the partner from before its rotation, in the step after it.
    outdated: Mutex<Option<(SpiffeId, CertificateDer<'static>)>>,
}

impl Tour {
    pub fn new(stage: Stage) -> Self {
        let (replayed, outdated) = (Mutex::default(), Mutex::default());
        Self { stage, act: Mutex::new(Act::Federate), replayed, outdated }
    }

    /// The answer to a client, in steps with one.
    async fn client(&self, act: Act) -> Option<Result<JoinedAs, String>> {
        match act {
            Act::Join | Act::EndTrust => Some(self.join().await),
            Act::Replay => lock(&self.replayed).clone(),
            _ => None,
        }
    }

    /// Joins as the partner's pipeline.
    async fn join(&self) -> Result<JoinedAs, String> {
        let trust = self.stage.trust().await.map_err(|error| error.to_string())?;
        let trust = trust.ok_or("trustplane authority has published no bundle")?;
        let client = self.stage.pipeline().map_err(|error| error.to_string())?;
        let joined = client.join(&trust).await.map_err(|error| error.to_string())?;
        Ok(JoinedAs::from(&joined))
    }

    fn workload(&self, identity: &Identity) -> WorkloadStatus {
        let workload = &self.stage.workload;
        let issued = self.stage.base.partner.workload(WORKLOAD);
        let partner = match issued {
            Ok((id, svid)) => workload.judge(identity, &id, svid.der),
            Err(error) => Err(error.to_string()),
        };
        let outdated = lock(&self.outdated).clone();
        let signer = match workload.is_signed_by_newest(identity) {
            true => Signer::NewestCa,
            false => Signer::CaBefore,
        };
        let bundles = identity.bundles.iter();
        WorkloadStatus {
            spiffe_id: identity.id.to_string(),
            messages: identity.messages,
            signer,
            authorities: bundles.map(|(of, it)| (of.to_string(), it.x509.len())).collect(),
            partner,
            outdated: outdated.map(|(id, svid)| workload.judge(identity, &id, svid)),
        }
    }
}

impl From<&Joined> for JoinedAs {
    fn from(joined: &Joined) -> Self {
        let trusted = joined.bundles.iter().map(|(name, _)| name.to_string()).collect();
        Self { spiffe_id: joined.svid.id.to_string(), trusted }
    }
}

impl Scenario for Tour {
    type Act = Act;
    type Expected = Expected;
    type Seen = Seen;
    type Error = ActError;

    fn steps(&self) -> Vec<Step> {
        steps::all(&self.stage)
    }

    async fn carry_out(&self, act: Act) -> Result<(), ActError> {
        *lock(&self.act) = act;
        self.act(act).await
    }

    async fn observe(&self) -> Seen {
        let act = *lock(&self.act);
        // First, so that the audit record is the one of this answer.
        let client = self.client(act).await;
        let workload = self.stage.has_agent().then(|| self.stage.workload.received());
        let federation = self.stage.base.federation().await.unwrap_or_default();
        Seen {
            client,
            workload: workload.map(|it| it.map(|identity| self.workload(&identity))),
            token: self.stage.token().await.unwrap_or_default().map(TokenStatus::from),
            federation: federation.map(Into::into),
            audit: self.stage.base.audit.newest_of_event(act.event()),
        }
    }

    fn differences(expected: &Expected, seen: &Seen) -> Vec<String> {
        expected.differences(seen)
    }
}

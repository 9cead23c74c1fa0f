//! The steps of the tour, in order.

use super::{
    Tour, WORKLOAD,
    expect::{Answer, Expected, ExpectedWorkload, JoinedAs, Recorded},
    replay,
    stage::{AGENT_TTL, MAX_USES, Stage, StartError, TOKEN},
};
use crate::{
    authority::join::client::JoinError,
    demo::{
        spire::{SpireError, agent::SpireAgentError, trust_domain::TrustDomainError},
        tour::{
            authority::{
                expect::{ExpectedStatus, Signer},
                stage::{PARTNER, TRUST_DOMAIN},
            },
            walk,
        },
    },
    k8s::api_error::ApiError,
    runtime::lock::lock,
};

pub type Step = walk::Step<Act, Expected>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Creates the SPIFFEFederation and the JoinToken.
    Federate,
    /// A client joins, once in each observation.
    Join,
    /// Starts our agent, and with it the workload's stream.
    StartAgent,
    /// Asks for a new CA of ours.
    Rotate,
    /// Adds an authority to the partner's bundle.
    PartnerPrepares,
    /// Makes it sign, and removes the old one.
    PartnerActivates,
    /// The new CA of ours becomes active by itself, and the agent renews.
    AwaitRenewal,
    /// Sends a recorded join again.
    Replay,
    /// Deletes the SPIFFEFederation. The client joins again.
    EndTrust,
    /// The agent's SVID ends by itself.
    AwaitEnd,
}

impl Act {
    /// Whose newest audit record is looked at.
    pub(super) fn event(self) -> &'static str {
        match self {
            Self::Federate | Self::PartnerPrepares | Self::PartnerActivates => {
                "spiffe.federation.rotation"
            }
            Self::Rotate => "spiffe.authority.rotation",
            Self::Join | Self::Replay | Self::EndTrust => "bot.join",
            Self::StartAgent | Self::AwaitRenewal | Self::AwaitEnd => "agent.join",
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ActError {
    #[error(transparent)]
    Call(#[from] ApiError),
    #[error(transparent)]
    Spire(#[from] SpireError),
    #[error(transparent)]
    SpireAgent(#[from] SpireAgentError),
    #[error(transparent)]
    TrustDomain(#[from] TrustDomainError),
    #[error(transparent)]
    Client(#[from] Box<StartError>),
    #[error("the join to be replayed failed")]
    Join(#[from] Box<JoinError>),
    #[error("trustplane authority published no bundle in time")]
    NotPublished,
}

pub fn all(stage: &Stage) -> Vec<Step> {
    let own = |commands: &[&str]| commands.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    let joins = joining(stage);
    let gets = |own, partner| ExpectedWorkload::Gets { own, partner, signer: None };
    let recorded = |act: Act, recorded| (act.event(), recorded);
    let federated = Expected {
        client: None,
        workload: ExpectedWorkload::NoAgent,
        uses: 0,
        federation: Some(ExpectedStatus::well(1)),
        audit: recorded(Act::Federate, Recorded::Sequence(1)),
    };
    let joined = Expected {
        client: Some(Answer::Joined),
        uses: 1,
        audit: recorded(Act::Join, Recorded::Joined),
        ..federated
    };
    let served = Expected {
        client: None,
        workload: gets(1, Some(1)),
        uses: 2,
        audit: recorded(Act::StartAgent, Recorded::Joined),
        ..joined
    };
    let rotated = Expected {
        // On a slow machine, the new CA signs before anybody has looked.
        workload: gets(2, Some(1)),
        audit: recorded(Act::Rotate, Recorded::Sequence(2)),
        ..served
    };
    let followed = |act, sequence, authorities| Expected {
        workload: gets(2, Some(authorities)),
        federation: Some(ExpectedStatus::well(sequence)),
        audit: recorded(act, Recorded::Sequence(sequence)),
        ..rotated
    };
    let activated = followed(Act::PartnerActivates, 3, 1);
    let ended = Expected {
        client: Some(Answer::Refused),
        workload: gets(2, None),
        federation: None,
        audit: recorded(Act::EndTrust, Recorded::Refused("federation")),
        ..activated
    };
    vec![
        Step {
            title: "We federate with a partner, and say who of it may join us",
            commands: vec![
                format!(
                    "trustplane authority --trust-domain {TRUST_DOMAIN} --join-listen {} --refresh-hint 1s",
                    stage.address()
                ),
                "# partner.yaml has the SPIFFEFederation, with the partner's first bundle."
                    .to_owned(),
                format!(
                    "# token.yaml has a JoinToken for spiffe://{PARTNER}/ci/* and spiffe://{PARTNER}/node/*, and for {MAX_USES} SPIFFE IDs at most."
                ),
                "kubectl apply -f partner.yaml -f token.yaml".to_owned(),
            ],
            act: Act::Federate,
            expected: federated,
        },
        Step {
            title: "A pipeline of the partner joins with its own SVID, and gets one of ours",
            commands: vec![format!(
                "trustplane join {joins} --role bot --workload-api unix:///run/spire/agent.sock --out identity"
            )],
            act: Act::Join,
            expected: joined,
        },
        Step {
            title: "An agent joins, and a workload beside it gets an SVID and every trusted bundle",
            commands: vec![
                format!(
                    "trustplane agent {joins} --workload-api unix:///run/spire/agent.sock --socket agent.sock --ttl {AGENT_TTL:?}"
                ),
                "# The workload opens one stream at agent.sock, by the SPIFFE Workload API."
                    .to_owned(),
            ],
            act: Act::StartAgent,
            expected: served,
        },
        Step {
            title: "We rotate: the workload knows our next CA before it signs",
            commands: own(&["trustplane spiffe rotate"]),
            act: Act::Rotate,
            expected: rotated,
        },
        Step {
            title: "The partner prepares a new authority: the workload knows it before it signs",
            commands: own(&["# The partner's SPIRE server does it by itself, about twice a day."]),
            act: Act::PartnerPrepares,
            expected: followed(Act::PartnerPrepares, 2, 2),
        },
        Step {
            title: "The partner's new authority signs, and the old one is gone at the workload",
            commands: own(&["# The partner's SPIRE server does this by itself, too."]),
            act: Act::PartnerActivates,
            expected: activated,
        },
        Step {
            title: "Our next CA signs, and the workload got a new SVID without asking",
            commands: own(&["# trustplane authority and trustplane agent do it by themselves."]),
            act: Act::AwaitRenewal,
            expected: Expected {
                workload: ExpectedWorkload::Gets {
                    own: 2,
                    partner: Some(1),
                    signer: Some(Signer::NewestCa),
                },
                audit: recorded(Act::AwaitRenewal, Recorded::Renewed),
                ..activated
            },
        },
        Step {
            title: "Somebody who recorded the pipeline's join sends it again, and is refused",
            commands: own(&["# The same bytes on another stream, where the nonce is another one."]),
            act: Act::Replay,
            expected: Expected {
                client: Some(Answer::Refused),
                audit: recorded(Act::Replay, Recorded::Refused("proof")),
                ..activated
            },
        },
        Step {
            title: "The federation is deleted: gone at the workload, and the next join is refused",
            commands: vec![
                format!("kubectl delete spiffefederation {PARTNER}"),
                "# The pipeline joins again, as in step 2.".to_owned(),
            ],
            act: Act::EndTrust,
            expected: ended,
        },
        Step {
            title: "The agent can't renew: what it has ends with its SVID",
            commands: vec![format!(
                "# By itself. SVIDs of this agent live {} seconds, others an hour at most.",
                AGENT_TTL.as_secs()
            )],
            act: Act::AwaitEnd,
            expected: Expected {
                client: None,
                workload: ExpectedWorkload::Nothing,
                audit: recorded(Act::AwaitEnd, Recorded::Refused("federation")),
                ..ended
            },
        },
    ]
}

/// The flags of everybody who joins.
fn joining(stage: &Stage) -> String {
    let server = stage.address();
    format!(
        "--server {server} --server-bundle bundle.json --trust-domain {TRUST_DOMAIN} --token {TOKEN}"
    )
}

impl Tour {
    pub(super) async fn act(&self, act: Act) -> Result<(), ActError> {
        let stage = &self.stage;
        let partner = &stage.base.partner;
        *lock(&self.outdated) = None;
        match act {
            Act::Federate => {
                stage.base.federate(&partner.server_id()?).await?;
                Ok(stage.create_token().await?)
            }
            // Every observation joins.
            Act::Join | Act::AwaitRenewal | Act::AwaitEnd => Ok(()),
            Act::StartAgent => {
                let trust = stage.trust().await?.ok_or(ActError::NotPublished)?;
                stage.start_agent(trust);
                Ok(())
            }
            Act::Rotate => Ok(stage.base.rotate().await?),
            Act::PartnerPrepares => Ok(partner.prepare_authority().await?),
            Act::PartnerActivates => {
                let (id, svid) = partner.workload(WORKLOAD)?;
                partner.activate_authority().await?;
                stage.renew_partner()?;
                *lock(&self.outdated) = Some((id, svid.der));
                Ok(())
            }
            Act::Replay => self.replay().await,
            Act::EndTrust => Ok(stage.base.delete_federation().await?),
        }
    }

    async fn replay(&self) -> Result<(), ActError> {
        let trust = self.stage.trust().await?.ok_or(ActError::NotPublished)?;
        let client = self.stage.pipeline().map_err(Box::new)?;
        let answer = replay::replay(&client, &trust).await.map_err(Box::new)?;
        let answer = match answer {
            Ok(certs) => Ok(JoinedAs { spiffe_id: certs.spiffe_id, trusted: Vec::new() }),
            Err(why) => Err(why.to_string()),
        };
        *lock(&self.replayed) = Some(answer);
        Ok(())
    }
}

//! The steps of the tour, in order.

use super::{
    Tour, WORKLOAD,
    expect::{Expected, ExpectedStatus, Signer},
    stage::{PARTNER, Stage, TRUST_DOMAIN},
};
use crate::{
    demo::{
        spire::{SpireError, trust_domain::TrustDomainError},
        tour::walk,
    },
    k8s::api_error::ApiError,
    runtime::lock::lock,
};

pub type Step = walk::Step<Act, Expected>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Imports our first bundle at the partner.
    Publish,
    /// Creates the SPIFFEFederation.
    Federate,
    /// Adds an authority to the partner's bundle.
    PartnerPrepares,
    /// Makes it sign, and removes the old one.
    PartnerActivates,
    /// Asks for a new CA of ours.
    Rotate,
    /// The new CA of ours becomes active by itself.
    AwaitActivation,
    /// Lets the partner's endpoint serve its first bundle again.
    ServeOldCopy,
    /// Removes all authorities from the partner's bundle.
    PartnerRevokes,
    /// Deletes the SPIFFEFederation.
    EndTrust,
}

#[derive(Debug, thiserror::Error)]
pub enum ActError {
    #[error(transparent)]
    Call(#[from] ApiError),
    #[error(transparent)]
    Spire(#[from] SpireError),
    #[error(transparent)]
    TrustDomain(#[from] TrustDomainError),
    #[error("trustplane authority published no bundle in time")]
    NotPublished,
}

pub fn all(stage: &Stage) -> Vec<Step> {
    let address = stage.endpoint_url.authority().map(ToString::to_string).unwrap_or_default();
    let own = |commands: &[&str]| commands.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    let alone = Expected {
        received: (1, 1),
        signer: Some(Signer::NewestCa),
        partner_trusted: false,
        federation: None,
        audit: ("spiffe.authority.rotation", Some(1)),
    };
    // The audit record of a new bundle of the partner has the bundle's sequence.
    let federated = |sequence| Expected {
        partner_trusted: true,
        federation: Some(ExpectedStatus::well(sequence)),
        audit: ("spiffe.federation.rotation", Some(sequence)),
        ..alone
    };
    let rotated = Expected {
        received: (2, 2),
        audit: ("spiffe.authority.rotation", Some(2)),
        ..federated(3)
    };
    vec![
        Step {
            title: "We publish a bundle, and the partner's SPIRE server fetches it",
            commands: vec![
                format!("trustplane authority --trust-domain {TRUST_DOMAIN} --spiffe-listen {address} --refresh-hint 1s"),
                r"kubectl -n trustplane get configmap trustplane-bundle -o jsonpath='{.data.bundle\.json}' > first-bundle.json".to_owned(),
                "# The partner's administrators compare its fingerprint, and import it.".to_owned(),
            ],
            act: Act::Publish,
            expected: alone,
        },
        Step {
            title: "We federate with the partner, and its SVIDs verify",
            commands: vec![
                "# partner.yaml has the URL and the SPIFFE ID of the partner's endpoint, and its first bundle.".to_owned(),
                "kubectl apply -f partner.yaml".to_owned(),
            ],
            act: Act::Federate,
            expected: federated(1),
        },
        Step {
            title: "The partner prepares a new authority: it is in the bundle before it signs",
            commands: own(&["# The partner's SPIRE server does it by itself, about twice a day."]),
            act: Act::PartnerPrepares,
            expected: federated(2),
        },
        Step {
            title: "The partner's new authority signs, the old one is gone, and we have followed",
            commands: own(&["# The partner's SPIRE server does this by itself, too."]),
            act: Act::PartnerActivates,
            expected: federated(3),
        },
        Step {
            title: "We rotate: the next CA is published, and does not sign yet",
            commands: own(&["trustplane spiffe rotate"]),
            act: Act::Rotate,
            // On a slow machine, it signs before anybody has looked.
            expected: Expected { signer: None, ..rotated },
        },
        Step {
            title: "The next CA signs, and the partner knew it already: no fetch was refused",
            commands: own(&["# trustplane authority does it by itself, four refresh hints later."]),
            act: Act::AwaitActivation,
            expected: rotated,
        },
        Step {
            title: "A lower sequence is refused and reported; the last bundle stays",
            commands: own(&["# The partner's endpoint serves its first bundle again: an old copy."]),
            act: Act::ServeOldCopy,
            expected: Expected { federation: Some(ExpectedStatus::sequence_refused(3)), ..rotated },
        },
        Step {
            title: "The partner revokes everything: its empty bundle ends the trust",
            commands: own(&["# The partner's administrators remove every authority."]),
            act: Act::PartnerRevokes,
            expected: Expected {
                partner_trusted: false,
                federation: Some(ExpectedStatus::empty(4)),
                audit: ("spiffe.federation.rotation", Some(4)),
                ..rotated
            },
        },
        Step {
            title: "The federation is deleted, and nothing of the partner is left here",
            commands: vec![format!("kubectl delete spiffefederation {PARTNER}")],
            act: Act::EndTrust,
            expected: Expected {
                partner_trusted: false,
                federation: None,
                audit: ("spiffe.federation.delete", None),
                ..rotated
            },
        },
    ]
}

impl Tour {
    pub(super) async fn act(&self, act: Act) -> Result<(), ActError> {
        let stage = &self.stage;
        let partner = &stage.partner;
        *lock(&self.outdated) = None;
        match act {
            Act::Publish => {
                let first = stage.published().await?.ok_or(ActError::NotPublished)?;
                Ok(stage.federate_partner(&first).await?)
            }
            Act::Federate => Ok(stage.federate(&partner.server_id()?).await?),
            Act::PartnerPrepares => Ok(partner.prepare_authority().await?),
            Act::PartnerActivates => {
                let (id, svid) = partner.workload(WORKLOAD)?;
                partner.activate_authority().await?;
                *lock(&self.outdated) = Some((id, svid.der));
                Ok(())
            }
            Act::Rotate => Ok(stage.rotate().await?),
            Act::AwaitActivation => Ok(()),
            Act::ServeOldCopy => Ok(partner.serve_instead(stage.old_copy.clone()).await?),
            Act::PartnerRevokes => Ok(partner.revoke_authorities().await?),
            Act::EndTrust => Ok(stage.delete_federation().await?),
        }
    }
}

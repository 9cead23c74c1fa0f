//! The steps of the tour, in order.

use super::{
    Tour,
    expect::{AnswerKind, Expected, Which},
    stage::{BRANCH, HOME, WORKLOAD},
};
use crate::{demo::tour::walk, k8s::api_error::ApiError, runtime::lock::lock};

pub type Step = walk::Step<Act, Expected>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Reviews a token of each cluster.
    Review,
    /// Reviews one that no cluster signed.
    Forge,
    /// Deletes the workload's account in the other cluster.
    DeleteAccount,
    /// Makes it again, and lets that cluster sign with another key.
    RotateKey,
    /// Waits until our own credential is renewed.
    AwaitRenewal,
    /// Stops that cluster.
    StopBranch,
}

impl Act {
    /// The tokens that the step reviews.
    pub fn reviewed(self) -> &'static [Which] {
        match self {
            Self::Forge => &[Which::Forged],
            Self::AwaitRenewal => &[Which::Branch],
            _ => &[Which::Home, Which::Branch],
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ActError {
    #[error(transparent)]
    Call(#[from] ApiError),
    #[error("the signing key could not be rotated")]
    Key,
}

const OF_HOME: (Which, AnswerKind, &[&str]) = (Which::Home, AnswerKind::Authenticated, &[HOME]);
const OF_BRANCH: (Which, AnswerKind, &[&str]) =
    (Which::Branch, AnswerKind::Authenticated, &[BRANCH]);

pub fn all() -> Vec<Step> {
    let lines = |commands: &[&str]| commands.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    let step = |title, commands: &[&str], act, answers| Step {
        title,
        commands: lines(commands),
        act,
        expected: Expected { answers, is_renewed: false },
    };
    vec![
        step(
            "A token of each cluster: one endpoint knows whose each is, and asks that cluster alone",
            &[
                "trustplane review --config clusters.yaml --serve-cert-file tls.crt --serve-key-file tls.key",
                "# A service sends its TokenReviews there. Both clusters have the same issuer.",
                "kubectl --kubeconfig review.kubeconfig create -f tokenreview.yaml -o yaml",
            ],
            Act::Review,
            &[OF_HOME, OF_BRANCH],
        ),
        step(
            "A forged token is refused, and no cluster ever sees it",
            &["# Claims of an administrator, with the signature of another token."],
            Act::Forge,
            &[(Which::Forged, AnswerKind::Refused, &[])],
        ),
        step(
            "The account is deleted in its cluster: its token is refused with the next review",
            &["kubectl --context branch -n shop delete serviceaccount cart"],
            Act::DeleteAccount,
            &[OF_HOME, (Which::Branch, AnswerKind::Refused, &[BRANCH])],
        ),
        step(
            "That cluster signs with a new key: the first token that has it brings the key",
            &[
                "kubectl --context branch -n shop create serviceaccount cart",
                "# kube-apiserver is restarted there with another --service-account-signing-key-file.",
            ],
            Act::RotateKey,
            &[OF_HOME, OF_BRANCH],
        ),
        Step {
            title: "Our own token for that cluster would have lived a year; a short one took its place",
            commands: lines(&[
                "# trustplane review renews it from now on, and keeps it in a Secret.",
            ]),
            act: Act::AwaitRenewal,
            expected: Expected { answers: &[OF_BRANCH], is_renewed: true },
        },
        step(
            "The cluster is down: that is no verdict about its tokens, and nobody else waits",
            &["# The API server of branch stops."],
            Act::StopBranch,
            &[OF_HOME, (Which::Branch, AnswerKind::Unanswered, &[])],
        ),
    ]
}

impl Tour {
    pub(super) async fn act(&self, act: Act) -> Result<(), ActError> {
        let branch = &self.stage.branch;
        *lock(&self.reviewed) = act.reviewed();
        match act {
            Act::Review | Act::Forge | Act::AwaitRenewal => Ok(()),
            Act::DeleteAccount => Ok(branch.delete_account(WORKLOAD).await?),
            Act::RotateKey => {
                branch.create_account(WORKLOAD).await?;
                branch.api.rotate_signing_key().map_err(|_| ActError::Key)?;
                let token = branch.token(WORKLOAD, 3600).await?;
                lock(&self.stage.tokens).branch = token;
                Ok(())
            }
            Act::StopBranch => {
                branch.stop();
                Ok(())
            }
        }
    }
}

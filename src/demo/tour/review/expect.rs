//! Compares the expectation of a step with the observation. Pure.

use serde::Serialize;

/// What a service is told of a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Authenticated {
        user: String,
        cluster: String,
    },
    /// A verdict: the token is no good.
    Refused {
        error: String,
    },
    /// No verdict: the cluster could not be asked.
    Unanswered {
        code: u16,
        retry_after: Option<String>,
    },
}

/// The same in short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerKind {
    Authenticated,
    Refused,
    Unanswered,
}

impl Answer {
    fn kind(&self) -> AnswerKind {
        match self {
            Self::Authenticated { .. } => AnswerKind::Authenticated,
            Self::Refused { .. } => AnswerKind::Refused,
            Self::Unanswered { .. } => AnswerKind::Unanswered,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Which {
    Home,
    Branch,
    /// The claims of an administrator, under the signature of another token.
    Forged,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answered {
    pub token: Which,
    pub outcome: Answer,
    /// The clusters that received the token.
    pub received_by: Vec<&'static str>,
}

/// Our own token for the other cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OwnCredential {
    /// Whether it is the one that trustplane made, and not the first, which lies in a file.
    pub is_renewed: bool,
    /// In seconds, from its beginning to its end.
    pub lives: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Seen {
    pub answers: Vec<Answered>,
    pub credential: Option<OwnCredential>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The tokens to review, what is told of each, and who receives it.
    pub answers: &'static [(Which, AnswerKind, &'static [&'static str])],
    pub is_renewed: bool,
}

impl Expected {
    pub fn differences(&self, seen: &Seen) -> Vec<String> {
        let mut differences = Vec::new();
        for ((which, kind, received_by), answered) in self.answers.iter().zip(&seen.answers) {
            if answered.token != *which || answered.outcome.kind() != *kind {
                differences.push(format!("the token of {which:?} should be {kind:?}"));
            }
            if answered.received_by != *received_by {
                differences.push(match received_by {
                    [] => format!("no cluster should receive the token of {which:?}"),
                    names => format!("{} alone should receive it", names.join(" and ")),
                });
            }
        }
        if self.is_renewed && !seen.credential.as_ref().is_some_and(|it| it.is_renewed) {
            differences.push("our credential should be renewed".to_owned());
        }
        differences
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn seen() -> Seen {
        let outcome = Answer::Authenticated {
            user: "system:serviceaccount:shop:cart".to_owned(),
            cluster: "branch".to_owned(),
        };
        let answers = vec![Answered { token: Which::Branch, outcome, received_by: vec!["branch"] }];
        Seen { answers, credential: Some(OwnCredential { is_renewed: true, lives: 600 }) }
    }

    const EXPECTED: Expected = Expected {
        answers: &[(Which::Branch, AnswerKind::Authenticated, &["branch"])],
        is_renewed: true,
    };

    #[test]
    fn what_was_expected_has_no_difference() {
        assert_eq!(EXPECTED.differences(&seen()), Vec::<String>::new());
    }

    #[test]
    fn another_verdict_another_receiver_and_an_old_credential_are_told() {
        let mut other = seen();
        other.answers[0].outcome = Answer::Refused { error: String::new() };
        other.answers[0].received_by = vec!["home", "branch"];
        other.credential = None;
        assert_eq!(
            EXPECTED.differences(&other),
            [
                "the token of Branch should be Authenticated",
                "branch alone should receive it",
                "our credential should be renewed",
            ]
        );
    }
}

//! `.status.certificate`: three conditions, exactly one True where the router terminates TLS. Pure.

use std::{
    borrow::Cow,
    hash::{DefaultHasher, Hash, Hasher},
};

use chrono::{DateTime, SubsecRound, Utc};

use crate::{
    api::route::CertificateCondition,
    inject::decide::state::{Reason, State, Verdict},
};

/// One condition, reduced to what a comparison needs: every Route has three.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedCondition {
    /// None if it is not ours; so is the reason.
    state: Option<State>,
    /// None where it is neither True nor False.
    holds: Option<bool>,
    pub reason: Option<Reason>,
    /// Of the texts.
    digest: u64,
    since: Option<DateTime<Utc>>,
}

impl PublishedCondition {
    pub fn read(conditions: &[CertificateCondition]) -> Box<[Self]> {
        conditions.iter().map(Self::of).collect()
    }

    fn of(condition: &CertificateCondition) -> Self {
        let CertificateCondition { r#type, status, reason, message, last_transition_time } =
            condition;
        Self {
            state: State::ALL.iter().copied().find(|state| state.as_str() == r#type),
            holds: match &**status {
                "True" => Some(true),
                "False" => Some(false),
                _ => None,
            },
            reason: Reason::ALL.iter().copied().find(|ours| ours.as_str() == reason),
            digest: digest([r#type, status, reason, message]),
            since: *last_transition_time,
        }
    }
}

/// The conditions for this verdict, unless exactly these are published already.
pub fn unless_published(
    verdict: &Verdict,
    published: &[PublishedCondition],
    now: DateTime<Utc>,
) -> Option<Vec<CertificateCondition>> {
    let wanted: Vec<_> =
        State::ALL.iter().map(|&state| condition(state, verdict, published, now)).collect();
    (*PublishedCondition::read(&wanted) != *published).then_some(wanted)
}

/// Whether the conditions publish this verdict, word for word.
pub fn is_published(published: &[PublishedCondition], verdict: &Verdict) -> bool {
    // The time plays no part: a condition that only lacks it is rewritten, but was published.
    State::ALL.iter().all(|&state| {
        let reason = verdict.reason.as_str();
        let words = [state.as_str(), status(state, verdict), reason, message(state, verdict)];
        published.iter().any(|it| it.digest == digest(words))
    })
}

/// Whether the conditions have this state and reason, whatever the message.
pub fn has(published: &[PublishedCondition], state: Option<State>, reason: Reason) -> bool {
    State::ALL.iter().all(|&each| {
        let holds = Some(state == Some(each));
        published
            .iter()
            .any(|it| it.state == Some(each) && it.holds == holds && it.reason == Some(reason))
    })
}

fn digest(words: [&str; 4]) -> u64 {
    let mut hasher = DefaultHasher::new();
    words.hash(&mut hasher);
    hasher.finish()
}

fn condition(
    state: State,
    verdict: &Verdict,
    published: &[PublishedCondition],
    now: DateTime<Utc>,
) -> CertificateCondition {
    let status = status(state, verdict);
    let unchanged_since = published
        .iter()
        .find(|it| it.state == Some(state) && it.holds == Some(status == "True"))
        .and_then(|it| it.since);
    CertificateCondition {
        r#type: Cow::Borrowed(state.as_str()),
        status: Cow::Borrowed(status),
        reason: Cow::Borrowed(verdict.reason.as_str()),
        message: message(state, verdict).into(),
        // The API keeps whole seconds; a finer time would come back changed and be written again.
        last_transition_time: unchanged_since.or_else(|| Some(now.trunc_subsecs(0))),
    }
}

fn status(state: State, verdict: &Verdict) -> &'static str {
    if verdict.state == Some(state) { "True" } else { "False" }
}

/// The condition that is True explains; where none is, each does.
fn message(state: State, verdict: &Verdict) -> &str {
    if verdict.state.is_none_or(|holds| holds == state) { &verdict.message } else { "" }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;
    use crate::inject::decide::messages;

    fn read(conditions: &[CertificateCondition]) -> Box<[PublishedCondition]> {
        PublishedCondition::read(conditions)
    }

    fn noon() -> DateTime<Utc> {
        "2026-03-01T12:00:00Z".parse().unwrap()
    }

    fn later() -> DateTime<Utc> {
        noon() + TimeDelta::hours(1)
    }

    fn brief(conditions: &[CertificateCondition]) -> Vec<(&str, &str, DateTime<Utc>)> {
        let time = |it: &CertificateCondition| it.last_transition_time.unwrap();
        conditions.iter().map(|it| (&*it.r#type, &*it.status, time(it))).collect()
    }

    #[test]
    fn three_conditions_are_said_and_the_one_that_is_true_explains() {
        let said = unless_published(&messages::custom(), &[], noon()).unwrap();
        let expected = [
            ("Default", "False", noon()),
            ("Custom", "True", noon()),
            ("Managed", "False", noon()),
        ];
        assert_eq!(brief(&said), expected);
        assert!(said.iter().all(|it| it.reason == "CertificateInRoute"));
        let messages: Vec<_> = said.iter().map(|it| &*it.message).collect();
        assert_eq!(messages, ["", messages::custom().message.as_str(), ""]);
    }

    #[test]
    fn a_condition_that_differs_in_any_word_is_another() {
        let said = unless_published(&messages::custom(), &[], noon()).unwrap().remove(1);
        let with = |change: fn(&mut CertificateCondition)| {
            let mut other = said.clone();
            change(&mut other);
            PublishedCondition::of(&other)
        };
        assert_eq!(with(|_| {}), PublishedCondition::of(&said));
        let others = [
            with(|it| it.r#type = "Another".into()),
            with(|it| it.status = "Unknown".into()),
            with(|it| it.reason = "Another".into()),
            with(|it| it.message = "Another".into()),
            with(|it| it.last_transition_time = None),
        ];
        assert!(others.iter().all(|other| *other != PublishedCondition::of(&said)), "{others:?}");
    }

    #[test]
    fn a_condition_that_was_neither_true_nor_false_gets_a_new_time() {
        let mut said = unless_published(&messages::custom(), &[], noon()).unwrap();
        said[0].status = "Unknown".into();
        let again = unless_published(&messages::custom(), &read(&said), later()).unwrap();
        assert_eq!(again[0].last_transition_time, Some(later()));
        assert_eq!(again[1].last_transition_time, Some(noon()));
    }

    #[test]
    fn what_is_remembered_of_a_condition_takes_less_room_than_its_words() {
        assert!(size_of::<PublishedCondition>() <= 32, "{}", size_of::<PublishedCondition>());
    }

    #[test]
    fn where_the_router_serves_no_certificate_none_is_true_and_each_explains() {
        let said = unless_published(&messages::passthrough(), &[], noon()).unwrap();
        assert!(said.iter().all(|it| it.status == "False"));
        assert!(said.iter().all(|it| *it.message == *messages::passthrough().message));
    }

    #[test]
    fn what_is_said_is_not_said_again() {
        let said = unless_published(&messages::custom(), &[], noon()).unwrap();
        assert_eq!(unless_published(&messages::custom(), &read(&said), later()), None);
        assert!(is_published(&read(&said), &messages::custom()));
        assert!(!is_published(&read(&said), &messages::no_certificate()));
        assert!(!is_published(&[], &messages::custom()));
    }

    #[test]
    fn a_time_moves_only_with_its_own_status() {
        let custom = unless_published(&messages::custom(), &[], noon()).unwrap();
        let default =
            unless_published(&messages::no_certificate(), &read(&custom), later()).unwrap();
        let expected = [
            ("Default", "True", later()),
            ("Custom", "False", later()),
            ("Managed", "False", noon()),
        ];
        assert_eq!(brief(&default), expected);
    }

    #[test]
    fn another_reason_or_message_moves_no_time() {
        let said = unless_published(&messages::custom(), &[], noon()).unwrap();
        let verdict = Verdict {
            state: Some(State::Custom),
            reason: Reason::SecretNotFound,
            message: "gone".into(),
        };
        let again = unless_published(&verdict, &read(&said), later()).unwrap();
        assert_eq!(brief(&again), brief(&said));
        assert!(again.iter().all(|it| it.reason == "SecretNotFound"));
    }

    #[test]
    fn times_are_whole_seconds_because_the_api_keeps_no_more() {
        let time = noon() + TimeDelta::milliseconds(999);
        let said = unless_published(&messages::custom(), &[], time).unwrap();
        assert_eq!(said[0].last_transition_time, Some(noon()));
        let stored: Vec<CertificateCondition> =
            serde_json::from_str(&serde_json::to_string(&said).unwrap()).unwrap();
        assert_eq!(unless_published(&messages::custom(), &read(&stored), later()), None);
    }

    #[test]
    fn conditions_without_a_time_get_one_though_they_were_said() {
        let mut said = unless_published(&messages::custom(), &[], noon()).unwrap();
        said[1].last_transition_time = None;
        assert!(is_published(&read(&said), &messages::custom()));
        let again = unless_published(&messages::custom(), &read(&said), later()).unwrap();
        assert_eq!(again[1].last_transition_time, Some(later()));
        assert_eq!(again[0].last_transition_time, Some(noon()));
    }

    #[test]
    fn conditions_that_lack_one_or_stand_in_another_order_are_put_right_with_their_times() {
        let said = unless_published(&messages::custom(), &[], noon()).unwrap();
        let reversed: Vec<_> = said.iter().rev().cloned().collect();
        let ordered = unless_published(&messages::custom(), &read(&reversed), later());
        assert_eq!(ordered, Some(said.clone()));
        let again = unless_published(&messages::custom(), &read(&said[..2]), later()).unwrap();
        assert_eq!(brief(&again)[..2], brief(&said)[..2]);
        assert_eq!(again[2].last_transition_time, Some(later()));
    }
}

//! When our credential for a cluster is renewed.

use chrono::{DateTime, TimeDelta, Utc};

/// As `renewal` in the configuration says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The life that is asked for.
    pub token_duration: TimeDelta,
    /// How long before its end a token is renewed.
    pub renew_before: TimeDelta,
}

/// The time that a credential is valid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    pub issued: DateTime<Utc>,
    pub expires: DateTime<Utc>,
}

impl Life {
    fn length(self) -> TimeDelta {
        self.expires - self.issued
    }
}

/// When to ask for the next one.
///
/// A token that lives longer than was asked for is a first one that somebody made by hand, perhaps for a year:
/// it is replaced at once. Where the server grants less than `renew_before`, as clouds do, that would renew
/// without end, so half of what it gave counts there.
pub fn renew_at(life: Life, policy: Policy) -> DateTime<Utc> {
    if life.length() > policy.token_duration {
        return life.issued;
    }
    life.expires - policy.renew_before.min(life.length() / 2)
}

#[cfg(test)]
mod tests {
    use super::{super::testing::noon, *};

    const POLICY: Policy =
        Policy { token_duration: TimeDelta::hours(168), renew_before: TimeDelta::hours(48) };

    fn life(length: TimeDelta) -> Life {
        Life { issued: noon(), expires: noon() + length }
    }

    #[test]
    fn a_token_is_renewed_some_time_before_its_end() {
        let at = renew_at(life(TimeDelta::hours(168)), POLICY);
        assert_eq!(at, noon() + TimeDelta::hours(120));
    }

    #[test]
    fn a_token_that_lives_longer_than_was_asked_for_is_replaced_at_once() {
        assert_eq!(renew_at(life(TimeDelta::days(365)), POLICY), noon());
    }

    #[test]
    fn a_token_that_the_server_shortened_is_renewed_at_half_of_its_life() {
        assert_eq!(renew_at(life(TimeDelta::hours(24)), POLICY), noon() + TimeDelta::hours(12));
        assert_eq!(renew_at(life(TimeDelta::hours(90)), POLICY), noon() + TimeDelta::hours(45));
    }

    #[test]
    fn the_next_renewal_is_never_due_at_once_after_one() {
        for minutes in 10..20_000 {
            let life = life(TimeDelta::minutes(minutes));
            let at = renew_at(life, POLICY);
            if life.length() <= POLICY.token_duration {
                assert!(at - life.issued >= life.length() / 2 && at < life.expires, "{minutes}");
            }
        }
    }
}

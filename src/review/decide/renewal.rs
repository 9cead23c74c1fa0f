//! Which credential for a cluster is used, and when it is renewed.

use chrono::{DateTime, TimeDelta, Utc};

use super::{
    credential::{Credential, Life},
    state::Saved,
};

/// As `renewal` in the configuration says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The life that is asked for.
    pub token_duration: TimeDelta,
    /// How long before its end a token is renewed.
    pub renew_before: TimeDelta,
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

/// Where the credential in use is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The file at `token_path`.
    File,
    /// Our Secret.
    Secret,
}

/// The credentials for one cluster.
#[derive(Clone, Debug, Default)]
pub struct Held {
    /// In the file at `token_path`.
    pub file: Option<Credential>,
    /// In our Secret.
    pub saved: Option<Saved>,
}

impl Held {
    pub fn of(&self, source: Source) -> Option<&Credential> {
        match source {
            Source::File => self.file.as_ref(),
            Source::Secret => self.saved.as_ref().map(|it| &it.credential),
        }
    }

    /// The newest counts, but one that has ended does not if another has not: after weeks without us, the first
    /// token may be the one that is still good.
    pub fn used(&self, now: DateTime<Utc>) -> Option<Source> {
        let (file, saved) = match (&self.file, &self.saved) {
            (None, None) => return None,
            (Some(_), None) => return Some(Source::File),
            (None, Some(_)) => return Some(Source::Secret),
            (Some(file), Some(saved)) => (file, saved),
        };
        Some(match (file.has_ended(now), saved.credential.has_ended(now)) {
            (true, false) => Source::Secret,
            (false, true) => Source::File,
            // By whatever clock it was issued: the other was made from it.
            _ if file.token.fingerprint() == saved.origin => Source::Secret,
            _ if file.life.issued >= saved.credential.life.issued => Source::File,
            _ => Source::Secret,
        })
    }

    /// What somebody should know about the two.
    fn notice(&self) -> Option<Notice> {
        let (file, saved) = (self.file.as_ref()?, &self.saved.as_ref()?.credential);
        if file.account != saved.account {
            let [file, secret] = [file, saved].map(|it| it.account.to_string());
            return Some(Notice::OtherAccount { file, secret });
        }
        (file.issuer != saved.issuer).then(|| {
            let [file, secret] = [file, saved].map(|it| it.issuer.clone());
            Notice::OtherIssuer { file, secret }
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Notice {
    #[error("the token in the file is of account {file}, and that in the Secret of {secret}")]
    OtherAccount { file: String, secret: String },
    #[error("the token in the file is of issuer {file}, and that in the Secret of {secret}")]
    OtherIssuer { file: String, secret: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Now,
    At(DateTime<Utc>),
}

/// What is next for one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Next {
    pub used: Source,
    pub renewal: When,
    pub notice: Option<Notice>,
}

/// None if there is no credential.
pub fn next_step(held: &Held, policy: Policy, now: DateTime<Utc>) -> Option<Next> {
    let used = held.used(now)?;
    let at = match (used, &held.file, &held.saved) {
        // Others may not see the file yet, and the Secret shall hold what works.
        (Source::File, _, Some(_)) => now,
        (Source::File, Some(file), None) => renew_at(file.life, policy),
        (_, _, Some(saved)) => renew_at(saved.credential.life, granted(saved, policy)),
        (_, _, None) => return None,
    };
    let renewal = if at <= now { When::Now } else { When::At(at) };
    Some(Next { used, renewal, notice: held.notice() })
}

/// What a server grants beyond what was asked for is no reason to ask again.
fn granted(saved: &Saved, policy: Policy) -> Policy {
    match saved.asked <= policy.token_duration {
        true => Policy { token_duration: TimeDelta::MAX, ..policy },
        false => policy,
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{Issuer, claims, noon},
        *,
    };

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

    fn credential(name: &str, issued: i64, length: TimeDelta) -> Credential {
        let mut claims = claims();
        claims["sub"] = format!("system:serviceaccount:shop:{name}").into();
        claims["kubernetes.io"]["serviceaccount"]["name"] = name.into();
        claims["jti"] = format!("{issued} {length}").into();
        claims["iat"] = (noon().timestamp() + issued).into();
        claims["exp"] = (noon().timestamp() + issued + length.num_seconds()).into();
        Credential::read(&Issuer::p256("a").token(&claims)).unwrap()
    }

    fn saved(origin: &Credential, issued: i64, length: TimeDelta) -> Saved {
        let credential = credential("cart", issued, length);
        let (asked, origin) = (POLICY.token_duration, origin.token.fingerprint());
        Saved { credential, asked, origin }
    }

    fn next(file: Option<&Credential>, saved: Option<&Saved>, now: i64) -> Option<(Source, When)> {
        let held = Held { file: file.cloned(), saved: saved.cloned() };
        let next = next_step(&held, POLICY, noon() + TimeDelta::seconds(now))?;
        Some((next.used, next.renewal))
    }

    const WEEK: TimeDelta = TimeDelta::hours(168);
    const YEAR: TimeDelta = TimeDelta::days(365);

    fn at(hours: i64) -> When {
        When::At(noon() + TimeDelta::hours(hours))
    }

    #[test]
    fn a_first_token_is_used_from_the_file_until_it_was_renewed() {
        let first = credential("cart", 0, YEAR);
        let second = saved(&first, 1, TimeDelta::hours(168));
        assert_eq!(next(Some(&first), None, 0), Some((Source::File, When::Now)));
        let (used, when) = next(Some(&first), Some(&second), 1).unwrap();
        assert_eq!(used, Source::Secret);
        assert_eq!(when, When::At(noon() + TimeDelta::hours(120) + TimeDelta::seconds(1)));
        assert_eq!(next(None, Some(&second), 1), Some((used, when)));
        assert_eq!(next(None, None, 0), None);
    }

    #[test]
    fn a_newer_file_wins_and_is_renewed_at_once() {
        let first = credential("cart", 0, WEEK);
        let second = saved(&first, 60, WEEK);
        for issued in [60, 61] {
            let newer = credential("cart", issued, WEEK);
            assert_eq!(next(Some(&newer), Some(&second), 99), Some((Source::File, When::Now)));
        }
        let older = credential("cart", 59, YEAR);
        assert_eq!(next(Some(&older), Some(&second), 99).unwrap().0, Source::Secret);
    }

    #[test]
    fn a_file_that_the_secret_was_renewed_from_is_not_newer_whatever_the_clocks_said() {
        for issued in [0, 60, 9999] {
            let first = credential("cart", issued, YEAR);
            let second = saved(&first, 60, WEEK);
            assert_eq!(next(Some(&first), Some(&second), 99).unwrap().0, Source::Secret);
        }
    }

    #[test]
    fn a_first_token_that_is_still_good_counts_once_a_renewed_one_has_ended() {
        let (first, now) = (credential("cart", 0, YEAR), WEEK.num_seconds() * 3);
        let second = saved(&first, 60, WEEK);
        assert_eq!(next(Some(&first), Some(&second), now), Some((Source::File, When::Now)));
        let short = credential("cart", 0, WEEK);
        let second = saved(&short, 60, WEEK);
        assert_eq!(next(Some(&short), Some(&second), now), Some((Source::Secret, When::Now)));
    }

    #[test]
    fn what_the_server_grants_is_renewed_once_and_not_again_and_again() {
        let first = credential("cart", 0, YEAR);
        for (hours, renewed) in [(24, 12), (168, 120), (8760, 8712)] {
            let second = saved(&first, 0, TimeDelta::hours(hours));
            assert_eq!(next(Some(&first), Some(&second), 1).unwrap().1, at(renewed), "{hours}");
        }
        // But what was asked for when the configuration said longer is replaced.
        let mut second = saved(&first, 0, YEAR);
        second.asked = YEAR;
        assert_eq!(next(Some(&first), Some(&second), 1), Some((Source::Secret, When::Now)));
    }

    #[test]
    fn a_file_of_another_account_is_told() {
        let (first, other) = (credential("cart", 0, WEEK), credential("till", 90, WEEK));
        let held = Held { file: Some(other), saved: Some(saved(&first, 60, WEEK)) };
        let notice = next_step(&held, POLICY, noon()).unwrap().notice.unwrap().to_string();
        assert!(notice.contains("shop/till") && notice.contains("shop/cart"), "{notice}");
    }
}

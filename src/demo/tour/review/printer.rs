//! Prints the tour in the same blocks as the tour of `inject`. Pure: text in, text out.

use super::expect::{Answer, Answered, Seen, Which};
use crate::{
    demo::tour::{printer::Rows, walk::WalkedStep},
    runtime::terminal::{BAD, FAINT, GOOD, WARNING},
};

const HOUR: i64 = 60 * 60;

/// The text at the end of a step.
pub fn ends(step: &WalkedStep<Seen>, width: usize) -> String {
    let mut rows = Rows::new(step.holds(), step.seconds, width);
    for Answered { token, outcome, received_by } in &step.seen.answers {
        let label = match token {
            Which::Home => "of home",
            Which::Branch => "of branch",
            Which::Forged => "forged",
        };
        let (style, text) = match outcome {
            Answer::Authenticated { user, cluster } => {
                (GOOD, format!("authenticated: {user}, cluster {cluster}"))
            }
            Answer::Refused { error } => (WARNING, format!("not authenticated: {error}")),
            Answer::Unanswered { code, retry_after } => {
                let again = retry_after.as_ref().map(|it| format!(", Retry-After {it}"));
                (WARNING, format!("no verdict: HTTP {code}{}", again.unwrap_or_default()))
            }
        };
        rows.add(label, style, &text);
        match &received_by[..] {
            [] => rows.add("received", FAINT, "by no cluster"),
            names => rows.add("received", FAINT, &format!("by {}", names.join(" and "))),
        }
    }
    if let Some(credential) = &step.seen.credential {
        let life = match credential.lives {
            days @ 172_800.. => format!("{} days", days / (24 * HOUR)),
            minutes => format!("{} minutes", minutes / 60),
        };
        let (style, text) = match credential.is_renewed {
            true => (GOOD, format!("renewed by trustplane, lives {life}")),
            false => (FAINT, format!("the first one, from a file, lives {life}")),
        };
        rows.add("our token", style, &text);
    }
    for difference in &step.differences {
        rows.add("expected", BAD, difference);
    }
    rows.text
}

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;

    use super::{super::expect::tests::seen, *};
    use crate::{
        demo::tour::walk::testing::{check_hostile_block, walked},
        runtime::printable::HOSTILE,
    };

    #[test]
    fn a_block_shows_the_answer_who_received_the_token_and_our_own_credential() {
        let expected = "   ✓ 0.50 s   of branch  authenticated: system:serviceaccount:shop:cart, cluster branch
              received   by branch
              our token  renewed by trustplane, lives 10 minutes
";
        assert_eq!(strip_str(&ends(&walked(seen(), &[]), 100)).to_string(), expected);
    }

    #[test]
    fn a_refusal_and_an_outage_are_told_apart() {
        let mut seen = seen();
        seen.answers[0].outcome = Answer::Refused { error: "invalid bearer token".to_owned() };
        let shown = strip_str(&ends(&walked(seen.clone(), &[]), 100)).to_string();
        assert!(shown.contains("not authenticated: invalid bearer token\n"), "{shown}");
        let retry_after = Some("1".to_owned());
        seen.answers[0].outcome = Answer::Unanswered { code: 503, retry_after };
        seen.answers[0].received_by.clear();
        let shown = strip_str(&ends(&walked(seen, &[]), 100)).to_string();
        assert!(shown.contains("no verdict: HTTP 503, Retry-After 1\n"), "{shown}");
        assert!(shown.contains("by no cluster\n"), "{shown}");
    }

    #[test]
    fn a_block_of_any_observation_is_harmless_and_breaks_no_word() {
        let mut seen = seen();
        seen.answers[0].outcome = Answer::Refused { error: HOSTILE.to_owned() };
        check_hostile_block(&seen, ends);
    }
}

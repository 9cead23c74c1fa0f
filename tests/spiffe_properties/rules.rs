//! Rules about who may join, next to a slow reading of the same words.

use proptest::{prelude::*, sample::Index};
use trustplane::spiffe::{id::SpiffeId, pattern::IdPattern};

use crate::check;

/// What docs/spiffe.md says of a rule, letter by letter. None if it is no rule.
fn reading(rule: &str, id: &str) -> Option<bool> {
    let (trust_domain, path) = parts(rule)?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    let is_name = |text: &str| !text.is_empty() && text.len() <= 255 && text.chars().all(is_plain);
    let last = path.len().checked_sub(1)?;
    let is_segment = |(at, segment): (usize, &&str)| {
        let is_rest = *segment == "**" && at == last;
        let stars_stand_alone = !segment.contains("**");
        let is_text = segment.chars().all(|c| is_plain(c) || c == '*');
        is_rest || stars_stand_alone && is_text && !["", ".", ".."].contains(segment)
    };
    let is_rule =
        is_name(trust_domain) && path.iter().enumerate().all(is_segment) && rule.len() <= 2048;
    if !is_rule {
        return None;
    }
    let Some((other, found)) = parts(id) else { return Some(false) };
    let is_below = match path.split_last() {
        Some((&"**", above)) if found.len() > above.len() => {
            above.iter().zip(&found).all(|(rule, segment)| stands_for(rule, segment))
        }
        Some((&"**", _)) => false,
        _ => {
            found.len() == path.len()
                && path.iter().zip(&found).all(|(rule, segment)| stands_for(rule, segment))
        }
    };
    Some(is_below && trust_domain.eq_ignore_ascii_case(other))
}

/// Trust domain and segments of a path that is there.
fn parts(text: &str) -> Option<(&str, Vec<&str>)> {
    let scheme = text.get(..9).filter(|it| it.eq_ignore_ascii_case("spiffe://"))?;
    let (trust_domain, path) = text[scheme.len()..].split_once('/')?;
    Some((trust_domain, path.split('/').collect()))
}

/// Tries every length for every star.
fn stands_for(rule: &str, segment: &str) -> bool {
    let Some(first) = rule.chars().next() else { return segment.is_empty() };
    match first {
        '*' => (0..=segment.len()).any(|length| stands_for(&rule[1..], &segment[length..])),
        letter => segment
            .strip_prefix(letter)
            .is_some_and(|rest| stands_for(&rule[letter.len_utf8()..], rest)),
    }
}

/// An ID of few letters, and a rule that is made of it or of another one.
fn rule_and_id() -> impl Strategy<Value = (String, String)> {
    let id = || {
        let trust_domain = prop_oneof![8 => Just("td"), 1 => Just("TD"), 1 => Just("td.td")];
        (trust_domain, "(/[ab.-]{1,5}){0,4}").prop_map(|(td, path)| format!("spiffe://{td}{path}"))
    };
    let other = prop_oneof![6 => Just(None), 1 => id().prop_map(Some)];
    let count = prop_oneof![1 => Just(0), 6 => 1..4_usize, 1 => 4..8_usize];
    let changes = count.prop_flat_map(|count| prop::collection::vec(change(), count));
    (id(), other, changes).prop_map(|(id, other, changes)| {
        let mut rule = other.unwrap_or_else(|| id.clone());
        changes.iter().for_each(|change| change.apply(&mut rule));
        (rule, id)
    })
}

#[derive(Clone, Debug)]
enum Change {
    /// A star in the place of some letters of a segment.
    Star(Index, usize),
    /// Two stars in the place of everything behind a slash.
    Rest(Index),
    Put(Index, &'static str),
    Remove(Index),
}

fn change() -> impl Strategy<Value = Change> {
    let odd = ["*", "**", "/", "/*", "/**", "a", "..", "%2e", "?", "#", "ä", "A", ":", "@"];
    let at = any::<Index>;
    prop_oneof![
        12 => (at(), 0..5_usize).prop_map(|(at, length)| Change::Star(at, length)),
        3 => at().prop_map(Change::Rest),
        1 => (at(), prop::sample::select(odd.to_vec())).prop_map(|(at, odd)| Change::Put(at, odd)),
        1 => at().prop_map(Change::Remove),
    ]
}

impl Change {
    fn apply(&self, rule: &mut String) {
        let path = rule.match_indices('/').nth(2).map_or(rule.len(), |(at, _)| at + 1);
        let boundary = |at: usize| (at..=rule.len()).find(|at| rule.is_char_boundary(*at));
        match self {
            Self::Star(at, length) => {
                let start = path + at.index(rule.len() - path + 1);
                let segment = rule.get(start..).and_then(|it| it.split('/').next());
                let length = segment.map_or(0, |it| it.len().min(*length));
                if rule.is_char_boundary(start) && rule.is_char_boundary(start + length) {
                    rule.replace_range(start..start + length, "*");
                }
            }
            Self::Rest(at) => {
                let slashes: Vec<_> = rule.match_indices('/').map(|(at, _)| at).skip(2).collect();
                if !slashes.is_empty() {
                    rule.truncate(slashes[at.index(slashes.len())]);
                    rule.push_str("/**");
                }
            }
            Self::Put(at, text) => {
                if let Some(at) = boundary(at.index(rule.len() + 1)) {
                    rule.insert_str(at, text);
                }
            }
            Self::Remove(at) => {
                let at = boundary(at.index(rule.len() + 1)).filter(|at| *at < rule.len());
                if let Some(at) = at {
                    rule.remove(at);
                }
            }
        }
    }
}

#[test]
fn a_rule_allows_what_a_slow_reading_of_it_allows() {
    check(&rule_and_id(), |(rule, id)| {
        let (ours, expected) = (IdPattern::parse(&rule).ok(), reading(&rule, &id));
        prop_assert_eq!(ours.is_some(), expected.is_some());
        let (Some(pattern), Ok(id)) = (ours, SpiffeId::parse(&id)) else { return Ok(false) };
        let allows = pattern.matches(&id);
        prop_assert_eq!(Some(allows), expected);
        prop_assert!(!allows || id.trust_domain() == pattern.trust_domain());
        // As `status` and the audit log may show it.
        prop_assert_eq!(IdPattern::parse(&pattern.to_string()), Ok(pattern));
        Ok(allows)
    });
}

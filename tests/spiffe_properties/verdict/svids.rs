//! Promise: go-spiffe accepts every X.509-SVID and every JWT-SVID that we accept, for the same ID.
//!
//! The one difference that is allowed is that of IDs: upper case in a trust domain.

use std::collections::BTreeSet;

use serde_json::Value;
use testkit::spiffe_verdict::{self as question, SpiffeVerdict, is_ok};
use trustplane::spiffe::id::SpiffeId;

use super::{Difference::UpperCase, Tally, batches};
use crate::{svids, tokens};

/// Counts what both made of an input, and of the same with its ID in lower case.
fn compare(
    tally: &mut Tally,
    ours: Option<&SpiffeId>,
    answers: &[Value],
    input: impl FnOnce() -> String,
) {
    let (theirs, of_lower) = (&answers[0], &answers[1]);
    let Some(id) = ours else {
        return tally.count(if is_ok(theirs) { "we are stricter" } else { "both refuse" });
    };
    let agrees = |answer: &Value| is_ok(answer) && answer["id"] == id.to_string();
    if agrees(theirs) {
        tally.count("both accept");
    } else if !is_ok(theirs) && agrees(of_lower) {
        tally.differ(&BTreeSet::from([UpperCase]));
    } else {
        tally.findings.push(format!("{theirs}\n{}", input()));
    }
}

#[test]
fn go_spiffe_accepts_every_svid_that_we_accept() {
    let (mut verdict, mut tally) = (SpiffeVerdict::start(), Tally::default());
    for all in batches(svids::presented()) {
        let judged = all.iter().map(|presented| {
            let chain = presented.chain();
            let ours = svids::judge(&chain).ok().map(|(id, _)| id);
            let ask = |chain: &[_]| question::verify("td.test", &svids::DOCUMENT, chain);
            // Of what we refuse, lower case says nothing.
            let lower = ours.as_ref().map(|id| presented.with_id(id).chain());
            (ours, [ask(&chain), lower.map_or(Value::Null, |lower| ask(&lower))])
        });
        let (ours, questions): (Vec<_>, Vec<_>) = judged.unzip();
        let answers = verdict.ask_all(&questions.concat());
        for ((presented, ours), answers) in all.iter().zip(&ours).zip(answers.chunks(2)) {
            compare(&mut tally, ours.as_ref(), answers, || format!("{presented:?}"));
        }
    }
    tally.finish(&[UpperCase]);
}

#[test]
fn go_spiffe_accepts_every_jwt_svid_that_we_accept() {
    let (mut verdict, mut tally) = (SpiffeVerdict::start(), Tally::default());
    for all in batches(tokens::token()) {
        let judged = all.iter().map(|token| {
            let text = token.text();
            let ours = tokens::judge(&text).ok().map(|svid| svid.id);
            let ask = |text: &str| {
                question::validate("td.test", &tokens::DOCUMENT, text, tokens::AUDIENCE)
            };
            let lower = ours.as_ref().map(|id| token.with_subject(id));
            (ours, [ask(&text), lower.map_or(Value::Null, |lower| ask(&lower))])
        });
        let (ours, questions): (Vec<_>, Vec<_>) = judged.unzip();
        let answers = verdict.ask_all(&questions.concat());
        for ((token, ours), answers) in all.iter().zip(&ours).zip(answers.chunks(2)) {
            compare(&mut tally, ours.as_ref(), answers, || format!("{token:?}"));
        }
    }
    tally.finish(&[UpperCase]);
}

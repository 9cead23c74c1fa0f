//! Properties of every decision, for any Route, Secret, policy and time.
//!
//! `cases` generates them, `model` is a second, independent implementation of the table in
//! docs/inject.md, `writer` compares the requests of `apply.rs` with that model. No assertion
//! prints a Route, because its key would be in the log.

mod cases;
mod pool;
mod writer;

use std::{cell::RefCell, collections::HashSet, thread, time::Instant};

use chrono::{DateTime, SubsecRound, Utc};
use openssl::{pkey::PKey, x509::X509};
use proptest::{
    prelude::*,
    test_runner::{Config, RngSeed, TestCaseError, TestRunner},
};
use trustplane::{
    api::route::CertificateCondition,
    inject::decide::{
        facts::RouteFacts,
        messages::Notice,
        plan::{OnInvalid, Plan, StatusScope, event_if_still_true, plan},
        secret_state::SecretState,
        state::{Reason, State},
        write::Write,
    },
};

use cases::{Case, SECRET, cases};
use pool::POOL;
use testkit::route_table::{self as model, Model, Requested};

const CASES: u32 = 100_000;
const LEAST_PER_ROW: u32 = 1_000;
const ROWS: [&str; 15] =
    ["1", "2", "3", "4", "5", "6", "7", "7a", "8", "9", "10", "11", "12", "13", "14"];

/// Ten times as many with `make test-long`.
fn long() -> u32 {
    if std::env::var_os("TRUSTPLANE_LONG").is_some() { 10 } else { 1 }
}

fn runner(cases: u32) -> TestRunner {
    // The same cases in every run of `make test`, others in every long one.
    let long = std::env::var_os("TRUSTPLANE_LONG").map(|_| u64::from(std::process::id()));
    let given = std::env::var("TRUSTPLANE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.or(long).unwrap_or(20_260_101);
    println!("TRUSTPLANE_SEED={seed}");
    let rng_seed = RngSeed::Fixed(seed);
    TestRunner::new(Config { cases, rng_seed, failure_persistence: None, ..Config::default() })
}

/// A case, its plan, and the Route before and after the plan was applied.
struct Done<'a> {
    case: &'a Case,
    seen: &'a SecretState,
    requested: Requested<'a>,
    facts: RouteFacts,
    plan: Plan,
    before: Model,
    after: Model,
}

type Holds = Result<(), TestCaseError>;

/// State of one worker between cases.
#[derive(Default)]
struct Memory {
    met: [u32; ROWS.len()],
    read: HashSet<String>,
    matching: HashSet<(String, String)>,
}

#[test]
fn every_decision_keeps_every_promise_and_every_row_is_met_a_thousand_times() {
    let started = Instant::now();
    let workers = thread::available_parallelism().map_or(1, |cores| cores.get() as u32).min(8);
    let share = (CASES * long()).div_ceil(workers);

    let met = thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(move || check(share))).collect();
        let answers = workers.into_iter().map(|worker| worker.join().unwrap());
        answers.fold([0; ROWS.len()], |sum, met| std::array::from_fn(|row| sum[row] + met[row]))
    });

    let cases: u32 = met.iter().sum();
    println!("plan: {cases} cases in {:.1} s", started.elapsed().as_secs_f64());
    for (row, met) in ROWS.iter().zip(met) {
        println!("row {row:>2}: {met:6} cases");
    }
    assert!(cases >= CASES);
    let rare: Vec<_> = ROWS.iter().zip(met).filter(|(_, met)| *met < LEAST_PER_ROW).collect();
    assert!(rare.is_empty(), "rows {rare:?} were met less than {LEAST_PER_ROW} times");
}

/// Returns how often each row was met.
fn check(count: u32) -> [u32; ROWS.len()] {
    let memory = RefCell::new(Memory::default());
    let outcome = runner(count).run(&cases(), |case| {
        let memory = &mut *memory.borrow_mut();
        let seen = case.seen();
        let done = Done::of(&case, &seen);
        let row = ROWS.iter().position(|row| *row == done.plan.row).expect("a row of the table");
        memory.met[row] += 1;
        done.is_what_the_table_says()?;
        done.is_nothing_the_second_time()?;
        done.touches_no_other_field()?;
        done.injects_the_secrets_own_matching_pair(&mut memory.matching)?;
        done.spares_what_is_not_ours()?;
        done.says_one_state_and_since_when()?;
        done.leaves_alone_what_it_must()?;
        done.tells_nothing_of_a_key(&mut memory.read)?;
        done.keeps_the_last_good_pair_where_asked()
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
    memory.into_inner().met
}

impl<'a> Done<'a> {
    fn of(case: &'a Case, seen: &'a SecretState) -> Self {
        let before = case.model();
        let facts = before.facts();
        let plan = plan(&facts, seen, case.now, &case.policy);
        let after = before.after(plan.write, case.pair(), SECRET, plan.conditions.as_deref());
        Self { case, seen, requested: case.requested(seen), facts, plan, before, after }
    }

    fn is_what_the_table_says(&self) -> Holds {
        let (case, plan) = (self.case, &self.plan);
        prop_assert_eq!(plan.row, self.before.row(self.requested));
        let write = self.before.write(self.requested, case.now, &case.policy);
        prop_assert_eq!(plan.write, write, "in row {}", plan.row);
        let said = plan.verdict.as_ref().map(|verdict| (verdict.state, verdict.reason));
        prop_assert_eq!(said, self.expected_verdict(), "in row {}", plan.row);
        Ok(())
    }

    fn expected_verdict(&self) -> Option<(Option<State>, Reason)> {
        let waits = model::waits(self.requested, self.case.now, &self.case.policy);
        let keeps = model::keeps(self.requested, &self.case.policy);
        let holds_certificate = !self.before.certificate().is_empty();
        Some(match self.plan.row {
            "1" => return None,
            "2" => (None, Reason::RouteNotSecured),
            "3" => (None, Reason::PassthroughTermination),
            "4" => (Some(State::Custom), Reason::ExternalCertificate),
            "5" | "6" | "7" => (Some(State::Managed), Reason::SecretInjected),
            "7a" => (Some(State::Managed), Reason::SecretInvalidKeepingLast),
            "8" if waits => return None,
            "8" if keeps => (Some(State::Managed), Reason::SecretInvalidKeepingLast),
            "8" | "10" => (Some(State::Default), self.why_unusable()),
            "9" => (Some(State::Custom), self.why_unusable()),
            "12" => (Some(State::Custom), Reason::CertificateInRoute),
            "14" if holds_certificate => (Some(State::Custom), Reason::CertificateInRoute),
            _ => (Some(State::Default), Reason::NoCertificate),
        })
    }

    fn why_unusable(&self) -> Reason {
        match self.seen {
            _ if !self.requested.named => Reason::InvalidSecretName,
            SecretState::Missing { .. } => Reason::SecretNotFound,
            SecretState::WrongType(_) => Reason::SecretWrongType,
            SecretState::Invalid { .. } => Reason::SecretInvalid,
            SecretState::CaMismatch(_) => Reason::CACertificateMismatch,
            SecretState::Usable(_) => Reason::SecretInjected,
        }
    }

    fn is_nothing_the_second_time(&self) -> Holds {
        let decide =
            |route: &Model| plan(&route.facts(), self.seen, self.case.now, &self.case.policy);
        // Conditions are decided from the Route as the write left it.
        let written = self.before.after(self.plan.write, self.case.pair(), SECRET, None);
        let said = decide(&written);
        prop_assert_eq!(said.write, None, "row {} is followed by another write", self.plan.row);
        let again = decide(&written.after(None, None, SECRET, said.conditions.as_deref()));
        prop_assert!(again.is_nothing(), "row {} leads to {again:?}", self.plan.row);
        // Problems of a pair are reported once it is in the Route.
        if !matches!(self.plan.row, "6" | "7") {
            prop_assert_eq!(&again.verdict, &self.plan.verdict);
            prop_assert_eq!(&again.warnings, &self.plan.warnings);
        }
        let settled = match self.plan.row {
            "6" | "7" => "5",
            "8" if self.plan.write.is_some() => "10",
            "11" | "12" | "13" => "14",
            row => row,
        };
        prop_assert_eq!(again.row, settled);
        prop_assert!(again.event.is_none(), "something happened without a write");
        let later = self.plan.requeue_at.is_none_or(|time| time > self.case.now);
        prop_assert!(later, "looks again at once, and for ever");
        Ok(())
    }

    fn touches_no_other_field(&self) -> Holds {
        let (before, after) = (&self.before, &self.after);
        let same = before.without_our_fields() == after.without_our_fields();
        prop_assert!(same, "row {} changes a field of somebody else", self.plan.row);
        if self.plan.conditions.is_none() {
            prop_assert!(before.conditions() == after.conditions());
        }
        if self.plan.write.is_none() {
            prop_assert!(before.0["spec"] == after.0["spec"]);
            prop_assert!(before.0["metadata"] == after.0["metadata"]);
        }
        Ok(())
    }

    fn injects_the_secrets_own_matching_pair(
        &self,
        matching: &mut HashSet<(String, String)>,
    ) -> Holds {
        let (Some(Write::Inject(_) | Write::AddMarker(_)), Some(pair)) =
            (self.plan.write, self.requested.pair)
        else {
            return Ok(());
        };
        prop_assert!(self.after.holds(pair), "not verbatim what stands in the Secret");
        prop_assert!(self.after.is_ours(), "the note does not agree with the pair");
        let texts = (self.after.certificate().to_owned(), self.after.key().to_owned());
        if !matching.contains(&texts) {
            let certificate = X509::from_pem(texts.0.as_bytes()).unwrap();
            let key = PKey::private_key_from_pem(texts.1.as_bytes()).unwrap();
            prop_assert!(certificate.public_key().unwrap().public_eq(&key), "they do not match");
            matching.insert(texts);
        }
        Ok(())
    }

    fn spares_what_is_not_ours(&self) -> Holds {
        let (before, after) = (&self.before, &self.after);
        let usable_is_asked_for =
            self.requested.named && self.requested.pair.is_some() && before.is_annotated();
        let same = before.certificate() == after.certificate() && before.key() == after.key();
        if !before.is_ours() && !before.is_our_key_left_over() && !usable_is_asked_for {
            prop_assert!(same, "row {} alters a pair that is not ours", self.plan.row);
        }
        if before.certificate().is_empty() || before.is_ours() || usable_is_asked_for {
            return Ok(());
        }
        prop_assert!(same, "row {} alters a user's certificate", self.plan.row);
        Ok(())
    }

    fn says_one_state_and_since_when(&self) -> Holds {
        let covered = match self.case.policy.status {
            StatusScope::All => true,
            StatusScope::Off => false,
            StatusScope::Annotated => {
                self.before.is_annotated()
                    || self.before.has_marker()
                    || self.before.has_conditions()
            }
        };
        if !covered || self.plan.verdict.is_none() {
            prop_assert!(self.plan.conditions.is_none(), "a status that nobody requested for");
            return Ok(());
        }
        let (before, after) = (self.before.conditions(), self.after.conditions());
        let kinds: Vec<_> = after.iter().map(|condition| &*condition.r#type).collect();
        prop_assert_eq!(kinds, ["Default", "Custom", "Managed"]);
        let true_ones = after.iter().filter(|condition| condition.status == "True").count();
        let expected = if matches!(self.plan.row, "2" | "3") { 0 } else { 1 };
        prop_assert_eq!(true_ones, expected, "in row {}", self.plan.row);
        for condition in &after {
            let since = time_of_last_change(&before, condition, self.case.now);
            prop_assert_eq!(condition.last_transition_time, Some(since));
        }
        Ok(())
    }

    fn leaves_alone_what_it_must(&self) -> Holds {
        if self.plan.row == "1" {
            prop_assert_eq!(&self.plan, &Plan { row: "1", ..Plan::default() });
        }
        Ok(())
    }

    fn tells_nothing_of_a_key(&self, read: &mut HashSet<String>) -> Holds {
        let note = |notice: &Notice| notice.note.clone();
        let verdict = self.plan.verdict.iter().map(|verdict| verdict.message.clone());
        let event = self.plan.event;
        let event = event.and_then(|it| event_if_still_true(it, &self.after.facts(), self.seen));
        prop_assert_eq!(event.is_some(), self.plan.event.is_some(), "a write without its Event");
        let notices = self.plan.warnings.iter().chain(&event).map(note);
        let mut texts: Vec<String> = verdict.chain(notices).collect();
        // Everything a log could print at any level. The same few hundred texts repeat.
        if self.case.now.timestamp() % 16 == 0 {
            texts.push(format!("{:?} {:?}", self.plan, self.facts));
        }
        for text in texts {
            let known = read.contains(&text);
            prop_assert!(known || !POOL.leaks_into(&text), "row {} tells of a key", self.plan.row);
            if !known {
                read.insert(text);
            }
        }
        Ok(())
    }

    fn keeps_the_last_good_pair_where_asked(&self) -> Holds {
        let Plan { row: "8", write, requeue_at, .. } = &self.plan else { return Ok(()) };
        let missing = matches!(self.seen, SecretState::Missing { .. });
        if self.case.policy.on_invalid == OnInvalid::Keep && self.requested.named && !missing {
            prop_assert_eq!(*write, None, "the last good pair was to stay");
        }
        if let SecretState::Missing { since } = self.seen
            && self.requested.named
        {
            let over = self.case.now - *since >= self.case.policy.missing_grace;
            prop_assert_eq!(*write, over.then_some(Write::Clear), "absent always clears");
            if let Some(until) = requeue_at.filter(|_| !over) {
                let then = plan(&self.facts, self.seen, until, &self.case.policy);
                prop_assert_eq!(then.write, Some(Write::Clear), "the wait ends when it was to");
            }
            prop_assert!(over || requeue_at.is_some(), "waits without looking again");
        }
        Ok(())
    }
}

/// lastTransitionTime changes only with the status.
fn time_of_last_change(
    before: &[CertificateCondition],
    condition: &CertificateCondition,
    now: DateTime<Utc>,
) -> DateTime<Utc> {
    let stood = before
        .iter()
        .find(|stood| stood.r#type == condition.r#type && stood.status == condition.status);
    stood.and_then(|stood| stood.last_transition_time).unwrap_or_else(|| now.trunc_subsecs(0))
}

#[test]
fn a_piece_of_a_key_in_a_text_would_be_seen() {
    let key = POOL.texts(0).key;
    let line = key.lines().nth(1).unwrap();
    assert!(POOL.leaks_into(&format!("The Secret is \"{}\".", &line[20..40])));
    assert!(!POOL.leaks_into("The Route has the certificate of Secret shop-tls."));
}

#[test]
fn the_model_patches_as_rfc_7386_says() {
    use serde_json::json;
    // The examples of its appendix A.
    for (target, patch, expected) in [
        (json!({"a":"b"}), json!({"a":"c"}), json!({"a":"c"})),
        (json!({"a":"b"}), json!({"b":"c"}), json!({"a":"b","b":"c"})),
        (json!({"a":"b"}), json!({"a":null}), json!({})),
        (json!({"a":"b","b":"c"}), json!({"a":null}), json!({"b":"c"})),
        (json!({"a":["b"]}), json!({"a":"c"}), json!({"a":"c"})),
        (json!({"a":{"b":"c"}}), json!({"a":{"b":"d","c":null}}), json!({"a":{"b":"d"}})),
        (json!({"a":[{"b":"c"}]}), json!({"a":[1]}), json!({"a":[1]})),
        (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
        (json!({"e":null}), json!({"a":1}), json!({"e":null,"a":1})),
        (json!([1, 2]), json!({"a":"b","c":null}), json!({"a":"b"})),
        (json!({}), json!({"a":{"bb":{"ccc":null}}}), json!({"a":{"bb":{}}})),
    ] {
        let mut merged = target;
        model::merge(&mut merged, &patch);
        assert_eq!(merged, expected, "{patch}");
    }
}

//! Joins: each is answered as the tokens, the federations and our CA of that moment say, or those of the
//! last minute where a watch is dead; no token is used more often than it may be; and each answer is in the
//! audit log.
//!
//! - `timeline`: what there was, and when
//! - `certificates`: what was handed out
//! - here: who joined, uses, and the audit log

mod certificates;
mod timeline;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use http::Method;
use serde_json::Value;
use tokio::time::Instant;
use trustplane::authority::join::view::LONGEST_SILENCE;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::is_of;
use crate::{
    authority::{
        Case,
        clients::{Attempt, Outcome},
        ops::{Op, token_name},
        world::{SKEW, World},
    },
    faults::{Calls, Damage, Fault, FaultKind},
    journal::{Actor, Call, Commit, Journal},
};
use timeline::Past;

const TOKENS: &str = "jointokens";
/// News are everywhere by then, and what was decided from them.
const A_MOMENT: Duration = Duration::from_secs(1);
/// After its start a replica can tell.
const START: Duration = Duration::from_secs(60);
/// A watch that was opened on a server that lags may last longer than the lag.
const LAST_WATCH: Duration = Duration::from_secs(35);

pub fn violations(world: &World, journal: &Journal, case: &Case) -> Vec<String> {
    if !case.serves_joins {
        return Vec::new();
    }
    let attempts = world.attempts();
    let joins = Joins { world, journal, case, past: Past::new(journal) };
    let mut found = Vec::new();
    for attempt in attempts.iter() {
        let wrong = joins.wrong_outcome(attempt);
        let named =
            |wrong| format!("{} at replica {}: {wrong}", attempt.join.id(), attempt.replica);
        found.extend(wrong.into_iter().map(named));
    }
    found.extend(joins.wrong_writes());
    found.extend(joins.too_many_uses(&attempts));
    found.extend(joins.unstable_ids(&attempts));
    found.extend(joins.not_audited(&attempts));
    found.extend(joins.needless_conflicts());
    found
}

struct Joins<'a> {
    world: &'a World,
    journal: &'a Journal,
    case: &'a Case,
    past: Past,
}

/// Whether a fault keeps news from a replica.
fn keeps_news(fault: &Fault) -> bool {
    let of_watches =
        |which: Calls| matches!(which, Calls::Everything | Calls::Lists(_) | Calls::Watches(_));
    match fault.kind {
        FaultKind::Crash { .. } => false,
        FaultKind::Refuse { which, .. }
        | FaultKind::Lose { which, .. }
        | FaultKind::Slow { which, .. }
        | FaultKind::SlowAnswer { which, .. } => of_watches(which),
        _ => true,
    }
}

/// The SPIFFE IDs that used a token.
struct Uses {
    /// None for any number.
    most: Option<usize>,
    noted: BTreeSet<String>,
    joined: BTreeSet<String>,
}

impl Default for Uses {
    fn default() -> Self {
        Self { most: Some(0), noted: BTreeSet::new(), joined: BTreeSet::new() }
    }
}

impl Joins<'_> {
    /// The earliest moment whose tokens and federations a replica may judge by then.
    fn known_since(&self, then: Instant) -> Instant {
        let lags = |fault: &Fault| fault.kind == FaultKind::Lag;
        let mut patience = A_MOMENT;
        if self.case.faults.iter().any(keeps_news) {
            patience += LONGEST_SILENCE;
        }
        // The server itself says that nothing is newer.
        let lagging = self.case.faults.iter().filter(|it| lags(it));
        patience += lagging.map(|it| it.lasts + LAST_WATCH).sum::<Duration>();
        then.checked_sub(patience).unwrap_or(self.past.start).max(self.past.start)
    }

    /// By the clock of a replica.
    fn clock(&self, replica: usize, at: Instant) -> DateTime<Utc> {
        self.world.time(at) + SKEW * i32::try_from(replica).expect("two replicas")
    }

    fn wrong_outcome(&self, attempt: &Attempt) -> Vec<String> {
        match &attempt.outcome {
            Outcome::Joined(certs, documents) => {
                let mut found = Vec::from_iter(self.wrongly_joined(attempt));
                found.extend(self.wrong_certificate(attempt, certs, documents));
                found
            }
            Outcome::Refused(_) => Vec::from_iter(self.wrongly_refused(attempt)),
            Outcome::Unavailable | Outcome::Lost => {
                let is_wrong = self.is_calm() && attempt.began - self.past.start > START;
                Vec::from_iter(is_wrong.then(|| format!("no answer: {:?}", attempt.outcome)))
            }
            Outcome::Failed(code) => vec![format!("it was answered {code:?}")],
        }
    }

    /// Whether both replicas run, and nothing keeps them from what they need.
    fn is_calm(&self) -> bool {
        let moves = |op: &Op| {
            matches!(
                op,
                Op::Restart(_)
                    | Op::Stop(..)
                    | Op::StopAll(_)
                    | Op::SetHint(_)
                    | Op::SetNewAuthority(_)
                    | Op::DeleteSecret
                    | Op::RestoreSecret
                    | Op::RestoreOldSecret
            )
        };
        self.case.faults.is_empty() && !self.case.steps.iter().any(|step| moves(&step.op))
    }

    fn wrongly_joined(&self, attempt: &Attempt) -> Option<String> {
        let (join, ended) = (&attempt.join, attempt.ended);
        if !join.proof.holds() {
            return Some(format!("joined with the proof {:?}", join.proof));
        }
        let since = self.known_since(ended);
        let is_vouched = |bundle: &timeline::Authorities| bundle.contains(&attempt.authority);
        if !self.past.federations[join.peer].during(since, ended).any(is_vouched) {
            return Some("joined, and no federation vouches for its SVID".to_owned());
        }
        let now = self.clock(attempt.replica, ended);
        let tokens = || self.past.token(join.token).during(since, ended).flatten();
        if !tokens().any(|token| token.admits(&join.id(), now)) {
            return Some("joined with a token that does not count".to_owned());
        }
        let is_noted = tokens().any(|token| token.has_noted(&join.id()));
        (!is_noted).then(|| "got a certificate before its use was written".to_owned())
    }

    fn wrongly_refused(&self, attempt: &Attempt) -> Option<String> {
        let is_unreadable =
            |fault: &Fault| matches!(fault.kind, FaultKind::Damage(_, Damage::Undecodable));
        let is_excused = self.case.faults.iter().any(is_unreadable) && !self.is_probe(attempt);
        let (join, ended) = (&attempt.join, attempt.ended);
        if is_excused || !join.proof.holds() {
            return None;
        }
        let since = self.known_since(attempt.began);
        let now = self.clock(attempt.replica, ended);
        let mut bundles = self.past.federations[join.peer].during(since, ended);
        let mut tokens = self.past.token(join.token).during(since, ended);
        let speaks_against = bundles.any(|bundle| !bundle.contains(&attempt.authority))
            || tokens.any(|token| token.as_ref().is_none_or(|it| !it.admits(&join.id(), now)));
        (!speaks_against).then(|| "was refused, and nothing speaks against it".to_owned())
    }

    /// At the end, when nothing is wrong any more.
    fn is_probe(&self, attempt: &Attempt) -> bool {
        self.world.settled_at().is_some_and(|at| attempt.began >= at)
    }

    /// Each write notes one use that was free, of a token that counted.
    fn wrong_writes(&self) -> Vec<String> {
        let ours = self.journal.commits.iter().filter(|it| is_of(it, TOKENS) && it.by.is_ours());
        let wrong = ours.filter_map(|commit| {
            let wrong = self.wrong_write(commit)?;
            Some(format!("the use of {}: {wrong}", commit.change.name))
        });
        wrong.collect()
    }

    fn wrong_write(&self, commit: &Commit) -> Option<&'static str> {
        let (Some(before), Some(after)) = (&commit.change.before, &commit.change.after) else {
            return Some("the token was created or deleted");
        };
        if before["spec"] != after["spec"] {
            return Some("its spec changed");
        }
        let noted =
            |token: &Value| token["status"]["usedBy"].as_array().cloned().unwrap_or_default();
        let (old, new) = (noted(before), noted(after));
        if !new.starts_with(&old) {
            return Some("another use was lost");
        }
        let [added] = &new[old.len()..] else { return Some("not one use was added") };
        if old.iter().any(|it| it["spiffeID"] == added["spiffeID"]) {
            return Some("it was noted twice");
        }
        let uses = |token: &Value| token["status"]["uses"].as_u64().unwrap_or_default();
        if uses(after) != uses(before) + 1 {
            return Some("it was not counted");
        }
        let Actor::Ours { replica, .. } = commit.by else { return None };
        let now = self.clock(replica, self.journal.calls[commit.call].sent);
        let token = timeline::Token::of(before);
        let id = added["spiffeID"].as_str().unwrap_or_default();
        (!token.admits(id, now)).then_some("the token was spent, or did not count")
    }

    /// By what was noted, and by the certificates that were handed out.
    fn too_many_uses(&self, attempts: &[Attempt]) -> Vec<String> {
        let mut all: BTreeMap<&str, Uses> = BTreeMap::new();
        for token in self.past.tokens.values().flat_map(|it| it.all().flatten()) {
            let uses = all.entry(token.uid.as_str()).or_default();
            uses.most = uses.most.zip(token.most_uses).map(|(one, other)| one.max(other));
            uses.noted.extend(token.used_by.iter().cloned());
        }
        for attempt in attempts.iter().filter(|it| matches!(it.outcome, Outcome::Joined(..))) {
            let (id, ended) = (attempt.join.id(), attempt.ended);
            let tokens = self.past.token(attempt.join.token);
            let tokens = tokens.during(self.known_since(ended), ended).flatten();
            if let Some(token) = tokens.filter(|it| it.has_noted(&id)).last()
                && let Some(uses) = all.get_mut(&*token.uid)
            {
                uses.joined.insert(id);
            }
        }
        let too_many = all.iter().filter_map(|(uid, Uses { most, noted, joined })| {
            let (most, used) = ((*most)?, noted.len().max(joined.len()));
            (used > most).then(|| format!("token {uid} was used by {used}, and may be by {most}"))
        });
        too_many.collect()
    }

    /// An agent keeps its name, and shares it with nobody.
    fn unstable_ids(&self, attempts: &[Attempt]) -> Vec<String> {
        let mut names: HashMap<String, HashSet<String>> = HashMap::new();
        for attempt in attempts {
            if let Outcome::Joined(certs, _) = &attempt.outcome
                && certs.spiffe_id.contains("/agent/")
            {
                names.entry(attempt.join.id()).or_default().insert(certs.spiffe_id.clone());
            }
        }
        let mut found = Vec::new();
        let mut seen = HashSet::new();
        for (id, names) in &names {
            if names.len() > 1 || !names.iter().all(|name| seen.insert(name)) {
                found.push(format!("{id} has the names {names:?}"));
            }
        }
        found
    }

    /// A certificate is in the audit log before its client has it. A refusal is there, or in a sum.
    fn not_audited(&self, attempts: &[Attempt]) -> Vec<String> {
        let audit = self.world.audit();
        let is_join = |record: &&(Instant, Value)| {
            record.1["event"].as_str().is_some_and(|event| event.ends_with(".join"))
        };
        let records: Vec<_> = audit.iter().filter(is_join).collect();
        let by_id: HashMap<_, _> = records.iter().map(|it| (it.1["id"].as_str(), *it)).collect();
        let by_serial: HashMap<_, _> =
            records.iter().map(|it| (it.1["issued"]["serial"].as_str(), *it)).collect();
        let mut found = Vec::new();
        let mut unrecorded: BTreeMap<String, u64> = BTreeMap::new();
        for attempt in attempts {
            match &attempt.outcome {
                Outcome::Joined(certs, _) => {
                    let (_, leaf) =
                        X509Certificate::from_der(&certs.x509_svid[0]).expect("an SVID");
                    let serial = hex::encode(leaf.raw_serial());
                    let record = by_serial.get(&Some(&*serial));
                    if !record.is_some_and(|it| it.0 <= attempt.ended && says(&it.1, attempt)) {
                        found.push(format!("the join of {} was not audited", attempt.join.id()));
                    }
                }
                // Sums of the last minute are lost with a process that dies.
                Outcome::Refused(reference)
                    if !by_id.contains_key(&Some(&**reference))
                        && self.world.is_alive(attempt.replica, attempt.life) =>
                {
                    *unrecorded.entry(attempt.join.address().to_string()).or_default() += 1;
                }
                _ => {}
            }
        }
        for (address, missing) in unrecorded {
            let sums = records.iter().filter(|it| it.1["address"] == *address);
            let summed: u64 = sums.filter_map(|it| it.1["count"].as_u64()).sum();
            if summed < missing {
                found.push(format!("{} refusals of {address} were not audited", missing - summed));
            }
        }
        found
    }

    /// A write that collides with nothing but the same replica's own.
    fn needless_conflicts(&self) -> Vec<String> {
        let is_excuse = |fault: &Fault| {
            let is_made = matches!(fault.kind, FaultKind::Refuse { .. } | FaultKind::Lose { .. });
            is_made || keeps_news(fault)
        };
        if self.case.faults.iter().any(is_excuse) {
            return Vec::new();
        }
        let mut last_own: HashMap<(Actor, &str), (usize, Instant)> = HashMap::new();
        let mut found = Vec::new();
        for (number, call) in self.journal.calls.iter().enumerate() {
            let Some((name, answered, code)) = written(call) else { continue };
            match code {
                409 => {
                    let own = last_own.get(&(call.by, name)).filter(|own| own.1 < call.sent);
                    let is_excused = |own: usize| {
                        let since = self.journal.calls[own].sent;
                        self.past.changes_of(name).any(|it| {
                            // Of a new token the watch may bring what was before our own write.
                            let is_new = it.is_creation && it.at + A_MOMENT >= since;
                            is_new || (since..=answered).contains(&it.at) && it.call != own
                        })
                    };
                    if own.is_some_and(|own| !is_excused(own.0)) {
                        found.push(format!("a use of {name} was decided from an older version"));
                    }
                }
                200 => {
                    last_own.insert((call.by, name), (number, answered));
                }
                _ => {}
            }
        }
        found
    }
}

/// The token that a call writes a use of, and its answer.
fn written(call: &Call) -> Option<(&str, Instant, u16)> {
    let is_ours = call.by.is_ours() && call.method == Method::PATCH;
    let (at, code, _) =
        call.answered.as_ref().filter(|_| is_ours && call.target.is_about(TOKENS))?;
    Some((call.target.name.as_deref()?, *at, *code))
}

/// Whether a record is of this join.
fn says(record: &Value, attempt: &Attempt) -> bool {
    record["success"] == true
        && record["token"] == *token_name(attempt.join.token)
        && record["address"] == *attempt.join.address().to_string()
        && record["svid"]["sans"][0] == *attempt.join.id()
}

/// Our keys are nowhere but in the Secret.
pub fn leaks(world: &World, log: &str) -> Vec<String> {
    let journal = world.journal();
    let mut texts: Vec<(&str, String)> = vec![("a log", log.to_owned())];
    texts.extend(world.audit().iter().map(|it| ("an audit record", it.1.to_string())));
    let others = journal.commits.iter().filter(|it| it.by.is_ours() && !is_of(it, "secrets"));
    let others = others.filter_map(|it| it.change.after.as_ref());
    texts.extend(others.map(|it| ("an object", it.to_string())));
    let secrets = journal.commits.iter().filter(|it| is_of(it, "secrets"));
    let secrets = secrets.filter_map(|it| it.change.after.as_ref());
    let keys: BTreeSet<&str> = secrets
        .filter_map(|it| it["data"].as_object())
        .flat_map(|data| data.iter().filter(|(name, _)| name.ends_with(".key")))
        .filter_map(|(_, key)| key.as_str())
        .collect();
    // The beginning is the same for every key of its kind.
    let needles: Vec<&str> = keys.iter().map(|key| &key[key.len() / 2..][..32]).collect();
    let leaking = texts.iter().filter(|(_, text)| needles.iter().any(|it| text.contains(it)));
    leaking.map(|(place, _)| format!("a key is in {place}")).collect()
}

/// The longest life of a certificate.
const HOUR: TimeDelta = TimeDelta::hours(1);

//! Our own CAs: none signs before others can know it, none goes while its SVIDs live, the sequence only
//! grows, and whatever one replica signs is verified with what the other serves.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use rustls::pki_types::CertificateDer;
use serde_json::Value;
use tokio::time::Instant;
use trustplane::{
    authority::{
        decide::ca::{AuthorityState, Ca, Phase},
        run::Authority,
    },
    k8s::api_error,
    names::{AUTHORITY_SECRET, BUNDLE_CONFIG_MAP, REQUESTS_CONFIG_MAP, REVOKE_ANNOTATION},
    spiffe::{bundle::Bundle, id::TrustDomain, svid},
};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::changes_of;
use crate::{
    authority::{
        Case,
        ops::{Op, published, state},
        world::{OWN, POLL, REPLICAS, Served, World},
    },
    cluster::lock,
    journal::{Actor, Journal},
};

/// Clocks differ, and the state keeps whole seconds.
const TOLERANCE: TimeDelta = TimeDelta::seconds(4);
/// Of both replicas. The next CA is published at half of the life of 90 minutes, and the last one ends with it.
const LONG_ABSENCE: Duration = Duration::from_secs(40 * 60);
/// A CA may sign this many refresh hints after clients could fetch it.
const HINTS: i32 = 3;

pub fn violations(world: &World, journal: &Journal, case: &Case) -> Vec<String> {
    let mut history = History::new(world);
    let mut found = history.read(journal);
    found.extend(history.wrongly_published(journal));
    found.extend(history.wrongly_served(journal, case));
    found
}

struct History<'a> {
    world: &'a World,
    /// Every state that was stored, and when.
    states: Vec<(Instant, AuthorityState)>,
    /// The document of each sequence.
    documents: HashMap<u64, String>,
    /// CAs that somebody asked to revoke.
    revoked: HashSet<String>,
    /// CAs that signed at once, because there was no other.
    emergency: HashSet<String>,
}

impl<'a> History<'a> {
    fn new(world: &'a World) -> Self {
        Self {
            world,
            states: Vec::new(),
            documents: HashMap::new(),
            revoked: HashSet::new(),
            emergency: HashSet::new(),
        }
    }

    /// Reads the Secret's history, and judges every write of ours.
    fn read(&mut self, journal: &Journal) -> Vec<String> {
        let mut found = Vec::new();
        let mut now_there: Option<AuthorityState> = None;
        let mut in_config_map: Option<String> = None;
        let mut highest = 0;
        for commit in &journal.commits {
            let after = commit.change.after.as_deref();
            let is = |plural: &str, name: &str| {
                commit.change.kind.plural == plural && &*commit.change.name == name
            };
            if is("configmaps", REQUESTS_CONFIG_MAP) {
                let asked =
                    after.and_then(|it| it["metadata"]["annotations"][REVOKE_ANNOTATION].as_str());
                self.revoked.extend(asked.map(str::to_owned));
            }
            if is("configmaps", BUNDLE_CONFIG_MAP) {
                in_config_map = after.and_then(published).map(|(text, _)| text.to_owned());
            }
            if !is("secrets", AUTHORITY_SECRET) {
                continue;
            }
            let Some(new) = after.and_then(state) else {
                now_there = None;
                continue;
            };
            if commit.by.is_ours() {
                let at = self.world.time(commit.at);
                let step = Step {
                    at,
                    before: now_there.as_ref(),
                    after: &new,
                    in_config_map: in_config_map.as_deref(),
                };
                if commit.change.before.is_none() && now_there.is_some() {
                    found.push("the Secret was replaced by another CA's".to_owned());
                }
                if new.sequence < highest {
                    found.push(format!("the sequence fell from {highest} to {}", new.sequence));
                }
                found.extend(missing_keys(after.expect("it is there"), &new));
                found.extend(self.wrong_step(&step, commit.at));
                let document = new.document().expect("our state can be read");
                let known = self.documents.entry(new.sequence).or_insert_with(|| document.clone());
                if *known != document {
                    found.push(format!("two documents have the sequence {}", new.sequence));
                }
                highest = highest.max(new.sequence);
                self.states.push((commit.at, new.clone()));
            }
            now_there = Some(new);
        }
        found
    }

    fn wrong_step(&mut self, step: &Step<'_>, at: Instant) -> Vec<String> {
        let mut found = Vec::new();
        let is_allowed_new = self.is_allowed_new(at);
        let Some(before) = step.before else {
            let was_published = step.in_config_map.is_some();
            if was_published && !is_allowed_new {
                found.push(
                    "a new CA was made though one was published, and nobody asked".to_owned(),
                );
            }
            if !self.states.is_empty() {
                self.emergency.extend(step.after.cas.iter().map(|ca| ca.id.clone()));
            }
            return found;
        };
        // All keys lie in one Secret: a thief of the one that signs has the others.
        if before.active().is_some_and(|ca| self.revoked.contains(&ca.id)) {
            self.revoked.extend(before.cas.iter().map(|ca| ca.id.clone()));
        }
        let find = |id: &str| before.cas.iter().find(|ca| ca.id == id);
        for ca in step.after.cas.iter().filter(|ca| ca.phase == Phase::Active) {
            match find(&ca.id).map(|ca| ca.phase) {
                Some(Phase::Active) => {}
                Some(Phase::Retiring) => found.push(format!("CA {} signs again", ca.id)),
                Some(Phase::Prepared) => found.extend(self.too_early(ca, step)),
                None => {
                    self.emergency.insert(ca.id.clone());
                    let active = before.active();
                    let is_over = active.is_none_or(|it| {
                        self.revoked.contains(&it.id) || step.at + TOLERANCE > it.not_after
                    });
                    if !is_over && !is_allowed_new {
                        found.push(format!("CA {} signs and was never published before", ca.id));
                    }
                }
            }
        }
        if !is_allowed_new {
            let gone =
                before.cas.iter().filter(|ca| !step.after.cas.iter().any(|it| it.id == ca.id));
            found.extend(gone.filter_map(|ca| self.gone_early(ca, step)));
        }
        found
    }

    /// Whether a process with `--new-authority` may have written then.
    fn is_allowed_new(&self, at: Instant) -> bool {
        let allowed = lock(&self.world.allowed_new);
        allowed.iter().any(|(from, until)| at >= *from && until.is_none_or(|until| at <= until))
    }

    /// Clients come back by the hint of the last document that they saw without this CA.
    fn too_early(&self, ca: &Ca, step: &Step<'_>) -> Option<String> {
        let is_in = |state: &AuthorityState| state.cas.iter().any(|it| it.id == ca.id);
        let ends = self.states.iter().skip(1).map(|(at, _)| self.world.time(*at));
        let ends = ends.chain([step.at]);
        let without = self.states.iter().zip(ends).take_while(|((_, state), _)| !is_in(state));
        let known = without
            .map(|((_, state), end)| end + TimeDelta::seconds(state.refresh_hint) * HINTS)
            .max();
        if let Some(known) = known.filter(|known| step.at + TOLERANCE < *known) {
            return Some(format!("CA {} signs {} before clients know it", ca.id, known - step.at));
        }
        let authority = ca.chain.last().map(String::as_str).unwrap_or_default();
        let is_published = step.in_config_map.is_some_and(|text| text.contains(authority));
        (!is_published).then(|| format!("CA {} signs and is not in the ConfigMap", ca.id))
    }

    fn gone_early(&self, ca: &Ca, step: &Step<'_>) -> Option<String> {
        if self.revoked.contains(&ca.id) || step.at + TOLERANCE > ca.not_after {
            return None;
        }
        let was_active = |state: &AuthorityState| {
            state.cas.iter().any(|it| it.id == ca.id && it.phase == Phase::Active)
        };
        // It signed until the state after the last in which it was active.
        let last = self.states.iter().rposition(|(_, state)| was_active(state))?;
        let until = self.states.get(last + 1).map_or(step.at, |(at, _)| self.world.time(*at));
        let is_early = step.at + TOLERANCE < until + self.world.svid_ttl();
        is_early.then(|| format!("CA {} is gone while SVIDs of it may be valid", ca.id))
    }

    /// What the ConfigMap got from us.
    fn wrongly_published(&self, journal: &Journal) -> Vec<String> {
        let mut found = Vec::new();
        let mut highest = 0;
        for commit in changes_of(journal, "configmaps", BUNDLE_CONFIG_MAP) {
            if !commit.by.is_ours() {
                continue;
            }
            let Some((text, bundle)) = commit.change.after.as_deref().and_then(published) else {
                found.push("a ConfigMap without a document was published".to_owned());
                continue;
            };
            let sequence = bundle.sequence.unwrap_or_default();
            if sequence < highest {
                found.push(format!("the published sequence fell from {highest} to {sequence}"));
            }
            highest = highest.max(sequence);
            if self.documents.get(&sequence).map(String::as_str) != Some(text) {
                found.push(format!("the published document {sequence} is not that of the state"));
            }
        }
        found
    }

    fn wrongly_served(&self, journal: &Journal, case: &Case) -> Vec<String> {
        // Nobody signs with a state that is older than what was published.
        let is_old = case.steps.iter().any(|step| step.op == Op::RestoreOldSecret);
        // A replica that comes back when the CA is about to end has no time to publish the next one first.
        let is_away = |op: &Op| matches!(op, Op::StopAll(lasts) if *lasts > LONG_ABSENCE);
        let may_end = is_old || case.steps.iter().any(|step| is_away(&step.op));
        let reads = reads(journal);
        let mut found = Vec::new();
        let mut highest = [0; REPLICAS];
        let mut parsed: HashMap<String, Bundle> = HashMap::new();
        for snapshot in self.world.snapshots().iter() {
            let now = self.world.time(snapshot.at);
            for (replica, served) in snapshot.served.iter().enumerate() {
                let Some(served) = served else { continue };
                let text = served.document.to_string();
                let bundle = parsed
                    .entry(text.clone())
                    .or_insert_with(|| Bundle::parse(text.as_bytes()).expect("we serve bundles"));
                let sequence = bundle.sequence.unwrap_or_default();
                if self.documents.get(&sequence) != Some(&text) {
                    found.push(format!("the served document {sequence} is not that of the state"));
                }
                if sequence < highest[replica] {
                    let before = highest[replica];
                    found.push(format!("replica {replica} served {before}, and then {sequence}"));
                }
                highest[replica] = highest[replica].max(sequence);
            }
            for (signer, svid) in snapshot.served.iter().enumerate() {
                for (verifier, served) in snapshot.served.iter().enumerate() {
                    let (Some(svid), Some(served)) = (svid, served) else { continue };
                    let bundle = &parsed[&*served.document];
                    let is_fresh = |replica: usize| is_fresh(&reads[replica], snapshot.at);
                    // A replica that can't read the state is not ready, so nobody is led to it.
                    let counts = is_fresh(verifier) && !self.is_excused(svid, now);
                    let wrong = refused(svid, bundle, is_fresh(signer) && !may_end, now);
                    if let Some(wrong) = wrong.filter(|_| signer == verifier || counts) {
                        found.push(format!(
                            "the SVID of replica {signer} is refused by clients of {verifier}: {wrong}"
                        ));
                    }
                }
            }
        }
        found.dedup();
        found
    }

    /// After a key was stolen, or where there was no CA, others learn the new one when they come.
    fn is_excused(&self, svid: &Served, now: DateTime<Utc>) -> bool {
        let (_, leaf) = X509Certificate::from_der(&svid.chain[0]).expect("an SVID");
        let issuer = leaf.issuer().to_string();
        let is_of = |id: &&String| issuer.contains(&id[..16]);
        let is_new = |id: &&String| {
            let first =
                self.states.iter().find(|(_, state)| state.cas.iter().any(|ca| ca.id == **id));
            first.is_some_and(|(at, _)| now - self.world.time(*at) < EMERGENCY)
        };
        let was_replaced = self.emergency.iter().any(|id| is_new(&id));
        self.revoked.iter().any(|id| is_of(&id)) || was_replaced
    }
}

fn refused(
    svid: &Served,
    bundle: &Bundle,
    must_be_valid: bool,
    now: DateTime<Utc>,
) -> Option<String> {
    let id = Authority::endpoint_id(&TrustDomain::parse(OWN).expect("ours")).expect("ours");
    let (_, leaf) = X509Certificate::from_der(&svid.chain[0]).expect("an SVID");
    let ends = DateTime::from_timestamp(leaf.validity().not_after.timestamp(), 0);
    // It can't be renewed while the state can't be read.
    if ends.is_none_or(|ends| now > ends) {
        return must_be_valid.then(|| "it has expired".to_owned());
    }
    let chain: &[CertificateDer<'_>] = &svid.chain;
    svid::verify(chain, &id, bundle, now).err().map(|error| error.to_string())
}

/// How long it takes a replica that reads the state to serve it, with faults in between.
const EMERGENCY: TimeDelta = TimeDelta::minutes(8);

struct Step<'a> {
    at: DateTime<Utc>,
    before: Option<&'a AuthorityState>,
    after: &'a AuthorityState,
    in_config_map: Option<&'a str>,
}

/// Every CA has its key in the same write, and no other key is kept.
fn missing_keys(secret: &Value, state: &AuthorityState) -> Option<String> {
    let data = secret["data"].as_object()?;
    let kept: HashSet<&str> = data.keys().filter_map(|name| name.strip_suffix(".key")).collect();
    let wanted: HashSet<&str> = state.cas.iter().map(|ca| ca.id.as_str()).collect();
    (kept != wanted).then(|| "keys and CAs in the Secret differ".to_owned())
}

/// When each replica read the Secret.
fn reads(journal: &Journal) -> [Vec<Instant>; REPLICAS] {
    let mut reads: [Vec<Instant>; REPLICAS] = Default::default();
    for call in
        journal.calls.iter().filter(|call| call.target.is_about("secrets") && !call.is_write())
    {
        if let (Actor::Ours { replica, .. }, Some((at, 200, _))) = (call.by, &call.answered) {
            // Later, nobody waits for the answer any more.
            if *at - call.sent < api_error::TIMEOUT {
                reads[replica].push(*at);
            }
        }
    }
    reads.iter_mut().for_each(|reads| reads.sort());
    reads
}

fn is_fresh(reads: &[Instant], now: Instant) -> bool {
    let before = reads.partition_point(|at| *at <= now);
    before > 0 && now - reads[before - 1] <= 3 * POLL
}

/// A replica that believes the state to be lost or outdated, where nobody touched it.
pub fn false_alarms(world: &World, case: &Case) -> Vec<String> {
    let touches = |op: &Op| {
        matches!(
            op,
            Op::DeleteSecret | Op::RestoreSecret | Op::RestoreOldSecret | Op::SetNewAuthority(_)
        )
    };
    match case.steps.iter().any(|step| touches(&step.op)) {
        true => Vec::new(),
        false => world.alarms().iter().map(|alarm| format!("a false alarm: {alarm}")).collect(),
    }
}

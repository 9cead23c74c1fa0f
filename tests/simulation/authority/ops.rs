//! What administrators, editors of SPIFFEFederations and peers do.

use std::{sync::Arc, sync::atomic::Ordering, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use chrono::{SecondsFormat, TimeDelta};
use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;
use trustplane::{
    authority::decide::ca::{AuthorityState, Phase},
    names::{
        ACCEPT_ANNOTATION, AUTHORITY_SECRET, BUNDLE_CONFIG_MAP, NAMESPACE, REFRESH_ANNOTATION,
        REQUESTS_CONFIG_MAP, REVOKE_ANNOTATION, ROTATE_ANNOTATION,
    },
    spiffe::bundle::Bundle,
};

use super::{
    clients::{Join, Proof, WORKLOADS},
    peers::{PEERS, Profile, trust_domain},
    world::{REPLICAS, World},
};
use crate::journal::Actor;

/// Of all that join as one.
pub const BOT: &str = "deployer";
const FEDERATIONS: &str = "/apis/trustplane.dev/v1/spiffefederations";

const JOIN_TOKENS: &str = "/apis/trustplane.dev/v1/jointokens";
/// As many as there are at once.
pub const TOKENS: usize = 2;

pub fn federation_path(name: &str) -> String {
    format!("{FEDERATIONS}/{name}")
}

pub fn token_path(name: &str) -> String {
    format!("{JOIN_TOKENS}/{name}")
}

pub fn token_name(token: usize) -> String {
    format!("token{token}")
}

/// Of a JoinToken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    pub most: Option<u32>,
    /// In seconds.
    pub lasts: Option<i64>,
}

pub const UNLIMITED: Terms = Terms { most: None, lasts: None };

/// A token for so many workloads.
pub const fn uses(most: u32) -> Terms {
    Terms { most: Some(most), lasts: None }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    Nothing,
    /// Restarts the process of a replica.
    Restart(usize),
    /// A replica is down for this long.
    Stop(usize, Duration),
    /// Both are.
    StopAll(Duration),
    /// The leader gives the Lease up.
    HandOver,
    /// Restarts both with another `--refresh-hint`.
    SetHint(i64),
    Create(usize, Profile),
    Delete(usize),
    /// With a finalizer that stays.
    DeleteSlowly(usize),
    Recreate(usize, Profile),
    /// Another URL, or another source.
    ChangeSource(usize, Profile),
    /// A second object for the trust domain.
    CreateTwin(usize),
    DeleteTwin(usize),
    Refresh(usize),
    /// `spiffe accept`.
    Accept(usize),
    PeerRotates(usize),
    PeerChangesWithoutCounting(usize),
    PeerRevokesEverything(usize),
    PeerReplays(usize),
    PeerFails(usize),
    PeerAnswersGarbage(usize),
    PeerRecovers(usize),
    Rotate,
    RevokeActive,
    RevokePrepared,
    DeleteSecret,
    /// From the newest copy.
    RestoreSecret,
    /// From the oldest copy, over the Secret that is there.
    RestoreOldSecret,
    DeleteConfigMap,
    /// Restarts both with `--new-authority`, or without it again.
    SetNewAuthority(bool),
    CreateToken(usize, Terms),
    DeleteToken(usize),
    RecreateToken(usize, Terms),
    /// It ends in so many seconds from now.
    EndToken(usize, i64),
    SetMostUses(usize, u32),
    /// So many changes of a label, one after the other.
    EditToken(usize, u32),
    Join(Join),
    /// So many workloads of the first peer join at once, at both replicas.
    Crowd(usize, usize),
    /// One client is refused so many times.
    Flood(usize),
}

fn own_path(plural: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/{plural}/{name}")
}

/// The state in a Secret.
pub fn state(secret: &Value) -> Option<AuthorityState> {
    let text = STANDARD.decode(secret["data"]["state.json"].as_str()?).ok()?;
    serde_json::from_slice(&text).ok()
}

/// The document in ConfigMap trustplane-bundle.
pub fn published(config_map: &Value) -> Option<(&str, Bundle)> {
    let text = config_map["data"]["bundle.json"].as_str()?;
    Some((text, Bundle::parse(text.as_bytes()).ok()?))
}

impl World {
    /// Sends the operation's requests, and ignores refusals.
    pub fn perform(self: &Arc<Self>, op: &Op) {
        let federation = |peer: usize| federation_path(&trust_domain(peer));
        match *op {
            Op::Nothing => {}
            Op::Restart(replica) => self.crash(replica),
            Op::Stop(replica, lasts) => self.stop_until(replica, Instant::now() + lasts),
            Op::StopAll(lasts) => {
                (0..2).for_each(|replica| self.stop_until(replica, Instant::now() + lasts));
            }
            Op::HandOver => self.election.hand_over(),
            Op::SetHint(seconds) => {
                self.hint.store(seconds, Ordering::Relaxed);
                self.restart_all();
            }
            Op::Create(peer, profile) => self.create(peer, &trust_domain(peer), profile),
            Op::Delete(peer) => self.delete(&federation(peer)),
            Op::DeleteSlowly(peer) => {
                let patch = json!({ "metadata": { "finalizers": ["example.com/slow"] } });
                self.user(Method::PATCH, &federation(peer), &patch);
                self.delete(&federation(peer));
            }
            Op::Recreate(peer, profile) => {
                self.delete(&federation(peer));
                self.create(peer, &trust_domain(peer), profile);
            }
            Op::ChangeSource(peer, profile) => self.change_source(peer, profile),
            Op::CreateTwin(peer) => self.create(peer, &format!("twin{peer}"), Profile::Web),
            Op::DeleteTwin(peer) => self.delete(&federation_path(&format!("twin{peer}"))),
            Op::Refresh(peer) => {
                self.annotate(&federation(peer), json!({ REFRESH_ANNOTATION: self.request() }));
            }
            Op::Accept(peer) => self.accept(&federation(peer)),
            Op::PeerRotates(peer) => self.peers()[peer].rotate(),
            Op::PeerChangesWithoutCounting(peer) => self.peers()[peer].change_without_counting(),
            Op::PeerRevokesEverything(peer) => self.peers()[peer].revoke_everything(),
            Op::PeerReplays(peer) => self.peers()[peer].replay(),
            Op::PeerFails(peer) => self.peers()[peer].fail(),
            Op::PeerAnswersGarbage(peer) => self.peers()[peer].answer_garbage(),
            Op::PeerRecovers(peer) => self.peers()[peer].recover(),
            Op::Rotate => self.ask(ROTATE_ANNOTATION, Some(self.request())),
            Op::RevokeActive => self.ask(REVOKE_ANNOTATION, self.ca_in(Phase::Active)),
            Op::RevokePrepared => self.ask(REVOKE_ANNOTATION, self.ca_in(Phase::Prepared)),
            Op::DeleteSecret => {
                // Without both, nobody could know that there was a CA.
                if self.config_map().is_some() {
                    self.delete(&own_path("secrets", AUTHORITY_SECRET));
                }
            }
            Op::RestoreSecret => {
                let sequence = |it: &Arc<Value>| state(it).map(|state| state.sequence);
                self.restore(self.copies().into_iter().max_by_key(sequence));
            }
            Op::RestoreOldSecret => self.restore_old(),
            Op::DeleteConfigMap => {
                if self.is_own_healthy() {
                    self.delete(&own_path("configmaps", BUNDLE_CONFIG_MAP));
                }
            }
            Op::SetNewAuthority(is_set) => {
                self.set_new_authority(is_set);
                self.restart_all();
            }
            Op::CreateToken(token, terms) => self.create_token(token, terms),
            Op::DeleteToken(token) => self.delete(&token_path(&token_name(token))),
            Op::RecreateToken(token, terms) => {
                self.delete(&token_path(&token_name(token)));
                self.create_token(token, terms);
            }
            Op::EndToken(token, lasts) => {
                self.change_token(token, &json!({ "spec": { "expires": self.after(lasts) } }));
            }
            Op::SetMostUses(token, most) => {
                self.change_token(token, &json!({ "spec": { "maxUses": most } }));
            }
            Op::EditToken(token, times) => {
                for _ in 0..times {
                    let label = format!("v{}", self.api.with(|store| store.version()));
                    let labels = json!({ "metadata": { "labels": { "edited": label } } });
                    self.change_token(token, &labels);
                }
            }
            Op::Join(join) => self.begin_join(join),
            Op::Crowd(token, number) => {
                for workload in 0..number {
                    self.begin_join(Join::new(workload % WORKLOADS, token, workload % REPLICAS));
                }
            }
            Op::Flood(number) => {
                let join = Join::new(0, 0, 0).with(Proof::Relayed);
                (0..number).for_each(|_| self.begin_join(join));
            }
        }
    }

    fn begin_join(self: &Arc<Self>, join: Join) {
        self.background(self.clone().join(join));
    }

    fn after(&self, seconds: i64) -> String {
        let at = self.time(Instant::now()) + TimeDelta::seconds(seconds);
        at.to_rfc3339_opts(SecondsFormat::Secs, true)
    }

    fn create_token(&self, token: usize, terms: Terms) {
        let rules = (0..PEERS)
            .map(|peer| json!({ "spiffeID": format!("spiffe://{}/ci/*", trust_domain(peer)) }));
        let mut spec = json!({
            "roles": ["Bot", "Agent"], "botName": BOT, "joinMethod": "spiffe",
            "spiffe": { "allow": rules.collect::<Vec<_>>() },
        });
        if let Some(most) = terms.most {
            spec["maxUses"] = most.into();
        }
        if let Some(lasts) = terms.lasts {
            spec["expires"] = self.after(lasts).into();
        }
        let object = json!({
            "apiVersion": "trustplane.dev/v1", "kind": "JoinToken",
            "metadata": { "name": token_name(token) }, "spec": spec,
        });
        self.user(Method::POST, JOIN_TOKENS, &object);
    }

    fn change_token(&self, token: usize, patch: &Value) {
        self.user(Method::PATCH, &token_path(&token_name(token)), patch);
    }

    fn user(&self, method: Method, path: &str, body: &Value) -> Option<Value> {
        let (code, answer) = self.act(Actor::User, method, path, body);
        (code < 300).then_some(answer)
    }

    fn delete(&self, path: &str) {
        self.user(Method::DELETE, path, &Value::Null);
    }

    fn read(&self, path: &str) -> Option<Value> {
        let (code, object) = self.api.request(Method::GET, path, &Value::Null);
        (code == 200).then_some(object)
    }

    pub fn annotate(&self, path: &str, annotations: Value) {
        let patch = json!({ "metadata": { "annotations": annotations } });
        self.user(Method::PATCH, path, &patch);
    }

    /// A new text each time.
    fn request(&self) -> String {
        format!("request {}", self.api.with(|store| store.version()))
    }

    fn create(&self, peer: usize, name: &str, profile: Profile) {
        let source = self.peers()[peer].source(profile, 0);
        let object = json!({
            "apiVersion": "trustplane.dev/v1", "kind": "SPIFFEFederation",
            "metadata": { "name": name },
            "spec": { "trustDomain": trust_domain(peer), "bundleSource": source },
        });
        self.user(Method::POST, FEDERATIONS, &object);
    }

    fn change_source(&self, peer: usize, profile: Profile) {
        let path = federation_path(&trust_domain(peer));
        let Some(mut object) = self.read(&path) else { return };
        let generation = object["metadata"]["generation"].as_u64().unwrap_or_default();
        let number = u32::try_from(generation).expect("a few generations");
        object["spec"]["bundleSource"] = self.peers()[peer].source(profile, number);
        self.user(Method::PUT, &path, &object);
    }

    /// As the command does: what was refused last, and when.
    fn accept(&self, path: &str) {
        let Some(object) = self.read(path) else { return };
        let Some(refused) = object["status"]["refusedFingerprint"].as_str() else { return };
        self.annotate(path, json!({ ACCEPT_ANNOTATION: format!("{refused} {}", self.request()) }));
    }

    fn ask(&self, annotation: &str, value: Option<String>) {
        let Some(value) = value else { return };
        let path = own_path("configmaps", REQUESTS_CONFIG_MAP);
        self.annotate(&path, json!({ annotation: value }));
    }

    fn secret(&self) -> Option<Value> {
        self.read(&own_path("secrets", AUTHORITY_SECRET))
    }

    fn config_map(&self) -> Option<Value> {
        self.read(&own_path("configmaps", BUNDLE_CONFIG_MAP))
    }

    fn ca_in(&self, phase: Phase) -> Option<String> {
        let state = state(&self.secret()?)?;
        state.cas.into_iter().find(|ca| ca.phase == phase).map(|ca| ca.id)
    }

    /// Whether the Secret is there, and no older than what was published.
    pub fn is_own_healthy(&self) -> bool {
        let published = self.config_map();
        let published = published.as_ref().and_then(published_sequence);
        let stored = self.secret().and_then(|secret| state(&secret));
        stored.is_some_and(|state| published.is_none_or(|it| it <= state.sequence))
    }

    /// The Secrets that there were, oldest first.
    fn copies(&self) -> Vec<Arc<Value>> {
        let journal = self.journal();
        let secrets = journal.commits.iter().filter(|it| &*it.change.name == AUTHORITY_SECRET);
        let secrets = secrets.filter(|it| it.change.kind.plural == "secrets");
        secrets.filter_map(|it| it.change.after.clone()).collect()
    }

    fn restore(&self, copy: Option<Arc<Value>>) {
        let Some(copy) = copy else { return };
        let object = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": { "name": AUTHORITY_SECRET }, "data": copy["data"],
        });
        let path = own_path("secrets", AUTHORITY_SECRET);
        match self.read(&path) {
            // As `kubectl replace` does.
            Some(_) => self.user(Method::PUT, &path, &object),
            None => self.user(
                Method::POST,
                path.trim_end_matches(&format!("/{AUTHORITY_SECRET}")),
                &object,
            ),
        };
    }

    /// Only where the copy is older than what was published: nothing shows it otherwise.
    fn restore_old(&self) {
        let oldest = self.copies().into_iter().next();
        let old = oldest.as_deref().and_then(state).map(|it| it.sequence);
        let now = self.secret().and_then(|secret| state(&secret)).map(|it| it.sequence);
        let published = self.config_map().as_ref().and_then(published_sequence);
        if old < published && now == published {
            self.restore(oldest);
        }
    }
}

fn published_sequence(config_map: &Value) -> Option<u64> {
    published(config_map)?.1.sequence
}

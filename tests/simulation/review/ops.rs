//! What administrators, remote clusters and accidents do.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use chrono::TimeDelta;
use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;
use trustplane::{
    names::{NAMESPACE, REVIEW_SECRET, REVIEW_STATUS_CONFIG_MAP},
    review::decide::state::entry_name,
};

use super::{
    remote::{Down, OWN_ACCOUNT},
    world::{CLUSTERS, World},
};
use crate::{cluster::lock, election::REPLICAS, journal::Actor};

const HOUR: TimeDelta = TimeDelta::hours(1);
/// Reasons for which renewals fail at a cluster.
const TOKENS_FORBIDDEN: &str = "tokens forbidden";
const DOWN: &str = "down";
const VOID: &str = "grants what it does not accept";
const REVOKED: &str = "all tokens revoked";
const BAD_FILE: &str = "the file holds no good token";

/// Clusters and replicas are numbers.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    Nothing,
    Restart(usize),
    /// A replica is down for this long.
    Stop(usize, Duration),
    StopAll(Duration),
    /// The leader gives the Lease up.
    HandOver,
    /// An administrator puts a new token into the file.
    NewFile(usize),
    /// One that the cluster does not know.
    WrongFile(usize),
    BrokenFile(usize),
    RemoveFile(usize),
    /// Whether our account may create tokens of itself.
    Forbid(usize),
    Allow(usize),
    /// Whether it may create TokenReviews.
    ForbidReviews(usize),
    AllowReviews(usize),
    /// The cluster grants so many seconds at most.
    Cap(usize, i64),
    Break(usize),
    Hang(usize),
    Mend(usize),
    /// The cluster does not accept what it grants.
    GrantVoid(usize),
    GrantGood(usize),
    /// Our account is deleted and made again.
    Revoke(usize),
    DeleteSecret,
    /// Somebody adds an entry of his own.
    EditSecret,
    DeleteEntry(usize),
    BreakEntry(usize),
    EditStatus,
    /// The first cluster publishes the second one's keys, too.
    CopyKeys(usize, usize),
    RotateKeys(usize),
}

pub fn own_path(plural: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/{plural}/{name}")
}

impl World {
    /// Sends the operation's requests, and ignores refusals.
    pub fn perform(&self, op: &Op) {
        match *op {
            Op::Nothing => {}
            Op::Restart(replica) => self.crash(replica),
            Op::Stop(replica, lasts) => {
                self.trouble_for(lasts);
                self.stop_until(replica, Instant::now() + lasts);
            }
            Op::StopAll(lasts) => {
                self.trouble_for(lasts);
                (0..REPLICAS).for_each(|it| self.stop_until(it, Instant::now() + lasts));
            }
            Op::HandOver => self.election.hand_over(),
            Op::NewFile(at) => {
                self.write_file(at, Some(self.make_token(at, HOUR)));
                // A moment later the second replica sees it, too.
                self.mend(at, BAD_FILE);
                self.mend(at, REVOKED);
                self.trouble_for(Duration::from_secs(45));
            }
            Op::WrongFile(at) => {
                let other = self.make_token(1 - at, HOUR);
                self.write_bad_file(at, Some(other));
            }
            Op::BrokenFile(at) => self.write_bad_file(at, Some("not a token".to_owned())),
            Op::RemoveFile(at) => self.write_bad_file(at, None),
            Op::Forbid(at) => {
                self.break_something(at, TOKENS_FORBIDDEN);
                self.remotes[at].state().forbids_tokens = true;
            }
            Op::Allow(at) => {
                self.mend(at, TOKENS_FORBIDDEN);
                self.remotes[at].state().forbids_tokens = false;
            }
            Op::ForbidReviews(at) => self.remotes[at].state().forbids_reviews = true,
            Op::AllowReviews(at) => self.remotes[at].state().forbids_reviews = false,
            Op::Cap(at, seconds) => {
                self.remotes[at].state().cap = Some(TimeDelta::seconds(seconds));
            }
            Op::Break(at) => self.set_down(at, Some(Down::Broken)),
            Op::Hang(at) => self.set_down(at, Some(Down::Hanging)),
            Op::Mend(at) => self.set_down(at, None),
            Op::GrantVoid(at) => {
                self.break_something(at, VOID);
                self.remotes[at].state().grants_void = true;
            }
            Op::GrantGood(at) => {
                self.mend(at, VOID);
                self.remotes[at].state().grants_void = false;
            }
            Op::Revoke(at) => {
                self.break_something(at, REVOKED);
                self.remotes[at].state().revoke(OWN_ACCOUNT);
            }
            Op::DeleteSecret => {
                self.user(Method::DELETE, &own_path("secrets", REVIEW_SECRET), &Value::Null);
            }
            Op::EditSecret => self.edit_secret("note-to-self", json!(STANDARD.encode("by hand"))),
            Op::DeleteEntry(at) => self.edit_secret(&entry_name(CLUSTERS[at]), Value::Null),
            Op::BreakEntry(at) => {
                self.edit_secret(&entry_name(CLUSTERS[at]), json!(STANDARD.encode("{}")));
            }
            Op::EditStatus => {
                let patch = json!({ "data": { CLUSTERS[0]: "all is well", "c": "{}" } });
                let path = own_path("configmaps", REVIEW_STATUS_CONFIG_MAP);
                self.user(Method::PATCH, &path, &patch);
            }
            Op::CopyKeys(thief, of) => {
                let mut copied = self.remotes[of].state().keys.clone();
                let known = self.remotes[thief].state().keys.clone();
                copied.retain(|number| !known.contains(number));
                self.remotes[thief].state().keys.extend(&copied);
                lock(&self.copies).push((of, copied));
            }
            Op::RotateKeys(at) => {
                let mut state = self.remotes[at].state();
                let own = state.keys.iter().filter(|it| **it % CLUSTERS.len() == at);
                let next = own.max().map_or(at, |it| it + CLUSTERS.len());
                state.keys.insert(0, next);
            }
        }
    }

    fn write_bad_file(&self, at: usize, text: Option<String>) {
        self.break_something(at, BAD_FILE);
        self.write_file(at, text);
    }

    fn set_down(&self, at: usize, down: Option<Down>) {
        match down {
            Some(_) => self.break_something(at, DOWN),
            None => self.mend(at, DOWN),
        }
        self.remotes[at].state().down = down;
    }

    fn edit_secret(&self, entry: &str, value: Value) {
        let patch = json!({ "data": { entry: value } });
        self.user(Method::PATCH, &own_path("secrets", REVIEW_SECRET), &patch);
    }

    fn user(&self, method: Method, path: &str, body: &Value) -> Option<Value> {
        let (code, answer) = self.act(Actor::User, method, path, body);
        (code < 300).then_some(answer)
    }

    /// An administrator mends what we must not mend by ourselves.
    pub fn repair(&self) {
        for at in 0..CLUSTERS.len() {
            let troubles = self.open_troubles(at);
            for op in [Op::Mend(at), Op::Allow(at), Op::AllowReviews(at), Op::GrantGood(at)] {
                self.perform(&op);
            }
            if troubles.contains(BAD_FILE) || troubles.contains(REVOKED) {
                self.perform(&Op::NewFile(at));
            }
        }
    }
}

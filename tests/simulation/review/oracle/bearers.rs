//! Every token that was sent: to its own cluster alone, only once it was saved, and the newest.

use std::{collections::BTreeSet, time::Duration};

use tokio::time::Instant;

use super::{
    super::{
        path::LOCAL_TOKEN,
        remote::{Purpose, Received},
        world::READ_FILES,
    },
    history::History,
};
use crate::journal::Actor;

/// A replica reads the Secret every 11 s at most, and files every 5 s. Calls take a moment.
const LAG: Duration = Duration::from_secs(20);
/// After trouble everywhere, what a replica read last may be old.
const RECOVERY: Duration = Duration::from_secs(60);

pub fn violations(history: &History<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for (cluster, remote) in history.world.remotes.iter().enumerate() {
        let received = remote.state().received.clone();
        for received in &received {
            let Actor::Ours { replica, life } = received.by else { continue };
            let wrong = wrong_token(history, cluster, replica, life, received);
            if let Some(what) = wrong {
                found.push(format!("replica {replica} sent {} {what}", remote.name));
                break;
            }
        }
    }
    found
}

fn wrong_token(
    history: &History<'_>,
    cluster: usize,
    replica: usize,
    life: u32,
    received: &Received,
) -> Option<&'static str> {
    let Received { bearer, sent, .. } = received;
    if bearer == LOCAL_TOKEN {
        return Some("the token of its own cluster");
    }
    // A trial is how a token proves itself before it is saved.
    if received.purpose == Purpose::Trial {
        return None;
    }
    let files = history.world.file_changes(cluster);
    let is_file =
        files.iter().any(|it| it.text.as_ref() == Some(bearer) && it.seen_from[replica] <= *sent);
    let is_saved = history
        .secrets
        .iter()
        .any(|it| it.at <= *sent && it.entries[cluster].as_ref() == Some(bearer));
    if !is_file && !is_saved {
        return Some("a token before it was saved, or one that is not the cluster's");
    }
    if received.purpose != Purpose::Keys {
        return None;
    }
    let process = history.world.processes(replica).into_iter().find(|it| it.life == life)?;
    let since = (*sent - LAG.min(*sent - process.born)).max(process.born);
    if history.world.had_trouble(None, since - RECOVERY.min(since - process.born), *sent) {
        return None;
    }
    let expected = expected(history, cluster, replica, process.born, since, *sent);
    (!expected.contains(&Some(bearer.clone()))).then_some("an old token")
}

/// The tokens that may have counted for a process between the two moments.
fn expected(
    history: &History<'_>,
    cluster: usize,
    replica: usize,
    born: Instant,
    since: Instant,
    sent: Instant,
) -> BTreeSet<Option<String>> {
    let changes = history.secrets.iter().map(|it| it.at);
    let files = history.world.file_changes(cluster);
    let files = files.iter().map(|it| it.seen_from[replica]);
    let within = changes.chain(files).filter(|at| (since..=sent).contains(at));
    let mut expected = BTreeSet::new();
    for at in within.chain([since, sent]) {
        // A file may have been read before the Secret, or after it.
        for seen in [at, at - READ_FILES.min(at - born)] {
            let file = history.seen_file(cluster, replica, born, seen);
            expected.insert(history.chosen(file.clone(), history.entry(cluster, at), at));
            // It may not have read the Secret yet, or started while there was none.
            let knows_none = since == born || history.secret_at(at).is_none_or(|it| !it.exists);
            if knows_none {
                expected.insert(file);
            }
        }
    }
    expected
}

//! Tells how it stands with each cluster: in the ConfigMap, and problems in Events, too. Only the leader does.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};

use super::renew::{Renewer, pause};
use crate::{
    k8s::{
        api_error::ApiError,
        events::{Message, Reported},
    },
    names::REVIEW_SECRET,
    review::decide::{
        renewal::Source,
        state,
        status_report::{Facts, Problem, entries, shared_keys},
    },
};

/// The reason of Events about the Secret.
const BROKEN: &str = "SecretEntryBroken";

fn broken(problem: &state::Problem) -> String {
    format!("Secret {REVIEW_SECRET}: {problem}")
}

impl Renewer {
    pub(super) async fn report(&self) {
        loop {
            if self.gate.is_open() && self.waiting_for().is_none() {
                let of_secret = self.stored.lock().await.state.problems.clone();
                let facts = self.facts(&of_secret);
                match self.write_status(&facts).await {
                    Ok(()) | Err(ApiError::NotLeader | ApiError::Conflict) => {}
                    Err(error) => tracing::warn!(%error, "statuses not written"),
                }
                self.publish(&facts, &of_secret).await;
            }
            pause().await;
        }
    }

    async fn write_status(&self, facts: &BTreeMap<&str, Facts>) -> Result<(), ApiError> {
        // Read each time: another replica may have led meanwhile.
        let before = self.writer.load_status().await?;
        let entries = entries(&before.entries, facts, self.clock.now());
        self.writer.save_status(&before, &entries).await
    }

    fn facts(&self, of_secret: &[state::Problem]) -> BTreeMap<&str, Facts> {
        let directory = self.keys.directory();
        let mut all = BTreeMap::new();
        for cluster in self.keys.clusters() {
            let keys = self.keys.state(cluster).unwrap_or_default();
            let mut problems = self.credential_problems(cluster);
            let entry = state::Problem::Credential(state::entry_name(cluster));
            if of_secret.contains(&entry) {
                problems.push(Problem { reason: BROKEN, text: broken(&entry) });
            }
            problems.extend(shared_keys(cluster, &directory.shared));
            let facts = Facts {
                has_keys: keys.fetched_at.is_some(),
                keys: keys.keys.len(),
                error: keys.error,
                credential: self.credential(cluster),
                problems,
            };
            all.insert(&**cluster, facts);
        }
        all
    }

    fn credential(&self, cluster: &str) -> Option<(Source, DateTime<Utc>)> {
        Some((self.credentials.source(cluster)?, self.credentials.life(cluster)?.expires))
    }

    fn credential_problems(&self, cluster: &str) -> Vec<Problem> {
        let Some(path) = self.credentials.path(cluster) else { return Vec::new() };
        let problem = |reason, text| Problem { reason, text };
        let mut problems = Vec::new();
        let next = self.next(cluster);
        if let Some(error) = self.credentials.file_problem(cluster) {
            problems.push(problem("TokenFileUnusable", error));
        } else if next.is_none() {
            let text = format!(
                "there is no token, neither in {} nor in Secret {REVIEW_SECRET}",
                path.display()
            );
            problems.push(problem("NoCredential", text));
        }
        let notice = next.and_then(|it| it.notice);
        problems.extend(notice.map(|it| problem("TokenOfAnother", it.to_string())));
        problems.extend(self.renewal_problem(cluster));
        problems
    }

    /// Events of what somebody has to do. One that was published is renewed every hour.
    async fn publish(&self, facts: &BTreeMap<&str, Facts>, of_secret: &[state::Problem]) {
        let of_clusters = facts.iter().flat_map(|(cluster, facts)| {
            let note = move |it: &Problem| (it.reason, format!("cluster {cluster}: {}", it.text));
            facts.problems.iter().map(note)
        });
        let is_of_cluster = |it: &&state::Problem| match it {
            state::Problem::Credential(entry) => {
                facts.keys().any(|cluster| state::entry_name(cluster) == *entry)
            }
            _ => false,
        };
        let others = of_secret.iter().filter(|it| !is_of_cluster(it));
        let all = of_clusters.chain(others.map(|it| (BROKEN, broken(it))));
        for (reason, note) in all {
            if !self.gate.is_open() {
                return;
            }
            let message = Message {
                regarding: self.regarding.clone(),
                kind: "Warning",
                reason,
                action: "Renew",
                note,
                topic: None,
            };
            if let Err(error) = self.publisher.publish_ongoing(&message, Reported::NotYet).await {
                tracing::warn!(%error, "Event not published");
            }
        }
        self.publisher.forget_old();
    }
}

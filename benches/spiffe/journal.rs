//! Every write to a SPIFFEFederation, as a watch shows it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use chrono::{DateTime, Utc};
use futures::StreamExt;
use kube::{
    Api, Client,
    api::{WatchEvent, WatchParams},
};
use tokio::task::JoinHandle;
use trustplane::api::spiffe_federation::SpiffeFederation;

#[derive(Clone, Debug)]
pub struct Written {
    pub at: DateTime<Utc>,
    pub next_sync_at: Option<DateTime<Utc>>,
    is_trusted: bool,
}

type Writes = Arc<Mutex<HashMap<String, Vec<Written>>>>;

pub struct Journal {
    writes: Writes,
    watching: JoinHandle<()>,
}

impl Journal {
    /// From an empty cluster on.
    pub fn start(client: Client) -> Self {
        let writes = Writes::default();
        let watching = tokio::spawn(follow(Api::all(client), writes.clone()));
        Self { writes, watching }
    }

    pub fn of(&self, name: &str) -> Vec<Written> {
        let writes = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
        writes.get(name).cloned().unwrap_or_default()
    }

    /// How many are trusted now.
    pub fn trusted(&self) -> usize {
        let writes = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
        writes.values().filter(|it| it.last().is_some_and(|it| it.is_trusted)).count()
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

async fn follow(api: Api<SpiffeFederation>, writes: Writes) {
    let mut version = "0".to_owned();
    loop {
        let Ok(events) = api.watch(&WatchParams::default(), &version).await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let mut events = std::pin::pin!(events);
        while let Some(Ok(event)) = events.next().await {
            let federation = match event {
                WatchEvent::Added(federation) | WatchEvent::Modified(federation) => federation,
                WatchEvent::Deleted(gone) => {
                    let name = gone.name();
                    writes.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
                    continue;
                }
                _ => continue,
            };
            version = federation.metadata.resource_version.clone().unwrap_or(version);
            // One without a status was just created.
            if federation.status.conditions.is_empty() {
                continue;
            }
            let trusted = federation.condition("Trusted");
            let written = Written {
                at: Utc::now(),
                next_sync_at: federation.status.next_sync_at,
                is_trusted: trusted.is_some_and(|it| it.status == "True"),
            };
            let mut writes = writes.lock().unwrap_or_else(PoisonError::into_inner);
            writes.entry(federation.name().to_owned()).or_default().push(written);
        }
    }
}

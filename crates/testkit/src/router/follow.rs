//! Watches the Routes of the cluster. After any failure it soon lists again.

use std::collections::HashSet;
use std::time::Duration;

use futures::StreamExt;
use kube::core::DeserializeGuard;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use tokio::sync::mpsc::UnboundedSender;

use super::plan::{At, Route};

const AFTER_A_FAILURE: Duration = Duration::from_millis(300);

/// A change of the Routes.
pub enum Change {
    /// The Route was created or changed.
    Applied(Box<Route>),
    /// The Route was deleted, or can't be decoded.
    Gone(At),
    /// A list is complete: no other Routes exist.
    Listed(HashSet<At>),
    /// The watch broke.
    Failed,
}

/// Sends every change, for ever.
pub async fn run(client: Client, tell: UnboundedSender<Change>) {
    let routes: Api<DeserializeGuard<Route>> = Api::all(client);
    loop {
        let mut listed = HashSet::new();
        let mut events = watcher(routes.clone(), watcher::Config::default()).boxed();
        while let Some(Ok(event)) = events.next().await {
            let change = match event {
                Event::Init => continue,
                Event::InitApply(route) => {
                    listed.insert(at(&route));
                    applied(route)
                }
                Event::InitDone => Change::Listed(std::mem::take(&mut listed)),
                Event::Apply(route) => applied(route),
                Event::Delete(route) => Change::Gone(at(&route)),
            };
            let _ = tell.send(change);
        }
        let _ = tell.send(Change::Failed);
        tokio::time::sleep(AFTER_A_FAILURE).await;
    }
}

fn applied(route: DeserializeGuard<Route>) -> Change {
    let at = at(&route);
    match route.0 {
        Ok(route) => Change::Applied(Box::new(route)),
        Err(_) => Change::Gone(at),
    }
}

fn at(route: &DeserializeGuard<Route>) -> At {
    let meta = route.meta();
    At {
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
    }
}

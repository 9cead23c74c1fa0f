//! Watches: the changes since a version, then new ones.

use std::{collections::VecDeque, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    ApiServer,
    accept::Format,
    answer::{Answer, push},
    body::Body,
    list_options::{Start, WatchOptions},
    params::Params,
    path::Target,
    table::{self, Table},
};
use crate::{
    api_error::ApiError,
    kinds::Kind,
    schema,
    select::Selector,
    store::{Change, Query, from_stored, stored_as},
};

/// A watch that names no timeout ends after this long.
const LONGEST: Duration = Duration::from_secs(1800);
const BETWEEN_BOOKMARKS: Duration = Duration::from_secs(60);
/// The last bookmark is sent this long before the end.
const FAREWELL: Duration = Duration::from_secs(2);

/// The selection and format of a watch.
pub(super) struct View {
    pub selector: Selector,
    pub format: Format,
    pub table: Table,
}

/// Answers with the stream of a watch.
pub(super) fn open(
    server: &ApiServer,
    target: &Target,
    view: View,
    params: &Params,
) -> Result<Answer, ApiError> {
    let options = WatchOptions::read(params)?;
    let deadline = Instant::now() + options.timeout.unwrap_or(LONGEST);
    let mut watch = Watch {
        server: server.clone(),
        kind: target.kind,
        namespace: target.namespace.clone(),
        view,
        columns_told: false,
        seen: 0,
        ready: VecDeque::new(),
        bookmarks: options.bookmarks.then(|| next_bookmark(deadline)).flatten(),
        deadline,
        ended: false,
    };
    match options.start {
        Start::Now => watch.send_what_is(options.bookmarks)?,
        // From the current version.
        Start::After(0) => watch.seen = server.with(|store| store.version()),
        Start::After(version) => watch.catch_up(version),
    }
    let events = stream::unfold(watch, |mut watch| async move {
        let event = watch.next().await?;
        Some((event, watch))
    });
    Ok(Answer::stream(Body::stream(events.boxed())))
}

struct Watch {
    server: ApiServer,
    kind: &'static Kind,
    namespace: String,
    view: View,
    columns_told: bool,
    /// Everything up to this version was sent.
    seen: u64,
    ready: VecDeque<Bytes>,
    /// When the next bookmark is due, if any are wanted.
    bookmarks: Option<Instant>,
    deadline: Instant,
    ended: bool,
}

impl Watch {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.ended || Instant::now() >= self.deadline {
                return None;
            }
            // Registered before reading, so that no change in between is missed.
            let server = self.server.clone();
            let mut changed = pin!(server.inner.changed.notified());
            changed.as_mut().enable();
            self.look();
            if !self.ready.is_empty() || self.ended {
                continue;
            }
            let alarm = self.bookmarks.map_or(self.deadline, |due| due.min(self.deadline));
            tokio::select! {
                biased;
                () = changed => {}
                () = tokio::time::sleep_until(alarm) => self.bookmark_if_due(),
            }
        }
    }

    /// Sends the objects that exist as ADDED.
    fn send_what_is(&mut self, marked: bool) -> Result<(), ApiError> {
        let query = Query { selector: self.view.selector.clone(), ..Query::default() };
        let list = self.server.with(|store| store.list(self.kind, &self.namespace, &query))?;
        for object in &list.items {
            self.push("ADDED", object);
        }
        self.seen = list.version;
        if marked {
            self.push_bookmark(json!({ "k8s.io/initial-events-end": "true" }));
        }
        Ok(())
    }

    /// Sends the changes since the version that the client knows, if they are still remembered.
    fn catch_up(&mut self, from: u64) {
        self.seen = from;
        let gone = self.server.with(|store| store.changes_since(from).err());
        match gone {
            None => self.look(),
            Some(gone) => self.fail(&ApiError::expired(gone.to_string())),
        }
    }

    fn look(&mut self) {
        let from = self.seen;
        let found = self.server.with(|store| {
            let changes = store.unlisted(from)?;
            let concerned = changes.filter(|change| self.concerns(change)).cloned();
            Ok((store.version(), concerned.collect::<Vec<_>>()))
        });
        match found {
            Ok((version, changes)) => {
                for change in changes {
                    self.tell(&change);
                }
                // A watch from a future version waits for it.
                self.seen = self.seen.max(version);
            }
            Err(gone) => {
                let gone: crate::store::Gone = gone;
                self.fail(&ApiError::expired(gone.to_string()));
            }
        }
    }

    fn concerns(&self, change: &Change) -> bool {
        change.kind.slot == self.kind.slot
            && (self.namespace.is_empty() || *self.namespace == *change.namespace)
    }

    /// An object that the selector no longer matches is sent as deleted.
    fn tell(&mut self, change: &Change) {
        let covered = |object: &&Arc<Value>| self.view.selector.matches(object);
        let before = change.before.as_ref().filter(covered);
        let after = change.after.as_ref().filter(covered);
        match (before, after) {
            (None, Some(after)) => self.push("ADDED", after),
            (Some(_), Some(after)) => self.push("MODIFIED", after),
            (Some(before), None) => {
                let mut last = Value::clone(before);
                last["metadata"]["resourceVersion"] = change.version.to_string().into();
                self.push("DELETED", &last);
            }
            (None, None) => {}
        }
    }

    fn push(&mut self, what: &str, object: &Value) {
        match self.view.format {
            Format::Table => {
                let first = !std::mem::replace(&mut self.columns_told, true);
                self.view.table.now = self.server.now();
                let table = self.view.table.of_event(object, first);
                self.push_event(what, &table);
            }
            Format::Metadata | Format::MetadataList => {
                self.push_event(what, &table::partial(object))
            }
            Format::Plain | Format::Discovery => {
                let object = from_stored(self.kind, object);
                self.push_event(what, &object);
            }
        }
    }

    fn push_event(&mut self, what: &str, object: &Value) {
        let mut line = format!("{{\"type\":\"{what}\",\"object\":");
        push(&mut line, object);
        line.push_str("}\n");
        self.ready.push_back(line.into());
    }

    /// An object with only its version.
    fn push_bookmark(&mut self, annotations: Value) {
        let mut bookmark = empty(stored_as(self.kind));
        bookmark["metadata"] = json!({ "resourceVersion": self.seen.to_string() });
        if !annotations.is_null() {
            bookmark["metadata"]["annotations"] = annotations;
        }
        self.push("BOOKMARK", &bookmark);
    }

    fn bookmark_if_due(&mut self) {
        let now = Instant::now();
        if self.bookmarks.is_some_and(|due| due <= now) && now < self.deadline {
            self.bookmarks = next_bookmark(self.deadline);
            self.push_bookmark(Value::Null);
        }
    }

    fn fail(&mut self, error: &ApiError) {
        self.push_event("ERROR", &error.to_status());
        self.ended = true;
    }
}

fn next_bookmark(deadline: Instant) -> Option<Instant> {
    let now = Instant::now();
    let farewell = deadline.checked_sub(FAREWELL).filter(|farewell| *farewell > now)?;
    Some(farewell.min(now + BETWEEN_BOOKMARKS))
}

/// An empty object as Go's encoder writes it.
fn empty(kind: &Kind) -> Value {
    let mut object = json!({});
    if !kind.is_custom() {
        // Decoding an empty object never fails.
        object = schema::decode(&kind.schema, object, "", &mut Vec::new()).unwrap_or_default();
    }
    object["kind"] = kind.kind.into();
    object["apiVersion"] = kind.api_version().into();
    object
}

//! Reads our Secret again and again, on every replica, and keeps the notes in it.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use super::{
    apply::Stored,
    renew::{Renewer, pause},
};
use crate::{
    k8s::api_error::ApiError,
    review::decide::{
        notes::{Notes, Published},
        state::State,
    },
    runtime::failpoints::{self, Bug},
};

/// A cluster whose keys were not fetched for so long is down, and others' keys are noted without it.
const PATIENCE: Duration = Duration::from_secs(600);

impl Renewer {
    pub(super) async fn follow(&self) {
        // One line for an outage, not one for each try.
        let is_told = AtomicBool::new(false);
        loop {
            match self.look_after_secret().await {
                Ok(()) => is_told.store(false, Ordering::Relaxed),
                Err(ApiError::Conflict | ApiError::AlreadyExists | ApiError::NotLeader) => {}
                Err(error) if !is_told.swap(true, Ordering::Relaxed) => {
                    tracing::warn!(%error, "Secret not read or written");
                }
                Err(_) => {}
            }
            pause().await;
        }
    }

    async fn look_after_secret(&self) -> Result<(), ApiError> {
        let is_standby = !self.gate.is_open() && self.waiting_for().is_none();
        if is_standby && failpoints::has(Bug::StandbyNeverFollows) {
            return Ok(());
        }
        let mut stored = self.stored.lock().await;
        self.read_into(&mut stored).await?;
        if !self.gate.is_open() {
            return Ok(());
        }
        let state = State { notes: self.next_notes(&stored.state), ..stored.state.clone() };
        let is_lost = !stored.exists() && !state.is_empty();
        if is_lost || state != stored.state {
            *stored = self.writer.save(&stored, &state).await?;
            self.use_stored(&stored);
        }
        Ok(())
    }

    pub(super) async fn read_secret(&self) -> Result<(), ApiError> {
        let mut stored = self.stored.lock().await;
        self.read_into(&mut stored).await
    }

    pub(super) async fn read_into(&self, stored: &mut Stored) -> Result<(), ApiError> {
        match self.writer.load().await? {
            Some(found) => *stored = found,
            None if failpoints::has(Bug::LostSecretForgotten) => *stored = Stored::default(),
            // What we know of it stays in use, and the leader writes it again: nobody else has the tokens.
            None => stored.lose(),
        }
        self.use_stored(stored);
        self.was_read.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Only what stands in the Secret is used.
    pub(super) fn use_stored(&self, stored: &Stored) {
        self.credentials.take(&stored.state);
        if let Some(notes) = &stored.state.notes {
            self.keys.note(notes.owners());
        }
    }

    /// None if the notes that there are can't be read: nobody's place is taken by that.
    fn next_notes(&self, state: &State) -> Option<Notes> {
        let (directory, missing) = (self.keys.directory(), self.keys.missing());
        let today = self.clock.now().date_naive();
        let published = Published { directory: &directory, missing: &missing, today };
        let is_patient = self.started.elapsed() < PATIENCE;
        if failpoints::has(Bug::NotesOverwritten) {
            return Some(Notes::default().next(&published, is_patient));
        }
        state.notes.as_ref().map(|notes| notes.next(&published, is_patient))
    }
}

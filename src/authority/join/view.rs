//! What joins are judged by, as this replica knows it: tokens, bundles, and who signs.
//!
//! The controller keeps it current, from its watches and from the state of our CA. A replica that has not
//! heard of one of them for a while must not judge: a deleted token or federation would still count.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use chrono::TimeDelta;
use tokio::{sync::watch, time::Instant};

use super::messages::{Response, ResponsePayload, TrustBundles, framed};
use crate::{
    api::join_token::JoinToken,
    authority::act::signer::Signer,
    runtime::{
        failpoints::{self, Bug},
        lock::lock,
    },
    spiffe::{bundle::Bundle, id::TrustDomain},
};

/// After this long without a sign of life from a watch or of our CA's state nobody joins.
pub const LONGEST_SILENCE: Duration = Duration::from_secs(60);
/// For the watches that joins are judged by. A quarter of the above: the end of a watch shows that everything
/// until then is known, and some of them may fail.
pub const WATCH_TIMEOUT: Duration = Duration::from_secs(15);

/// Why nobody can join at this replica now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unready {
    #[error("the JoinTokens are not known, or have not been heard of for {LONGEST_SILENCE:?}")]
    Tokens,
    #[error(
        "the SPIFFEFederations are not known, or have not been heard of for {LONGEST_SILENCE:?}"
    )]
    Federations,
    #[error("the CA of our trust domain is not known, or was not read for {LONGEST_SILENCE:?}")]
    Authority,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    Tokens,
    Federations,
}

/// The CA that signs now.
#[derive(Clone)]
pub struct Issuer {
    pub signer: Arc<dyn Signer>,
    /// The longest life of what it signs.
    pub ttl: TimeDelta,
    /// When its state was read.
    pub read_at: Instant,
}

/// A token as it was last seen.
#[derive(Clone)]
pub struct KnownToken {
    pub token: Arc<JoinToken>,
    /// Held while a use is written. Those that join here at once wait for each other instead of colliding.
    pub writing: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Default)]
pub struct View {
    tokens: Mutex<BTreeMap<String, KnownToken>>,
    trusted: watch::Sender<Arc<Trusted>>,
    issuer: Mutex<Option<Issuer>>,
    tokens_heard_at: Mutex<Option<Instant>>,
    federations_heard_at: Mutex<Option<Instant>>,
}

impl View {
    pub fn check_ready(&self, now: Instant) -> Result<Issuer, Unready> {
        let is_recent = |at: Instant| now.duration_since(at) <= LONGEST_SILENCE;
        let is_heard = |at: Instant| is_recent(at) || failpoints::has(Bug::BelievesDeadWatch);
        if !lock(&self.tokens_heard_at).is_some_and(is_heard) {
            return Err(Unready::Tokens);
        }
        if !lock(&self.federations_heard_at).is_some_and(is_heard) {
            return Err(Unready::Federations);
        }
        let issuer = lock(&self.issuer).clone();
        issuer.filter(|it| is_recent(it.read_at)).ok_or(Unready::Authority)
    }

    /// Everything that a watch is of is known as it is now.
    pub fn heard_of(&self, watched: Watched, now: Instant) {
        let heard_at = match watched {
            Watched::Tokens => &self.tokens_heard_at,
            Watched::Federations => &self.federations_heard_at,
        };
        *lock(heard_at) = Some(now);
    }

    pub fn set_issuer(&self, issuer: Option<Issuer>) {
        let mut known = lock(&self.issuer);
        match (&mut *known, issuer) {
            (Some(known), Some(new)) if failpoints::has(Bug::KeepsFirstIssuer) => {
                known.read_at = new.read_at;
            }
            (known, new) => *known = new,
        }
    }

    pub fn token(&self, name: &str) -> Option<KnownToken> {
        lock(&self.tokens).get(name).cloned()
    }

    /// What the watch brings. Keeps the newest version of a token.
    pub fn learn_token(&self, token: JoinToken) {
        let mut tokens = lock(&self.tokens);
        match tokens.get_mut(token.name()) {
            // What we wrote ourselves may be newer.
            Some(known)
                if known.token.uid() == token.uid()
                    && version(&known.token) > version(&token)
                    && !failpoints::has(Bug::OlderEventOverwrites) => {}
            Some(known) => known.token = lean(token),
            None => {
                let name = token.name().to_owned();
                tokens.insert(name, KnownToken { token: lean(token), writing: Arc::default() });
            }
        }
    }

    /// What a call of ours was answered, and whether the object is known. Only the watch says which tokens
    /// there are: an answer may arrive after the news that its token was deleted, and no other news of it
    /// would follow.
    pub fn update_token(&self, token: &JoinToken) -> bool {
        if failpoints::has(Bug::LateAnswerRevives) {
            self.learn_token(token.clone());
        }
        let mut tokens = lock(&self.tokens);
        let known = tokens.get_mut(token.name()).filter(|it| it.token.uid() == token.uid());
        let is_known = known.is_some();
        if let Some(known) = known.filter(|it| version(&it.token) < version(token)) {
            known.token = lean(token.clone());
        }
        is_known
    }

    pub fn forget_token(&self, name: &str) {
        if !failpoints::has(Bug::DeletedTokenStays) {
            lock(&self.tokens).remove(name);
        }
    }

    /// A list has shown that there are no others.
    pub fn keep_tokens(&self, names: &BTreeSet<&str>) {
        lock(&self.tokens).retain(|name, _| names.contains(&**name));
    }

    /// The bundles that count now.
    pub fn trusted(&self) -> Arc<Trusted> {
        self.trusted.borrow().clone()
    }

    /// Its first change is the bundles that count now.
    pub fn follow_trusted(&self) -> watch::Receiver<Arc<Trusted>> {
        let mut trusted = self.trusted.subscribe();
        trusted.mark_changed();
        trusted
    }

    /// Followers hear of it if it differs.
    pub fn set_trusted(&self, mut documents: BTreeMap<TrustDomain, Arc<str>>) {
        if failpoints::has(Bug::EndedTrustCounts) {
            for (name, document) in self.trusted().documents() {
                documents.entry(name.clone()).or_insert_with(|| document.clone());
            }
        }
        self.trusted.send_if_modified(|trusted| {
            let next = trusted.with(documents);
            let has_changed = !trusted.documents().eq(next.documents());
            *trusted = Arc::new(next);
            has_changed
        });
    }
}

/// Bundles by trust domain, ours among them.
#[derive(Debug, Default)]
pub struct Trusted {
    bundles: BTreeMap<TrustDomain, TrustedBundle>,
    /// The message to followers, once somebody needs it.
    framed: OnceLock<Bytes>,
}

#[derive(Clone, Debug)]
struct TrustedBundle {
    document: Arc<str>,
    bundle: Arc<Bundle>,
}

impl Trusted {
    pub fn bundle(&self, trust_domain: &TrustDomain) -> Option<Arc<Bundle>> {
        self.bundles.get(trust_domain).map(|it| it.bundle.clone())
    }

    pub fn message(&self) -> TrustBundles {
        let entry = |(name, it): (&TrustDomain, &TrustedBundle)| {
            (name.to_string(), it.document.as_bytes().to_vec())
        };
        TrustBundles { bundles: self.bundles.iter().map(entry).collect() }
    }

    /// The message as it is sent to all followers, who share it.
    pub fn framed(&self) -> Bytes {
        let make = || {
            let payload = Some(ResponsePayload::TrustBundles(self.message()));
            framed(&Response { payload })
        };
        self.framed.get_or_init(make).clone()
    }

    fn documents(&self) -> impl Iterator<Item = (&TrustDomain, &Arc<str>)> {
        self.bundles.iter().map(|(name, it)| (name, &it.document))
    }

    /// Only what changed is parsed. A document that can't be read counts for nobody.
    fn with(&self, documents: BTreeMap<TrustDomain, Arc<str>>) -> Self {
        let bundle = |name: &TrustDomain, document: &Arc<str>| match self
            .bundles
            .get(name)
            .filter(|it| it.document == *document)
        {
            Some(same) => Some(same.bundle.clone()),
            None => Bundle::parse(document.as_bytes()).ok().map(Arc::new),
        };
        let entry = |(name, document): (TrustDomain, Arc<str>)| {
            let bundle = bundle(&name, &document)?;
            Some((name, TrustedBundle { document, bundle }))
        };
        let bundles = documents.into_iter().filter_map(entry).collect();
        Self { bundles, framed: OnceLock::new() }
    }
}

/// Without what nobody here reads.
fn lean(mut token: JoinToken) -> Arc<JoinToken> {
    token.metadata.managed_fields = None;
    token.metadata.annotations = None;
    token.metadata.labels = None;
    Arc::new(token)
}

fn version(token: &JoinToken) -> u64 {
    let text = token.metadata.resource_version.as_deref();
    text.and_then(|it| it.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests;

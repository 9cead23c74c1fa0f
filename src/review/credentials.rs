//! The token that each remote cluster is asked with: the newest of the file at `token_path` and our Secret.
//!
//! What a file holds is taken by [`Credentials::read_files`], what the Secret holds by [`Credentials::take`], and
//! every request asks for the token of that moment. So no client keeps an old one.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use http::HeaderValue;

pub use crate::runtime::redact::BearerToken;
use crate::{
    k8s::client::Bearer,
    review::decide::{
        credential::{Credential, Life},
        renewal::{Held, Source},
        state::State,
        token::{LONGEST, TokenError},
    },
    runtime::{
        clock::Clock,
        failpoints::{self, Bug},
        lock::lock,
    },
};

/// Why a file gives no token. The last good one stays.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("{} can't be read: {cause}", path.display())]
    Unreadable { path: PathBuf, cause: io::Error },
    #[error("{}: {cause}", path.display())]
    NotCredential { path: PathBuf, cause: TokenError },
}

impl FileError {
    fn is_missing(&self) -> bool {
        matches!(self, Self::Unreadable { cause, .. } if cause.kind() == io::ErrorKind::NotFound)
    }
}

pub struct Credentials {
    members: BTreeMap<Arc<str>, Member>,
    clock: Clock,
}

struct Member {
    path: PathBuf,
    state: Mutex<MemberState>,
}

#[derive(Default)]
struct MemberState {
    held: Held,
    /// The header of the token in use.
    header: Option<HeaderValue>,
    /// Why the file was not taken when it was read last, and whether there is none.
    problem: Option<(String, bool)>,
    /// That of the token that a renewal asks with, or tries.
    renewal: Option<HeaderValue>,
}

impl MemberState {
    fn used(&self, clock: &Clock) -> Option<&Credential> {
        self.held.used(clock.now()).and_then(|source| self.held.of(source))
    }

    fn choose(&mut self, clock: &Clock) {
        self.header = self.used(clock).and_then(|it| header(&it.token));
    }
}

/// Marked as sensitive, so that nothing logs it. Tokens have no character that a header can't have.
fn header(token: &BearerToken) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {}", token.expose())).ok()?;
    value.set_sensitive(true);
    Some(value)
}

impl Credentials {
    /// Of remote clusters and their `token_path`. Nothing is read yet.
    pub fn new(clusters: impl IntoIterator<Item = (Arc<str>, PathBuf)>, clock: Clock) -> Arc<Self> {
        let member = |(name, path)| (name, Member { path, state: Mutex::default() });
        Arc::new(Self { members: clusters.into_iter().map(member).collect(), clock })
    }

    pub fn clusters(&self) -> impl Iterator<Item = &Arc<str>> {
        self.members.keys()
    }

    /// The token in use, for every request to the cluster.
    pub fn bearer(self: &Arc<Self>, cluster: &Arc<str>) -> Arc<dyn Bearer> {
        Arc::new(Current { credentials: self.clone(), cluster: cluster.clone() })
    }

    /// The token that a renewal asks with, or tries. For nothing else.
    pub fn renewal_bearer(self: &Arc<Self>, cluster: &Arc<str>) -> Arc<dyn Bearer> {
        Arc::new(Renewal { credentials: self.clone(), cluster: cluster.clone() })
    }

    /// Of the token in use.
    pub fn life(&self, cluster: &str) -> Option<Life> {
        let state = lock(&self.members.get(cluster)?.state);
        state.used(&self.clock).map(|it| it.life)
    }

    /// Where the token in use is from.
    pub fn source(&self, cluster: &str) -> Option<Source> {
        lock(&self.members.get(cluster)?.state).held.used(self.clock.now())
    }

    /// Why the file at `token_path` gives no token, if it does not. It need not be there once a token was renewed.
    pub fn file_problem(&self, cluster: &str) -> Option<String> {
        let state = lock(&self.members.get(cluster)?.state);
        let (text, is_missing) = state.problem.as_ref()?;
        (!is_missing || state.held.saved.is_none()).then(|| text.clone())
    }

    pub(super) fn held(&self, cluster: &str) -> Option<Held> {
        Some(lock(&self.members.get(cluster)?.state).held.clone())
    }

    pub(super) fn path(&self, cluster: &str) -> Option<&Path> {
        Some(&self.members.get(cluster)?.path)
    }

    /// Reads the files again. Blocks for as long as the file system takes.
    pub fn read_files(&self) {
        for (cluster, member) in &self.members {
            self.take_file(cluster, read(&member.path));
        }
    }

    /// What the file at `token_path` holds now.
    pub fn take_file(&self, cluster: &str, text: io::Result<String>) {
        let Some(member) = self.members.get(cluster) else { return };
        let mut state = lock(&member.state);
        if state.held.file.is_some() && failpoints::has(Bug::NewerFileIgnored) {
            return;
        }
        let problem = match read_credential(text, &member.path) {
            Ok(credential) => {
                if state.held.file.as_ref() != Some(&credential) {
                    tracing::info!(cluster, account = %credential.account, "token file read");
                    state.held.file = Some(credential);
                }
                None
            }
            Err(error) => Some((error.to_string(), error.is_missing())),
        };
        if state.problem != problem {
            if let Some((error, _)) = &problem {
                tracing::warn!(cluster, %error, "token file not taken");
            }
            state.problem = problem;
        }
        state.choose(&self.clock);
    }

    /// What our Secret holds now.
    pub fn take(&self, stored: &State) {
        for (cluster, member) in &self.members {
            let mut state = lock(&member.state);
            state.held.saved = stored.saved.get(cluster).cloned();
            state.choose(&self.clock);
        }
    }

    /// Takes over what an older one knows of our Secret.
    pub fn adopt(&self, older: &Self) {
        for (cluster, member) in &self.members {
            let mut state = lock(&member.state);
            state.held.saved = older.held(cluster).and_then(|it| it.saved);
            state.choose(&self.clock);
        }
    }

    /// Has the next requests of a renewal sent with this token.
    pub(super) fn renew_with(&self, cluster: &str, token: Option<&BearerToken>) {
        if let Some(member) = self.members.get(cluster) {
            lock(&member.state).renewal = token.and_then(header);
        }
    }

    fn header(
        &self,
        cluster: &str,
        of: impl Fn(&MemberState) -> &Option<HeaderValue>,
    ) -> Option<HeaderValue> {
        of(&lock(&self.members.get(cluster)?.state)).clone()
    }
}

/// A token is short. Whatever else lies there must not fill our memory.
fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let most = LONGEST as u64 + 2;
    File::open(path)?.take(most).read_to_string(&mut text)?;
    Ok(text)
}

fn read_credential(text: io::Result<String>, path: &Path) -> Result<Credential, FileError> {
    let path = || path.to_owned();
    let text = text.map_err(|cause| FileError::Unreadable { path: path(), cause })?;
    Credential::read(&text).map_err(|cause| FileError::NotCredential { path: path(), cause })
}

struct Current {
    credentials: Arc<Credentials>,
    cluster: Arc<str>,
}

impl Bearer for Current {
    fn header(&self) -> Option<HeaderValue> {
        self.credentials.header(&self.cluster, |state| &state.header)
    }
}

struct Renewal {
    credentials: Arc<Credentials>,
    cluster: Arc<str>,
}

impl Bearer for Renewal {
    fn header(&self) -> Option<HeaderValue> {
        self.credentials.header(&self.cluster, |state| &state.renewal)
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;
    use crate::review::decide::{
        state::Saved,
        testing::{Issuer, claims, legacy_claims, noon},
    };

    const A: &str = "a";

    fn token(issued: i64) -> String {
        let mut claims = claims();
        claims["iat"] = (noon().timestamp() + issued).into();
        Issuer::p256("k").token(&claims)
    }

    fn state(token: &str) -> State {
        let credential = Credential::read(token).unwrap();
        let (asked, origin) = (TimeDelta::hours(1), "sha256:00".to_owned());
        let saved = Saved { credential, asked, origin };
        State { saved: BTreeMap::from([(A.into(), saved)]), ..State::default() }
    }

    fn credentials(path: &Path) -> Arc<Credentials> {
        Credentials::new([(A.into(), path.to_owned())], Clock::from_fn(noon))
    }

    fn sent(credentials: &Arc<Credentials>) -> Option<String> {
        let header = credentials.bearer(&A.into()).header()?;
        assert!(header.is_sensitive());
        Some(header.to_str().unwrap().strip_prefix("Bearer ").unwrap().to_owned())
    }

    #[test]
    fn every_request_has_the_newest_token_of_the_moment() {
        let credentials = credentials(Path::new("/nowhere"));
        let bearer = credentials.bearer(&A.into());
        assert!(bearer.header().is_none() && credentials.life(A).is_none());
        let (first, second, third) = (token(0), token(60), token(120));
        credentials.take_file(A, Ok(format!("{first}\n")));
        assert_eq!(sent(&credentials), Some(first.clone()));
        credentials.take(&state(&second));
        assert_eq!(sent(&credentials), Some(second));
        assert_eq!(credentials.life(A).unwrap().issued, noon() + TimeDelta::minutes(1));
        credentials.take_file(A, Ok(third.clone()));
        assert_eq!(sent(&credentials), Some(third.clone()));
        assert!(bearer.header().unwrap().to_str().unwrap().contains(&third), "kept by nobody");
        credentials.take(&State::default());
        assert_eq!(sent(&credentials), Some(third));
    }

    #[test]
    fn a_file_that_can_not_be_used_is_told_and_the_last_good_token_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let credentials = credentials(&path);
        credentials.read_files();
        let problem = credentials.file_problem(A).unwrap();
        assert!(problem.contains("token can't be read: No such file"), "{problem}");
        credentials.take(&state(&token(60)));
        assert_eq!(credentials.file_problem(A), None, "it is not needed");
        credentials.take(&State::default());
        let first = token(0);
        std::fs::write(&path, &first).unwrap();
        credentials.read_files();
        assert_eq!((sent(&credentials), credentials.file_problem(A)), (Some(first.clone()), None));
        let (long, broken) = ("e".repeat(20_000), format!("{first} {first}"));
        for text in [&*long, &broken, "", "\u{0}"] {
            std::fs::write(&path, text).unwrap();
            credentials.read_files();
            let problem = credentials.file_problem(A).unwrap();
            assert!(!problem.contains(&first) && problem.contains("token: the token"), "{problem}");
            assert_eq!(sent(&credentials), Some(first.clone()));
        }
    }

    #[test]
    fn a_token_without_an_end_can_be_the_first() {
        let credentials = credentials(Path::new("/nowhere"));
        let first = Issuer::rsa("k").token(&legacy_claims());
        credentials.take_file(A, Ok(first.clone()));
        assert_eq!(sent(&credentials), Some(first));
        let second = token(0);
        credentials.take(&state(&second));
        assert_eq!(sent(&credentials), Some(second));
    }

    #[test]
    fn a_renewal_has_a_token_of_its_own() {
        let credentials = credentials(Path::new("/nowhere"));
        let (first, second) = (token(0), token(60));
        credentials.take_file(A, Ok(first.clone()));
        let bearer = credentials.renewal_bearer(&A.into());
        assert!(bearer.header().is_none());
        credentials.renew_with(A, Some(&BearerToken::new(second.clone())));
        assert!(bearer.header().unwrap().to_str().unwrap().ends_with(&second));
        assert_eq!(sent(&credentials), Some(first), "what is tried is not in use yet");
        credentials.renew_with(A, None);
        assert!(bearer.header().is_none());
    }
}

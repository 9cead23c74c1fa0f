//! Something that is made of files, and made again when they change.

use std::{fmt, fs, io, path::PathBuf, sync::Mutex, time::Duration};

use sha2::{Digest, Sha256};
use tokio::time::Instant;
use zeroize::Zeroizing;

use crate::runtime::lock::lock;

/// The files are checked for changes at most this often.
pub const RELOAD_INTERVAL: Duration = Duration::from_secs(1);

/// The content of one file, which may be a key.
pub type Content = Zeroizing<Vec<u8>>;

#[derive(Debug, thiserror::Error)]
#[error("{} can't be read: {cause}", path.display())]
pub struct ReadError {
    path: PathBuf,
    cause: io::Error,
}

pub struct Reloader<T, E> {
    /// For the log.
    what: &'static str,
    paths: Vec<PathBuf>,
    parse: Parse<T, E>,
    loaded: Mutex<Loaded<T>>,
}

type Parse<T, E> = Box<dyn Fn(&[Content]) -> Result<T, E> + Send + Sync>;

struct Loaded<T> {
    value: T,
    /// Of the files when they were last checked.
    digest: [u8; 32],
    checked_at: Instant,
}

impl<T, E> fmt::Debug for Reloader<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reloader({:?})", self.paths)
    }
}

impl<T: Clone, E: fmt::Display + From<ReadError>> Reloader<T, E> {
    /// `parse` gets the contents in the order of `paths`.
    pub fn read(
        what: &'static str,
        paths: Vec<PathBuf>,
        parse: impl Fn(&[Content]) -> Result<T, E> + Send + Sync + 'static,
    ) -> Result<Self, E> {
        let contents = contents(&paths)?;
        let (value, digest) = (parse(&contents)?, digest(&contents));
        let loaded = Mutex::new(Loaded { value, digest, checked_at: Instant::now() });
        Ok(Self { what, paths, parse: Box::new(parse), loaded })
    }

    /// What the files say now. If they turned unusable, that is logged once, and what they said before stays.
    pub fn current(&self) -> T {
        let mut loaded = lock(&self.loaded);
        if loaded.checked_at.elapsed() >= RELOAD_INTERVAL {
            loaded.checked_at = Instant::now();
            if let Err(error) = self.reload(&mut loaded) {
                tracing::warn!(%error, "reloading the {} failed, the old one stays", self.what);
            }
        }
        loaded.value.clone()
    }

    fn reload(&self, loaded: &mut Loaded<T>) -> Result<(), E> {
        let contents = contents(&self.paths)?;
        let digest = digest(&contents);
        if std::mem::replace(&mut loaded.digest, digest) != digest {
            loaded.value = (self.parse)(&contents)?;
            tracing::info!("{} reloaded", self.what);
        }
        Ok(())
    }
}

fn contents(paths: &[PathBuf]) -> Result<Vec<Content>, ReadError> {
    let read = |path: &PathBuf| match fs::read(path) {
        Ok(content) => Ok(Zeroizing::new(content)),
        Err(cause) => Err(ReadError { path: path.clone(), cause }),
    };
    paths.iter().map(read).collect()
}

fn digest(contents: &[Content]) -> [u8; 32] {
    let mut digest = Sha256::new();
    for content in contents {
        digest.update((content.len() as u64).to_be_bytes());
        digest.update(content);
    }
    digest.finalize().into()
}

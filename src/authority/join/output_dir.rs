//! Writes what a join brought into a folder: all of it or nothing.
//!
//! As the kubelet does for Secrets: each set lies in a folder of its own, `..data` is a link to the one that
//! counts, and `svid.pem` and the others are links into `..data`. Replacing one link replaces the whole set,
//! also where the folder is a mounted volume, which can't be renamed. A reader that needs certificate and key
//! of the same moment resolves `..data` once.

use std::{
    collections::BTreeSet,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, symlink},
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::{
    authority::decide::agent::{IssuedSvid, TrustedBundles},
    runtime::redact::PrivateKeyPem,
    spiffe::id::TrustDomain,
};

const DATA: &str = "..data";
const NEXT: &str = "..data.new";
const SVID: &str = "svid.pem";
const KEY: &str = "svid_key.pem";
/// In bytes.
const LONGEST_NAME: usize = 200;

#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    #[error("{0} is not a folder, or a link to one. Choose another with --out")]
    NotFolder(PathBuf),
    #[error(
        "{0} is there already, and is not from trustplane join. Choose an empty folder with --out"
    )]
    Foreign(PathBuf),
    #[error(
        "cannot write to {folder}: {error}. Does the folder above it exist, and may we write there?"
    )]
    Io { folder: PathBuf, error: io::Error },
}

/// A folder that may be written to.
#[derive(Debug)]
pub struct OutputDir(PathBuf);

impl OutputDir {
    /// Makes the folder if it is not there. Fails, before anything else is done, if something of somebody
    /// else's is in the way.
    pub fn open(folder: &Path) -> Result<Self, OutputError> {
        let this = Self(folder.to_owned());
        match fs::symlink_metadata(folder) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => return Err(OutputError::NotFolder(folder.to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let made = DirBuilder::new().mode(0o700).create(folder);
                made.map_err(|error| this.failed(error))?;
            }
            Err(error) => return Err(this.failed(error)),
        }
        for name in this.names().map_err(|error| this.failed(error))? {
            let is_ours = name == DATA || name == NEXT || this.is_link(&name);
            if is_output(&name) && !is_ours {
                return Err(OutputError::Foreign(folder.join(name)));
            }
        }
        Ok(this)
    }

    /// Replaces the set. The names of its files.
    pub fn write(
        &self,
        svid: &IssuedSvid,
        bundles: &TrustedBundles,
    ) -> Result<Vec<PathBuf>, OutputError> {
        let mut files = vec![
            (SVID.to_owned(), Zeroizing::new(chain(svid).into_bytes())),
            (KEY.to_owned(), Zeroizing::new(key(svid).expose().as_bytes().to_vec())),
        ];
        for (trust_domain, it) in bundles.iter() {
            let document = Zeroizing::new(it.document.clone().into_bytes());
            files.push((bundle_name(trust_domain), document));
        }
        self.replace(&files).map_err(|error| self.failed(error))?;
        Ok(files.into_iter().map(|(name, _)| self.0.join(name)).collect())
    }

    fn replace(&self, files: &[(String, Zeroizing<Vec<u8>>)]) -> io::Result<()> {
        let set = format!("..{:016x}", fastrand::u64(..));
        let folder = self.0.join(&set);
        DirBuilder::new().mode(0o700).create(&folder)?;
        let before = fs::read_link(self.0.join(DATA)).ok();
        let written = self.fill(&folder, files).and_then(|()| self.switch(&set));
        if let Err(error) = written {
            let _ = fs::remove_dir_all(&folder);
            return Err(error);
        }
        // The new set counts from here on; the rest tidies up.
        let names: BTreeSet<_> = files.iter().map(|(name, _)| name.clone()).collect();
        for name in &names {
            self.link(name)?;
        }
        for name in self.names()? {
            if is_output(&name) && !names.contains(&name) && self.is_link(&name) {
                fs::remove_file(self.0.join(name))?;
            }
        }
        // A link that leads out of the folder, as `..` does, is not ours.
        if let Some(before) = before.filter(|it| it.file_name() == Some(it.as_os_str())) {
            let _ = fs::remove_dir_all(self.0.join(before));
        }
        File::open(&self.0)?.sync_all()
    }

    fn fill(&self, folder: &Path, files: &[(String, Zeroizing<Vec<u8>>)]) -> io::Result<()> {
        for (name, content) in files {
            // `create_new` follows no link, and opens nothing that somebody else put there.
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(folder.join(name))?;
            file.write_all(content)?;
            file.sync_all()?;
        }
        File::open(folder)?.sync_all()
    }

    fn switch(&self, set: &str) -> io::Result<()> {
        let next = self.0.join(NEXT);
        match fs::remove_file(&next) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        symlink(set, &next)?;
        fs::rename(&next, self.0.join(DATA))?;
        File::open(&self.0)?.sync_all()
    }

    fn link(&self, name: &str) -> io::Result<()> {
        match symlink(Path::new(DATA).join(name), self.0.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && self.is_link(name) => {
                Ok(())
            }
            linked => linked,
        }
    }

    /// Whether it is a link that we made.
    fn is_link(&self, name: &str) -> bool {
        fs::read_link(self.0.join(name)).is_ok_and(|to| to == Path::new(DATA).join(name))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let entries = fs::read_dir(&self.0)?.collect::<io::Result<Vec<_>>>()?;
        Ok(entries.into_iter().filter_map(|it| it.file_name().into_string().ok()).collect())
    }

    fn failed(&self, error: io::Error) -> OutputError {
        OutputError::Io { folder: self.0.clone(), error }
    }
}

/// Whether it is a name that we write.
fn is_output(name: &str) -> bool {
    name == SVID || name == KEY || (name.starts_with("bundle.") && name.ends_with(".json"))
}

/// A trust domain's name may be as long as that of a file, which has more in it.
fn bundle_name(trust_domain: &TrustDomain) -> String {
    match trust_domain.as_str() {
        long if long.len() > LONGEST_NAME => {
            format!("bundle.sha256-{}.json", hex::encode(Sha256::digest(long)))
        }
        name => format!("bundle.{name}.json"),
    }
}

fn chain(svid: &IssuedSvid) -> String {
    svid.chain.iter().map(|der| pem("CERTIFICATE", der)).collect()
}

fn key(svid: &IssuedSvid) -> PrivateKeyPem {
    PrivateKeyPem::new(pem("PRIVATE KEY", svid.key.expose()))
}

fn pem(label: &str, der: &[u8]) -> String {
    let base64 = Zeroizing::new(STANDARD.encode(der));
    let mut text = String::with_capacity(base64.len() + base64.len() / 32 + 80);
    text.push_str(&format!("-----BEGIN {label}-----\n"));
    for line in base64.as_bytes().chunks(64) {
        // Base64 is ASCII.
        text.push_str(&String::from_utf8_lossy(line));
        text.push('\n');
    }
    text.push_str(&format!("-----END {label}-----\n"));
    text
}

#[cfg(test)]
mod tests;

//! A new temporary folder that only its owner can enter, for as long as the sandbox runs.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

/// Dropping it removes it, with everything in it.
#[derive(Debug)]
pub struct PrivateFolder(PathBuf);

#[derive(Debug, thiserror::Error)]
#[error("cannot make the folder {path}. TMPDIR chooses another place", path = .path.display())]
pub struct FolderError {
    pub path: PathBuf,
    pub source: io::Error,
}

impl PrivateFolder {
    pub fn new() -> Result<Self, FolderError> {
        let name = format!("trustplane-sandbox-{:016x}", fastrand::u64(..));
        let path = std::env::temp_dir().join(name);
        // Must be new: a folder of somebody else is an error.
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => Ok(Self(path)),
            Err(source) => Err(FolderError { path, source }),
        }
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn it_is_its_owner_s_alone_and_goes_with_what_is_in_it() {
        let folder = PrivateFolder::new().unwrap();
        let path = folder.path().to_owned();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        fs::write(path.join("file"), "text").unwrap();
        drop(folder);
        assert!(!path.exists());
    }
}

//! The sandbox's kubeconfig. Its readers can read every key in the sandbox, so only its owner can
//! read the file, from the first byte on, and it is removed when the sandbox ends.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use zeroize::Zeroizing;

use super::private_folder::{FolderError, PrivateFolder};

/// Name of cluster, user and context.
const NAME: &str = "trustplane-sandbox";

/// A kubeconfig on disk. Dropping it removes it.
#[derive(Debug)]
pub struct Kubeconfig {
    path: PathBuf,
    /// The temporary folder made for it.
    _folder: Option<PrivateFolder>,
}

#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    #[error(
        "{path} exists already. Choose another path with --kubeconfig, or remove the file if a \
         sandbox that was killed left it behind",
        path = .0.display()
    )]
    Exists(PathBuf),
    #[error("{path} is a folder: name a file in it with --kubeconfig", path = .0.display())]
    Folder(PathBuf),
    #[error(
        "cannot write the kubeconfig {path}. Choose a path in a folder of yours with --kubeconfig",
        path = .path.display()
    )]
    Unwritable { path: PathBuf, source: io::Error },
}

impl From<FolderError> for KubeconfigError {
    fn from(FolderError { path, source }: FolderError) -> Self {
        Self::Unwritable { path, source }
    }
}

impl Kubeconfig {
    /// Writes the file at the path, or in a new temporary folder.
    pub fn write(
        path: Option<&Path>,
        server: &str,
        authority_pem: &str,
        token: &str,
    ) -> Result<Self, KubeconfigError> {
        let content = content(server, authority_pem, token);
        let (path, folder) = match path {
            Some(path) => (path.to_owned(), None),
            None => {
                let folder = PrivateFolder::new()?;
                (folder.path().join("kubeconfig"), Some(folder))
            }
        };
        let path = std::path::absolute(&path).unwrap_or(path);
        // From here on the folder is removed on every error.
        let mut kubeconfig = Self { path: PathBuf::new(), _folder: folder };
        create(&path, content.as_bytes())?;
        kubeconfig.path = path;
        Ok(kubeconfig)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Kubeconfig {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn create(path: &Path, content: &[u8]) -> Result<(), KubeconfigError> {
    let unwritable = |source| KubeconfigError::Unwritable { path: path.to_owned(), source };
    // `create_new` follows no link, so nobody can redirect the token to a file that they can read.
    let mut file = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(file) => file,
        Err(_) if path.is_dir() => return Err(KubeconfigError::Folder(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(KubeconfigError::Exists(path.to_owned()));
        }
        Err(error) => return Err(unwritable(error)),
    };
    file.write_all(content).map_err(|error| {
        let _ = fs::remove_file(path);
        unwritable(error)
    })
}

fn content(server: &str, authority_pem: &str, token: &str) -> Zeroizing<String> {
    let authority = BASE64_STANDARD.encode(authority_pem);
    Zeroizing::new(format!(
        "\
apiVersion: v1
kind: Config
clusters:
- name: {NAME}
  cluster:
    server: {server}
    certificate-authority-data: {authority}
users:
- name: {NAME}
  user:
    token: {token}
contexts:
- name: {NAME}
  context:
    cluster: {NAME}
    user: {NAME}
    namespace: default
current-context: {NAME}
"
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn the_file_and_its_folder_are_their_owners_alone_and_go_together() {
        let written =
            Kubeconfig::write(None, "https://127.0.0.1:6443", "authority", "token").unwrap();
        let path = written.path().to_owned();
        let folder = path.parent().unwrap().to_owned();
        assert_eq!((mode(&path), mode(&folder)), (0o600, 0o700));
        let read: kube::config::Kubeconfig =
            kube::config::Kubeconfig::read_from(&path).expect("kube reads it");
        assert_eq!(read.current_context.as_deref(), Some(NAME));
        drop(written);
        assert!(!path.exists() && !folder.exists());
    }

    #[test]
    fn a_file_that_is_there_is_neither_overwritten_nor_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        fs::write(&path, "mine").unwrap();
        let refused = Kubeconfig::write(Some(&path), "server", "authority", "token").unwrap_err();
        assert!(refused.to_string().contains("exists already"), "{refused}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    }

    #[test]
    fn the_error_for_a_folder_asks_for_a_file_in_it() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path().to_owned(), folder.path().join("")] {
            let refused = Kubeconfig::write(Some(&path), "server", "authority", "token");
            let message = refused.unwrap_err().to_string();
            assert!(message.contains("is a folder: name a file in it"), "{message}");
        }
    }

    #[test]
    fn a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, elsewhere) = (folder.path().join("config"), folder.path().join("elsewhere"));
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        assert!(Kubeconfig::write(Some(&path), "server", "authority", "token").is_err());
        assert!(!elsewhere.exists());
    }
}

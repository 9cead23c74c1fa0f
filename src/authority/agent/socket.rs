//! The UNIX socket of the Workload API.

use std::{
    fs,
    io::{self, ErrorKind},
    os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use tokio::net::{UnixListener, UnixStream};

#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    #[error("{0} is there already, and is no socket. Choose another path with --socket")]
    NotSocket(String),
    #[error("another process serves at {0}. Stop it, or choose another path with --socket")]
    InUse(String),
    #[error("cannot listen on {path}: {error}. Does its folder exist, and may we write there?")]
    Bind { path: String, error: io::Error },
}

/// Removes the socket when dropped, unless another process has put its own in the place.
#[derive(Debug)]
pub struct BoundSocket {
    path: PathBuf,
    inode: u64,
    /// The user that we run as.
    pub owner: u32,
}

impl Drop for BoundSocket {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|it| it.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Whose connections the kernel lets through. Whoever they are, they are asked again by their user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    OwnUser,
    EveryUser,
}

/// Listens at a path. A socket that a dead process left there is replaced in one step, so that workloads
/// find either the old one or the new one.
pub async fn bind(path: &Path, reach: Reach) -> Result<(UnixListener, BoundSocket), SocketError> {
    let shown = path.display().to_string();
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => return Err(SocketError::NotSocket(shown)),
        Ok(_) if UnixStream::connect(path).await.is_ok() => return Err(SocketError::InUse(shown)),
        _ => {}
    }
    listen(path, reach).map_err(|error| SocketError::Bind { path: shown, error })
}

fn listen(path: &Path, reach: Reach) -> io::Result<(UnixListener, BoundSocket)> {
    // The path of a socket may have 107 bytes, so this one is hardly longer.
    let mut new = path.as_os_str().to_owned();
    new.push(".n");
    let new = PathBuf::from(new);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&new)?;
    let mode = match reach {
        Reach::OwnUser => 0o600,
        Reach::EveryUser => 0o666,
    };
    fs::set_permissions(&new, fs::Permissions::from_mode(mode))?;
    let found = fs::symlink_metadata(&new)?;
    fs::rename(&new, path)?;
    Ok((listener, BoundSocket { path: path.to_owned(), inode: found.ino(), owner: found.uid() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_that_a_dead_process_left_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("api.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let (_listener, bound) = bind(&path, Reach::OwnUser).await.unwrap();
        assert!(UnixStream::connect(&path).await.is_ok());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(bound.owner, fs::metadata(folder.path()).unwrap().uid());
        drop(bound);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn nobody_s_living_socket_and_no_file_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("api.sock");
        let (_listener, bound) = bind(&path, Reach::EveryUser).await.unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o666);
        assert!(matches!(bind(&path, Reach::OwnUser).await, Err(SocketError::InUse(_))));
        fs::remove_file(&path).unwrap();
        fs::write(&path, "a file").unwrap();
        assert!(matches!(bind(&path, Reach::OwnUser).await, Err(SocketError::NotSocket(_))));
        // What stands there now is not ours to remove.
        drop(bound);
        assert!(path.exists());
    }
}

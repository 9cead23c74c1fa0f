//! Files of a run for tests/suite_audit.rs, which checks that no key is in a log, no request was
//! forbidden, and every permission was used.
//!
//! ```text
//! target/suite/cluster-TIME-PID/     (or $TRUSTPLANE_SUITE/cluster-TIME-PID/), mode 0700
//!   keys                             every private key that the tests made, as PEM
//!   der-keys                         those that are DER where they are used: whose it is, and in hex
//!   tokens                           every token of a cluster of `review`: whose it is, and the token
//!   traffic/CLUSTER/N.sent           what these clusters were sent, and N.answered
//!   review-CLUSTER-N/                logs of their API servers
//!   api-N/audit.log                  of the shared API server; holds keys
//!   api-N/kube-apiserver.log  etcd.log
//!   forbidding-N/                    the same, of the one where tests provoke refusals
//!   NAME-N/                          the same, of a cluster that one test started for itself
//!   controllers/NAME.log             logs of the controllers, at trace level
//!   metrics/NAME.prom                their metrics before they ended
//!   events/NAMESPACE.json            Events of each namespace when its test ended
//! ```

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::{root, target_folder};

/// Number of kept runs: enough for all test binaries of one `make test`.
const KEPT_RUNS: usize = 16;

static BASE: OnceLock<PathBuf> = OnceLock::new();
static FOLDER: LazyLock<PathBuf> = LazyLock::new(make_folder);
static KEYS: Mutex<()> = Mutex::new(());
static NEXT: AtomicUsize = AtomicUsize::new(1);

/// The folder of this run.
pub fn folder() -> &'static Path {
    &FOLDER
}

/// Sets another folder for runs. Must be called first.
pub fn keep_in(base: &Path) {
    BASE.set(base.to_owned()).expect("the place of the runs is chosen once");
}

/// A folder of the run, created if missing.
pub fn subfolder(name: &str) -> PathBuf {
    let path = folder().join(name);
    private_folder(&path);
    path
}

/// A unique number within the run.
pub fn next_number() -> usize {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Registers a private key, so that tests/suite_audit.rs can search for it.
pub fn register_key(pem: &str) {
    append("keys", pem.trim_end());
}

/// Whose key it is. tests/suite_audit.rs fails if a run has none of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOf {
    Ca,
    /// What somebody joins with.
    Svid,
    /// What an agent joined for, and serves to workloads.
    Workload,
}

impl KeyOf {
    pub const ALL: [Self; 3] = [Self::Ca, Self::Svid, Self::Workload];
}

/// Registers a P-256 key in DER, which may leak as bytes, too.
pub fn register_der_key(of: KeyOf, der: &[u8]) {
    append(DER_KEYS, &format!("{of:?} {}", hex::encode(der)));
}

/// The file of [`register_der_key`].
pub const DER_KEYS: &str = "der-keys";

/// Adds a line to a private file of the run.
pub(crate) fn append(name: &str, text: &str) {
    let _one_at_a_time = KEYS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(folder().join(name))
        .expect("the suite's folder takes a file");
    writeln!(file, "{text}").expect("a key can be noted");
}

/// Writes a file with mode 0600.
pub fn write_private(path: &Path, content: &str) {
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    file.write_all(content.as_bytes())
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

fn make_folder() -> PathBuf {
    let base = BASE.get_or_init(usual_base).as_path();
    private_folder(base);
    forget_old_runs(base);
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let path = base.join(format!("cluster-{seconds}-{}", std::process::id()));
    private_folder(&path);
    path
}

fn usual_base() -> PathBuf {
    match std::env::var_os("TRUSTPLANE_SUITE") {
        Some(given) => root().join(given),
        None => target_folder().join("suite"),
    }
}

/// Creates a folder with mode 0700, and its parents.
pub fn private_folder(path: &Path) {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    fs::set_permissions(path, Permissions::from_mode(0o700))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// Copies a folder recursively; the copy has mode 0700.
pub fn copy_folder(from: &Path, to: &Path) -> std::io::Result<()> {
    private_folder(to);
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let copy = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &copy)?;
        } else {
            fs::copy(entry.path(), copy)?;
        }
    }
    Ok(())
}

/// Removes all but the newest runs, and never one whose process still runs.
fn forget_old_runs(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else {
        return;
    };
    let mut runs: Vec<(u64, i32, PathBuf)> = entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let (seconds, pid) =
                path.file_name()?.to_str()?.strip_prefix("cluster-")?.split_once('-')?;
            Some((seconds.parse().ok()?, pid.parse().ok()?, path))
        })
        .collect();
    runs.sort();
    runs.reverse();
    for (_, pid, path) in runs.into_iter().skip(KEPT_RUNS - 1) {
        if !crate::tied::is_alive(pid) {
            let _ = fs::remove_dir_all(path);
        }
    }
}

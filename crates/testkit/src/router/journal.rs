//! The log file of the router.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use chrono::Utc;

/// A log file.
pub struct Journal(PathBuf);

impl Journal {
    /// Appends to the file at `path`.
    pub fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// A line for the file.
    pub fn note(&self, line: &str) {
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&self.0);
        // A router that cannot log goes on routing.
        let _ = file.and_then(|mut file| writeln!(file, "{} {line}", Utc::now().format("%T%.3f")));
    }

    /// A line for the file and for standard error.
    pub fn shout(&self, line: &str) {
        eprintln!("router: {line}");
        self.note(line);
    }
}

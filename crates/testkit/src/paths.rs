//! Paths of the repository, cargo's output and the built program.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// `target/debug/deps/inject-0123456789abcdef`, or the same below `target/release`.
static THIS_PROGRAM: LazyLock<PathBuf> =
    LazyLock::new(|| std::env::current_exe().expect("Linux knows which program runs"));

/// The folder of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("testkit is in crates/")
}

/// A file or folder of the repository.
pub fn at(path: impl AsRef<Path>) -> PathBuf {
    root().join(path)
}

/// Cargo's target folder.
pub fn target_folder() -> &'static Path {
    above_this_program(3)
}

/// A folder inside the target folder for files of tests, like `CARGO_TARGET_TMPDIR`.
pub fn temporary_folder() -> PathBuf {
    target_folder().join("tmp")
}

/// The built `trustplane`.
///
/// Cargo builds it before any integration test or bench of its package, and puts it in the folder
/// above theirs. `CARGO_BIN_EXE_trustplane` says the same, but only to the code of the test itself.
pub fn trustplane_binary() -> &'static Path {
    static FOUND: LazyLock<PathBuf> = LazyLock::new(|| {
        let program = above_this_program(2).join("trustplane");
        assert!(program.is_file(), "{} is missing: run `cargo build`", program.display());
        program
    });
    &FOUND
}

fn above_this_program(levels: usize) -> &'static Path {
    THIS_PROGRAM.ancestors().nth(levels).expect("cargo runs tests and benches in target/*/deps")
}

//! The Containerfile: in order for BuildKit, and with everything in it that cargo needs. Images are
//! built elsewhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::at;
use testkit::tools::{answer, go, output, text_of};

/// Complaints of BuildKit about a Containerfile.
fn complaints(text: &str) -> String {
    answer(&mut Command::new(go::program("e2e/containerfile-lint")), text)
}

#[test]
fn buildkit_has_nothing_to_say_about_it() {
    assert_eq!(complaints(&text_of("Containerfile")), "");
    // It would speak up.
    assert_eq!(
        complaints("FROM scratch as build\nUSER $nobody\n"),
        "line 1: FromAsCasing: 'as' and 'FROM' keywords' casing do not match\n\
         line 2: UndefinedVar: Usage of undefined variable '$nobody'\n"
    );
    assert!(complaints("FROM scratch\nNONSENSE\n").starts_with("error: "));
}

/// Files that the first stage takes from the repository.
fn copied() -> Vec<String> {
    let text = text_of("Containerfile");
    let mut copied = Vec::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("COPY ")) {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        if !words[0].starts_with("--from=") {
            words.pop();
            copied.extend(words.into_iter().map(str::to_owned));
        }
    }
    copied
}

fn is_copied(path: &Path) -> bool {
    copied().iter().any(|copied| path.starts_with(copied))
}

#[test]
fn what_it_copies_is_there_and_is_all_that_reaches_the_builder() {
    for path in copied() {
        assert!(at(&path).exists(), "{path}");
    }
    let ignored = text_of(".dockerignore");
    let mut let_in: Vec<&str> = ignored.lines().filter_map(|line| line.strip_prefix('!')).collect();
    let_in.sort_unstable();
    let mut copied = copied();
    copied.sort_unstable();
    assert_eq!(let_in, copied);
    assert!(ignored.lines().any(|line| line == "*"), "everything else stays out");
}

#[test]
fn it_copies_every_file_that_the_program_is_made_of() {
    // The compiler lists them, with what `include_str!` reads, beside what it makes.
    let made = Path::new(env!("CARGO_BIN_EXE_trustplane")).with_file_name("deps");
    let mut sources = BTreeSet::new();
    for entry in fs::read_dir(&made).expect("the compiler's folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let ours = ["trustplane-", "apiserver-"].iter().any(|member| name.starts_with(member));
        if ours && name.ends_with(".d") {
            let list = fs::read_to_string(&path).expect("a list");
            let files = list.lines().filter_map(|line| line.strip_suffix(':'));
            // A list of an earlier build may name what is no more.
            sources.extend(files.filter_map(|file| at(file).canonicalize().ok()));
        }
    }
    let root = at("").canonicalize().expect("the repository");
    let ours: Vec<_> = sources.iter().filter_map(|path| path.strip_prefix(&root).ok()).collect();
    assert!(ours.len() > 50 && ours.iter().any(|path| path.starts_with("crds")), "{ours:?}");
    for path in ours {
        assert!(is_copied(path), "{}", path.display());
    }
}

#[test]
fn cargo_can_read_the_manifest_with_what_it_copies() {
    let tree = tempfile::tempdir().expect("a folder");
    for path in copied() {
        copy(&at(&path), &tree.path().join(&path));
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--no-deps", "--offline", "--locked", "--format-version=1"]);
    let read = output(cargo.current_dir(tree.path()));
    // It names no target that is not there.
    let read: serde_json::Value = serde_json::from_str(&read.expect("it is whole")).expect("JSON");
    for package in read["packages"].as_array().expect("packages") {
        for target in package["targets"].as_array().expect("targets") {
            let source = PathBuf::from(target["src_path"].as_str().expect("a path"));
            assert!(source.is_file(), "{}", source.display());
        }
    }
}

fn copy(from: &Path, to: &Path) {
    if from.is_dir() {
        fs::create_dir_all(to).expect("a folder");
        for entry in fs::read_dir(from).expect("a folder can be read") {
            let entry = entry.expect("an entry");
            copy(&entry.path(), &to.join(entry.file_name()));
        }
    } else {
        fs::copy(from, to).expect("a file can be copied");
    }
}

#[test]
fn it_builds_the_program_without_sandbox_and_demo() {
    let text = text_of("Containerfile");
    let build = text.lines().find(|line| line.starts_with("RUN cargo build ")).expect("a build");
    assert!(build.contains(" --no-default-features "), "{build}");
}

#[test]
fn it_runs_the_program_as_a_numbered_user_who_is_not_root() {
    let text = text_of("Containerfile");
    let user = text.lines().rev().find_map(|line| line.strip_prefix("USER ")).expect("a user");
    let numbers: Vec<u32> = user.split(':').filter_map(|number| number.parse().ok()).collect();
    assert!(numbers.len() == 2 && !numbers.contains(&0), "{user}");
    assert!(text.trim_end().ends_with("ENTRYPOINT [\"/usr/local/bin/trustplane\"]"));
}

#[test]
fn the_program_needs_no_library_that_the_image_lacks() {
    let needed = output(Command::new("ldd").arg(env!("CARGO_BIN_EXE_trustplane")));
    // Libraries of distroless/cc: glibc, and the compiler's own.
    let there = [
        "linux-vdso",
        "libc.",
        "libm.",
        "libgcc_s.",
        "libpthread.",
        "libdl.",
        "/lib64/ld-",
        "/lib/ld-",
    ];
    for line in needed.expect("ldd lists them").lines() {
        let line = line.trim();
        assert!(there.iter().any(|library| line.starts_with(library)), "{line}");
    }
}

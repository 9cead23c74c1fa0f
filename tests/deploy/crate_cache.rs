//! `e2e/crates`: compiled crates of others, kept from one checkout to the next.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use testkit::at;
use testkit::tools::{folder, output};

/// A checkout with nothing but what `e2e/crates` needs, and a cache with a space in its path.
fn checkout_with_crates(name: &str) -> (PathBuf, impl Fn(&str) -> Result<String, String>) {
    let place = folder(name, &[("a cache/crates/placeholder", "")]);
    for file in ["e2e/crates", "Cargo.toml", "Cargo.lock", "crates/testkit/Cargo.toml"] {
        let copy = place.join("checkout").join(file);
        fs::create_dir_all(copy.parent().expect("it is in the folder")).expect("a folder");
        fs::copy(at(file), copy).expect("a copy");
    }
    let of = place.clone();
    let crates = move |what: &str| {
        let mut crates = Command::new("bash");
        crates.args(["e2e/crates", what]).current_dir(of.join("checkout"));
        output(crates.env("TRUSTPLANE_CACHE", of.join("a cache")).env_remove("CARGO_TARGET_DIR"))
    };
    (place, crates)
}

/// The archives in its cache.
fn kept_crates(place: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(place.join("a cache/crates")).expect("a folder");
    let paths = files.map(|file| file.expect("a file").path());
    paths.filter(|path| path.extension().is_some_and(|it| it == "tar")).collect()
}

/// As if it had been compiled there after nothing could be brought.
fn compile(place: &Path) {
    let debug = place.join("checkout/target/debug");
    for folder in [".fingerprint", "build", "deps"] {
        fs::create_dir_all(debug.join(folder)).expect("a folder");
    }
    fs::write(debug.join(".fresh"), "").expect("a file");
    fs::write(debug.join("deps/libserde.rlib"), vec![7; 1 << 20]).expect("a crate");
}

#[test]
fn crates_are_built_upon_only_where_they_were_brought_whole() {
    let (place, crates) = checkout_with_crates("crates-half");
    compile(&place);
    crates("keep").expect("they are kept");
    let [archive] = &kept_crates(&place)[..] else { panic!("not one archive") };
    let whole = fs::read(archive).expect("an archive");
    let target = place.join("checkout/target");
    fs::remove_dir_all(&target).expect("another checkout");

    // The disk was full, or somebody pressed Ctrl-C: half of it arrives.
    fs::write(archive, &whole[..whole.len() / 2]).expect("half an archive");
    for _ in 0..2 {
        let complaint = crates("bring").expect_err("half of it is not enough");
        assert!(complaint.contains("delete it"), "{complaint}");
        let left = fs::read_dir(&target).expect("a folder").count();
        assert_eq!(left, 0, "something lies in target");
    }
    fs::write(archive, whole).expect("an archive");
    crates("bring").expect("they are brought");
    let brought = fs::metadata(target.join("debug/deps/libserde.rlib")).expect("a crate");
    assert_eq!(brought.len(), 1 << 20);
}

#[test]
fn crates_of_two_branches_are_kept_and_older_ones_go_wherever_the_cache_is() {
    let (place, crates) = checkout_with_crates("crates-old");
    for (name, age) in [("older", 2), ("oldest", 3), ("old", 1)] {
        let file = fs::File::create(place.join(format!("a cache/crates/{name}.tar")));
        let time = std::time::SystemTime::now() - Duration::from_secs(3_600 * age);
        file.and_then(|file| file.set_modified(time)).expect("an archive");
    }
    compile(&place);
    crates("keep").expect("they are kept");
    let kept = kept_crates(&place);
    assert_eq!(kept.len(), 2, "{kept:?}");
    assert!(kept.iter().any(|path| path.ends_with("old.tar")), "{kept:?}");
}

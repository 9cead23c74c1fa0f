//! The words that people read: plain ones, and in the manual those that the program really says.

use std::{
    fs,
    path::{Path, PathBuf},
};

use regex::Regex;

/// What users read, and the source of conditions, Events and errors.
const FOLDERS: [&str; 4] = ["docs", "crds", "deploy", "src"];

fn texts(folder: &str) -> Vec<(PathBuf, String)> {
    fn collect(folder: &Path, texts: &mut Vec<(PathBuf, String)>) {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                collect(&path, texts);
            } else if let Ok(text) = fs::read_to_string(&path) {
                texts.push((path, text));
            }
        }
    }
    let mut texts = Vec::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut texts);
    texts
}

#[test]
fn what_people_read_says_fix_and_again_in_plain_words() {
    let banned = Regex::new(r"(?i)\b(anew|mend(s|ed|ing)?)\b").expect("an expression");
    let mut found = Vec::new();
    for (path, text) in FOLDERS.into_iter().flat_map(texts) {
        let lines = text.lines().enumerate().filter(|(_, line)| banned.is_match(line));
        found.extend(lines.map(|(at, line)| format!("{}:{}: {line}", path.display(), at + 1)));
    }
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn every_last_error_that_the_manual_explains_is_one_of_the_program() {
    let source: String = ["src/federate", "src/bundle", "src/spiffe"]
        .into_iter()
        .flat_map(texts)
        .map(|(_, text)| text)
        .collect();
    // A literal may go on in the next line.
    let source = Regex::new(r"\\\n\s*").expect("an expression").replace_all(&source, "");
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/federate.md");
    let manual = fs::read_to_string(manual).expect("the manual");
    let rows = manual.lines().filter_map(|line| line.strip_prefix("| `lastError`: "));
    let quotes: Vec<_> = rows.filter_map(|row| row.split(" | ").next()).collect();
    assert!(quotes.len() >= 4, "{quotes:?}");
    for part in quotes.iter().flat_map(|quote| quote.split(", ")).flat_map(|it| it.split("...")) {
        let part = part.trim().trim_matches('`');
        assert!(source.contains(part), "nothing says {part:?}");
    }
}

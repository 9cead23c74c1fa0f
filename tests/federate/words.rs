//! Words that people are to read nowhere: the glossary of the project has plainer ones.

use std::{fs, path::Path};

use regex::Regex;

/// Where users read, and the source of what they read in a condition, an Event or an error.
const FOLDERS: [&str; 6] = ["docs", "crds", "deploy", "src/federate", "src/bundle", "src/spiffe"];

fn lines_with(banned: &Regex, folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            lines_with(banned, &path, found);
        } else if let Ok(text) = fs::read_to_string(&path) {
            let lines = text.lines().enumerate().filter(|(_, line)| banned.is_match(line));
            found.extend(lines.map(|(at, line)| format!("{}:{}: {line}", path.display(), at + 1)));
        }
    }
}

#[test]
fn what_people_read_says_fix_and_again_in_plain_words() {
    let banned = Regex::new(r"(?i)\b(anew|mend(s|ed|ing)?)\b").expect("an expression");
    let mut found = Vec::new();
    for folder in FOLDERS {
        lines_with(&banned, &Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut found);
    }
    assert_eq!(found, Vec::<String>::new());
}

//! A page with a walk: its sections, and in each the files, commands and outputs that it shows.

use crate::tools::text_of;
use regex::Regex;

pub struct Manual(String);

/// The steps of one section, or of a part of it.
#[derive(Clone, Default)]
pub struct Steps(pub Vec<Step>);

#[derive(Clone)]
pub enum Step {
    /// A block whose first line is its name.
    File { name: String, content: String },
    /// Commands, and what they print where the page says it.
    Commands { text: String, prints: Option<String> },
}

impl Manual {
    /// Reads it now: a change of the page needs no compiler.
    pub fn read(page: &str) -> Self {
        Self(text_of(page))
    }

    /// The headings of all sections of the walk.
    pub fn sections(&self) -> Vec<&str> {
        let (_, walk) = self.0.split_once("\n## The walk").expect("the walk");
        let walk = walk.split("\n## ").next().unwrap_or_default();
        walk.lines().filter_map(|line| line.strip_prefix("### ")).collect()
    }

    /// The steps below the heading.
    pub fn section(&self, heading: &str) -> Steps {
        let marks = ["\n### ", "\n## "].map(|mark| format!("{mark}{heading}\n"));
        let (_, rest) = marks
            .iter()
            .find_map(|mark| self.0.split_once(mark))
            .unwrap_or_else(|| panic!("no section {heading}"));
        let end = ["\n### ", "\n## "].iter().filter_map(|it| rest.find(it)).min();
        let steps = Steps::of(&rest[..end.unwrap_or(rest.len())]);
        assert!(!steps.0.is_empty(), "nothing is shown in {heading}");
        steps
    }
}

impl Steps {
    fn of(text: &str) -> Self {
        let mut steps = Vec::new();
        for block in text.split("\n```").skip(1).step_by(2) {
            let (language, content) = block.split_once('\n').expect("a block");
            let named = content.lines().next().and_then(|line| line.strip_prefix("# "));
            let is_file = |name: &&str| name.ends_with(".yaml") || name.ends_with(".sh");
            match (language, named.filter(is_file)) {
                ("yaml" | "sh", Some(name)) => {
                    let (name, content) = (name.to_owned(), content.to_owned());
                    steps.push(Step::File { name, content });
                }
                ("sh", None) => {
                    steps.push(Step::Commands { text: content.to_owned(), prints: None })
                }
                ("text", None) => match steps.last_mut() {
                    Some(Step::Commands { prints, .. }) => *prints = Some(content.to_owned()),
                    _ => panic!("an output without commands: {content}"),
                },
                (other, _) => panic!("nobody knows what to do with {other:?}: {content}"),
            }
        }
        Self(steps)
    }

    /// What is before the first commands with these words, and the rest.
    pub fn split_before(&self, words: &str) -> (Self, Self) {
        let has = |it: &Step| matches!(it, Step::Commands { text, .. } if text.contains(words));
        let at = self.0.iter().position(has).unwrap_or_else(|| panic!("no commands with {words}"));
        (Self(self.0[..at].to_vec()), Self(self.0[at..].to_vec()))
    }
}

/// Compares what was printed with what the page says: word by word, whatever the width of the terminal.
/// `...` stands for anything, and what differs in every run for another of its kind.
pub fn is_as_shown(shown: &str, printed: &str) -> bool {
    let (shown, printed) = (plain(shown), plain(printed));
    let pattern: Vec<String> = shown.split("...").map(|it| regex::escape(it.trim())).collect();
    let pattern = format!("(?s)^\\s*{}\\s*$", pattern.join(".*"));
    Regex::new(&pattern).expect("an expression").is_match(&printed)
}

fn plain(text: &str) -> String {
    let kinds = [
        (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "UID"),
        (r"\b[0-9a-f]{4}(:[0-9a-f]{4}){15}\b", "FINGERPRINT"),
        (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)( UTC)?", "TIME"),
        (r"\b(\d+h)?(\d+m)?\d+s\b", "AGE"),
        // The terminal echoes input when it arrives, which may be before the question.
        (r"^yes\s", ""),
        (r"Type yes to go on:( yes\b)?", "Type yes to go on:"),
        (r"\s+", " "),
    ];
    kinds.iter().fold(text.to_owned(), |text, (kind, name)| {
        Regex::new(kind).expect("an expression").replace_all(&text, *name).into_owned()
    })
}

#[test]
fn an_output_is_compared_but_for_what_differs_in_every_run() {
    let shown = "NAME AGE\ncluster 40s\n...\nkept\n";
    assert!(is_as_shown(shown, "NAME   AGE\ncluster  3m2s\nmore\nand more\nkept\n"));
    assert!(!is_as_shown(shown, "NAME   AGE\nanother  3m2s\nmore\nkept\n"));
    assert!(!is_as_shown("one\n", "one\ntwo\n"));
}

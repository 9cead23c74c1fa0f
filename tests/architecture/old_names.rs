//! Names that were replaced by the words of the field, and must not come back.

use super::source::{Source, read_all};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A file, a folder or `mod`.
    Module,
    /// `struct`, `enum`, `trait` or `type`.
    Type,
    Function,
    /// Of a struct. A struct literal and a parameter look the same, and count too.
    Field,
    Constant,
}

use Kind::{Constant, Field, Function, Module, Type};

/// What must not be defined, and below which folders. Ordinary words have another meaning elsewhere,
/// so they are looked for only where they had the old one.
const OLD_NAMES: &[(Kind, &[&str], &[&str])] = &[
    (Module, &["looks", "words", "tell", "watches", "survey", "contest", "turn"], &["src/inject"]),
    (
        Module,
        &["kit", "crowd", "secure", "pace", "pause", "paper", "call", "access", "seeded"],
        &["src", "crates/apiserver"],
    ),
    (Module, &["lines"], &["src/check"]),
    (Module, &["carry"], &["src/uninstall"]),
    (Module, &["domain", "memory", "noticed", "contest", "rights"], &["src/federate"]),
    (Module, &["way"], &["src/bundle"]),
    (
        Module,
        &["shown", "refusal", "collect", "shape", "names"],
        &["crates/apiserver", "src/sandbox", "src/demo"],
    ),
    (
        Module,
        &["agreement", "afterwards", "ways_round", "people", "dark", "crowd", "deputy"],
        &["tests"],
    ),
    (Type, &["Looks", "Looked", "Untold", "Deed", "SecretSeen", "Ruling", "Custody"], &[""]),
    (Type, &["Crowd", "Guest", "PairFiles", "CallError", "Rota", "Lane"], &[""]),
    (Type, &["Said", "Told", "Known", "Place", "Follow"], &[""]),
    (Type, &["Next", "Note", "Wanted"], &["src/inject"]),
    (Type, &["Unseen"], &["src/k8s", "src/inject", "src/federate"]),
    (Type, &["Ground", "Rules", "Cut"], &["src/cli", "src/runtime"]),
    (Type, &["Job"], &["src/runtime"]),
    (Type, &["Mark"], &["src/check"]),
    (Type, &["Kept", "Setting", "Part", "Doing", "Asked", "Taking"], &["src/federate"]),
    (Function, &["happened", "stands", "told", "said", "dark", "learn"], &[""]),
    (Function, &["bounded", "came", "rest"], &["src/k8s"]),
    (
        Function,
        &["catch_up", "complain", "say_meanwhile", "told_late", "deed", "look_again"],
        &["src/inject"],
    ),
    (
        Function,
        &["is_echo", "route_looked_at", "shares_since", "turn", "pass", "tell"],
        &["src/inject"],
    ),
    (Function, &["asking", "settled"], &["src", "tests"]),
    (Function, &["anchors", "want"], &["src/federate"]),
    (Function, &["consider", "take"], &["src/federate/act/bootstrap"]),
    (Field, &["happened", "standing", "look_again"], &["src/inject/decide/plan.rs"]),
    (Field, &["asking", "settled"], &["src/inject"]),
    (Field, &["told", "said"], &[""]),
    (Field, &["anchors"], &["src/federate"]),
    (Constant, &["ASKED_PER_HINT"], &["src"]),
];

/// Each had several meanings, so each may be defined once.
const ONE_MEANING: [&str; 5] = ["Standing", "Verdict", "Outcome", "Serving", "Contest"];

const FOLDERS: [&str; 5] = ["src", "crates", "tests", "e2e", "benches"];

#[test]
fn nothing_is_defined_under_an_old_name() {
    let found = old_names(&read_all(&FOLDERS));
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn a_word_that_had_several_meanings_has_one() {
    let sources = read_all(&["src", "crates"]);
    for word in ONE_MEANING {
        let places = definitions_of(word, &sources);
        assert!(places.len() <= 1, "{word} has several meanings:\n{}", places.join("\n"));
    }
}

fn definitions_of(word: &str, sources: &[Source]) -> Vec<String> {
    let mut places = Vec::new();
    for source in sources {
        for (index, line) in source.code.lines().enumerate() {
            if definitions(line).contains(&(Type, word)) {
                places.push(format!("{}:{}", source.path, index + 1));
            }
        }
    }
    places
}

#[test]
fn no_file_is_included_by_its_path() {
    let found = path_includes(&read_all(&FOLDERS));
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

fn path_includes(sources: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources {
        for (index, line) in source.code.lines().enumerate() {
            if line.trim_start().starts_with("#[path") {
                found.push(format!("{}:{}: #[path]", source.path, index + 1));
            }
        }
    }
    found
}

fn old_names(sources: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources {
        let is_old = |kind: Kind, name: &str| {
            OLD_NAMES.iter().any(|(of, names, folders)| {
                *of == kind
                    && names.contains(&name)
                    && folders.iter().any(|folder| source.path.starts_with(folder))
            })
        };
        for part in source.path.trim_end_matches(".rs").split('/').filter(|it| is_old(Module, it)) {
            found.push(format!("{}:1: Module {part}", source.path));
        }
        for (index, line) in source.code.lines().enumerate() {
            for (kind, name) in
                definitions(line).into_iter().filter(|(kind, name)| is_old(*kind, name))
            {
                found.push(format!("{}:{}: {kind:?} {name}", source.path, index + 1));
            }
        }
    }
    found
}

/// What a line defines. rustfmt puts each definition on a line of its own.
fn definitions(line: &str) -> Vec<(Kind, &str)> {
    let words: Vec<&str> = line
        .split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'))
        .filter(|word| !word.is_empty())
        .collect();
    let mut found = Vec::new();
    for pair in words.windows(2) {
        let kind = match pair[0] {
            "mod" => Module,
            "struct" | "enum" | "trait" | "type" => Type,
            "fn" => Function,
            "const" | "static" => Constant,
            _ => continue,
        };
        found.push((kind, pair[1].trim_end_matches(':')));
    }
    let declared = words.iter().find(|word| !matches!(**word, "pub" | "crate" | "super" | "in"));
    if let Some(name) = declared.and_then(|word| word.strip_suffix(':'))
        && !name.contains(':')
    {
        found.push((Field, name));
    }
    found
}

#[test]
fn an_old_name_that_is_planted_is_found_and_an_ordinary_word_is_not() {
    for (path, text, expected) in [
        ("src/inject/cache/a.rs", "pub struct Looks {\n", "src/inject/cache/a.rs:1: Type Looks"),
        ("src/kit/queue.rs", "", "src/kit/queue.rs:1: Module kit"),
        (
            "src/k8s/events.rs",
            "\n    pub async fn happened(&self) {}\n",
            "src/k8s/events.rs:2: Function happened",
        ),
        (
            "src/inject/decide/plan.rs",
            "    pub(crate) standing: Vec<u8>,\n",
            "src/inject/decide/plan.rs:1: Field standing",
        ),
        ("src/federate/mod.rs", "mod noticed;\n", "src/federate/mod.rs:1: Module noticed"),
    ] {
        assert_eq!(old_names(&[Source::new(path, text)]), [expected]);
    }
    for (path, text) in [
        ("src/api/route.rs", "pub struct Next {\n"),
        ("src/inject/a.rs", "// fn deed()\nlet a = deed();\n"),
        ("src/names.rs", ""),
    ] {
        assert_eq!(old_names(&[Source::new(path, text)]), Vec::<String>::new(), "{path}");
    }
}

#[test]
fn an_include_by_path_that_is_planted_is_found() {
    let source = Source::new("tests/a.rs", "#[path = \"../b.rs\"]\nmod b;\n// #[path]\n");
    assert_eq!(path_includes(&[source]), ["tests/a.rs:1: #[path]"]);
}

//! Holds the source to its map: which room may use which, and that no old name comes back.
//!
//! docs/architecture.md has the rules in words. A violation is reported as `file:line`.

mod dependencies;
mod old_names;
mod source;
mod spiffe_rules;
mod words;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use source::{Source, UsedPath, read_all};

/// They use each other only through the shared rooms.
const JOBS: [&str; 5] = ["inject", "federate", "authority", "review", "gcp"];
/// Every job stands on them, so they know no job and no command.
const SHARED: [&str; 8] = ["runtime", "k8s", "tls", "spiffe", "jose", "bundle", "api", "names"];
/// They stand on jobs.
const COMMANDS: [&str; 5] = ["cli", "check", "uninstall", "demo", "sandbox"];

/// Beside the decisions: what is written is what was decided.
const WITHOUT_FAILPOINTS: [&str; 3] =
    ["src/inject/act/apply.rs", "src/federate/act/apply.rs", "src/authority/act/apply.rs"];

type Module = Vec<String>;

#[test]
fn every_room_uses_only_what_its_map_allows() {
    let violations = violations(&read_all(&["src", "crates"]));
    assert!(violations.is_empty(), "\n{}", violations.join("\n"));
}

#[test]
fn no_modules_use_each_other_in_a_circle() {
    let cycles = cycles(&read_all(&["src"]));
    assert!(cycles.is_empty(), "\n{}", cycles.join("\n"));
}

/// The rules that the files break, without their tests.
fn violations(sources: &[Source]) -> Vec<String> {
    let mut violations = Vec::new();
    for source in shipped(sources) {
        for path in source.used_paths() {
            if let Some(rule) = broken_rule(&source, &path) {
                let path_text = path.segments.join("::");
                violations.push(format!("{}:{}: {path_text}: {rule}", source.path, path.line));
            }
        }
    }
    violations.dedup();
    violations
}

fn broken_rule(source: &Source, path: &UsedPath) -> Option<String> {
    let used: Vec<&str> = path.segments.iter().map(String::as_str).collect();
    if source.path.starts_with("crates/apiserver/") {
        return (used[0] == "trustplane")
            .then(|| "crates/apiserver knows no trustplane".to_owned());
    }
    if !source.path.starts_with("src/") {
        return None;
    }
    let module = source.module();
    let room = module.first().map(String::as_str).unwrap_or_default();
    let is_pure =
        matches!(room, "tls" | "spiffe" | "jose") || module.iter().any(|part| part == "decide");
    if is_pure && let Some(what) = impure(&used) {
        return Some(format!("{} is pure, it uses no {what}", module.join("::")));
    }
    if (is_pure || WITHOUT_FAILPOINTS.contains(&source.path.as_str()))
        && matches!(used[..], ["crate", "runtime", "failpoints", ..])
    {
        return Some(format!("{} has no bugs to switch on", module.join("::")));
    }
    let other = used.get(1).filter(|_| used[0] == "crate").copied()?;
    if JOBS.contains(&room) && JOBS.contains(&other) && room != other {
        return Some(format!("job {room} uses job {other}"));
    }
    let is_above = JOBS.contains(&other) || COMMANDS.contains(&other);
    if SHARED.contains(&room) && is_above {
        return Some(format!("shared room {room} uses {other}"));
    }
    None
}

/// What a decision must not have.
fn impure(used: &[&str]) -> Option<&'static str> {
    let has = |names: &[&str]| used.iter().any(|segment| names.contains(segment));
    let calls = |of: &str| used.windows(2).any(|pair| pair == [of, "now"]);
    match used {
        ["kube", "Client" | "Api" | "Config" | "client" | "api" | "config" | "runtime", ..] => {
            Some("client")
        }
        ["crate", "k8s", "client" | "gate", ..] => Some("client"),
        ["crate", "runtime", "clock", ..] => Some("clock"),
        ["crate", "runtime", "lock", ..] => Some("lock"),
        ["crate", "runtime", "log", ..] | ["tracing" | "tracing_subscriber", ..] => Some("log"),
        ["tokio" | "tokio_util", ..] => Some("tokio"),
        _ if calls("Utc") || calls("Instant") || has(&["SystemTime"]) => Some("clock"),
        _ if has(&["Mutex", "MutexGuard", "RwLock"]) => Some("lock"),
        _ => None,
    }
}

/// The files that ship, without their items for tests.
fn shipped(sources: &[Source]) -> Vec<Source> {
    let (files, for_tests): (Vec<_>, Vec<_>) = sources.iter().map(Source::shipped).unzip();
    let for_tests: Vec<Module> = for_tests.into_iter().flatten().collect();
    let is_test = |source: &Source| {
        let module = source.module();
        for_tests.iter().any(|test| module.starts_with(test))
            || source.path.contains("/tests/")
            || source.path.ends_with("/tests.rs")
    };
    files.into_iter().filter(|source| !is_test(source)).collect()
}

/// Circles of modules, each shown by one shortest way round. A module and its own children may use
/// each other: they are one thing in several files.
fn cycles(sources: &[Source]) -> Vec<String> {
    let sources = shipped(sources);
    let modules: BTreeSet<Module> = sources.iter().map(Source::module).collect();
    // For each module, the modules that it uses, and where.
    let mut uses: BTreeMap<Module, BTreeMap<Module, String>> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.path != "src/main.rs") {
        let from = source.module();
        for path in source.used_paths().iter().filter(|path| path.segments[0] == "crate") {
            let to = module_of(&path.segments[1..], &modules);
            if !from.starts_with(&to) && !to.starts_with(&from) {
                let place = format!("{}:{}", source.path, path.line);
                uses.entry(from.clone()).or_default().entry(to).or_insert(place);
            }
        }
    }
    let mut reported = BTreeSet::new();
    let mut cycles = Vec::new();
    for start in &modules {
        if reported.contains(start) {
            continue;
        }
        if let Some(way) = way_back(start, &uses) {
            let steps: Vec<_> = way
                .windows(2)
                .map(|step| {
                    let place = &uses[&step[0]][&step[1]];
                    format!("  {place}: {} uses {}", step[0].join("::"), step[1].join("::"))
                })
                .collect();
            cycles.push(format!("a circle of {}:\n{}", steps.len(), steps.join("\n")));
            reported.extend(way);
        }
    }
    cycles
}

/// The longest beginning of the path that is a module.
fn module_of(path: &[String], modules: &BTreeSet<Module>) -> Module {
    let lengths = (0..=path.len()).rev();
    let found = lengths.map(|length| &path[..length]).find(|part| modules.contains(*part));
    found.unwrap_or_default().to_vec()
}

/// The shortest way from a module back to itself.
fn way_back(
    start: &Module,
    uses: &BTreeMap<Module, BTreeMap<Module, String>>,
) -> Option<Vec<Module>> {
    let mut ways = VecDeque::from([vec![start.clone()]]);
    let mut visited = BTreeSet::new();
    while let Some(way) = ways.pop_front() {
        for next in uses.get(way.last()?).into_iter().flat_map(BTreeMap::keys) {
            let way = [way.clone(), vec![next.clone()]].concat();
            if next == start {
                return Some(way);
            }
            if visited.insert(next.clone()) {
                ways.push_back(way);
            }
        }
    }
    None
}

mod planted {
    //! The test is tested: what is planted here must be found, and what is allowed must not.

    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        violations(&[Source::new(path, text)])
    }

    #[test]
    fn a_forbidden_use_is_found_with_its_line() {
        let found = found("src/inject/decide/plan.rs", "//! Pure.\n\nuse tokio::time::Instant;\n");
        let expected = "src/inject/decide/plan.rs:3: tokio::time::Instant: inject::decide::plan is pure, it uses no tokio";
        assert_eq!(found, [expected]);
    }

    #[test]
    fn whatever_a_pure_room_must_not_use_is_found_however_it_is_written() {
        for (path, text) in [
            ("src/tls/pem.rs", "use kube::{Api, Resource};"),
            ("src/tls/pem.rs", "fn a() { tracing::info!(\"b\"); }"),
            ("src/spiffe/id.rs", "fn a() { let now = chrono::Utc::now(); }"),
            ("src/spiffe/id.rs", "fn a() -> std::time::SystemTime {}"),
            ("src/federate/decide/render/mod.rs", "use std::{fmt, sync::{Arc, Mutex}};"),
            (
                "src/federate/decide/merge.rs",
                "use crate::{\n    k8s::object_ref::ObjectRef,\n    runtime::clock::Clock,\n};",
            ),
            ("src/federate/decide/merge.rs", "fn a() { Instant::now(); }"),
            ("src/inject/decide/plan.rs", "use crate::runtime::failpoints::{self};"),
            ("src/inject/act/apply.rs", "use crate::{runtime::failpoints::Bug};"),
        ] {
            assert_eq!(found(path, text).len(), 1, "{path}: {text}");
        }
    }

    #[test]
    fn a_way_to_another_job_or_up_to_a_command_is_found() {
        for (path, text) in [
            ("src/inject/run.rs", "use crate::{federate::run::Federator, k8s::client};"),
            ("src/inject/act/apply.rs", "use super::super::super::federate::run;"),
            ("src/k8s/watch.rs", "fn a() { crate::inject::run::b(); }"),
            ("src/bundle/fetch/mod.rs", "use crate::cli::Exit;"),
            ("crates/apiserver/src/store.rs", "use trustplane::api::route::Route;"),
        ] {
            assert_eq!(found(path, text).len(), 1, "{path}: {text}");
        }
    }

    #[test]
    fn comments_texts_and_tests_may_name_anything() {
        let text = "// use tokio::time;\nconst A: &str = \"crate::cli::Exit\";\nconst B: &str = r#\"\"tokio::b\"#;\n\
            #[cfg(test)]\nuse std::sync::{Arc, Mutex};\n#[cfg(test)]\nmod tests {\n    use tokio::time;\n}\n";
        assert_eq!(found("src/tls/pem.rs", text), Vec::<String>::new());
        let parent = Source::new("src/spiffe/mod.rs", "#[cfg(test)]\nmod testing;\npub mod id;\n");
        let child = Source::new("src/spiffe/testing.rs", "use tokio::time;");
        assert_eq!(violations(&[parent, child]), Vec::<String>::new());
    }

    #[test]
    fn what_the_map_allows_is_not_reported() {
        for (path, text) in [
            ("src/inject/run.rs", "use crate::{inject::decide::plan, k8s::queue::Queue, tls};"),
            ("src/inject/act/apply.rs", "use tokio::time::Instant; use kube::Client;"),
            ("src/cli/inject.rs", "use crate::{inject::run::Injector, federate::run};"),
            ("src/tls/pem.rs", "use std::{fmt, sync::Arc}; use kube::Resource;"),
        ] {
            assert_eq!(found(path, text), Vec::<String>::new(), "{path}");
        }
    }

    #[test]
    fn a_circle_of_modules_is_found_and_a_family_is_none() {
        let a = Source::new("src/inject/a.rs", "use super::b::B;");
        let b = Source::new("src/inject/b.rs", "fn f() { crate::inject::c::g(); }");
        let c = Source::new("src/inject/c.rs", "use crate::inject::{d, a::A};");
        let found = cycles(&[a, b, c]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("src/inject/c.rs:1: inject::c uses inject::a"), "{found:?}");
        let parent = Source::new("src/inject/a.rs", "mod b; use b::B;");
        let child = Source::new("src/inject/a/b.rs", "use super::A; use crate::inject::a;");
        assert_eq!(cycles(&[parent, child]), Vec::<String>::new());
    }
}

//! What will happen and what happened, as a table for people and as JSON for scripts. Pure.

use std::{collections::HashMap, fmt::Write};

use serde_json::{Value, json};

use super::{
    authority::Authority,
    execute::Removal,
    others::Others,
    plan::{Effect, Marked, Outlook, Pairs},
};
use crate::{
    k8s::object_ref::ObjectRef,
    names::AUTHORITY_SECRET,
    runtime::{
        printable::{self, printable},
        terminal::{BAD, BOLD, GOOD, WARNING, command, paragraph, wrapped},
    },
};

/// How many failures are shown one by one.
const FAILURES: usize = 10;

/// Characters of what an annotation says. No Secret has a longer name.
const LONGEST: usize = 253;

/// How the Routes ended, by their place.
pub type Ended = HashMap<ObjectRef, Removal>;

fn describe(effect: Effect) -> &'static str {
    match effect {
        Effect::PairStays => "certificate and key stay",
        Effect::PairGoes => "certificate and key removed",
        Effect::OwnPairStays => "own certificate stays",
        Effect::KeyGoes => "key without certificate removed",
        Effect::NoPair => "no certificate",
    }
}

/// What would happen to each Route, with either choice if none was made.
pub fn table(outlook: &Outlook, pairs: Option<Pairs>, width: usize) -> String {
    let mut text = String::new();
    if !outlook.marked.is_empty() {
        let (first, second) = match pairs {
            None => ("WITH --routes=keep", "WITH --routes=clear"),
            Some(_) => ("WHAT HAPPENS", ""),
        };
        let mut rows = vec![["NAMESPACE", "ROUTE", "SECRET", first, second].map(str::to_owned)];
        rows.extend(outlook.marked.iter().map(|marked| row(marked, pairs)));
        let aligned = aligned(&rows);
        let fits = anstream::adapter::strip_str(&aligned)
            .to_string()
            .lines()
            .all(|line| line.chars().count() <= width);
        text.push_str(&if fits { aligned } else { stacked(outlook, pairs, width) });
        let also = "The annotations of these Routes are removed in the same write.";
        text.push_str(&format!("\n{}", paragraph(also, width)));
    }
    for (count, which) in [
        (outlook.status_only.len(), "Routes that lose .status.certificate and nothing else"),
        (outlook.left_alone.len(), "Routes of an Ingress, which are left alone"),
        (outlook.undecodable.len(), "Routes that cannot be decoded, and are left alone"),
    ] {
        if count > 0 {
            text.push_str(&paragraph(&format!("{which}: {count}"), width));
        }
    }
    if outlook.is_nothing() {
        text.push_str("No Route has to be changed.\n");
    }
    text
}

/// Certificates, annotations and statuses are counted apart: most Routes lose a status only.
pub fn question(outlook: &Outlook, pairs: Pairs) -> String {
    let routes = |count: usize| match count {
        1 => "1 Route".to_owned(),
        count => format!("{count} Routes"),
    };
    let removed = [
        (outlook.count(pairs, Effect::PairGoes), "the injected certificate and key"),
        (outlook.count(pairs, Effect::KeyGoes), "a key without a certificate"),
        (outlook.marked.len(), "the annotations"),
        (outlook.statuses(), ".status.certificate"),
    ];
    let removed: Vec<_> = removed
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{what} from {}", routes(count)))
        .collect();
    let removed = match removed.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    };
    match outlook.count(pairs, Effect::PairStays) {
        0 => format!("Remove {removed}?"),
        kept => format!(
            "Keep the injected certificate and key in {}, as the Route's own, and remove {removed}?",
            routes(kept)
        ),
    }
}

/// The table for a terminal that is too narrow for its columns.
fn stacked(outlook: &Outlook, pairs: Option<Pairs>, width: usize) -> String {
    let mut text = String::new();
    for marked in &outlook.marked {
        let secret = marked.asks_for.as_deref().map(shortened);
        let secret = secret.map_or_else(String::new, |secret| format!(", Secret {secret}"));
        let title = wrapped(&format!("{}{secret}", marked.at), width).join("\n");
        let _ = writeln!(text, "{BOLD}{title}{BOLD:#}");
        let effects = match pairs {
            None => vec![
                format!("--routes=keep: {}", describe(marked.keep)),
                format!("--routes=clear: {}", describe(marked.clear)),
            ],
            Some(pairs) => vec![describe(marked.effect(pairs)).to_owned()],
        };
        for line in effects.iter().flat_map(|effect| wrapped(effect, width - 2)) {
            let _ = writeln!(text, "  {line}");
        }
    }
    text
}

fn row(marked: &Marked, pairs: Option<Pairs>) -> [String; 5] {
    let (first, second) = match pairs {
        None => (describe(marked.keep), describe(marked.clear)),
        Some(pairs) => (describe(marked.effect(pairs)), ""),
    };
    let secret = shortened(marked.asks_for.as_deref().unwrap_or("-"));
    [&*marked.at.namespace, &*marked.at.name, &printable(&secret), first, second].map(str::to_owned)
}

/// An annotation may be 256 KiB long, and every row is as wide as the widest.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

fn aligned(rows: &[[String; 5]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<_> = (0..5).map(|column| width(column).unwrap_or_default()).collect();
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        let style = if index == 0 { BOLD } else { anstyle::Style::new() };
        let _ = writeln!(text, "{style}{}{style:#}", line.trim_end());
    }
    text
}

pub fn result(ended: &[(ObjectRef, Removal)], width: usize) -> String {
    let is_done = |(_, it): &&(_, Removal)| matches!(it, Removal::Done | Removal::Gone);
    let done = ended.iter().filter(is_done).count();
    let all = ended.len();
    let style = if done == all { GOOD } else { WARNING };
    let mut text = format!("{style}Routes done: {done} of {all}.{style:#}\n");
    let failures = ended.iter().filter_map(|(_, outcome)| match outcome {
        Removal::Failed(error) => Some(error),
        _ => None,
    });
    for error in failures.clone().take(FAILURES) {
        let error = error.to_string();
        let error = wrapped(&printable(&error), width - 8).join("\n        ");
        let _ = writeln!(text, "{BAD}failed{BAD:#}  {error}");
    }
    let more = failures.count().saturating_sub(FAILURES);
    if more > 0 {
        let _ = writeln!(text, "{more} more failed.");
    }
    if done < all {
        let again = "Run the same command again: it goes on where this one stopped.";
        text.push_str(&paragraph(again, width));
    }
    text
}

/// The commands that remove the rest: one for each way to install. A namespace with keys stays.
pub fn next(namespace: &str, authority: &Authority) -> [String; 2] {
    const OVERLAY: &str = "deploy/overlays/openshift";
    let kubectl = match authority.keeps_keys_in(namespace) {
        false => format!("kubectl delete --ignore-not-found -k {OVERLAY}"),
        true => format!(
            "kubectl get --ignore-not-found -k {OVERLAY} -o name | grep -v ^namespace/ | \
             xargs kubectl -n {namespace} delete"
        ),
    };
    [kubectl, format!("helm uninstall trustplane --namespace {namespace}")]
}

/// The same, for people.
pub fn next_steps(namespace: &str, authority: &Authority, width: usize) -> String {
    let text = |text: &str| paragraph(text, width);
    let indented = |line: String| -> String {
        command(&line, width - 2).iter().map(|part| format!("  {part}\n")).collect()
    };
    let [kubectl, helm] = next(namespace, authority).map(indented);
    let keys = match authority.keeps_keys_in(namespace) {
        true => text(&format!(
            "Namespace {namespace} stays, because it holds THE KEYS of a trust domain: Secret {AUTHORITY_SECRET}. \
             Deleting the overlay as a whole, or the namespace, would delete them."
        )),
        false => String::new(),
    };
    let parts = [
        text(
            "Now remove the rest. With kubectl, delete the overlay that you applied; if that was \
             deploy/overlays/kubernetes, delete deploy/overlays/openshift instead:",
        ),
        kubectl,
        keys,
        text("With helm:"),
        helm,
        text(
            "Deleting deploy/overlays/kubernetes or crds removes the Route API, and EVERY ROUTE with it. \
             Remove what you made yourself, such as RoleBindings in other namespaces, by hand.",
        ),
    ];
    format!("\n{}", parts.concat())
}

/// One object. Fields may be added; none is renamed or removed.
pub fn document(
    outlook: &Outlook,
    pairs: Option<Pairs>,
    ended: Option<&Ended>,
    others: &Others,
    namespace: &str,
) -> String {
    let marked = outlook.marked.iter().map(|marked| {
        let mut entry = entry(&marked.at, ended);
        entry["secret"] = json!(marked.asks_for);
        entry["keep"] = json!(marked.keep);
        entry["clear"] = json!(marked.clear);
        entry
    });
    let status_only = outlook.status_only.iter().map(|at| entry(at, ended));
    let left_alone = outlook.left_alone.iter().map(|marked| place(&marked.at));
    let undecodable = outlook.undecodable.iter().map(place);
    let mut report = json!({
        "routes": pairs,
        "plan": marked.collect::<Vec<_>>(),
        "statusOnly": status_only.collect::<Vec<_>>(),
        "leftAlone": left_alone.collect::<Vec<_>>(),
        "undecodable": undecodable.collect::<Vec<_>>(),
        "next": next(namespace, &others.authority),
    });
    for (job, document) in others.documents() {
        report[job] = document;
    }
    printable::json(&format!("{report}\n"))
}

fn place(at: &ObjectRef) -> Value {
    json!({ "namespace": &*at.namespace, "route": &*at.name })
}

/// A Route that is to be written, and how that ended.
fn entry(at: &ObjectRef, ended: Option<&Ended>) -> Value {
    let (result, error) = match ended.map(|ended| ended.get(at)) {
        None => ("planned", None),
        Some(Some(Removal::Done)) => ("done", None),
        Some(Some(Removal::Gone)) => ("gone", None),
        Some(Some(Removal::Failed(error))) => ("failed", Some(error.to_string())),
        Some(Some(Removal::NotTried) | None) => ("not-tried", None),
    };
    let mut entry = place(at);
    entry["result"] = json!(result);
    entry["error"] = json!(error);
    entry
}

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;

    use super::*;
    use crate::{
        inject::decide::apply_error::ApplyError,
        k8s::api_error::ApiError,
        runtime::{
            printable::{HOSTILE, is_harmless},
            terminal::fits,
        },
    };

    fn outlook() -> Outlook {
        let marked = |name: &str, secret: Option<&str>, keep, clear| Marked {
            at: ObjectRef::new("web", name),
            asks_for: secret.map(str::to_owned),
            keep,
            clear,
            drops_status: name == "shop",
        };
        Outlook {
            marked: vec![
                marked("shop", Some("shop-tls"), Effect::PairStays, Effect::PairGoes),
                marked("blog", None, Effect::OwnPairStays, Effect::OwnPairStays),
            ],
            status_only: vec![ObjectRef::new("web", "plain")],
            ..Outlook::default()
        }
    }

    #[test]
    fn without_a_choice_both_are_shown() {
        let expected = "\
NAMESPACE  ROUTE  SECRET    WITH --routes=keep        WITH --routes=clear
web        shop   shop-tls  certificate and key stay  certificate and key removed
web        blog   -         own certificate stays     own certificate stays

The annotations of these Routes are removed in the same write.
Routes that lose .status.certificate and nothing else: 1
";
        assert_eq!(strip_str(&table(&outlook(), None, 100)).to_string(), expected);
        let chosen = strip_str(&table(&outlook(), Some(Pairs::Clear), 100)).to_string();
        assert!(chosen.contains("shop-tls  certificate and key removed\n"), "{chosen}");
    }

    #[test]
    fn certificates_annotations_and_statuses_are_counted_apart() {
        let mut many = outlook();
        many.status_only = (0..20).map(|it| ObjectRef::new("web", format!("r{it}"))).collect();
        assert_eq!(
            question(&many, Pairs::Clear),
            "Remove the injected certificate and key from 1 Route, the annotations from 2 Routes and \
             .status.certificate from 21 Routes?"
        );
        assert_eq!(
            question(&many, Pairs::Keep),
            "Keep the injected certificate and key in 1 Route, as the Route's own, and remove the \
             annotations from 2 Routes and .status.certificate from 21 Routes?"
        );
        many.marked.clear();
        assert_eq!(question(&many, Pairs::Clear), "Remove .status.certificate from 20 Routes?");
    }

    #[test]
    fn everything_fits_terminals_of_50_and_80_columns() {
        let route = ObjectRef::new("web", "shop");
        let error = ApplyError::Pair { route: route.clone(), cause: ApiError::Forbidden };
        let ended = [(route, Removal::Failed(error))];
        for width in [50, 80] {
            for text in [
                table(&outlook(), None, width),
                table(&outlook(), Some(Pairs::Keep), width),
                result(&ended, width),
                next_steps("trustplane", &Authority::default(), width),
            ] {
                let text = strip_str(&text).to_string();
                assert!(fits(&text, width), "{width}:\n{text}");
            }
        }
    }

    #[test]
    fn a_namespace_with_the_keys_of_a_trust_domain_is_not_deleted() {
        let keys = Authority::with_keys_in("trustplane");
        let [kubectl, _] = next("trustplane", &keys);
        assert!(kubectl.contains(" | grep -v ^namespace/ | xargs kubectl -n trustplane delete"));
        let shown = next_steps("trustplane", &keys, 400);
        assert!(shown.contains("Namespace trustplane stays"), "{shown}");
        assert!(!shown.contains("kubectl delete --ignore-not-found -k"), "{shown}");
        for width in [50, 80] {
            let shown = next_steps("trustplane", &keys, width);
            assert!(fits(&shown, width), "{shown}");
        }
        assert!(next("web", &keys)[0].starts_with("kubectl delete "), "no keys are there");
    }

    #[test]
    fn an_annotation_that_is_no_name_does_not_stretch_the_table() {
        let mut outlook = outlook();
        outlook.marked[1].asks_for = Some("ä".repeat(100_000));
        let shown = strip_str(&table(&outlook, None, 100)).to_string();
        assert!(shown.lines().all(|line| line.chars().count() < 400), "{} long", shown.len());
    }

    #[test]
    fn whatever_an_annotation_says_the_table_and_the_document_are_harmless() {
        let mut outlook = outlook();
        outlook.marked[1].asks_for = Some(HOSTILE.into());
        let shown = strip_str(&table(&outlook, None, 100)).to_string();
        assert!(is_harmless(&shown) && shown.contains("\\u{1b}[31mred"), "{shown:?}");
        let text = document(&outlook, None, None, &Others::default(), "trustplane");
        assert!(is_harmless(&text), "{text:?}");
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["plan"][1]["secret"], HOSTILE);
    }

    #[test]
    fn nothing_to_do_is_said() {
        let shown = table(&Outlook::default(), Some(Pairs::Keep), 100);
        assert_eq!(shown, "No Route has to be changed.\n");
    }

    #[test]
    fn a_failure_is_shown_with_the_route_and_how_to_go_on() {
        let route = ObjectRef::new("web", "shop");
        let error = ApplyError::Pair { route: route.clone(), cause: ApiError::Forbidden };
        let ended =
            [(route, Removal::Failed(error)), (ObjectRef::new("web", "blog"), Removal::Gone)];
        let shown = strip_str(&result(&ended, 100)).to_string();
        assert!(shown.starts_with("Routes done: 1 of 2.\n"), "{shown}");
        assert!(shown.contains("failed  Route web/shop: "), "{shown}");
        assert!(shown.contains("Run the same command again"), "{shown}");
    }

    #[test]
    fn scripts_get_one_object_with_names_that_do_not_change() {
        let ended = Ended::from([(ObjectRef::new("web", "shop"), Removal::Done)]);
        let text = document(
            &outlook(),
            Some(Pairs::Clear),
            Some(&ended),
            &Others::default(),
            "trustplane",
        );
        let document: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(document["routes"], "clear");
        let expected = json!({
            "namespace": "web", "route": "shop", "secret": "shop-tls",
            "keep": "pair-stays", "clear": "pair-goes", "result": "done", "error": null,
        });
        assert_eq!(document["plan"][0], expected);
        assert_eq!(document["plan"][1]["result"], "not-tried");
        assert_eq!(document["statusOnly"][0]["route"], "plain");
        for field in ["leftAlone", "undecodable"] {
            assert_eq!(document[field], json!([]));
        }
        let planned = super::document(&outlook(), None, None, &Others::default(), "trustplane");
        let planned: Value = serde_json::from_str(&planned).unwrap();
        assert_eq!(
            (&planned["routes"], &planned["plan"][0]["result"]),
            (&Value::Null, &json!("planned"))
        );
    }
}

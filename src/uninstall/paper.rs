//! What will happen and what happened, as a table for people and as JSON for scripts. Pure.

use std::{collections::HashMap, fmt::Write};

use serde_json::{Value, json};

use super::{
    carry::Outcome,
    plan::{Effect, Marked, Outlook, Pairs},
};
use crate::{
    inject::facts::ObjectRef,
    kit::{
        paper::{BAD, BOLD, GOOD, WARNING},
        printable::{self, printable},
    },
};

/// How many failures are shown one by one.
const FAILURES: usize = 10;

/// Characters of what an annotation says. No Secret has a longer name.
const LONGEST: usize = 253;

/// How the Routes ended, by their place.
pub type Ended = HashMap<ObjectRef, Outcome>;

fn words(effect: Effect) -> &'static str {
    match effect {
        Effect::PairStays => "the pair stays, as the Route's own",
        Effect::PairGoes => "the pair goes",
        Effect::OwnPairStays => "its own certificate stays",
        Effect::KeyGoes => "a key without certificate goes",
        Effect::NoPair => "holds no pair",
    }
}

/// What would happen to each Route; with either choice where none was made.
pub fn table(outlook: &Outlook, pairs: Option<Pairs>) -> String {
    let mut text = String::new();
    if !outlook.marked.is_empty() {
        let (first, second) = match pairs {
            None => ("WITH --routes=keep", "WITH --routes=clear"),
            Some(_) => ("WHAT HAPPENS", ""),
        };
        let mut rows = vec![["NAMESPACE", "ROUTE", "SECRET", first, second].map(str::to_owned)];
        rows.extend(outlook.marked.iter().map(|marked| row(marked, pairs)));
        text.push_str(&aligned(&rows));
        text.push_str("\nThe annotations of these Routes go in the same write.\n");
    }
    for (count, which) in [
        (outlook.status_only.len(), "Routes that lose .status.certificate and nothing else"),
        (outlook.left_alone.len(), "Routes of an Ingress, which are left alone"),
        (outlook.undecodable.len(), "Routes that can't be decoded, and are left alone"),
    ] {
        if count > 0 {
            let _ = writeln!(text, "{which}: {count}");
        }
    }
    if outlook.is_nothing() {
        text.push_str("No Route has to be changed.\n");
    }
    text
}

fn row(marked: &Marked, pairs: Option<Pairs>) -> [String; 5] {
    let (first, second) = match pairs {
        None => (words(marked.keep), words(marked.clear)),
        Some(pairs) => (words(marked.effect(pairs)), ""),
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

/// What happened.
pub fn result(ended: &[(ObjectRef, Outcome)]) -> String {
    let count = |wanted: fn(&Outcome) -> bool| ended.iter().filter(|(_, it)| wanted(it)).count();
    let done = count(|it| matches!(it, Outcome::Done | Outcome::Gone));
    let all = ended.len();
    let style = if done == all { GOOD } else { WARNING };
    let mut text = format!("{style}{done} of {all} Routes are done.{style:#}\n");
    let failures = ended.iter().filter_map(|(_, outcome)| match outcome {
        Outcome::Failed(error) => Some(error),
        _ => None,
    });
    for error in failures.clone().take(FAILURES) {
        let _ = writeln!(text, "{BAD}failed{BAD:#}  {}", printable(&error.to_string()));
    }
    let more = failures.count().saturating_sub(FAILURES);
    if more > 0 {
        let _ = writeln!(text, "{more} more failed.");
    }
    if done < all {
        text.push_str("Run the same command again: it goes on where this one ended.\n");
    }
    text
}

/// The commands that remove the rest: one for each way to install.
pub fn next(namespace: &str) -> [String; 2] {
    [
        "kubectl delete --ignore-not-found -k deploy/overlays/openshift".to_owned(),
        format!("helm uninstall trustplane --namespace {namespace}"),
    ]
}

/// The same, for people.
pub fn farewell(namespace: &str) -> String {
    let [kubectl, helm] = next(namespace);
    format!(
        "
Remove the rest. With kubectl, delete the overlay that you applied, and deploy/overlays/openshift in
place of deploy/overlays/kubernetes:
  {kubectl}
With helm:
  {helm}
Deleting deploy/overlays/kubernetes, or crds, takes the Route API away and EVERY ROUTE with it.
Objects that you made yourself, such as RoleBindings in other namespaces, are yours to remove.
"
    )
}

/// One object. Fields may be added; none is renamed or removed.
pub fn document(
    outlook: &Outlook,
    pairs: Option<Pairs>,
    ended: Option<&Ended>,
    namespace: &str,
) -> String {
    let marked: Vec<_> = outlook.marked.iter().map(|marked| entry(marked, ended)).collect();
    let place = |at: &ObjectRef| json!({ "namespace": &*at.namespace, "route": &*at.name });
    let status_only = outlook.status_only.iter().map(|at| {
        let mut entry = place(at);
        put_outcome(&mut entry, at, ended);
        entry
    });
    let left_alone = outlook.left_alone.iter().map(|marked| place(&marked.at));
    let undecodable = outlook.undecodable.iter().map(place);
    let report = json!({
        "routes": pairs,
        "plan": marked,
        "statusOnly": status_only.collect::<Vec<_>>(),
        "leftAlone": left_alone.collect::<Vec<_>>(),
        "undecodable": undecodable.collect::<Vec<_>>(),
        "next": next(namespace),
    });
    printable::json(&format!("{report}\n"))
}

fn entry(marked: &Marked, ended: Option<&Ended>) -> Value {
    let mut entry = json!({
        "namespace": &*marked.at.namespace,
        "route": &*marked.at.name,
        "secret": marked.asks_for,
        "keep": marked.keep,
        "clear": marked.clear,
    });
    put_outcome(&mut entry, &marked.at, ended);
    entry
}

fn put_outcome(entry: &mut Value, at: &ObjectRef, ended: Option<&Ended>) {
    let (result, error) = match ended.map(|ended| ended.get(at)) {
        None => ("planned", None),
        Some(Some(Outcome::Done)) => ("done", None),
        Some(Some(Outcome::Gone)) => ("gone", None),
        Some(Some(Outcome::Failed(error))) => ("failed", Some(error.to_string())),
        Some(Some(Outcome::NotTried) | None) => ("not-tried", None),
    };
    entry["result"] = json!(result);
    entry["error"] = json!(error);
}

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;

    use super::*;
    use crate::{
        inject::apply::ApplyError,
        kit::{
            call::CallError,
            printable::{HOSTILE, is_harmless},
        },
    };

    fn outlook() -> Outlook {
        let marked = |name: &str, secret: Option<&str>, keep, clear| Marked {
            at: ObjectRef::new("web", name),
            asks_for: secret.map(str::to_owned),
            keep,
            clear,
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
NAMESPACE  ROUTE  SECRET    WITH --routes=keep                  WITH --routes=clear
web        shop   shop-tls  the pair stays, as the Route's own  the pair goes
web        blog   -         its own certificate stays           its own certificate stays

The annotations of these Routes go in the same write.
Routes that lose .status.certificate and nothing else: 1
";
        assert_eq!(strip_str(&table(&outlook(), None)).to_string(), expected);
        let chosen = strip_str(&table(&outlook(), Some(Pairs::Clear))).to_string();
        assert!(chosen.contains("shop-tls  the pair goes\n"), "{chosen}");
    }

    #[test]
    fn an_annotation_that_is_no_name_does_not_stretch_the_table() {
        let mut outlook = outlook();
        outlook.marked[1].asks_for = Some("ä".repeat(100_000));
        let shown = strip_str(&table(&outlook, None)).to_string();
        assert!(shown.lines().all(|line| line.chars().count() < 400), "{} long", shown.len());
    }

    #[test]
    fn whatever_an_annotation_says_the_table_and_the_document_are_harmless() {
        let mut outlook = outlook();
        outlook.marked[1].asks_for = Some(HOSTILE.into());
        let shown = strip_str(&table(&outlook, None)).to_string();
        assert!(is_harmless(&shown) && shown.contains("\\u{1b}[31mred"), "{shown:?}");
        let text = document(&outlook, None, None, "trustplane");
        assert!(is_harmless(&text), "{text:?}");
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["plan"][1]["secret"], HOSTILE);
    }

    #[test]
    fn nothing_to_do_is_said() {
        assert_eq!(table(&Outlook::default(), Some(Pairs::Keep)), "No Route has to be changed.\n");
    }

    #[test]
    fn a_failure_is_shown_with_the_route_and_how_to_go_on() {
        let route = ObjectRef::new("web", "shop");
        let error = ApplyError::Pair { route: route.clone(), cause: CallError::Forbidden };
        let ended =
            [(route, Outcome::Failed(error)), (ObjectRef::new("web", "blog"), Outcome::Gone)];
        let shown = strip_str(&result(&ended)).to_string();
        assert!(shown.starts_with("1 of 2 Routes are done.\n"), "{shown}");
        assert!(shown.contains("failed  Route web/shop: "), "{shown}");
        assert!(shown.contains("Run the same command again"), "{shown}");
    }

    #[test]
    fn scripts_get_one_object_with_names_that_do_not_change() {
        let ended = Ended::from([(ObjectRef::new("web", "shop"), Outcome::Done)]);
        let text = document(&outlook(), Some(Pairs::Clear), Some(&ended), "trustplane");
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
        let planned = super::document(&outlook(), None, None, "trustplane");
        let planned: Value = serde_json::from_str(&planned).unwrap();
        assert_eq!(
            (&planned["routes"], &planned["plan"][0]["result"]),
            (&Value::Null, &json!("planned"))
        );
    }
}

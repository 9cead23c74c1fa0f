//! Which Route gets which host.

use std::collections::HashSet;

use serde_json::{Value, json};
use testkit::{
    pair,
    router::plan::{Admission, At, Route, Table},
};

use crate::router::{aged, route_in};

fn edge() -> Value {
    json!({ "termination": "edge" })
}

fn table(routes: impl IntoIterator<Item = Route>) -> Table {
    let mut table = Table::default();
    for route in routes {
        table.apply(route);
    }
    table
}

/// The admission of every Route, by its name.
fn admissions(table: &Table) -> Vec<(String, &'static str)> {
    let word = |admission| match admission {
        Admission::Admitted => "Admitted",
        Admission::Refused { reason, .. } => reason,
    };
    let admissions = table.admissions().into_iter();
    admissions.map(|(entry, it)| (entry.at.to_string(), word(it))).collect()
}

fn expected(said: &[(&str, &'static str)]) -> Vec<(String, &'static str)> {
    said.iter().map(|(name, word)| ((*name).to_owned(), *word)).collect()
}

#[test]
fn the_oldest_route_gets_the_host() {
    let older = aged(route_in("web", "zebra", "shop.example.com", edge()), 1);
    let newer = aged(route_in("app", "ant", "SHOP.example.com.", edge()), 2);
    let mut table = table([newer, older]);
    let both = [("web/zebra", "Admitted"), ("app/ant", "HostAlreadyClaimed")];
    assert_eq!(admissions(&table), expected(&both));

    table.remove(&At { namespace: "web".to_owned(), name: "zebra".to_owned() });
    assert_eq!(admissions(&table), expected(&[("app/ant", "Admitted")]));
}

#[test]
fn within_a_second_the_names_decide() {
    let routes = ["b", "a"].map(|name| aged(route_in("web", name, "shop.example.com", edge()), 1));
    let both = [("web/a", "Admitted"), ("web/b", "HostAlreadyClaimed")];
    assert_eq!(admissions(&table(routes)), expected(&both));
}

#[test]
fn a_route_that_is_refused_keeps_its_host() {
    let bad = pair::mismatched("shop.example.com");
    let tls = json!({ "termination": "edge", "certificate": bad.certificate, "key": bad.key });
    let older = aged(route_in("web", "bad", "shop.example.com", tls), 1);
    let newer = aged(route_in("web", "good", "shop.example.com", edge()), 2);
    let both = [("web/bad", "ExtendedValidationFailed"), ("web/good", "HostAlreadyClaimed")];
    assert_eq!(admissions(&table([older, newer])), expected(&both));
}

#[test]
fn a_wildcard_and_a_host_below_it_are_two_claims() {
    let mut wildcard = aged(route_in("web", "any", "www.apps.example.com", edge()), 1);
    wildcard.spec.wildcard_policy = "Subdomain".to_owned();
    let mut second = aged(route_in("web", "too", "other.apps.example.com", edge()), 2);
    second.spec.wildcard_policy = "Subdomain".to_owned();
    let one = aged(route_in("web", "one", "one.apps.example.com", edge()), 3);
    let all = [("web/any", "Admitted"), ("web/too", "HostAlreadyClaimed"), ("web/one", "Admitted")];
    assert_eq!(admissions(&table([wildcard, second, one])), expected(&all));
}

#[test]
fn a_route_without_a_host_is_refused() {
    let routes = [route_in("web", "shop", "", edge())];
    assert_eq!(admissions(&table(routes)), expected(&[("web/shop", "NoHostValue")]));
}

#[test]
fn a_route_that_a_list_does_not_have_is_gone() {
    let routes = ["a", "b"].map(|name| route_in("web", name, &format!("{name}.test"), edge()));
    let mut table = table(routes);
    let left = At { namespace: "web".to_owned(), name: "b".to_owned() };
    table.keep_only(&HashSet::from([left]));
    assert_eq!(admissions(&table), expected(&[("web/b", "Admitted")]));
}

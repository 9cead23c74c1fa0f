use serde_json::json;

use super::*;
use crate::demo::edge::admit::offer;

struct Given {
    at: (&'static str, &'static str),
    created: i64,
    spec: Value,
}

fn route(namespace: &'static str, name: &'static str, host: &str) -> Given {
    let spec = json!({ "host": host, "to": { "name": "it" }, "tls": { "termination": "edge" } });
    Given { at: (namespace, name), created: 0, spec }
}

impl Given {
    fn created(self, created: i64) -> Self {
        Self { created, ..self }
    }

    fn with(mut self, field: &str, value: &str) -> Self {
        self.spec[field] = json!(value);
        self
    }

    fn tls(mut self, field: &str, value: &str) -> Self {
        self.spec["tls"][field] = json!(value);
        self
    }

    fn entry(&self) -> Entry {
        let created = chrono::DateTime::from_timestamp(1_700_000_000 + self.created, 0).unwrap();
        let route: Route = serde_json::from_value(json!({
            "metadata": {
                "namespace": self.at.0, "name": self.at.1,
                "creationTimestamp": created.to_rfc3339(),
            },
            "spec": self.spec,
        }))
        .unwrap();
        let authority = crate::demo::authority::Authority::new("any", chrono::Utc::now());
        let trust = super::super::trust::in_services(authority.unwrap().der()).unwrap();
        let offer = offer(&route.spec, &trust).map(Arc::new);
        Entry::new(route, offer)
    }
}

fn table(routes: &[Given]) -> Table {
    let mut table = Table::default();
    for route in routes {
        table.apply(route.entry());
    }
    table
}

fn found(table: &Table, host: &str, path: &str) -> String {
    match table.find(host, path) {
        Found::Route(entry, _) => entry.at.to_string(),
        Found::Refused(entry, _) => format!("refused {}", entry.at),
        Found::NoRoute => "nobody".to_owned(),
    }
}

fn reason(table: &Table, namespace: &str, name: &str) -> &'static str {
    let entry = table.get(&ObjectRef::new(namespace, name)).unwrap();
    match table.admission(entry) {
        Admission::Admitted { .. } => "admitted",
        Admission::Refused { reason, .. } => reason,
    }
}

#[test]
fn a_host_is_found_in_any_case_and_with_a_dot_at_its_end() {
    let table = table(&[route("web", "shop", "Shop.example.com")]);
    for host in ["shop.example.com", "SHOP.example.com", "shop.example.com."] {
        assert_eq!(found(&table, host, "/"), "web/shop");
    }
    assert_eq!(found(&table, "example.com", "/"), "nobody");
    assert_eq!(found(&table, "", "/"), "nobody");
}

#[test]
fn the_oldest_route_gets_the_host_and_the_next_one_follows_when_it_is_gone() {
    let mut table = table(&[
        route("web", "late", "shop.example.com").created(2),
        route("other", "early", "shop.example.com").created(1),
    ]);
    assert_eq!(found(&table, "shop.example.com", "/"), "other/early");
    assert_eq!(reason(&table, "web", "late"), "HostAlreadyClaimed");
    assert_eq!(reason(&table, "other", "early"), "admitted");

    let concerned = table.remove(&ObjectRef::new("other", "early"));
    assert_eq!(concerned, [ObjectRef::new("web", "late")]);
    assert_eq!(found(&table, "shop.example.com", "/"), "web/late");
    assert_eq!(reason(&table, "web", "late"), "admitted");
}

#[test]
fn a_route_that_comes_late_but_is_older_takes_the_host_over() {
    let mut table = table(&[route("web", "late", "shop.example.com").created(2)]);
    let concerned = table.apply(route("other", "early", "shop.example.com").created(1).entry());
    assert!(concerned.contains(&ObjectRef::new("web", "late")), "{concerned:?}");
    assert_eq!(reason(&table, "web", "late"), "HostAlreadyClaimed");
}

#[test]
fn routes_of_a_namespace_share_a_host_by_path_and_the_longest_one_wins() {
    let table = table(&[
        route("web", "all", "shop.example.com").created(1),
        route("web", "cart", "shop.example.com").created(2).with("path", "/cart"),
        route("web", "again", "shop.example.com").created(3).with("path", "/cart/"),
        route("other", "cart", "shop.example.com").created(4).with("path", "/other"),
    ]);
    assert_eq!(found(&table, "shop.example.com", "/"), "web/all");
    assert_eq!(found(&table, "shop.example.com", "/cart"), "web/cart");
    assert_eq!(found(&table, "shop.example.com", "/cart/1"), "web/cart");
    assert_eq!(found(&table, "shop.example.com", "/cartoon"), "web/all");
    assert_eq!(found(&table, "shop.example.com", "/other"), "web/all");
    assert_eq!(reason(&table, "web", "again"), "HostAlreadyClaimed");
    assert_eq!(reason(&table, "other", "cart"), "HostAlreadyClaimed");
}

#[test]
fn a_wildcard_route_gets_every_name_of_its_domain_that_no_other_route_has() {
    let table = table(&[
        route("web", "any", "www.apps.example.com").with("wildcardPolicy", "Subdomain"),
        route("web", "one", "one.apps.example.com"),
    ]);
    assert_eq!(found(&table, "two.apps.example.com", "/"), "web/any");
    assert_eq!(found(&table, "www.apps.example.com", "/"), "web/any");
    assert_eq!(found(&table, "one.apps.example.com", "/"), "web/one");
    assert_eq!(found(&table, "apps.example.com", "/"), "nobody");
    assert_eq!(found(&table, "a.b.apps.example.com", "/"), "nobody");
}

#[test]
fn a_route_that_is_refused_keeps_its_claim() {
    let table = table(&[
        route("web", "bad", "shop.example.com").created(1).tls("certificate", "no PEM"),
        route("other", "good", "shop.example.com").created(2),
    ]);
    assert_eq!(reason(&table, "web", "bad"), "ExtendedValidationFailed");
    assert_eq!(reason(&table, "other", "good"), "HostAlreadyClaimed");
    assert_eq!(found(&table, "shop.example.com", "/"), "refused web/bad");
    let Connection::Terminate(certificate) = table.connection("shop.example.com") else {
        panic!("it is not passed through")
    };
    assert!(certificate.is_none(), "the default certificate is served");
}

#[test]
fn a_route_without_a_host_is_refused_and_gets_none() {
    let table = table(&[route("web", "nowhere", "")]);
    assert_eq!(reason(&table, "web", "nowhere"), "NoHostValue");
}

#[test]
fn a_route_that_moves_to_another_host_frees_the_first() {
    let mut table = table(&[
        route("web", "moves", "one.example.com").created(1),
        route("other", "waits", "one.example.com").created(2),
    ]);
    let concerned = table.apply(route("web", "moves", "two.example.com").created(1).entry());
    assert!(concerned.contains(&ObjectRef::new("other", "waits")), "{concerned:?}");
    assert_eq!(found(&table, "one.example.com", "/"), "other/waits");
    assert_eq!(found(&table, "two.example.com", "/"), "web/moves");
}

#[test]
fn a_change_without_effect_on_claims_affects_one_route_alone() {
    let mut table = table(&[
        route("web", "one", "shop.example.com").created(1),
        route("web", "two", "shop.example.com").created(2).with("path", "/two"),
    ]);
    let concerned = table.apply(route("web", "one", "shop.example.com").created(1).entry());
    assert_eq!(concerned, [ObjectRef::new("web", "one")]);
}

#[test]
fn a_list_takes_out_what_it_does_not_have() {
    let mut table = table(&[
        route("web", "gone", "shop.example.com").created(1),
        route("other", "there", "shop.example.com").created(2),
    ]);
    let there = ObjectRef::new("other", "there");
    assert_eq!(table.listed(&HashSet::from([there.clone()])), [there]);
    assert_eq!(found(&table, "shop.example.com", "/"), "other/there");
}

#[test]
fn passthrough_is_decided_by_the_host_alone() {
    let table =
        table(&[route("web", "through", "shop.example.com").tls("termination", "passthrough")]);
    let Connection::Pass(entry) = table.connection("shop.example.com") else {
        panic!("it is passed through")
    };
    assert_eq!(entry.at, ObjectRef::new("web", "through"));
}

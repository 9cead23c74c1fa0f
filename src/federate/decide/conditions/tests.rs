use chrono::TimeDelta;
use serde_json::json;

use super::*;
use crate::{
    api::spire_server::{FederationStatus, SpireFetch},
    bundle::fetch::FetchError,
    federate::decide::{
        endpoint_view::EndpointError,
        render::tests::{server, spiffe},
    },
    runtime::printable::{HOSTILE, is_harmless},
};

fn noon() -> DateTime<Utc> {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

fn running() -> Value {
    json!({
        "metadata": { "generation": 2 }, "spec": { "replicas": 1 },
        "status": { "observedGeneration": 2, "updatedReplicas": 1, "readyReplicas": 1 },
    })
}

/// A Route that a router serves by this host.
fn admitted(host: &str) -> Value {
    let conditions = json!([{ "type": "Admitted", "status": "True" }]);
    json!({
        "spec": { "host": "spire.example" },
        "status": { "ingress": [{ "routerName": "r", "host": host, "conditions": conditions }] },
    })
}

/// Everything is there and the server runs.
fn well() -> Findings {
    let outcome = |part| match part {
        Component::StatefulSet => ApplyResult::InPlace(running()),
        Component::Route => ApplyResult::InPlace(admitted("spire.example")),
        _ => ApplyResult::InPlace(json!({})),
    };
    Findings {
        outcomes: Component::ALL.into_iter().map(|part| (part, outcome(part))).collect(),
        host: Some("spire.example".to_owned()),
        ..Findings::default()
    }
}

fn with(part: Component, outcome: ApplyResult) -> Findings {
    let mut findings = well();
    findings.outcomes.iter_mut().find(|(it, _)| *it == part).unwrap().1 = outcome;
    findings
}

fn of(about: &str, findings: &Findings) -> (&'static str, &'static str, String) {
    let value = find(&evaluate(&server(spiffe()), findings), about);
    (value.status, value.reason, value.message)
}

fn find(values: &[ConditionValue], about: &str) -> ConditionValue {
    values.iter().find(|it| it.about == about).unwrap().clone()
}

#[test]
fn a_server_that_runs_with_everything_in_place_is_ready() {
    let values = evaluate(&server(spiffe()), &well());
    let brief: Vec<_> = values.iter().map(|it| (it.about, it.status, it.reason)).collect();
    let expected = [
        ("ConfigurationValid", "True", "ValidConfiguration"),
        ("RBACAvailable", "True", "Available"),
        ("ServerConfigMapAvailable", "True", "Available"),
        ("ServiceAvailable", "True", "Available"),
        ("StatefulSetAvailable", "True", "Available"),
        ("RouteAvailable", "True", "RouteAvailable"),
        ("TrustMatchesSpec", "True", "OnlyListedTrustDomains"),
        ("CreateOnlyMode", "False", "CreateOnlyModeDisabled"),
        ("Ready", "True", "Ready"),
    ];
    assert_eq!(brief, expected);
}

#[test]
fn every_problem_of_a_configuration_is_told_and_nothing_is_claimed_of_objects() {
    let problems = vec![Problem::new("spec.a", "is wrong"), Problem::new("spec.b", "too")];
    let findings = Findings { problems, ..Findings::default() };
    let (status, reason, message) = of("ConfigurationValid", &findings);
    assert_eq!((status, reason), ("False", "InvalidFederationConfiguration"));
    assert_eq!(
        message,
        "spec.a: is wrong\nspec.b: too\nUntil that is fixed nothing is made or changed"
    );
    let all: Vec<_> = evaluate(&server(spiffe()), &findings).iter().map(|it| it.about).collect();
    assert_eq!(all, ["ConfigurationValid", "TrustMatchesSpec", "CreateOnlyMode", "Ready"]);
    assert_eq!(of("Ready", &findings).0, "False");
}

#[test]
fn a_secret_that_can_t_be_used_is_told_and_the_objects_are_made_all_the_same() {
    let findings = Findings { references: vec![Problem::new("ref", "no Secret")], ..well() };
    assert_eq!(of("ConfigurationValid", &findings).0, "False");
    assert_eq!(of("ServiceAvailable", &findings).0, "True");
}

#[test]
fn a_secret_that_could_not_be_read_just_now_is_told_as_that_and_hides_no_problem() {
    let unread = UnreadSecret { name: "tls".to_owned(), error: ApiError::Server { code: 503 } };
    let findings = Findings { unread: Some(unread), ..well() };
    let (status, reason, message) = of("ConfigurationValid", &findings);
    assert_eq!((status, reason), ("Unknown", "SecretUnreadable"));
    assert_eq!(message, "Secret tls could not be read: the API server answered HTTP 503");
    assert_eq!(of("Ready", &findings).0, "True", "this is no news of the server");
    let both = Findings { references: vec![Problem::new("ref", "is wrong")], ..findings };
    assert_eq!(of("ConfigurationValid", &both).0, "False");
}

#[test]
fn a_route_that_the_administrator_keeps_is_a_choice_and_no_failure() {
    let mut own = spiffe();
    own["managedRoute"] = json!("false");
    let values = evaluate(&server(own), &well());
    let route = find(&values, "RouteAvailable");
    assert_eq!((route.status, route.reason), ("Unknown", "ManagedRouteDisabled"));
    assert_eq!(values.last().unwrap().status, "True", "Ready");
}

#[test]
fn the_route_s_fate_has_a_reason_of_its_own() {
    let route = |outcome| of("RouteAvailable", &with(Component::Route, outcome));
    assert_eq!(route(ApplyResult::Created).1, "FederationRouteCreated");
    assert_eq!(route(ApplyResult::Updated(vec![], json!({}))).1, "FederationRouteUpdated");
    for (doing, reason) in [
        (Operation::Read, "FederationRouteRetrievalFailed"),
        (Operation::Create, "FederationRouteCreationFailed"),
        (Operation::Update, "FederationRouteUpdateFailed"),
    ] {
        let failed = route(ApplyResult::Failed(doing, ApiError::Forbidden));
        assert_eq!((failed.0, failed.1), ("False", reason));
    }
    let refused = json!({ "status": { "ingress": [{ "routerName": "default", "conditions": [
        { "type": "Admitted", "status": "False", "message": "host is taken" } ] }] } });
    let (status, reason, message) = route(ApplyResult::InPlace(refused));
    assert_eq!((status, reason), ("False", "FederationRouteNotAdmitted"));
    assert!(message.contains("host is taken"), "{message}");
    let unknown = Findings { host: None, ..well() };
    assert_eq!(of("RouteAvailable", &unknown).1, "FederationRouteHostUnknown");
}

#[test]
fn whatever_a_router_or_an_owner_is_called_no_condition_can_deceive_its_reader() {
    let refused = json!({ "status": { "ingress": [{ "routerName": HOSTILE, "conditions": [
        { "type": "Admitted", "status": "False", "message": HOSTILE } ] }] } });
    let peer = PeerStatus {
        trust_domain: "b.example".into(),
        last_error: Some(HOSTILE.into()),
        ..PeerStatus::default()
    };
    for (about, findings) in [
        ("RouteAvailable", with(Component::Route, ApplyResult::InPlace(refused))),
        ("ServiceAvailable", with(Component::Service, ApplyResult::Taken(HOSTILE.into()))),
        (PEERS, Findings { peers: vec![peer], ..well() }),
    ] {
        let message = of(about, &findings).2;
        assert!(is_harmless(&message) && message.contains("\\u{1b}[31m"), "{message:?}");
    }
}

#[test]
fn a_route_that_one_of_two_routers_serves_is_available() {
    let admitted = |status: &str| json!({ "routerName": "r", "conditions": [{ "type": "Admitted", "status": status }] });
    let live = json!({ "status": { "ingress": [admitted("False"), admitted("True")] } });
    assert_eq!(of("RouteAvailable", &with(Component::Route, ApplyResult::InPlace(live))).0, "True");
}

#[test]
fn the_server_is_available_when_its_pod_runs_with_the_newest_configuration() {
    let set = |outcome| of("StatefulSetAvailable", &with(Component::StatefulSet, outcome)).0;
    assert_eq!(set(ApplyResult::InPlace(running())), "True");
    assert_eq!(set(ApplyResult::Created), "False");
    assert_eq!(set(ApplyResult::Updated(vec!["spec".into()], running())), "False");
    let label = vec!["metadata.labels.app".to_owned()];
    assert_eq!(set(ApplyResult::Updated(label, running())), "True", "its Pod stays");
    assert_eq!(set(ApplyResult::Updated(Vec::new(), running())), "True", "only our notes are new");
    let mut behind = running();
    behind["status"]["observedGeneration"] = json!(1);
    assert_eq!(set(ApplyResult::InPlace(behind)), "False");
    let mut down = running();
    down["status"]["readyReplicas"] = json!(0);
    assert_eq!(set(ApplyResult::InPlace(down)), "False");
}

#[test]
fn create_only_mode_names_what_is_out_of_step_and_is_no_failure() {
    let fields = vec!["data.server.conf".to_owned()];
    let out = with(Component::ServerConfigMap, ApplyResult::OutOfStep(fields, json!({})));
    let findings = Findings { create_only: true, ..out };
    let (status, reason, message) = of("CreateOnlyMode", &findings);
    assert_eq!((status, reason), ("True", "OutOfStep"));
    assert!(message.contains("ServerConfigMap: data.server.conf"), "{message}");
    assert_eq!(of("Ready", &findings).0, "True");
    let set = ApplyResult::OutOfStep(vec!["spec".into()], running());
    let behind = Findings { create_only: true, ..with(Component::StatefulSet, set) };
    assert_eq!(of("Ready", &behind).0, "True", "it runs, as it was chosen");
    let quiet = Findings { create_only: true, ..well() };
    assert_eq!(of("CreateOnlyMode", &quiet).1, "CreateOnlyModeEnabled");
}

#[test]
fn an_object_of_somebody_else_is_named_with_its_owner() {
    let (status, reason, message) =
        of("ServiceAvailable", &with(Component::Service, ApplyResult::Taken("Helm x".into())));
    assert_eq!((status, reason), ("False", "Taken"));
    assert!(message.contains("Helm x"), "{message}");
}

#[test]
fn a_time_moves_with_its_status_alone_and_conditions_of_others_stay() {
    let existing = stamped(&[], &evaluate(&server(spiffe()), &well()), 1, noon());
    let foreign = Condition { r#type: "Theirs".into(), ..existing[0].clone() };
    let existing: Vec<_> = existing.into_iter().chain([foreign.clone()]).collect();
    let later = noon() + TimeDelta::hours(1);
    let down =
        with(Component::Service, ApplyResult::Failed(Operation::Update, ApiError::Forbidden));
    let after = stamped(&existing, &evaluate(&server(spiffe()), &down), 2, later);
    let time =
        |about: &str| after.iter().find(|it| it.r#type == about).unwrap().last_transition_time;
    assert_eq!(time("ServiceAvailable"), later);
    assert_eq!(time("Ready"), later);
    assert_eq!(time("ConfigurationValid"), noon());
    assert!(after.contains(&foreign));
    assert!(after.iter().filter(|it| it.r#type != "Theirs").all(|it| it.observed_generation == 2));
}

#[test]
fn what_was_said_is_said_in_the_same_words_again() {
    let values = evaluate(&server(spiffe()), &well());
    let first = stamped(&[], &values, 1, noon());
    assert_eq!(stamped(&first, &values, 1, noon() + TimeDelta::hours(1)), first);
}

#[test]
fn peers_that_can_t_be_reached_are_named_and_leave_this_cluster_ready() {
    let peer = |trust_domain: &str, error: Option<&str>| PeerStatus {
        trust_domain: trust_domain.to_owned(),
        reachable: error.is_none(),
        last_success_time: Some(noon()),
        last_error: error.map(str::to_owned),
        spire_fetch: Some(SpireFetch::Ok),
        ..PeerStatus::default()
    };
    let findings = Findings {
        peers: vec![peer("td-b.test", None), peer("td-c.test", Some("connection refused"))],
        ..well()
    };
    let (status, reason, message) = of("PeersReachable", &findings);
    assert_eq!((status, reason), ("False", "PeersUnreachable"));
    assert_eq!(message, "1 of 2 peers: td-c.test: connection refused");
    assert_eq!(of("Ready", &findings).0, "True");
    let all_well = Findings { peers: vec![peer("td-b.test", None)], ..well() };
    assert_eq!(of("PeersReachable", &all_well).0, "True");
    let unasked = Findings { peers: vec![PeerStatus::default()], ..well() };
    assert!(evaluate(&server(spiffe()), &unasked).iter().all(|it| it.about != "PeersReachable"));
}

#[test]
fn peers_are_not_all_reachable_while_one_of_them_was_never_asked() {
    let asked = PeerStatus {
        trust_domain: "td-b.test".to_owned(),
        reachable: true,
        last_success_time: Some(noon()),
        ..PeerStatus::default()
    };
    let unasked = PeerStatus { trust_domain: "td-c.test".to_owned(), ..PeerStatus::default() };
    let findings = Findings { peers: vec![asked, unasked], ..well() };
    let values = evaluate(&server(spiffe()), &findings);
    let peers = values.iter().find(|it| it.about == "PeersReachable");
    let brief = peers.map(|it| (it.status, it.reason));
    assert_ne!(brief, Some(("True", "AllPeersReachable")));
}

#[test]
fn a_server_that_somebody_scaled_to_nothing_is_not_available_in_create_only_mode() {
    let scaled = json!({
        "metadata": { "generation": 3 }, "spec": { "replicas": 0 },
        "status": { "observedGeneration": 3, "updatedReplicas": 0, "readyReplicas": 0 },
    });
    let outcome = ApplyResult::OutOfStep(vec!["spec.replicas".to_owned()], scaled);
    let findings = Findings { create_only: true, ..with(Component::StatefulSet, outcome) };
    assert_eq!(of("StatefulSetAvailable", &findings).0, "False");
    assert_eq!(of("Ready", &findings).0, "False");
}

#[test]
fn people_are_told_to_annotate_only_where_that_has_an_object_taken_over() {
    let told = |owner: &str| {
        of("ServiceAvailable", &with(Component::Service, ApplyResult::Taken(owner.to_owned()))).2
    };
    assert!(told(SOMEBODY).contains(ADOPT_ANNOTATION), "{}", told(SOMEBODY));
    // `apply` leaves what another controller owns to it, whatever its annotations say.
    let message = told("Tenant a");
    assert!(!message.contains(ADOPT_ANNOTATION), "{message}");
    assert!(message.contains("Have Tenant a give it up"), "{message}");
}

#[test]
fn nobody_is_told_to_delete_the_spire_server_while_an_earlier_one_s_objects_go() {
    let findings = with(Component::Service, ApplyResult::Taken("SpireServer cluster".to_owned()));
    let (status, _, message) = of("ServiceAvailable", &findings);
    assert_eq!(status, "False");
    assert!(
        message.contains("still being deleted") && !message.contains("give it up"),
        "{message}"
    );
}

#[test]
fn while_the_spec_is_invalid_the_objects_of_the_last_valid_one_are_told_of() {
    let problems = vec![Problem::new("spec.a", "is wrong")];
    let findings = Findings { problems, ..well() };
    let (status, _, message) = of("ConfigurationValid", &findings);
    assert_eq!(status, "False");
    assert!(message.contains("the last valid spec counts"), "{message}");
    assert_eq!(of("ServiceAvailable", &findings).0, "True");
    assert_eq!(of("Ready", &findings).0, "False");
}

#[test]
fn until_a_router_has_admitted_the_route_nobody_knows_and_ready_is_not_true() {
    let elsewhere = admitted("before.example");
    for (outcome, reason) in [
        (ApplyResult::Created, "FederationRouteCreated"),
        (ApplyResult::Updated(Vec::new(), elsewhere.clone()), "FederationRouteUpdated"),
        (ApplyResult::InPlace(json!({})), "RouteAvailable"),
        (ApplyResult::InPlace(elsewhere), "RouteAvailable"),
    ] {
        let findings = with(Component::Route, outcome);
        let found = of("RouteAvailable", &findings);
        assert_eq!((found.0, found.1), ("Unknown", reason), "{findings:?}");
        let ready = of("Ready", &findings);
        assert_eq!((ready.0, ready.1), ("Unknown", "RouteNotAdmitted"));
    }
    let updated = ApplyResult::Updated(Vec::new(), admitted("spire.example"));
    assert_eq!(of("Ready", &with(Component::Route, updated)).0, "True", "by its host of now");
}

#[test]
fn a_route_that_the_administrator_keeps_does_not_count_nor_does_what_answers_there() {
    let mut federation = spiffe();
    federation["managedRoute"] = json!("false");
    let answer = EndpointView::Answered("https://a".to_owned(), Err(EndpointError::Foreign));
    let findings = Findings { endpoint: Some(answer), ..well() };
    let values = evaluate(&server(federation), &findings);
    let status = |about: &str| find(&values, about).status;
    assert_eq!((status("RouteAvailable"), status(ENDPOINT)), ("Unknown", "False"));
    assert_eq!(status("Ready"), "True");
}

#[test]
fn what_answers_at_our_endpoint_counts_and_what_cannot_be_reached_from_inside_does_not() {
    let asked = |answer: Result<(), EndpointError>| {
        let endpoint = Some(EndpointView::Answered("https://a".to_owned(), answer));
        let findings = Findings { endpoint, ..well() };
        (of(ENDPOINT, &findings).0, of("Ready", &findings).0)
    };
    assert_eq!(asked(Ok(())), ("True", "True"));
    assert_eq!(asked(Err(FetchError::Status(503).into())), ("False", "False"));
    assert_eq!(asked(Err(FetchError::Refused.into())), ("Unknown", "True"));
}

#[test]
fn what_an_earlier_process_found_at_our_endpoint_stays_told_until_this_one_has_asked() {
    let answer = EndpointView::Answered("https://a".to_owned(), Err(EndpointError::Foreign));
    let told = Findings { endpoint: Some(answer), ..well() };
    let mut server = server(spiffe());
    server.status.conditions = stamped(&[], &evaluate(&server, &told), 1, noon());
    let endpoint_url = Some("https://a".to_owned());
    server.status.federation =
        Some(FederationStatus { endpoint_url, ..FederationStatus::default() });
    let unasked =
        |url: &str| Findings { endpoint: Some(EndpointView::NotAsked(url.to_owned())), ..well() };
    assert_eq!(evaluate(&server, &unasked("https://a")), evaluate(&server, &told));
    let moved = evaluate(&server, &unasked("https://b"));
    assert_eq!(find(&moved, ENDPOINT).status, "Unknown");
}

#[test]
fn peers_are_not_reachable_while_the_spire_server_itself_cannot_fetch_or_nobody_knows() {
    let peer = |fetch: Option<SpireFetch>| PeerStatus {
        trust_domain: "td-b.test".to_owned(),
        reachable: true,
        last_success_time: Some(noon()),
        spire_fetch: fetch,
        spire_detail: Some("so says SPIRE".to_owned()),
        ..PeerStatus::default()
    };
    for (fetch, status, reason) in [
        (Some(SpireFetch::Ok), "True", "AllPeersReachable"),
        (Some(SpireFetch::Failing), "False", "SpireCannotFetch"),
        (Some(SpireFetch::Unknown), "Unknown", "SpireNotSeen"),
        (None, "Unknown", "SpireNotSeen"),
    ] {
        let findings = Findings { peers: vec![peer(fetch)], ..well() };
        let found = of(PEERS, &findings);
        assert_eq!((found.0, found.1), (status, reason));
        assert_eq!(found.2.contains("so says SPIRE"), status != "True", "{}", found.2);
        assert_eq!(of("Ready", &findings).0, "True");
    }
    let peers = [peer(Some(SpireFetch::Ok)), peer(Some(SpireFetch::Failing)), peer(None)];
    assert_eq!(summary(&peers), "2/3", "of which nothing wrong is known");
}

#[test]
fn that_trust_matches_the_list_is_said_with_what_is_not_seen() {
    let (status, _, message) = of(TRUST, &well());
    assert_eq!(status, "True");
    for words in ["has stored is not seen here", "spire-server bundle delete -id spiffe://"] {
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn a_server_that_is_deleted_and_held_is_not_ready_and_says_by_whom() {
    let mut server = server(spiffe());
    server.metadata.finalizers = Some(vec!["a.test/one".to_owned(), "a.test/two".to_owned()]);
    let verdict = deleting(&server);
    assert_eq!((verdict.about, verdict.status, verdict.reason), ("Ready", "False", "Deleting"));
    assert!(verdict.message.contains("finalizers keep it: a.test/one, a.test/two."), "{verdict:?}");
    let now = crate::spiffe::testing::noon();
    let before = stamped(&[], &evaluate(&server, &well()), 1, now);
    let after = super::with(&before, &verdict, 2, now);
    assert_eq!(after.len(), before.len());
    assert_eq!(after[..after.len() - 1], before[..before.len() - 1], "the others stay");
    assert_eq!(super::with(&after, &verdict, 2, now), after, "nothing to write a second time");
}

#[test]
fn what_spire_trusts_and_nobody_lists_is_named_with_the_way_out_and_leaves_this_cluster_ready() {
    let unlisted = |number: usize| Unlisted {
        trust_domain: format!("td-{number}.test"),
        objects: vec![format!("object-{number}")],
    };
    let findings = Findings { unlisted: (0..12).map(unlisted).collect(), ..well() };
    let (status, reason, message) = of(TRUST, &findings);
    assert_eq!((status, reason), ("False", "UnlistedTrustDomains"));
    for part in [
        "td-0.test (ClusterFederatedTrustDomain object-0), td-1.test",
        "and 2 more",
        "ClusterSPIFFEID",
        "bundle delete -id spiffe://TRUST-DOMAIN -mode dissociate",
    ] {
        assert!(message.contains(part), "{part} in {message}");
    }
    assert_eq!(of("Ready", &findings).0, "True");
}

//! A promise a row, in the order of the table, then what cuts across the rows.

mod messages;

use serde_json::json;

use super::*;
use crate::{
    inject::decide::{
        facts::{Description, HeldCertificate, tests::Draft},
        messages::Severity,
    },
    tls::{CertificateFacts, Damage, Field, Problem, Validity, Wildcard},
};

const DEFAULT: Option<State> = Some(State::Default);
const CUSTOM: Option<State> = Some(State::Custom);
const MANAGED: Option<State> = Some(State::Managed);

fn noon() -> DateTime<Utc> {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

fn ago(seconds: i64) -> SecretState {
    SecretState::Missing { since: noon() - TimeDelta::seconds(seconds) }
}

fn new_pair() -> SecretState {
    SecretState::Usable(Fingerprint::of("new certificate", "new key"))
}

/// A Route that holds the new pair, with what its certificate says.
fn holding_new(draft: Draft) -> RouteFacts {
    let [not_before, not_after] =
        ["2026-01-01T00:00:00Z", "2026-06-01T00:00:00Z"].map(|text| text.parse().unwrap());
    let validity = Validity { not_before, not_after, intermediates_until: None };
    let says = CertificateFacts::pretended(&["shop.example.com"], validity);
    let facts = draft.clone().holding("new certificate", "new key").marked().facts();
    let host = draft.0["spec"]["host"].as_str().unwrap_or_default();
    let warnings = tls::lasting_warnings(&says, host, Wildcard::None).collect();
    let description = Description { serial: says.serial().into(), validity, warnings };
    RouteFacts { certificate: HeldCertificate::Read(Box::new(description)), ..facts }
}

fn opaque() -> SecretState {
    SecretState::WrongType("Opaque".into())
}

fn invalid() -> SecretState {
    let (field, damage) = (Field::Certificate, Damage::NoEnd);
    let problems = [Problem::Damaged { field, line: 7, damage }, Problem::KeyMismatch];
    SecretState::Invalid { problems: problems.into(), pair: None }
}

fn ca_mismatch() -> SecretState {
    let why = "no certificate in it has the name of the issuer";
    SecretState::CaMismatch([Problem::CaMismatch { why }].into())
}

fn annotated() -> Draft {
    Draft::edge().annotated("shop-tls")
}

/// Their own pair, or ours from before.
fn theirs(draft: Draft) -> Draft {
    draft.holding("old certificate", "old key")
}

fn ours(draft: Draft) -> Draft {
    theirs(draft).marked()
}

fn external(draft: Draft) -> Draft {
    draft.with("/spec/tls", "externalCertificate", json!({ "name": "own" }))
}

fn decide(draft: &Draft, secret: &SecretState) -> Plan {
    plan(&draft.facts(), secret, noon(), &Policy::default())
}

fn keep() -> Policy {
    Policy { on_invalid: OnInvalid::Keep, ..Policy::default() }
}

/// Row, write, state, reason.
fn gist(plan: &Plan) -> (&'static str, Option<Write>, Option<State>, Reason) {
    let verdict = plan.verdict.as_ref().expect("a verdict");
    (plan.row, plan.write, verdict.state, verdict.reason)
}

fn inject() -> Option<Write> {
    Some(Write::Inject(Fingerprint::of("new certificate", "new key")))
}

fn only_warning(plan: &Plan) -> (&Reason, &str) {
    assert_eq!(plan.event, None, "nothing happened");
    let [notice] = &plan.warnings[..] else { panic!("{:?}", plan.warnings) };
    assert_eq!(notice.severity, Severity::Warning);
    (&notice.reason, &notice.note)
}

#[test]
fn row_1_a_route_under_deletion_or_of_an_ingress_is_left_alone_entirely() {
    let deleted =
        ours(annotated()).with("/metadata", "deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    let controlled = ours(annotated()).owned_by("networking.k8s.io/v1", "Ingress");
    for draft in [deleted, controlled] {
        for secret in [new_pair(), ago(3_600), opaque()] {
            assert_eq!(decide(&draft, &secret), Plan { row: "1", ..Plan::default() });
        }
    }
}

#[test]
fn row_2_a_route_without_tls_serves_no_certificate_and_is_told_so_if_it_asks_for_one() {
    let silent = decide(&Draft::plain(), &ago(0));
    assert_eq!(gist(&silent), ("2", None, None, Reason::RouteNotSecured));
    assert_eq!(silent.warnings, []);
    let asking = decide(&Draft::plain().annotated("shop-tls").marker("old"), &new_pair());
    assert_eq!(gist(&asking), ("2", Some(Write::DropMarker), None, Reason::RouteNotSecured));
    let told = "The Route has no spec.tls, so the certificate of Secret shop-tls can't be served. \
                Set spec.tls.termination to edge or reencrypt, or remove the annotation \
                route.openshift.io/tls-secret-name.";
    assert_eq!(only_warning(&asking), (&Reason::RouteNotSecured, told));
}

#[test]
fn row_3_a_passthrough_route_serves_no_certificate_and_is_told_so_if_it_asks_for_one() {
    let draft = Draft::edge().with("/spec/tls", "termination", json!("passthrough"));
    let silent = decide(&draft, &ago(0));
    assert_eq!(gist(&silent), ("3", None, None, Reason::PassthroughTermination));
    assert_eq!(silent.warnings, []);
    let asking = decide(&draft.annotated("shop-tls").marker("old"), &new_pair());
    assert_eq!(gist(&asking), ("3", Some(Write::DropMarker), None, Reason::PassthroughTermination));
    let (reason, note) = only_warning(&asking);
    assert_eq!(*reason, Reason::PassthroughTermination);
    assert!(note.contains("the router never decrypts"), "{note}");
}

#[test]
fn row_4_an_external_certificate_wins_over_the_annotation() {
    let draft = external(Draft::edge());
    let silent = decide(&draft, &ago(0));
    assert_eq!(gist(&silent), ("4", None, CUSTOM, Reason::ExternalCertificate));
    assert_eq!(silent.warnings, []);
    let asking = decide(&draft.annotated("shop-tls").marker("old"), &new_pair());
    assert_eq!(gist(&asking), ("4", Some(Write::DropMarker), CUSTOM, Reason::ExternalCertificate));
    let (reason, note) = only_warning(&asking);
    assert_eq!(*reason, Reason::ExternalCertificate);
    assert!(note.contains("Remove one of the two"), "{note}");
}

#[test]
fn row_4_what_is_ours_beside_an_external_certificate_is_cleared() {
    let ours = Draft::edge().holding("certificate", "key").marked();
    // The API refuses a certificate beside an external one, but not a key.
    let key_left = external(ours.clone().with("/spec/tls", "certificate", json!(null)));
    assert_eq!(decide(&key_left, &ago(0)).write, Some(Write::ClearKey));
    assert_eq!(decide(&key_left.annotated("shop-tls"), &new_pair()).write, Some(Write::ClearKey));
    assert_eq!(decide(&external(ours), &ago(0)).write, Some(Write::Clear));
    let theirs = external(Draft::edge().with("/spec/tls", "key", json!("key")));
    assert_eq!(decide(&theirs, &ago(0)).write, None);
    assert_eq!(decide(&theirs.marker("old"), &ago(0)).write, Some(Write::DropMarker));
}

#[test]
fn row_5_a_route_that_holds_the_secrets_pair_is_not_written() {
    let draft = annotated().holding("new certificate", "new key").marked();
    let plan = decide(&draft, &new_pair());
    assert_eq!(gist(&plan), ("5", None, MANAGED, Reason::SecretInjected));
    assert_eq!((&plan.event, &plan.warnings[..]), (&None, &[][..]));
    let message = plan.verdict.unwrap().message;
    assert_eq!(message, "The Route has the certificate of Secret shop-tls.");
}

#[test]
fn row_6_a_route_that_holds_the_secrets_pair_without_its_note_gets_the_note_alone() {
    let draft = annotated().holding("new certificate", "new key");
    let write = Some(Write::AddMarker(Fingerprint::of("new certificate", "new key")));
    for draft in [draft.clone(), draft.clone().marker("forged"), draft.marked().uid("4712")] {
        let plan = decide(&draft, &new_pair());
        assert_eq!(gist(&plan), ("6", write, MANAGED, Reason::SecretInjected));
        assert_eq!(plan.event, None, "what is served did not change");
    }
}

#[test]
fn row_7_a_usable_secret_goes_into_a_route_that_holds_anything_else() {
    let left_over = ours(annotated()).holding("", "old key");
    for draft in [annotated(), theirs(annotated()), ours(annotated()), left_over] {
        let plan = decide(&draft, &new_pair());
        assert_eq!(gist(&plan), ("7", inject(), MANAGED, Reason::SecretInjected));
        assert_eq!(plan.warnings, []);
    }
}

#[test]
fn row_7_tells_what_went_in_and_what_it_replaced() {
    let told = |draft: &Draft| {
        let write = decide(draft, &new_pair()).event.unwrap();
        event_if_still_true(write, &holding_new(annotated()), &new_pair()).unwrap()
    };
    let new = "The Route has the certificate of Secret shop-tls: serial 0a1b, valid until \
               2026-06-01T00:00:00Z.";
    let injected = told(&annotated());
    assert_eq!((injected.severity, injected.action), (Severity::Normal, "Inject"));
    assert_eq!((injected.reason, injected.note.as_str()), (Reason::CertificateInjected, new));
    let updated = told(&ours(annotated()));
    assert_eq!((updated.reason, updated.note.as_str()), (Reason::CertificateUpdated, new));
    let replaced = told(&theirs(annotated()));
    assert_eq!(replaced.reason, Reason::CertificateInjected);
    assert_eq!(replaced.note, format!("{new} It replaced the certificate that the Route had."));
}

fn refused_now() -> SecretState {
    let pair = Some(Fingerprint::of("old certificate", "old key"));
    SecretState::Invalid { problems: [Problem::KeyMismatch].into(), pair }
}

#[test]
fn row_7a_a_pair_that_our_rules_refuse_by_now_stays_where_it_was_injected() {
    let plan = decide(&ours(annotated()), &refused_now());
    assert_eq!(gist(&plan), ("7a", None, MANAGED, Reason::SecretInvalidKeepingLast));
    let (reason, note) = only_warning(&plan);
    assert_eq!(*reason, Reason::SecretInvalid);
    assert!(note.contains("keeps them until the Secret changes"), "{note}");
}

#[test]
fn row_7a_is_for_the_very_pair_that_is_ours_alone() {
    let pair = Some(Fingerprint::of("old certificate", "other key"));
    let other = SecretState::Invalid { problems: [Problem::KeyMismatch].into(), pair };
    for (draft, secret, row) in [
        (ours(annotated()), other, "8"),
        (ours(annotated()), ca_mismatch(), "8"),
        (theirs(annotated()), refused_now(), "9"),
        (annotated(), refused_now(), "10"),
        (ours(Draft::edge()), refused_now(), "11"),
    ] {
        assert_eq!(decide(&draft, &secret).row, row);
    }
}

#[test]
fn row_8_a_secret_that_vanishes_takes_the_route_back_to_the_default_certificate() {
    let plan = decide(&ours(annotated()), &ago(5));
    assert_eq!(gist(&plan), ("8", Some(Write::Clear), DEFAULT, Reason::SecretNotFound));
    let told = "Secret shop-tls was not found, so the router serves its default certificate. \
                Create it in namespace web with type kubernetes.io/tls, or correct the annotation route.openshift.io/tls-secret-name.";
    assert_eq!(only_warning(&plan), (&Reason::SecretNotFound, told));
}

#[test]
fn row_8_a_secret_of_another_type_takes_the_route_back_to_the_default_certificate() {
    let plan = decide(&ours(annotated()), &opaque());
    assert_eq!(gist(&plan), ("8", Some(Write::Clear), DEFAULT, Reason::SecretWrongType));
    let told = "Secret shop-tls is of type \"Opaque\", not \"kubernetes.io/tls\", so the router \
                serves its default certificate. The type of a Secret can't be changed: delete it and \
                create it again with kubectl create secret tls.";
    assert_eq!(only_warning(&plan), (&Reason::SecretWrongType, told));
}

#[test]
fn row_8_a_pair_that_the_router_would_refuse_is_taken_out_and_every_problem_told() {
    let plan = decide(&ours(annotated()), &invalid());
    assert_eq!(gist(&plan), ("8", Some(Write::Clear), DEFAULT, Reason::SecretInvalid));
    let told = "The certificate and key in Secret shop-tls can't be used, so the router serves its default \
                certificate. Fix the Secret: (1) tls.crt is damaged at line 7: the block has no END \
                line, so the text was cut off; (2) tls.key does not belong to the certificate in \
                tls.crt; store a certificate and key that belong together.";
    assert_eq!(only_warning(&plan), (&Reason::SecretInvalid, told));
    let said = &plan.conditions.as_ref().unwrap()[0];
    assert_eq!(*said.message, *plan.warnings[0].note, "condition and Event say the same");
}

#[test]
fn row_8_the_routes_own_ca_certificate_can_make_a_good_pair_unusable() {
    let plan = decide(&ours(annotated()), &ca_mismatch());
    assert_eq!(gist(&plan), ("8", Some(Write::Clear), DEFAULT, Reason::CACertificateMismatch));
    let (reason, note) = only_warning(&plan);
    assert_eq!(*reason, Reason::CACertificateMismatch);
    assert!(note.contains("Remove spec.tls.caCertificate or set it to the issuer"), "{note}");
}

#[test]
fn row_8_an_annotation_that_is_no_name_takes_the_route_back_to_the_default_certificate() {
    let plan = decide(&ours(Draft::edge().annotated("web/shop-tls")), &new_pair());
    assert_eq!(gist(&plan), ("8", Some(Write::Clear), DEFAULT, Reason::InvalidSecretName));
    let told = "\"web/shop-tls\" can't be the name of a Secret, so the router serves its default \
                certificate. Set the annotation route.openshift.io/tls-secret-name to the name of a \
                Secret in namespace web, or remove it.";
    assert_eq!(only_warning(&plan), (&Reason::InvalidSecretName, told));
}

#[test]
fn row_9_a_users_own_certificate_stays_when_the_secret_is_not_usable() {
    let unusable = [
        (ago(0), Reason::SecretNotFound),
        (ago(3_600), Reason::SecretNotFound),
        (opaque(), Reason::SecretWrongType),
        (invalid(), Reason::SecretInvalid),
        (ca_mismatch(), Reason::CACertificateMismatch),
    ];
    for (secret, reason) in unusable {
        let plan = decide(&theirs(annotated()), &secret);
        assert_eq!(gist(&plan), ("9", None, CUSTOM, reason));
        let (warned, note) = only_warning(&plan);
        assert_eq!(*warned, reason);
        assert!(note.contains("the Route keeps its own certificate"), "{note}");
        let marked = decide(&theirs(annotated()).marker("old"), &secret);
        assert_eq!(gist(&marked), ("9", Some(Write::DropMarker), CUSTOM, reason));
    }
    let plan = decide(&theirs(Draft::edge().annotated("../x")), &new_pair());
    assert_eq!(gist(&plan), ("9", None, CUSTOM, Reason::InvalidSecretName));
}

#[test]
fn row_10_an_empty_route_stays_on_the_default_certificate_when_the_secret_is_not_usable() {
    let plan = decide(&annotated(), &ago(0));
    assert_eq!(gist(&plan), ("10", None, DEFAULT, Reason::SecretNotFound));
    assert_eq!(*only_warning(&plan).0, Reason::SecretNotFound);
    let marked = decide(&annotated().marker("old"), &opaque());
    assert_eq!(gist(&marked), ("10", Some(Write::DropMarker), DEFAULT, Reason::SecretWrongType));
}

#[test]
fn row_10_a_left_over_key_goes_if_it_is_ours_and_stays_if_it_is_not() {
    let ours = decide(&ours(annotated()).holding("", "old key"), &invalid());
    assert_eq!(gist(&ours), ("10", Some(Write::ClearKey), DEFAULT, Reason::SecretInvalid));
    let theirs = decide(&annotated().holding("", "their key").marker("old"), &invalid());
    assert_eq!(gist(&theirs), ("10", Some(Write::DropMarker), DEFAULT, Reason::SecretInvalid));
}

#[test]
fn row_11_removing_the_annotation_takes_our_pair_out() {
    let plan = decide(&ours(Draft::edge()), &ago(0));
    assert_eq!(gist(&plan), ("11", Some(Write::Clear), DEFAULT, Reason::NoCertificate));
    let emptied = Draft::edge().facts();
    let cleared = event_if_still_true(plan.event.unwrap(), &emptied, &ago(0)).unwrap();
    assert_eq!((cleared.severity, cleared.action), (Severity::Normal, "Clear"));
    assert_eq!(cleared.reason, Reason::CertificateCleared);
    assert_eq!(
        cleared.note,
        "The annotation route.openshift.io/tls-secret-name was removed, so the injected \
         certificate was removed from the Route. The router serves its default certificate."
    );
    assert_eq!(plan.warnings, []);
    assert_eq!(decide(&ours(Draft::edge().annotated("")), &ago(0)).row, "11", "empty is unset");
}

#[test]
fn what_was_done_is_told_while_it_is_so() {
    let (pair, none) = (new_pair(), ago(0));
    let injected = decide(&ours(annotated()), &pair).event.unwrap();
    let told = |route: &RouteFacts, secret| event_if_still_true(injected, route, secret);
    assert!(told(&holding_new(annotated()), &pair).is_some());
    for draft in
        [annotated(), theirs(annotated()), Draft::edge(), Draft::plain().annotated("shop-tls")]
    {
        assert_eq!(told(&draft.facts(), &pair), None);
    }
    assert_eq!(told(&holding_new(annotated()), &invalid()), None, "it is not so any more");

    let cleared = decide(&ours(Draft::edge()), &none).event.unwrap();
    let told = |draft: &Draft| event_if_still_true(cleared, &draft.facts(), &none);
    assert!(told(&Draft::edge()).is_some());
    for draft in [annotated(), theirs(Draft::edge()), Draft::plain()] {
        assert_eq!(told(&draft), None);
    }
}

#[test]
fn row_12_a_pair_that_the_user_put_in_while_the_annotation_goes_stays() {
    let plan = decide(&ours(Draft::edge()).holding("their certificate", "their key"), &ago(0));
    assert_eq!(gist(&plan), ("12", Some(Write::DropMarker), CUSTOM, Reason::CertificateInRoute));
    assert_eq!((plan.event, plan.warnings), (None, vec![]));
}

#[test]
fn row_13_a_route_without_annotation_and_certificate_loses_our_note_and_our_left_over_key() {
    let empty = decide(&Draft::edge().marker("old"), &ago(0));
    assert_eq!(gist(&empty), ("13", Some(Write::DropMarker), DEFAULT, Reason::NoCertificate));
    let our_key = decide(&ours(Draft::edge()).holding("", "old key"), &ago(0));
    assert_eq!(gist(&our_key), ("13", Some(Write::ClearKey), DEFAULT, Reason::NoCertificate));
    let their_key = decide(&Draft::edge().holding("", "their key").marker("old"), &ago(0));
    assert_eq!(gist(&their_key), ("13", Some(Write::DropMarker), DEFAULT, Reason::NoCertificate));
}

#[test]
fn row_14_a_route_that_never_asked_is_only_described() {
    let custom = decide(&theirs(Draft::edge()), &ago(0));
    assert_eq!(gist(&custom), ("14", None, CUSTOM, Reason::CertificateInRoute));
    for draft in [Draft::edge(), Draft::edge().holding("", "their key")] {
        let default = decide(&draft, &ago(0));
        assert_eq!(gist(&default), ("14", None, DEFAULT, Reason::NoCertificate));
        assert_eq!((default.event, default.warnings), (None, vec![]));
    }
}

#[test]
fn a_secret_that_is_missing_for_less_than_the_grace_changes_nothing_yet() {
    let route = ours(annotated());
    let wait = decide(&route, &ago(4));
    let until = noon() + TimeDelta::seconds(1);
    assert_eq!(wait, Plan { row: "8", requeue_at: Some(until), ..Plan::default() });
    let then = plan(&route.facts(), &ago(4), until, &Policy::default());
    assert_eq!(then.write, Some(Write::Clear));
    let no_grace = Policy { missing_grace: TimeDelta::zero(), ..Policy::default() };
    assert_eq!(plan(&route.facts(), &ago(0), noon(), &no_grace).write, Some(Write::Clear));
}

#[test]
fn a_grace_without_end_waits_without_end() {
    let for_ever = Policy { missing_grace: TimeDelta::MAX, ..Policy::default() };
    let wait = plan(&ours(annotated()).facts(), &ago(3_600), noon(), &for_ever);
    assert!(wait.is_nothing());
    assert!(wait.requeue_at.is_some());
}

#[test]
fn keep_leaves_the_last_good_pair_while_its_secret_is_unusable() {
    for secret in [opaque(), invalid(), ca_mismatch()] {
        let plan = plan(&ours(annotated()).facts(), &secret, noon(), &keep());
        assert_eq!(gist(&plan), ("8", None, MANAGED, Reason::SecretInvalidKeepingLast));
        let (_, note) = only_warning(&plan);
        assert!(note.contains("so the Route keeps the last good certificate"), "{note}");
    }
}

#[test]
fn keep_clears_all_the_same_when_there_is_no_secret() {
    let gone = plan(&ours(annotated()).facts(), &ago(5), noon(), &keep());
    assert_eq!(gone.write, Some(Write::Clear));
    let unnamed = ours(Draft::edge().annotated("../x"));
    let unnamed = plan(&unnamed.facts(), &ago(0), noon(), &keep());
    assert_eq!(unnamed.write, Some(Write::Clear));
    let removed = plan(&ours(Draft::edge()).facts(), &invalid(), noon(), &keep());
    assert_eq!(removed.write, Some(Write::Clear));
}

#[test]
fn a_renewal_changes_no_condition() {
    let managed = annotated().holding("new certificate", "new key").marked();
    let said = decide(&managed, &new_pair()).conditions.unwrap();
    let said = managed.with("", "status", json!({ "certificate": said }));
    assert!(decide(&said, &new_pair()).is_nothing());
    let renewed = SecretState::Usable(Fingerprint::of("newer certificate", "newer key"));
    let plan = decide(&said, &renewed);
    assert!(matches!(plan.write, Some(Write::Inject(_))));
    assert_eq!(plan.conditions, None);
}

#[test]
fn a_condition_that_a_router_dropped_is_put_back_and_nothing_else() {
    let managed = annotated().holding("new certificate", "new key").marked();
    let dropped = managed.with("", "status", json!({ "ingress": [{ "host": "shop" }] }));
    let plan = decide(&dropped, &new_pair());
    assert_eq!(plan.write, None);
    assert_eq!(plan.conditions.unwrap().len(), 3);
}

#[test]
fn the_status_is_kept_for_all_for_annotated_or_for_no_routes() {
    let has_conditions = |draft: &Draft, status| {
        let policy = Policy { status, ..Policy::default() };
        plan(&draft.facts(), &new_pair(), noon(), &policy).conditions.is_some()
    };
    let scopes = [StatusScope::All, StatusScope::Annotated, StatusScope::Off];
    assert_eq!(scopes.map(|it| has_conditions(&Draft::edge(), it)), [true, false, false]);
    assert_eq!(scopes.map(|it| has_conditions(&annotated(), it)), [true, true, false]);
    let removed = ours(Draft::edge());
    assert_eq!(scopes.map(|it| has_conditions(&removed, it)), [true, true, false]);
    let spoken_of = json!({ "certificate": [{ "type": "Managed", "status": "True" }] });
    let spoken_of = Draft::edge().with("", "status", spoken_of);
    assert_eq!(scopes.map(|it| has_conditions(&spoken_of, it)), [true, true, false]);
}

#[test]
fn a_pair_is_looked_at_again_when_it_begins_to_run_out_and_warned_of_then() {
    let managed = holding_new(annotated());
    let at = |now| plan(&managed, &new_pair(), now, &Policy::default());
    let expiring: DateTime<Utc> = "2026-05-25T00:00:00Z".parse().unwrap();
    assert_eq!(at(noon()).requeue_at, Some(expiring));
    assert_eq!(*only_warning(&at(expiring)).0, Reason::CertificateExpiring);
    let over = at(expiring + TimeDelta::days(30));
    assert_eq!(*only_warning(&over).0, Reason::CertificateExpired);
    assert_eq!((over.write, over.requeue_at), (None, None), "it is served all the same");
}

#[test]
fn a_pair_for_another_host_is_injected_and_warned_of() {
    let other = annotated().with("/spec", "host", json!("other.example.com"));
    assert_eq!(decide(&other, &new_pair()).write, inject());
    let injected = plan(&holding_new(other), &new_pair(), noon(), &Policy::default());
    assert_eq!(*only_warning(&injected).0, Reason::HostMismatch);
}

#[test]
fn a_route_that_names_no_secret_is_decided_without_one() {
    for secret in [new_pair(), ago(0), ago(3_600), opaque(), invalid(), ca_mismatch()] {
        for draft in [Draft::plain(), Draft::edge(), theirs(Draft::edge()), ours(Draft::edge())] {
            assert_eq!(decide(&draft, &secret), decide(&draft, &ago(0)));
        }
    }
}

#[test]
fn an_expired_intermediate_is_warned_of_and_looked_at_again_when_the_next_thing_expires() {
    let mut route = holding_new(annotated());
    let HeldCertificate::Read(description) = &mut route.certificate else { panic!("it is read") };
    let (expired, ends) = (noon() - TimeDelta::days(1), noon() + TimeDelta::days(30));
    description.validity.intermediates_until = Some(expired);
    description.validity.not_after = ends;

    let plan = plan(&route, &new_pair(), noon(), &Policy::default());

    let begins_to_expire = ends - TimeDelta::days(7);
    assert_eq!(plan.requeue_at, Some(begins_to_expire));
    let warned: Vec<_> = plan.warnings.iter().map(|it| it.reason).collect();
    assert_eq!(warned, [Reason::CertificateExpired]);
    assert!(plan.warnings[0].note.contains("An intermediate certificate in tls.crt expired at"));
}

#[test]
fn there_is_an_answer_at_the_ends_of_time() {
    let ends = [DateTime::<Utc>::MIN_UTC, noon(), DateTime::<Utc>::MAX_UTC];
    for (now, since) in ends.into_iter().flat_map(|now| ends.map(|since| (now, since))) {
        for missing_grace in [TimeDelta::MIN, TimeDelta::zero(), TimeDelta::MAX] {
            let policy = Policy { missing_grace, ..Policy::default() };
            let mut held = holding_new(annotated());
            if let HeldCertificate::Read(description) = &mut held.certificate {
                let intermediates_until = Some(since);
                description.validity =
                    Validity { not_before: since, not_after: now, intermediates_until };
            }
            for secret in [SecretState::Missing { since }, new_pair()] {
                for route in [annotated().facts(), ours(annotated()).facts(), held.clone()] {
                    let plan = plan(&route, &secret, now, &policy);
                    assert!(plan.requeue_at.is_none_or(|time| time > now));
                }
            }
        }
    }
}

#[test]
fn a_value_with_line_breaks_is_escaped_in_every_row() {
    let plan = decide(&Draft::plain().annotated("x\nAll is well.\n"), &ago(0));
    assert!(!plan.warnings[0].note.contains('\n'), "{:?}", plan.warnings[0].note);
}

#[test]
fn a_type_as_long_as_a_book_is_shortened() {
    let plan = decide(&annotated(), &SecretState::WrongType("x".repeat(100_000).into()));
    assert!(plan.verdict.unwrap().message.len() < 2_000);
}

#[test]
fn a_note_put_back_and_a_pair_put_back_are_one_fight() {
    let fingerprint = Fingerprint::of("certificate", "key");
    assert_eq!(Write::AddMarker(fingerprint).target(), Write::Inject(fingerprint).target());
    assert_ne!(Write::Inject(fingerprint).target(), Write::Clear.target());
}

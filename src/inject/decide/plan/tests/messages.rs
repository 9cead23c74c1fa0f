//! What the condition's message says beside the row.

use super::*;
use crate::tls::Warning;

#[test]
fn a_misspelt_annotation_is_pointed_out_in_the_condition_and_in_an_event() {
    let misspelt = |mut draft: Draft| {
        let key = "router.openshift.io/tls-secret-name";
        draft.0["metadata"]["annotations"][key] = json!("shop-tls");
        draft
    };
    let plan = decide(&misspelt(Draft::edge()), &ago(0));
    assert_eq!(gist(&plan), ("14", None, DEFAULT, Reason::NoCertificate));
    let message = plan.verdict.clone().unwrap().message;
    assert_eq!(
        message,
        "The Route has no certificate, so the router serves its default certificate. trustplane \
         does not read the annotation router.openshift.io/tls-secret-name. Did you mean \
         route.openshift.io/tls-secret-name?"
    );
    let (reason, note) = only_warning(&plan);
    assert_eq!((*reason, note), (Reason::AnnotationMisspelt, message.as_str()));
    let both = decide(&misspelt(Draft::edge().annotated("shop-tls")), &new_pair());
    assert_eq!(both.warnings, [], "the right one is there");
    let removed = misspelt(Draft::edge().holding("certificate", "key").marked());
    assert_eq!(decide(&removed, &ago(0)).row, "11");
}

#[test]
fn the_managed_condition_names_the_kinds_of_warnings_and_no_date() {
    let mut facts = annotated().holding("new certificate", "new key").marked().facts();
    let (not_before, not_after) = (noon() - TimeDelta::days(90), noon());
    let validity = Validity { not_before, not_after, intermediates_until: None };
    let warnings = [Warning::ChainIncomplete].into();
    let held = Description { serial: "1".into(), validity, warnings };
    facts.certificate = HeldCertificate::Read(Box::new(held));
    let message = |now| plan(&facts, &new_pair(), now, &Policy::default()).verdict.unwrap().message;
    let expired = message(noon() + TimeDelta::days(1));
    assert_eq!(
        expired,
        "The Route has the certificate of Secret shop-tls. Warnings: CertificateExpired, \
         ChainIncomplete. The Events say more."
    );
    assert_eq!(expired, message(noon() + TimeDelta::days(2)), "no date");
}

#[test]
fn while_a_write_has_to_wait_the_condition_says_what_is_served_now() {
    let said = |draft: Draft| {
        let why = (Reason::InjectionFailed, "not allowed".to_owned());
        let plan = interim(&draft.facts(), why, noon(), &Policy::default());
        plan.verdict.map(|verdict| (verdict.state, verdict.reason))
    };
    let failed = |state| Some((state, Reason::InjectionFailed));
    assert_eq!(said(ours(annotated())), failed(MANAGED));
    assert_eq!(said(theirs(annotated())), failed(CUSTOM));
    assert_eq!(said(annotated()), failed(DEFAULT));
    assert_eq!(said(Draft::plain().annotated("shop-tls")), failed(None), "no TLS, no certificate");
    let passthrough = annotated().with("/spec", "tls", json!({ "termination": "passthrough" }));
    assert_eq!(said(passthrough), failed(None));
    let going = annotated().with("/metadata", "deletionTimestamp", json!("2026-03-01T12:00:00Z"));
    assert_eq!(said(going), None, "a Route that is not ours gets no condition");
}

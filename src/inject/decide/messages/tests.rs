//! What we say, in full.

use super::*;
use crate::{
    inject::decide::facts::tests::Draft,
    k8s::{api_error::Admission, object_ref::ObjectRef},
    runtime::printable::{HOSTILE, is_harmless},
    tls::Field,
};

#[test]
fn a_contest_names_who_wrote_last_if_that_is_known_and_what_to_do() {
    let told = contested(Some("argocd-controller"));
    assert_eq!(told.reason, Reason::CertificateContested);
    assert_eq!((told.severity, told.action), (Severity::Warning, "BackOff"));
    assert_eq!(
        told.note,
        "Something else keeps changing the certificate that was injected into this Route, so \
         the next attempts wait up to 5 minutes. The last to write it was \"argocd-controller\". \
         Make it ignore spec.tls.certificate, spec.tls.key and the annotations \
         trustplane.dev/injected and trustplane.dev/injected-from (docs/gitops.md says how), or \
         remove the annotation route.openshift.io/tls-secret-name."
    );
    let unknown = contested(None).note;
    assert!(unknown.contains("wait up to 5 minutes. Make it ignore"), "{unknown}");
}

#[test]
fn a_refused_write_is_told_where_somebody_can_do_something_about_it() {
    let route = || ObjectRef::new("web", "shop");
    let facts = Draft::edge().annotated("shop-tls").facts();
    let told = |cause| not_done(&facts, &ApplyError::Pair { route: route(), cause });
    let forbidden = told(ApiError::Forbidden).unwrap();
    assert_eq!(forbidden.reason, Reason::InjectionFailed);
    assert!(
        forbidden.note.contains("applying again what it was installed with"),
        "{}",
        forbidden.note
    );
    let refused = ApiError::Invalid { code: 422, fields: "spec.tls.key".into() };
    let refused = told(refused).unwrap().note;
    assert!(refused.contains("refused the content of spec.tls.key (HTTP 422)"), "{refused}");
    assert!(refused.contains("routes/custom-host"), "{refused}");
    let down = Admission::Webhook("routes.example.com".into());
    let down = told(ApiError::WebhookFailed { webhook: down, code: 500 }).unwrap().note;
    assert_eq!(
        down,
        "The certificate of this Route could not be changed, so the Route keeps what it has: \
         admission webhook routes.example.com failed (HTTP 500). Ask an administrator \
         to repair or remove that webhook."
    );
    let by = Admission::Policy("no-tls".into());
    let denied = told(ApiError::Denied { by, code: 403 }).unwrap().note;
    assert!(denied.contains("admission policy no-tls denied the request"), "{denied}");
    assert!(!denied.contains("grant"), "no right is missing: {denied}");
    let large = told(ApiError::RequestTooLarge).unwrap().note;
    assert!(large.contains("shorten the certificate chain in Secret shop-tls"), "{large}");

    let secret = ObjectRef::new("web", "shop-tls");
    let cause = ApiError::Forbidden;
    let unread = ApplyError::Secret { route: route(), secret, cause };
    let unread = not_done(&facts, &unread).unwrap().note;
    assert!(unread.contains("not allowed to read Secret shop-tls"), "{unread}");
}

#[test]
fn a_condition_that_can_not_be_written_is_not_told_as_a_pair_that_is_not_there() {
    let told = |cause| {
        let route = Draft::edge().facts();
        not_done(&route, &ApplyError::Status { route: route.at.clone(), cause })
    };
    let invalid = ApiError::Invalid { code: 422, fields: "status.certificate".into() };
    let failed = ApiError::Server { code: 500 };
    for cause in [ApiError::Forbidden, invalid, ApiError::Conflict, failed] {
        let notice = told(cause).unwrap();
        assert_eq!(notice.reason, Reason::StatusNotWritten);
        assert!(notice.note.contains("What the router serves is not affected."), "{}", notice.note);
        assert!(!notice.note.contains("to write this Route"), "{}", notice.note);
    }
}

#[test]
fn of_a_long_value_only_the_beginning_is_quoted() {
    let value = "läden/".repeat(50);
    let route = Draft::edge().annotated(&value).facts();
    let why = Unusable::InvalidName(&value);
    let said = unusable(&route, &why, Consequence::ServesDefault).notice().note;
    let beginning: String = value.chars().take(63).collect();
    assert!(said.starts_with(&format!("\"{beginning}\" can't be the name")), "{said}");
}

#[test]
fn line_breaks_and_control_characters_in_a_value_are_escaped() {
    let route = Draft::edge().annotated("shop\n\u{202e}tls").facts();
    let why = Unusable::InvalidName("shop\n\u{202e}tls");
    let said = unusable(&route, &why, Consequence::ServesDefault).notice().note;
    assert!(said.starts_with("\"shop\\n\\u{202e}tls\" can't"), "{said}");
    let why = Unusable::WrongType("Opa\nque");
    let said = unusable(&route, &why, Consequence::ServesDefault).notice().note;
    assert!(said.contains("of type \"Opa\\nque\", not"), "{said}");
}

#[test]
fn whatever_a_tenant_wrote_no_message_can_deceive_its_reader() {
    let route = Draft::edge().annotated(HOSTILE).facts();
    let said = |why| unusable(&route, &why, Consequence::ServesDefault);
    let invalid = ApiError::Invalid { code: 422, fields: HOSTILE.into() };
    let failed = ApplyError::Pair { route: ObjectRef::new("web", "shop"), cause: invalid };
    let texts = [
        contested(Some(HOSTILE)).note,
        said(Unusable::InvalidName(HOSTILE))
            .verdict(State::Default, Reason::InvalidSecretName)
            .message,
        said(Unusable::WrongType(HOSTILE)).notice().note,
        annotated_but_not_secured(&route).note,
        annotated_but_passthrough(&route).note,
        annotated_but_external(&route).note,
        managed(&route, &[]).message,
        misspelt(HOSTILE, "").note,
        not_done(&route, &failed).unwrap().note,
    ];
    for text in texts {
        assert!(is_harmless(&text) && !text.contains('\n'), "{text:?}");
    }
}

#[test]
fn every_problem_is_listed() {
    let problems = [
        Problem::Missing { field: Field::Certificate },
        Problem::NotText { field: Field::Key },
        Problem::KeyMismatch,
    ];
    let texts: Vec<_> = problems.iter().map(ToString::to_string).collect();
    let [one, two, three] = &texts[..] else { panic!("three problems") };
    assert_eq!(listed(&problems), format!("(1) {one}; (2) {two}; (3) {three}"));
    assert_eq!(listed(&problems[..1]), *one);
    assert_eq!(listed(&[]), "");
}

#[test]
fn what_a_secret_that_can_not_be_used_means_is_said_for_each_consequence() {
    let route = Draft::edge().annotated("shop-tls").facts();
    let why = Unusable::WrongType("Opaque");
    let said = |consequence| unusable(&route, &why, consequence).notice().note;
    let default = said(Consequence::ServesDefault);
    assert!(default.contains("so the router serves its default certificate."), "{default}");
    let theirs = said(Consequence::KeepsTheirs);
    assert!(theirs.contains("so the Route keeps its own certificate."), "{theirs}");
    let last = said(Consequence::KeepsLastGood);
    assert!(last.contains("so the Route keeps the last good certificate."), "{last}");
}

#[test]
fn reasons_are_spelled_as_kubernetes_spells_them() {
    assert_eq!(Reason::CACertificateMismatch.as_str(), "CACertificateMismatch");
    assert_eq!(Reason::SecretNotFound.as_str(), "SecretNotFound");
    assert_eq!(State::ALL.map(State::as_str), ["Default", "Custom", "Managed"]);
}

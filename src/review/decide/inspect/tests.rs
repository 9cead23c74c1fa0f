use std::time::Duration;

use serde_json::json;

use super::{
    super::{
        config::read,
        directory::{Cluster, Directory, published},
        testing::{Issuer, claims, noon},
    },
    *,
};

const ISSUER: &str = "https://kubernetes.default.svc";

fn config() -> ClusterConfig {
    let text = "clusters:\n  b:\n    issuer: https://kubernetes.default.svc\n    \
                api_server: https://b.test:6443\n    ca_cert: /b/ca.crt\n    token_path: /b/token\n";
    read(text).unwrap().clusters.remove("b").unwrap()
}

fn keys(all: &[&Issuer]) -> Vec<PublishedKey> {
    let keys: Vec<_> = all.iter().map(|it| it.jwk()).collect();
    published(json!({ "keys": keys }).to_string().as_bytes()).unwrap().0
}

fn answers() -> Answers {
    let keys = keys(&[&Issuer::p256("k")]);
    Answers {
        reach: Ok(()),
        rights: Ok(Vec::new()),
        issuer: Some(ISSUER.to_owned()),
        keys: Ok(KeysFound { keys, skipped: 0, signed_ours: Some(true) }),
    }
}

fn in_use(hours: i64) -> InUse {
    InUse {
        account: "trustplane-review/trustplane-review".to_owned(),
        life: Life { issued: noon(), expires: noon() + TimeDelta::hours(hours) },
        source: "/b/token".to_owned(),
        is_renewed: false,
    }
}

/// All is well.
fn facts() -> ClusterFacts {
    ClusterFacts {
        address: "https://b.test:6443".to_owned(),
        credential: Some(Ok(in_use(168))),
        answers: Ok(answers()),
    }
}

fn findings(facts: &ClusterFacts) -> Vec<Finding> {
    cluster("b", &config(), facts, Renewal::default(), noon())
}

fn with(change: impl FnOnce(&mut Answers)) -> Vec<Finding> {
    let mut answers = answers();
    change(&mut answers);
    findings(&ClusterFacts { answers: Ok(answers), ..facts() })
}

fn of<'a>(findings: &'a [Finding], check: &str) -> &'a Finding {
    findings.iter().find(|it| it.check == check).unwrap_or_else(|| panic!("{check}: {findings:?}"))
}

fn unreachable(why: &str) -> ApiError {
    ApiError::Unreachable { why: why.to_owned() }
}

#[test]
fn a_cluster_that_is_in_order_has_a_line_for_everything_that_must_be() {
    let findings = findings(&facts());
    let checks: Vec<_> = findings.iter().map(|it| it.check).collect();
    assert_eq!(checks, ["reach", "credential", "rights", "issuer", "keys"]);
    assert_eq!(worst(&findings), Severity::Ok);
    assert!(of(&findings, "credential").found.contains("valid until 2030-03-24T"), "{findings:?}");
}

#[test]
fn the_cluster_that_we_run_in_has_no_credential_of_ours() {
    let local = ClusterFacts { credential: None, ..facts() };
    let checks: Vec<_> = findings(&local).iter().map(|it| it.check).collect();
    assert_eq!(checks, ["reach", "rights", "issuer", "keys"]);
}

#[test]
fn an_outage_is_told_apart_from_what_somebody_has_to_put_right() {
    for (error, severity) in [
        (unreachable("Connection refused"), Severity::NotAsked),
        (ApiError::Timeout(Duration::from_secs(10)), Severity::NotAsked),
        (ApiError::Server { code: 503 }, Severity::NotAsked),
        (unreachable("invalid peer certificate: UnknownIssuer"), Severity::Act),
    ] {
        let findings = with(|it| it.reach = Err(error.clone()));
        assert_eq!(worst(&findings), severity, "{error}");
        assert_eq!(findings.len(), 2, "nothing else is known: {findings:?}");
    }
    let wrong = with(|it| it.reach = Err(unreachable("invalid peer certificate: UnknownIssuer")));
    assert!(of(&wrong, "reach").todo.as_ref().unwrap().contains("/b/ca.crt"));
}

#[test]
fn a_credential_that_ended_or_is_refused_is_told_with_how_to_get_another() {
    let ended = ClusterFacts { credential: Some(Ok(in_use(-1))), ..facts() };
    let refused = with(|it| it.rights = Err(ApiError::Unauthorized));
    for (findings, words) in [(findings(&ended), "expired on"), (refused, "HTTP 401")] {
        let finding = of(&findings, "credential");
        assert_eq!(finding.severity, Severity::Act);
        assert!(finding.found.contains(words), "{finding:?}");
        let todo = finding.todo.as_ref().unwrap();
        assert!(todo.contains("trustplane review register b --kubeconfig FILE"), "{todo}");
    }
}

#[test]
fn a_renewal_that_is_late_is_a_warning() {
    let at = |hours| {
        let now = noon() + TimeDelta::hours(hours);
        let findings = cluster("b", &config(), &facts(), Renewal::default(), now);
        of(&findings, "credential").severity
    };
    // Due at 120 hours, looked at every hour.
    assert_eq!(
        [at(121), at(123), at(167), at(169)].map(|it| it == Severity::Warning),
        [false, true, true, false]
    );
    // One that somebody made for a year is due at once.
    let year = ClusterFacts { credential: Some(Ok(in_use(24 * 365))), ..facts() };
    let now = noon() + TimeDelta::hours(1);
    let at = |now, facts: &ClusterFacts| {
        let findings = cluster("b", &config(), facts, Renewal::default(), now);
        of(&findings, "credential").severity
    };
    assert_eq!(at(now, &year), Severity::Ok);
    let later = noon() + TimeDelta::hours(3);
    assert_eq!(at(later, &year), Severity::Warning);
    // Unless the server gives nothing shorter.
    let renewed = InUse { is_renewed: true, ..in_use(24 * 365) };
    let renewed = ClusterFacts { credential: Some(Ok(renewed)), ..facts() };
    assert_eq!(at(later, &renewed), Severity::Ok);
}

#[test]
fn a_file_that_can_not_be_used_is_told_once() {
    let error = FileError::Unreadable("/b/token".into(), "No such file or directory".to_owned());
    let facts =
        ClusterFacts { credential: Some(Err(error.clone())), answers: Err(error), ..facts() };
    let missing = findings(&facts);
    assert_eq!(missing.len(), 1, "{missing:?}");
    assert_eq!(missing[0].severity, Severity::Act);
    let no_ca = Err(FileError::NoCertificate("/b/ca.crt".into()));
    let findings =
        findings(&ClusterFacts { answers: no_ca, credential: Some(Ok(in_use(168))), ..facts });
    assert_eq!(of(&findings, "reach").found, "not asked: /b/ca.crt holds no certificate in PEM");
    assert_eq!(of(&findings, "credential").severity, Severity::Ok);
}

#[test]
fn missing_rights_are_named_with_what_grants_them() {
    let findings = with(|it| it.rights = Ok(vec![Right::Review, Right::Renew]));
    let finding = of(&findings, "rights");
    assert_eq!(
        finding.found,
        "it may not create tokenreviews, nor create serviceaccounts/token for its own account"
    );
    assert!(finding.todo.as_ref().unwrap().contains("kubectl apply -k deploy/review/remote"));
}

#[test]
fn an_issuer_that_the_entry_does_not_list_means_that_all_tokens_are_refused() {
    let findings = with(|it| it.issuer = Some("https://new.test".to_owned()));
    let finding = of(&findings, "issuer");
    assert_eq!(finding.severity, Severity::Act);
    assert!(finding.found.contains("https://new.test, which its entry does not list"));
}

#[test]
fn keys_that_sign_nothing_or_not_our_own_token_are_told() {
    let none = KeysFound { keys: vec![], skipped: 2, signed_ours: Some(false) };
    let (skipped, foreign) = (
        KeysFound { keys: keys(&[&Issuer::p256("k")]), skipped: 1, signed_ours: Some(true) },
        KeysFound { keys: keys(&[&Issuer::p256("k")]), skipped: 0, signed_ours: Some(false) },
    );
    for (found, severity) in
        [(none, Severity::Act), (skipped, Severity::Ok), (foreign, Severity::Warning)]
    {
        let findings = with(|it| it.keys = Ok(found));
        assert_eq!(of(&findings, "keys").severity, severity, "{findings:?}");
    }
    let forbidden = with(|it| it.keys = Err(KeysError::Call(ApiError::Forbidden)));
    let todo = of(&forbidden, "keys").todo.as_ref().unwrap();
    assert!(todo.contains("system:service-account-issuer-discovery"), "{todo}");
}

#[test]
fn a_key_that_two_clusters_publish_is_told_with_whose_it_is() {
    let key = Issuer::p256("k");
    let cluster =
        |name: &str| Cluster { name: name.into(), keys: keys(&[&key]), ..Cluster::default() };
    let (a, b) = (cluster("a"), cluster("b"));
    let first = Directory::new(std::slice::from_ref(&a), &Default::default()).to_note;
    let both = [a, b];
    let of_a = shared(&Directory::new(&both, &first).shared, true);
    assert_eq!((of_a[0].severity, of_a.len()), (Severity::Warning, 1));
    assert_eq!(of_a[0].found, "k is a's, and published by a, b");
    let nobodys = Directory::new(&both, &Default::default()).shared;
    assert_eq!(shared(&nobodys, true)[0].severity, Severity::Act);
    assert_eq!(shared(&nobodys, false)[0].severity, Severity::Warning, "the Secret knows");
}

#[test]
fn somebody_who_can_act_comes_before_an_outage() {
    let act = with(|it| it.rights = Ok(vec![Right::Renew]));
    let outage = with(|it| it.reach = Err(ApiError::Server { code: 500 }));
    assert_eq!(worst(outage.iter().chain(&act)), Severity::Act);
    assert_eq!(worst(&outage), Severity::NotAsked);
    assert_eq!(worst(&[]), Severity::Ok);
}

#[test]
fn a_key_signed_our_token_whatever_its_name() {
    let (one, other) = (Issuer::p256("k"), Issuer::p256("k"));
    let token = one.token(&claims());
    assert!(has_signed(&keys(&[&one]), &token));
    assert!(!has_signed(&keys(&[&other]), &token));
    assert!(!has_signed(&keys(&[&one]), "no token"));
}

//! The lines about `trustplane review`, in each of their states.

use chrono::TimeDelta;

use super::*;
use crate::{
    check::{
        checks::{
            Expect, Status, evaluate,
            tests::{controller, in_order, missing},
        },
        facts::Facts,
        found::Reviewed,
        review::{CredentialStatus, Problem},
    },
    k8s::api_error::ApiError,
    review::decide::config,
    runtime::lease::holder::Holder,
};

const CONFIG: &str = "\
clusters:
  local: {issuer: https://kubernetes.default.svc}
  b: {issuer: https://b, api_server: https://b:6443, token_path: /etc/trustplane/clusters/b/token}
";

fn installation() -> Installation {
    Installation {
        controller: controller("trustplane-review", "trustplane"),
        state_namespace: "trustplane".into(),
        configuration: Ok(configured(CONFIG)),
        status: Ok(Some(status_of([("local", well(None)), ("b", well(Some(168)))]))),
    }
}

fn now() -> DateTime<Utc> {
    "2030-06-15T12:00:00Z".parse().unwrap()
}

/// With a credential that ends in so many hours.
fn well(hours: Option<i64>) -> ClusterStatus {
    let ends = |hours| CredentialStatus { expires: Some(now() + TimeDelta::hours(hours)) };
    ClusterStatus { reachable: true, credential: hours.map(ends), ..ClusterStatus::default() }
}

fn status_of<const N: usize>(clusters: [(&str, ClusterStatus); N]) -> StatusFound {
    let clusters = clusters.into_iter().map(|(name, it)| (name.to_owned(), Some(it)));
    StatusFound { clusters: clusters.collect(), read_at: now() }
}

fn configured(text: &str) -> ConfigurationFound {
    ConfigurationFound {
        config_map: "trustplane-review-config".into(),
        read: Some(config::read(text)),
        unmounted: Vec::new(),
    }
}

/// The lines of an installation with one thing changed.
fn but(change: impl FnOnce(&mut Installation)) -> Vec<CheckResult> {
    let mut installation = installation();
    change(&mut installation);
    let facts = Facts { review: Ok(Some(installation)), ..in_order() };
    let lines = evaluate(&facts, Expect::Whatever).into_iter();
    lines.filter(|line| line.check.starts_with("review")).collect()
}

fn line(check: &str, change: impl FnOnce(&mut Installation)) -> CheckResult {
    but(change).into_iter().find(|line| line.check == check).unwrap()
}

#[test]
fn where_review_is_not_installed_one_line_says_so_and_nothing_fails() {
    for expect in [Expect::Whatever, Expect::Installed] {
        let mut lines = evaluate(&in_order(), expect);
        lines.retain(|line| line.check.starts_with("review"));
        let [line] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!((line.check, line.result), ("review", Status::Note));
        assert_eq!(line.found, "not installed: no trustplane-review in namespace trustplane");
    }
}

#[test]
fn a_service_in_order_is_ok() {
    let lines = but(|_| {});
    let results: Vec<_> = lines.iter().map(|line| (line.check, line.result)).collect();
    let checks =
        ["review-rights", "review-deployment", "review-lease", "review-config", "review-status"];
    assert_eq!(results, checks.map(|check| (check, Status::Ok)));
    assert!(lines.iter().all(|line| line.subject.len() <= 19), "the columns are aligned");
    assert_eq!(lines[3].found, "b, local; this one is local");
    assert_eq!(lines[4].found, "2 of 2 can be asked");
}

#[test]
fn what_may_not_be_read_is_a_warning_in_its_own_line() {
    let lines = but(|it| {
        it.configuration = Err(ApiError::Forbidden);
        it.status = Err(ApiError::Forbidden);
    });
    let warned = lines.iter().filter(|line| line.result == Status::Warning);
    let warned: Vec<_> = warned.map(|line| line.check).collect();
    assert_eq!(warned, ["review-config", "review-status"]);
}

#[test]
fn a_missing_right_a_missing_leader_and_replicas_that_are_not_ready_fail() {
    let rights = line("review-rights", |it| {
        let missing = vec![missing("create tokenreviews")];
        it.controller.account = Ok(Reviewed { asked: 16, missing });
    });
    assert_eq!(rights.result, Status::Failed);
    assert!(rights.found.contains("create tokenreviews"), "{rights:?}");
    let lease = line("review-lease", |it| it.controller.lease = Ok(Holder::NoLease));
    assert_eq!(lease.found, "no Lease trustplane-review in namespace trustplane");
    let replicas = line("review-deployment", |it| it.controller.deployment.replicas = 0);
    assert!(replicas.found.ends_with("no token is reviewed, and no credential renewed"));
}

#[test]
fn a_configuration_that_is_missing_says_who_makes_it() {
    let line = line("review-config", |it| {
        it.configuration = Ok(ConfigurationFound { read: None, ..configured(CONFIG) });
    });
    assert_eq!(line.result, Status::Failed);
    assert!(line.found.starts_with("no clusters.yaml in a ConfigMap trustplane-review-config"));
    assert!(line.command.unwrap().starts_with("trustplane review register CLUSTER"));
}

#[test]
fn every_fault_of_the_configuration_is_told_with_its_place() {
    let faulty =
        CONFIG.replace("https://b:6443", "http://b:6443").replace("b: {issuer", "B: {issuer");
    let line = line("review-config", |it| it.configuration = Ok(configured(&faulty)));
    assert_eq!(line.result, Status::Failed);
    assert!(line.found.starts_with("refused: line 3, column 3: "), "{line:?}");
    assert!(line.found.contains("api_server must be https://"), "{line:?}");
}

#[test]
fn a_cluster_whose_files_the_pods_do_not_see_is_named() {
    let line = line("review-config", |it| {
        let unmounted = vec!["b".to_owned()];
        it.configuration = Ok(ConfigurationFound { unmounted, ..configured(CONFIG) });
    });
    assert_eq!(line.result, Status::Failed);
    assert!(line.found.ends_with("in no volume of the Deployment: b"), "{line:?}");
}

#[test]
fn where_tokens_of_this_cluster_are_not_reviewed_it_says_so() {
    let without = CONFIG.replace("  local: {issuer: https://kubernetes.default.svc}\n", "");
    let line = line("review-config", |it| it.configuration = Ok(configured(&without)));
    assert_eq!(line.found, "b; tokens of this one are not reviewed");
}

#[test]
fn what_is_wrong_with_a_cluster_is_told_with_its_name() {
    let since = now() - TimeDelta::hours(1);
    let ill = ClusterStatus {
        reachable: false,
        outage: Some(Outage { since, error: "HTTP 503".into() }),
        problems: vec![Problem {
            reason: "KeyShared".into(),
            text: "key k is published by a".into(),
        }],
        ..well(Some(1))
    };
    let found = status_of([("local", well(None)), ("b", ill)]);
    let line = line("review-status", |it| it.status = Ok(Some(found)));
    assert_eq!(line.result, Status::Warning);
    assert_eq!(
        line.found,
        "1 of 2 can be asked; b: not reachable since 2030-06-15T11:00:00+00:00: HTTP 503, KeyShared (key k is \
         published by a)"
    );
}

#[test]
fn a_credential_that_has_ended_fails_because_it_does_not_renew_itself() {
    let found = status_of([("b", well(Some(0))), ("c", well(Some(1)))]);
    let line = line("review-status", |it| it.status = Ok(Some(found)));
    assert_eq!(line.result, Status::Failed);
    assert!(
        line.found.ends_with("; b: our credential ended at 2030-06-15T12:00:00+00:00"),
        "{line:?}"
    );
    assert!(line.command.unwrap().starts_with("trustplane review register CLUSTER"));
}

#[test]
fn a_status_that_is_missing_or_can_not_be_read_is_a_warning() {
    let missing = line("review-status", |it| it.status = Ok(None));
    assert_eq!(missing.result, Status::Warning);
    let unread = line("review-status", |it| {
        let clusters = [("b".to_owned(), None)].into();
        it.status = Ok(Some(StatusFound { clusters, read_at: now() }));
    });
    assert_eq!(unread.result, Status::Warning);
    assert_eq!(unread.found, "0 of 1 can be asked; b: its entry can't be read");
}

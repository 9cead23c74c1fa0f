//! The lines about `trustplane review`, in each of their states.

use super::*;
use crate::{
    check::{
        checks::{
            Expect, Status, evaluate,
            tests::{controller, in_order, missing},
        },
        facts::Facts,
        found::Reviewed,
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
    }
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
    let checks = ["review-rights", "review-deployment", "review-lease", "review-config"];
    assert_eq!(results, checks.map(|check| (check, Status::Ok)));
    assert!(lines.iter().all(|line| line.subject.len() <= 19), "the columns are aligned");
    assert_eq!(lines[3].found, "b, local; this one is local");
}

#[test]
fn what_may_not_be_read_is_a_warning_in_its_own_line() {
    let lines = but(|it| it.configuration = Err(ApiError::Forbidden));
    let warned = lines.iter().filter(|line| line.result == Status::Warning);
    assert_eq!(warned.map(|line| line.check).collect::<Vec<_>>(), ["review-config"]);
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

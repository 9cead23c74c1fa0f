//! The lines about `trustplane federate`, in each of their states.

use super::*;
use crate::{
    check::{
        checks::{
            Expect, evaluate,
            tests::{controller, in_order, missing, policy},
        },
        facts::Facts,
        federate::FederateFound,
        found::{Installed, Reviewed},
    },
    k8s::api_error::ApiError,
    runtime::lease::holder::Holder,
};

fn condition(kind: &str, status: &str, reason: &str) -> ConditionFound {
    let [kind, status, reason] = [kind, status, reason].map(str::to_owned);
    ConditionFound { kind, status, reason }
}

fn ready() -> SpireServerFound {
    SpireServerFound {
        trust_domain: "a.test".into(),
        conditions: vec![
            condition("Ready", "True", "Ready"),
            condition("CreateOnlyMode", "False", "Disabled"),
            condition("PeersReachable", "True", "AllReachable"),
        ],
        current: true,
        peers: vec![("b.test".into(), true), ("c.test".into(), true)],
    }
}

fn installation() -> Installation {
    let mut controller = controller("trustplane-federate", "spire");
    controller.deployment.served = vec!["spire".into()];
    let (spire_server_api, missing_kinds) = (Ok(Installed::AsShipped), Ok(Vec::new()));
    Installation { controller, spire_server_api, missing_kinds }
}

fn facts(installation: Option<Installation>, server: Option<SpireServerFound>) -> Facts {
    let federate = FederateFound { installation: Ok(installation), server: Ok(server) };
    Facts { federate, ..in_order() }
}

fn of_federate(facts: &Facts) -> Vec<CheckResult> {
    let is_ours =
        |line: &CheckResult| line.check.starts_with("federate") || line.check == "spire-server";
    evaluate(facts, Expect::Whatever).into_iter().filter(is_ours).collect()
}

fn line(facts: &Facts, check: &str) -> CheckResult {
    of_federate(facts).into_iter().find(|line| line.check == check).unwrap()
}

/// The installation with one thing changed.
fn but(change: impl FnOnce(&mut Installation)) -> Facts {
    let mut installation = installation();
    change(&mut installation);
    facts(Some(installation), Some(ready()))
}

#[test]
fn where_it_is_not_installed_one_line_says_so_and_nothing_fails() {
    for expect in [Expect::Whatever, Expect::Installed] {
        let lines = evaluate(&facts(None, None), expect);
        let ours: Vec<_> = lines.iter().filter(|it| it.check.contains("federate")).collect();
        let [line] = &ours[..] else { panic!("{ours:?}") };
        assert_eq!((line.check, line.result), ("federate", Status::Note));
        assert_eq!(line.found, "not installed: no trustplane-federate in namespace trustplane");
    }
}

#[test]
fn everything_in_its_place_is_ok_but_for_what_cannot_be_seen() {
    let lines = of_federate(&facts(Some(installation()), Some(ready())));
    let results: Vec<_> = lines.iter().map(|line| (line.check, line.result)).collect();
    assert_eq!(
        results,
        [
            ("federate-apis", Status::Ok),
            ("federate-rights", Status::Ok),
            ("federate-policy", Status::Note),
            ("federate-deployment", Status::Ok),
            ("federate-lease", Status::Ok),
            ("spire-server", Status::Ok),
        ]
    );
    assert!(lines.iter().all(|line| line.subject.len() <= 19), "the columns are aligned");
}

#[test]
fn a_spire_server_api_that_is_missing_or_altered_fails_and_missing_ones_of_spire_warn() {
    let missing = line(&but(|it| it.spire_server_api = Ok(Installed::Missing)), "federate-apis");
    assert_eq!(missing.result, Status::Failed);
    assert_eq!(missing.command.as_deref(), Some("kubectl apply -k deploy/trust-domain"));
    let altered = Installed::Altered(vec!["schema of v1alpha1".into()]);
    let altered = line(&but(|it| it.spire_server_api = Ok(altered)), "federate-apis");
    assert_eq!(altered.result, Status::Failed);
    assert!(altered.found.ends_with("of another version: schema of v1alpha1"), "{altered:?}");
    let unlisted = but(|it| it.spire_server_api = Err(ApiError::Forbidden));
    assert_eq!(line(&unlisted, "federate-apis").result, Status::Warning);
    let kinds = but(|it| it.missing_kinds = Ok(vec!["ClusterFederatedTrustDomain"]));
    let kinds = line(&kinds, "federate-apis");
    assert_eq!(kinds.result, Status::Warning);
    assert!(kinds.found.ends_with("not served: ClusterFederatedTrustDomain"), "{kinds:?}");
}

#[test]
fn rights_that_are_missing_are_named_and_come_back_the_way_they_came() {
    let lacking = Reviewed { asked: 100, missing: vec![missing("patch spireservers/status")] };
    let applied = line(&but(|it| it.controller.account = Ok(lacking.clone())), "federate-rights");
    assert_eq!(applied.result, Status::Failed);
    assert_eq!(applied.found, "99 of 100; missing: patch spireservers/status");
    assert_eq!(applied.command.as_deref(), Some("kubectl apply -k deploy/federate"));
    let released = but(|it| {
        it.controller.account = Ok(lacking);
        it.controller.deployment.release = Some("routes".into());
    });
    let command = line(&released, "federate-rights").command;
    let expected = "helm upgrade routes deploy/chart -n trustplane --reuse-values";
    assert_eq!(command.as_deref(), Some(expected));
}

#[test]
fn a_policy_that_is_missing_unbound_altered_or_for_another_namespace_fails() {
    let altered = || Installed::Altered(vec!["spec.validations".into()]);
    use Installed::{AsShipped, Missing};
    for (policy, found) in [
        (policy(Missing, Missing), "missing: everybody who may edit the SpireServer"),
        (policy(AsShipped, Missing), "not bound"),
        (policy(altered(), AsShipped), "spec.validations"),
        (policy(AsShipped, altered()), "its binding"),
    ] {
        let line = line(&but(|it| it.controller.policy = policy), "federate-policy");
        assert_eq!(line.result, Status::Failed, "{line:?}");
        assert!(line.found.contains(found), "{line:?}");
    }
    let moved = line(
        &but(|it| it.controller.deployment.served = vec!["elsewhere".into()]),
        "federate-policy",
    );
    assert_eq!(moved.result, Status::Failed);
    assert_eq!(moved.found, "it guards namespace spire, but the SPIRE server runs in elsewhere");
    let nowhere = but(|it| it.controller.policy = policy(AsShipped, AsShipped));
    assert_eq!(line(&nowhere, "federate-policy").result, Status::Failed);
}

#[test]
fn a_controller_that_does_not_run_or_lead_fails() {
    let scaled = line(&but(|it| it.controller.deployment.replicas = 0), "federate-deployment");
    assert_eq!(scaled.result, Status::Failed);
    assert!(scaled.command.is_some_and(|it| it.contains("deployment/trustplane-federate")));
    let nobody = line(&but(|it| it.controller.lease = Ok(Holder::NoLease)), "federate-lease");
    assert_eq!(nobody.found, "no Lease trustplane-federate in namespace trustplane");
    assert_eq!(nobody.result, Status::Failed);
    let alone = but(|it| {
        it.controller.lease = Ok(Holder::NoLease);
        it.controller.deployment.elects = false;
    });
    assert_eq!(line(&alone, "federate-lease").result, Status::Note);
}

#[test]
fn conditions_and_peers_are_summed_up() {
    let server = |change: fn(&mut SpireServerFound)| {
        let mut server = ready();
        change(&mut server);
        line(&facts(Some(installation()), Some(server)), "spire-server")
    };
    let well = server(|_| {});
    let summary = "trust domain a.test: Ready is True (Ready); peers without a problem: 2";
    assert_eq!(well.found, summary);

    let unreachable = server(|it| {
        it.conditions[2] = condition("PeersReachable", "False", "PeerUnreachable");
        it.peers[1].1 = false;
    });
    assert_eq!(unreachable.result, Status::Warning, "workloads are not affected yet");
    let said = "Ready is True (Ready); False: PeersReachable (PeerUnreachable); peers with a problem: c.test";
    assert!(unreachable.found.ends_with(said), "{unreachable:?}");

    let broken = server(|it| it.conditions[0] = condition("Ready", "False", "StatefulSetNotReady"));
    assert_eq!(broken.result, Status::Failed);
    assert_eq!(broken.command.as_deref(), Some("kubectl describe spireserver cluster"));
    let unknown = server(|it| it.conditions[0] = condition("Ready", "Unknown", "NotAdmitted"));
    assert_eq!(unknown.result, Status::Warning);
    let before = server(|it| it.current = false);
    assert_eq!(before.result, Status::Warning);
    assert!(before.found.ends_with("this was said of an earlier spec"), "{before:?}");
}

#[test]
fn a_spire_server_that_no_controller_keeps_is_told_of_and_fails_nothing() {
    let mut broken = ready();
    broken.conditions[0] = condition("Ready", "False", "StatefulSetNotReady");
    assert_eq!(line(&facts(None, Some(broken)), "spire-server").result, Status::Warning);
    let last = line(&facts(None, Some(ready())), "spire-server");
    assert_eq!(last.result, Status::Note, "nobody vouches for it");
    assert!(last.found.ends_with("is installed to keep this current"), "{last:?}");
    let untouched = SpireServerFound { conditions: Vec::new(), ..ready() };
    let line = line(&facts(None, Some(untouched)), "spire-server");
    assert_eq!(line.result, Status::Note);
    assert!(line.found.ends_with("no controller keeps it"), "{line:?}");
}

//! Every line, in each of its states.

use super::*;
use crate::{
    check::{
        controller::ControllerFound,
        federate::FederateFound,
        found::{Answer, Server},
        probe::ProbeError,
        routes::{RoutesFound, Secrets},
    },
    k8s::api_error::TIMEOUT,
};

fn server(number: (u32, u32)) -> Server {
    let version = format!("{}.{}.0", number.0, number.1);
    Server { url: "https://127.0.0.1:6443".into(), version, number }
}

pub(super) fn policy(policy: Installed, binding: Installed) -> Answer<Option<PolicyFound>> {
    Ok(Some(PolicyFound { policy, binding, namespace: None }))
}

/// A controller beside `trustplane inject` that is in order, with a policy for this namespace.
pub(super) fn controller(account: &str, namespace: &str) -> ControllerFound {
    let (policy, binding) = (Installed::AsShipped, Installed::AsShipped);
    let policy = PolicyFound { policy, binding, namespace: Some(namespace.into()) };
    ControllerFound {
        deployment: DeploymentFound {
            account: account.into(),
            ..in_order().deployment.unwrap().unwrap()
        },
        lease: Ok(Holder::Alive { identity: "pod-1".into() }),
        account: Ok(Reviewed { asked: 100, missing: Vec::new() }),
        policy: Ok(Some(policy)),
    }
}

/// `in_order`, with this changed in the Deployment.
fn with_deployment(change: impl FnOnce(&mut DeploymentFound)) -> Facts {
    let mut facts = in_order();
    change(facts.deployment.as_mut().unwrap().as_mut().unwrap());
    facts
}

/// `in_order`, with this changed in what was found of Routes.
fn with_routes(change: impl FnOnce(&mut RoutesFound)) -> Facts {
    let mut facts = in_order();
    change(facts.routes.as_mut().unwrap());
    facts
}

fn shop() -> ObjectRef {
    ObjectRef::new("web", "shop")
}

/// A cluster with everything in its place, and without `trustplane federate`, `authority` and `review`.
pub(super) fn in_order() -> Facts {
    let reviewed = |asked| Ok(Reviewed { asked, missing: Vec::new() });
    Facts {
        namespace: "trustplane".into(),
        server: server(TESTED),
        sandbox: None,
        route_api: Ok(RouteApi::Crd),
        status_field: Ok(StatusField::Kept),
        installer: reviewed(22),
        account: reviewed(16),
        policy: policy(Installed::AsShipped, Installed::AsShipped),
        enforcement: Enforcement::Enforced,
        deployment: Ok(Some(DeploymentFound {
            image: "trustplane:0.1.0".into(),
            replicas: 2,
            ready: 2,
            updated: 2,
            account: "trustplane".into(),
            served: Vec::new(),
            elects: true,
            dry_run: false,
            reviews_tokens: false,
            release: None,
        })),
        elsewhere: Vec::new(),
        lease: Ok(Holder::Alive { identity: "trustplane-inject-1_ab".into() }),
        routes: Ok(RoutesFound {
            all: 3,
            annotated: 2,
            current: Ok(2),
            injected: 2,
            ..RoutesFound::count(&[], Vec::new(), Ok(Secrets::new()))
        }),
        federate: FederateFound { installation: Ok(None), server: Ok(None) },
        authority: Ok(None),
        review: Ok(None),
    }
}

/// A cluster that knows nothing of us.
fn untouched() -> Facts {
    let right = missing("get secrets");
    Facts {
        route_api: Ok(RouteApi::Missing),
        status_field: Err(ApiError::NotFound),
        account: Ok(Reviewed { asked: 16, missing: vec![right] }),
        policy: policy(Installed::Missing, Installed::Missing),
        deployment: Ok(None),
        lease: Ok(Holder::NoLease),
        routes: Err(ApiError::NotFound),
        ..in_order()
    }
}

pub(super) fn missing(right: &str) -> Right {
    let (verb, resource) = right.split_once(' ').unwrap();
    let (verb, resource) = (verb.to_owned(), resource.to_owned());
    Right { verb, resource, ..Right::default() }
}

fn line(facts: &Facts, check: &str) -> CheckResult {
    evaluate(facts, Expect::Whatever).into_iter().find(|line| line.check == check).unwrap()
}

fn statuses(facts: &Facts, expect: Expect) -> Vec<(&'static str, Status)> {
    evaluate(facts, expect).iter().map(|line| (line.check, line.result)).collect()
}

fn that_are(statuses: &[(&'static str, Status)], wanted: Status) -> Vec<&'static str> {
    statuses.iter().filter(|(_, status)| *status == wanted).map(|(check, _)| *check).collect()
}

#[test]
fn everything_in_its_place_is_all_ok_but_for_the_hints() {
    let statuses = statuses(&in_order(), Expect::Whatever);
    assert_eq!(that_are(&statuses, Status::Ok).len(), statuses.len() - 4, "{statuses:?}");
    let notes = ["federate", "authority", "review", "encryption-at-rest"];
    assert_eq!(that_are(&statuses, Status::Note), notes);
}

#[test]
fn before_installing_only_the_missing_route_api_fails() {
    let before = statuses(&untouched(), Expect::Whatever);
    assert_eq!(that_are(&before, Status::Failed), ["route-api"]);
    let comes = ["account-rights", "policy", "deployment", "lease"];
    assert_eq!(that_are(&before, Status::NotYet), comes);
}

#[test]
fn a_route_api_that_has_just_gone_fails_once() {
    let facts = Facts { status_field: Err(ApiError::Undecodable), ..untouched() };
    assert_eq!(that_are(&statuses(&facts, Expect::Whatever), Status::Failed), ["route-api"]);
}

#[test]
fn before_installing_it_says_how_to_look_in_another_namespace() {
    let found = line(&untouched(), "deployment").found;
    assert!(found.contains("--namespace"), "{found}");
}

#[test]
fn where_it_should_be_installed_what_is_missing_fails() {
    let after = statuses(&untouched(), Expect::Installed);
    let missing = ["route-api", "account-rights", "policy", "deployment", "lease"];
    assert_eq!(that_are(&after, Status::Failed), missing);
    assert_eq!(that_are(&after, Status::NotYet), [""; 0]);
}

#[test]
fn every_line_that_fails_or_warns_says_what_to_do() {
    let forbidden = Facts {
        route_api: Err(ApiError::Forbidden),
        status_field: Err(ApiError::Forbidden),
        installer: Err(ApiError::Timeout(TIMEOUT)),
        account: Err(ApiError::Forbidden),
        policy: Err(ApiError::Forbidden),
        deployment: Err(ApiError::Forbidden),
        lease: Err(ApiError::Forbidden),
        routes: Err(ApiError::Forbidden),
        federate: FederateFound {
            installation: Err(ApiError::Forbidden),
            server: Err(ApiError::Forbidden),
        },
        authority: Err(ApiError::Forbidden),
        review: Err(ApiError::Forbidden),
        ..in_order()
    };
    for facts in [untouched(), forbidden] {
        for line in evaluate(&facts, Expect::Installed) {
            let wants = matches!(line.result, Status::Failed | Status::Warning);
            assert_eq!(line.todo.is_some(), wants, "{line:?}");
        }
    }
}

#[test]
fn what_may_not_be_seen_is_a_warning_and_what_is_not_answered_a_failure() {
    let facts = Facts { policy: Err(ApiError::Forbidden), ..in_order() };
    assert_eq!(line(&facts, "policy").result, Status::Warning);
    let facts = Facts { policy: Err(ApiError::Timeout(TIMEOUT)), ..in_order() };
    assert_eq!(line(&facts, "policy").result, Status::Failed);
}

#[test]
fn an_api_server_without_the_policys_api_fails_and_an_untested_one_is_named() {
    let facts = |number| Facts { server: server(number), ..in_order() };
    assert_eq!(line(&facts((1, 29)), "api-server").result, Status::Failed);
    let newer = line(&facts((1, 40)), "api-server");
    assert_eq!((newer.result, newer.found.contains("tested with 1.36")), (Status::Ok, true));
}

#[test]
fn the_tested_version_is_the_one_of_the_toolbox() {
    let modules = include_str!("../../../e2e/toolbox/kubernetes/go.mod");
    let (major, minor) = TESTED;
    assert!(modules.contains(&format!("k8s.io/kubernetes v{major}.{minor}.")), "{TESTED:?}");
}

#[test]
fn missing_rights_are_named_and_the_first_few_are_enough() {
    let names = ["get a", "get b", "get c", "get d", "get e", "get f", "get g"];
    let missing: Vec<_> = names.map(missing).into();
    let facts = Facts { account: Ok(Reviewed { asked: 16, missing }), ..in_order() };
    let line = line(&facts, "account-rights");
    assert_eq!(line.result, Status::Failed);
    assert_eq!(line.found, "9 of 16; missing: get a, get b, get c, get d, get e and 2 more");
    assert_eq!(line.command.as_deref(), Some("kubectl apply -k deploy/overlays/kubernetes"));
}

#[test]
fn what_helm_installed_is_put_right_with_helm() {
    let account = Ok(Reviewed { asked: 16, missing: vec![missing("get secrets")] });
    let released = with_deployment(|it| it.release = Some("routes".into()));
    let facts = Facts { account, ..released };
    let command = line(&facts, "account-rights").command;
    let expected = "helm upgrade routes deploy/chart -n trustplane --reuse-values";
    assert_eq!(command.as_deref(), Some(expected));
}

#[test]
fn who_may_not_install_is_told_so_before_and_only_warned_after() {
    let lacking = || Ok(Reviewed { asked: 22, missing: vec![missing("create namespaces")] });
    let before = Facts { installer: lacking(), ..untouched() };
    assert_eq!(line(&before, "install-rights").result, Status::Failed);
    let after = Facts { installer: lacking(), ..in_order() };
    assert_eq!(line(&after, "install-rights").result, Status::Warning);
}

#[test]
fn a_policy_that_is_not_bound_or_altered_fails() {
    let altered = || Installed::Altered(vec!["spec.matchConditions".into()]);
    for (policy, found) in [
        (policy(Installed::Missing, Installed::Missing), "missing"),
        (policy(Installed::AsShipped, Installed::Missing), "not bound"),
        (policy(altered(), Installed::AsShipped), "spec.matchConditions"),
        (policy(Installed::AsShipped, altered()), "its binding"),
    ] {
        let line = line(&Facts { policy, ..in_order() }, "policy");
        assert_eq!(line.result, Status::Failed, "{line:?}");
        assert!(line.found.contains(found), "{line:?}");
    }
}

#[test]
fn a_controller_for_some_namespaces_may_do_without_the_policy() {
    let limited = with_deployment(|it| it.served = vec!["shop".into()]);
    let facts = Facts { policy: policy(Installed::Missing, Installed::Missing), ..limited };
    assert_eq!(line(&facts, "policy").result, Status::Warning);
    assert!(line(&facts, "account-rights").found.ends_with(", in shop"));
}

#[test]
fn for_aggregated_routes_the_line_says_who_must_enforce_the_policy() {
    let service = "openshift-apiserver/api".to_owned();
    let facts = Facts {
        route_api: Ok(RouteApi::Aggregated { service, unavailable: None }),
        status_field: Ok(StatusField::Dropped),
        enforcement: Enforcement::NotTested,
        ..in_order()
    };
    let untested = line(&facts, "policy");
    assert_eq!(untested.result, Status::Warning);
    assert!(untested.found.contains("whether openshift-apiserver/api"), "{untested:?}");
    let facts = Facts { enforcement: Enforcement::NotEnforced, ..facts };
    let tested = line(&facts, "policy");
    assert_eq!(tested.result, Status::Failed);
    assert!(tested.todo.is_some_and(|todo| todo.starts_with("openshift-apiserver/api does not")));
}

#[test]
fn whether_the_policy_is_enforced_is_claimed_only_after_a_test() {
    let policy = |enforcement| line(&Facts { enforcement, ..in_order() }, "policy");
    let untested = policy(Enforcement::NotTested);
    assert_eq!(untested.result, Status::Note);
    assert!(untested.found.contains("cannot be seen"), "{untested:?}");
    assert_eq!(untested.command.as_deref(), Some("trustplane check --probe-policy"));
    assert_eq!(policy(Enforcement::Enforced).result, Status::Ok);
    let off = policy(Enforcement::NotEnforced);
    assert_eq!(off.result, Status::Failed);
    assert!(off.todo.is_some_and(|todo| todo.contains("--disable-admission-plugins")));
    let cause = ApiError::Forbidden;
    let unknown = policy(Enforcement::Unknown(ProbeError::Call { step: "creating a Role", cause }));
    assert_eq!(unknown.result, Status::Warning);
    assert!(unknown.found.ends_with("creating a Role: forbidden (HTTP 403)"), "{unknown:?}");
}

#[test]
fn the_sandbox_is_named_and_nothing_is_expected_to_be_installed_there() {
    let sandbox = |injecting| {
        let missing = Err(ApiError::NotFound);
        let facts = Facts { sandbox: Some(injecting), policy: missing, ..untouched() };
        // It has no permissions to ask about.
        let facts = Facts { account: Err(ApiError::NotFound), ..facts };
        Facts { route_api: Ok(RouteApi::Crd), routes: in_order().routes, ..facts }
    };
    let facts = sandbox(Injecting::Itself);
    let server = line(&facts, "api-server").found;
    assert!(server.starts_with("the trustplane sandbox at ") && server.ends_with("injector runs"));
    for check in ["deployment", "lease", "policy"] {
        assert_eq!(line(&facts, check).result, Status::Note, "{check}");
    }
    assert_eq!(line(&facts, "routes").result, Status::Ok, "its injector is judged");
    let without = line(&sandbox(Injecting::Others), "api-server").found;
    assert!(without.ends_with("without its injector"), "{without}");
    // A user who expects an installation here has the wrong cluster, so there is no advice to install one.
    let expected = evaluate(&facts, Expect::Installed);
    let failed: Vec<_> = expected.iter().filter(|line| line.result == Status::Failed).collect();
    let [deployment] = &failed[..] else { panic!("{failed:?}") };
    assert_eq!(deployment.found, "none: nothing can be installed in the sandbox");
    assert_eq!(deployment.command, None);
}

#[test]
fn a_test_that_was_asked_for_and_not_made_is_not_passed_over_in_silence() {
    for facts in [untouched(), Facts { policy: Err(ApiError::NotFound), ..untouched() }] {
        let asked = Facts { enforcement: Enforcement::NothingToTest, ..facts };
        let line = line(&asked, "policy");
        assert_eq!(line.result, Status::Warning, "{line:?}");
        assert!(line.found.ends_with(". --probe-policy tested nothing"), "{line:?}");
    }
}

#[test]
fn a_misspelt_annotation_is_named_whoever_injects() {
    let key = "route.openshift.io/tls-secret-nam".to_owned();
    let slip = with_routes(|it| it.misspelt = vec![(shop(), key)]);
    for facts in [slip.clone(), Facts { routes: slip.routes, ..untouched() }] {
        let line = line(&facts, "routes");
        assert_eq!(line.result, Status::Warning);
        let named = "misspelt annotation: web/shop (route.openshift.io/tls-secret-nam)";
        assert!(line.found.ends_with(named), "{line:?}");
        assert!(line.todo.is_some_and(|todo| todo.contains("route.openshift.io/tls-secret-name.")));
    }
}

#[test]
fn bad_certificates_and_refused_routes_have_a_line_each() {
    type Change = fn(&mut RoutesFound, ObjectRef);
    let change = |change: Change| {
        let facts = with_routes(|it| change(it, shop()));
        let warned = that_are(&statuses(&facts, Expect::Whatever), Status::Warning);
        assert_eq!(warned.len(), 1, "{warned:?}");
        (warned[0], line(&facts, warned[0]).found)
    };
    let cases: [(Change, &str, &str); 6] = [
        (|it, at| it.expired.push(at), "certificate-dates", "expired: web/shop"),
        (|it, at| it.expiring.push(at), "certificate-dates", "expiring soon: web/shop"),
        (|it, at| it.unreadable.push(at), "certificate-dates", "cannot be read: web/shop"),
        (|it, at| it.not_yet_valid.push(at), "certificate-dates", "not valid yet: web/shop"),
        (
            |it, at| it.wrong_host.push(at),
            "certificate-hosts",
            "not for the Route's host: web/shop",
        ),
        (
            |it, at| it.refused.push((at, "NoHostValue, router default".into())),
            "router-admission",
            "refused: web/shop (NoHostValue, router default)",
        ),
    ];
    for (case, check, found) in cases {
        assert_eq!(change(case), (check, found.to_owned()));
    }
}

#[test]
fn routes_that_may_not_be_listed_are_not_called_absent() {
    let facts = |cause| Facts { routes: Err(cause), ..in_order() };
    let found = |cause| line(&facts(cause), "certificate-dates").found;
    assert_eq!(found(ApiError::NotFound), "no Routes to look at");
    assert!(found(ApiError::Forbidden).starts_with("cannot be seen"));
}

#[test]
fn where_secrets_may_not_be_read_it_says_so_and_claims_nothing() {
    let facts = with_routes(|it| {
        it.current = Err(ApiError::Forbidden);
        it.without_secret = Err(ApiError::Forbidden);
    });
    let routes = line(&facts, "routes").found;
    assert!(routes.contains("cannot be seen whether that is current"), "{routes}");
    assert_eq!(line(&facts, "secrets").result, Status::Warning);
}

#[test]
fn an_api_server_without_such_policies_fails() {
    let facts = Facts { policy: Ok(None), ..in_order() };
    assert_eq!(line(&facts, "policy").result, Status::Failed);
}

#[test]
fn a_route_api_that_the_cluster_brought_along_is_not_to_be_replaced() {
    let facts = Facts {
        status_field: Ok(StatusField::Dropped),
        account: Ok(Reviewed { asked: 16, missing: vec![missing("get secrets")] }),
        ..in_order()
    };
    assert_eq!(line(&facts, "status-certificate").result, Status::Note);
    let command = line(&facts, "account-rights").command;
    assert_eq!(command.as_deref(), Some("kubectl apply -k deploy/overlays/openshift"));
}

#[test]
fn a_server_of_routes_that_is_down_fails() {
    let unavailable = Some("no endpoints".to_owned());
    let facts = Facts {
        route_api: Ok(RouteApi::Aggregated { service: "a/b".into(), unavailable }),
        ..in_order()
    };
    assert_eq!(line(&facts, "route-api").result, Status::Failed);
}

#[test]
fn replicas_that_are_not_ready_or_not_wanted_fail() {
    let facts = |replicas, ready| with_deployment(|it| (it.replicas, it.ready) = (replicas, ready));
    assert_eq!(line(&facts(2, 1), "deployment").result, Status::Failed);
    assert!(line(&facts(2, 1), "deployment").found.starts_with("1 of 2 replicas ready"));
    assert_eq!(line(&facts(0, 0), "deployment").result, Status::Failed);
}

#[test]
fn old_replicas_that_are_ready_do_not_hide_new_ones_that_never_start() {
    let line = line(&with_deployment(|it| it.updated = 1), "deployment");
    assert_eq!(line.result, Status::Failed);
    assert!(line.found.ends_with("1 of 2 replaced by this version"), "{line:?}");
}

#[test]
fn an_installation_in_another_namespace_is_not_passed_over_in_silence() {
    let facts = Facts { elsewhere: vec!["infra".into()], ..untouched() };
    let line = line(&facts, "deployment");
    assert_eq!(line.result, Status::Warning);
    assert_eq!(line.found, "none in namespace trustplane, but in infra");
    assert_eq!(line.command.as_deref(), Some("trustplane check --namespace infra"));
}

#[test]
fn a_controller_on_a_server_without_admission_policies_is_not_in_order() {
    let facts = Facts { policy: Err(ApiError::NotFound), ..in_order() };
    assert_eq!(line(&facts, "policy").result, Status::Failed);
    let facts = Facts { policy: Err(ApiError::NotFound), ..untouched() };
    assert_eq!(line(&facts, "policy").result, Status::Note);
}

#[test]
fn a_controller_that_only_pretends_fails() {
    let facts = with_deployment(|it| (it.dry_run, it.elects) = (true, false));
    let line = line(&facts, "deployment");
    assert_eq!(line.result, Status::Failed);
    assert!(line.found.contains("nothing is injected"), "{line:?}");
}

#[test]
fn a_lease_that_an_earlier_installation_left_behind_is_no_failure_before_the_next() {
    let left = Ok(Holder::Gone { identity: "pod-1".into(), renewed: None });
    let facts = Facts { lease: left, ..untouched() };
    assert_eq!(line(&facts, "lease").result, Status::NotYet);
}

#[test]
fn a_lease_that_nobody_renews_fails_unless_none_is_asked_for() {
    for (elects, result) in [(true, Status::Failed), (false, Status::Note)] {
        let gone = Ok(Holder::Gone { identity: "pod-1".into(), renewed: None });
        let facts = Facts { lease: gone, ..with_deployment(|it| it.elects = elects) };
        assert_eq!(line(&facts, "lease").result, result);
    }
}

#[test]
fn routes_that_fail_and_secrets_that_are_missing_are_warnings_with_names() {
    let facts = with_routes(|it| {
        it.failing = vec![(shop(), Some("SecretNotFound".into()))];
        it.without_secret = Ok(vec![(shop(), "shop-tls".into())]);
    });
    let routes = line(&facts, "routes");
    assert_eq!(routes.result, Status::Warning);
    assert!(routes.found.ends_with("failing: web/shop (SecretNotFound)"), "{routes:?}");
    let secrets = line(&facts, "secrets");
    assert_eq!(secrets.result, Status::Warning);
    assert!(secrets.found.ends_with("web/shop names shop-tls"), "{secrets:?}");
}

//! The lines about `trustplane authority`, in each of their states.

use chrono::TimeDelta;

use super::*;
use crate::{
    authority::decide::ca::{self, NewCa, Phase, Policy},
    check::{
        checks::{
            Expect, Status, evaluate,
            tests::{controller, in_order, missing, policy},
        },
        facts::Facts,
        found::{Installed, Reviewed},
    },
    runtime::lease::holder::Holder,
    spiffe::{
        bundle::BundleError,
        testing::{self, noon},
    },
};

/// A CA that has just been made; its rotation is due in 25 days.
fn state() -> AuthorityState {
    let policy = Policy {
        refresh_hint: TimeDelta::minutes(5),
        ca_ttl: TimeDelta::days(30),
        svid_ttl: TimeDelta::hours(1),
    };
    let new = NewCa {
        id: "ca-1".into(),
        chain: Vec::new(),
        not_before: noon(),
        not_after: noon() + policy.ca_ttl,
    };
    let before = ca::Before { sequence: Some(3), ..ca::Before::default() };
    ca::first("td-a.test", new, before, &policy, noon())
}

fn published() -> PublishedFound {
    let bundle = Bundle { sequence: Some(4), ..testing::bundle(&[&testing::Ca::new("ca-1")]) };
    PublishedFound { bundle: Some(Ok(bundle)), state: Some(state()), read_at: noon() }
}

/// Both conditions with this status and these reasons.
fn federation(name: &str, synced: (&str, &str), trusted: (&str, &str)) -> FederationFound {
    let conditions = [(SYNCED, synced), (TRUSTED, trusted)].map(|(kind, (status, reason))| {
        let [kind, status, reason] = [kind, status, reason].map(str::to_owned);
        ConditionFound { kind, status, reason }
    });
    FederationFound { name: name.into(), conditions: conditions.into(), current: true }
}

fn well(name: &str) -> FederationFound {
    federation(name, ("True", "Synced"), ("True", "BundleCurrent"))
}

fn installation() -> Installation {
    let federations = vec![well("b.test"), well("c.test")];
    Installation {
        controller: controller("trustplane-authority", "trustplane"),
        state_namespace: "trustplane".into(),
        federation_api: Ok(Installed::AsShipped),
        join_token_api: Ok(Installed::AsShipped),
        join_port: Ok(JoinPort::Served(8445)),
        published: Ok(Some(published())),
        federations: Ok(FederationsFound { federations, undecodable: Vec::new() }),
    }
}

/// The lines of an installation with one thing changed.
fn but(change: impl FnOnce(&mut Installation)) -> Vec<CheckResult> {
    let mut installation = installation();
    change(&mut installation);
    let facts = Facts { authority: Ok(Some(installation)), ..in_order() };
    let is_ours = |line: &CheckResult| {
        line.check.starts_with("authority") || line.check == "spiffe-federations"
    };
    evaluate(&facts, Expect::Whatever).into_iter().filter(is_ours).collect()
}

fn line(check: &str, change: impl FnOnce(&mut Installation)) -> CheckResult {
    but(change).into_iter().find(|line| line.check == check).unwrap()
}

/// The line about a bundle with one thing changed.
fn bundle_line(change: impl FnOnce(&mut PublishedFound)) -> CheckResult {
    let mut found = published();
    change(&mut found);
    line("authority-bundle", |it| it.published = Ok(Some(found)))
}

fn federations_line(federations: &[FederationFound]) -> CheckResult {
    let federations = federations.to_vec();
    let found = FederationsFound { federations, undecodable: Vec::new() };
    line("spiffe-federations", |it| it.federations = Ok(found))
}

#[test]
fn where_the_authority_is_not_installed_one_line_says_so_and_nothing_fails() {
    for expect in [Expect::Whatever, Expect::Installed] {
        let mut lines = evaluate(&in_order(), expect);
        lines.retain(|line| line.check.contains("authority") || line.check.contains("spiffe"));
        let [line] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!((line.check, line.result), ("authority", Status::Note));
        assert_eq!(line.found, "not installed: no trustplane-authority in namespace trustplane");
    }
}

#[test]
fn an_authority_in_order_is_ok_but_for_what_cannot_be_seen() {
    let lines = but(|_| {});
    let results: Vec<_> = lines.iter().map(|line| (line.check, line.result)).collect();
    assert_eq!(
        results,
        [
            ("authority-api", Status::Ok),
            ("authority-rights", Status::Ok),
            ("authority-policy", Status::Note),
            ("authority-deployment", Status::Ok),
            ("authority-lease", Status::Ok),
            ("authority-bundle", Status::Ok),
            ("spiffe-federations", Status::Ok),
            ("authority-join", Status::Ok),
        ]
    );
    assert!(lines.iter().all(|line| line.subject.len() <= 19), "the columns are aligned");
}

#[test]
fn what_may_not_be_read_is_a_warning_in_its_own_line() {
    let lines = but(|it| {
        it.federation_api = Err(ApiError::Forbidden);
        it.published = Err(ApiError::Forbidden);
        it.federations = Err(ApiError::Forbidden);
        it.join_port = Err(ApiError::Forbidden);
    });
    let warned = lines.iter().filter(|line| line.result == Status::Warning);
    let warned: Vec<_> = warned.map(|line| line.check).collect();
    let expected = ["authority-api", "authority-bundle", "spiffe-federations", "authority-join"];
    assert_eq!(warned, expected);
}

#[test]
fn a_federation_api_that_is_missing_or_altered_fails_once() {
    let lines = but(|it| {
        it.federation_api = Ok(Installed::Missing);
        it.federations = Err(ApiError::NotFound);
    });
    let failed: Vec<_> = lines.iter().filter(|line| line.result == Status::Failed).collect();
    let [api] = &failed[..] else { panic!("{failed:?}") };
    assert_eq!(api.found, "there is no SPIFFEFederation API");
    assert_eq!(api.command.as_deref(), Some("kubectl apply -k deploy/authority/api"));
    let schema = Installed::Altered(vec!["schema of v1".into()]);
    let altered = line("authority-api", |it| it.federation_api = Ok(schema));
    assert_eq!(altered.result, Status::Failed);
    assert!(altered.found.ends_with("of another version: schema of v1"), "{altered:?}");
    let tokens = line("authority-api", |it| it.join_token_api = Ok(Installed::Missing));
    assert_eq!(
        (tokens.result, tokens.found.as_str()),
        (Status::Failed, "there is no JoinToken API")
    );
}

#[test]
fn a_join_port_that_no_client_reaches_is_a_warning_and_without_one_there_is_a_note() {
    let of = |port| line("authority-join", |it| it.join_port = Ok(port));
    assert_eq!(of(JoinPort::Served(443)).found, "port 443 of Service trustplane-authority");
    assert_eq!(of(JoinPort::Off).result, Status::Note);
    for port in [JoinPort::Loopback, JoinPort::Unreachable(9000)] {
        let line = of(port);
        assert_eq!(line.result, Status::Warning, "{line:?}");
        assert_eq!(line.command.as_deref(), Some("kubectl apply -k OVERLAY"));
    }
}

#[test]
fn rights_that_the_authority_lacks_come_back_with_the_overlay_or_with_helm() {
    let right = missing("patch spiffefederations/status");
    let lacking = Reviewed { asked: 100, missing: vec![right] };
    let overlay = line("authority-rights", |it| it.controller.account = Ok(lacking.clone()));
    assert_eq!(overlay.found, "99 of 100; missing: patch spiffefederations/status");
    assert_eq!(overlay.command.as_deref(), Some("kubectl apply -k OVERLAY"));
    let helm = line("authority-rights", |it| {
        it.controller.account = Ok(lacking);
        it.controller.deployment.release = Some("spiffe".into());
    });
    assert!(helm.command.is_some_and(|command| command.starts_with("helm upgrade spiffe ")));
}

#[test]
fn a_status_policy_that_is_not_bound_or_for_another_namespace_fails() {
    use Installed::{AsShipped, Missing};
    let unbound = line("authority-policy", |it| it.controller.policy = policy(AsShipped, Missing));
    assert_eq!(unbound.result, Status::Failed);
    assert!(unbound.found.ends_with("decides who is trusted"), "{unbound:?}");
    let elsewhere = controller("trustplane-authority", "elsewhere").policy;
    let elsewhere = line("authority-policy", |it| it.controller.policy = elsewhere);
    assert_eq!(elsewhere.result, Status::Failed);
    let found = "it guards namespace elsewhere, but trustplane-authority runs in trustplane";
    assert_eq!(elsewhere.found, found);
}

#[test]
fn an_authority_without_replicas_or_a_leader_fails() {
    let scaled = line("authority-deployment", |it| it.controller.deployment.replicas = 0);
    assert_eq!(scaled.result, Status::Failed);
    assert!(scaled.found.ends_with("and no CA rotates"), "{scaled:?}");
    let nobody = line("authority-lease", |it| it.controller.lease = Ok(Holder::Released));
    assert_eq!(nobody.result, Status::Failed);
    let logs = "kubectl -n trustplane logs deployment/trustplane-authority";
    assert_eq!(nobody.command.as_deref(), Some(logs));
}

#[test]
fn a_published_bundle_is_shown_with_its_sequence_phases_and_next_rotation() {
    let line = bundle_line(|it| {
        let state = it.state.as_mut().unwrap();
        let prepared = Ca { id: "ca-2".into(), phase: Phase::Prepared, ..state.cas[0].clone() };
        state.cas.push(prepared);
    });
    assert_eq!(line.result, Status::Ok);
    assert_eq!(
        line.found,
        "trust domain td-a.test, sequence 4; CAs: ca-1 (active), ca-2 (prepared); the next rotation is \
         due at 2030-07-10T12:00:00+00:00"
    );
}

#[test]
fn a_rotation_that_is_overdue_is_a_warning_and_an_active_ca_that_expired_a_failure() {
    let after = |days| bundle_line(|it| it.read_at = noon() + TimeDelta::days(days));
    assert_eq!(after(24).result, Status::Ok);
    let overdue = after(26);
    assert_eq!(overdue.result, Status::Warning);
    let since = "the rotation is overdue since 2030-07-10T12:00:00+00:00";
    assert!(overdue.found.ends_with(since), "{overdue:?}");
    assert!(overdue.command.is_some_and(|it| it.contains("logs deployment/trustplane-authority")));
    let expired = after(31);
    assert_eq!(expired.result, Status::Failed);
    assert!(expired.found.contains("the active one expired at"), "{expired:?}");
}

#[test]
fn a_bundle_that_nobody_can_verify_with_fails() {
    let none = line("authority-bundle", |it| it.published = Ok(None));
    assert_eq!(none.result, Status::Failed);
    let found = "nothing is published: no ConfigMap trustplane-bundle in namespace trustplane";
    assert_eq!(none.found, found);
    type Change = fn(&mut PublishedFound);
    let cases: [(Change, &str); 5] = [
        (|it| it.bundle = None, "it holds no bundle"),
        (|it| it.bundle = Some(Err(BundleError::Ambiguous)), "can't be read"),
        (|it| it.bundle = Some(Ok(testing::bundle(&[]))), "no CA in it is valid now"),
        (|it| it.read_at = noon() + TimeDelta::days(3650), "no CA in it is valid now"),
        (|it| it.state.as_mut().unwrap().cas.clear(), "none is active, so nothing is signed"),
    ];
    for (change, found) in cases {
        let line = bundle_line(change);
        assert_eq!(line.result, Status::Failed, "{line:?}");
        assert!(line.found.contains(found), "{line:?}");
    }
}

#[test]
fn a_bundle_without_its_phases_or_with_another_sequence_is_a_warning() {
    let without = bundle_line(|it| it.state = None);
    assert_eq!(without.result, Status::Warning);
    let found = "sequence 4; the phases of its CAs are missing or can't be read";
    assert_eq!(without.found, found);
    let altered = bundle_line(|it| it.state.as_mut().unwrap().sequence = 5);
    assert_eq!(altered.result, Status::Warning);
    assert_eq!(altered.found, "altered: the bundle has the sequence 4, its CAs 5");
}

#[test]
fn federations_are_counted_and_those_with_a_problem_named_with_the_reason() {
    let good = federations_line(&[well("b.test"), well("c.test")]);
    assert_eq!(good.found, "2, of which 2 are trusted and 2 synced");
    let unreachable = federation("c.test", ("False", "FetchFailed"), ("True", "BundleCurrent"));
    let ended = federation("d.test", ("True", "Synced"), ("False", "BundleEmpty"));
    let changed = FederationFound { current: false, ..well("e.test") };
    let fresh = FederationFound { conditions: Vec::new(), ..well("f.test") };
    let line = federations_line(&[well("b.test"), unreachable, ended, changed, fresh]);
    assert_eq!(line.result, Status::Warning);
    assert_eq!(
        line.found,
        "5, of which 3 are trusted and 3 synced; with a problem: c.test (Synced: FetchFailed), d.test \
         (Trusted: BundleEmpty), e.test (its spec changed since), f.test (not synced yet)"
    );
    assert_eq!(line.command.as_deref(), Some("trustplane spiffe status --namespace trustplane"));
}

#[test]
fn of_many_federations_with_a_problem_the_first_few_are_named() {
    let dead = |number| {
        federation(&format!("{number}.test"), ("False", "FetchFailed"), ("False", "NoBundle"))
    };
    let line = federations_line(&[1, 2, 3, 4, 5, 6, 7].map(dead));
    assert!(line.found.ends_with("and 2 more"), "{line:?}");
    let both = "with a problem: 1.test (Synced: FetchFailed, Trusted: NoBundle), 2.test";
    assert!(line.found.contains(both), "{line:?}");
}

#[test]
fn no_federation_is_a_note_and_one_that_cannot_be_decoded_a_warning() {
    assert_eq!(federations_line(&[]).result, Status::Note);
    let undecodable = FederationsFound { undecodable: vec!["b.test".into()], ..Default::default() };
    let line = line("spiffe-federations", |it| it.federations = Ok(undecodable));
    assert_eq!(line.result, Status::Warning);
    assert!(line.found.ends_with("with a problem: b.test (cannot be decoded)"), "{line:?}");
}

//! `trustplane federate` lends nobody its rights: who states a Secret or a host for the Route in the
//! SpireServer must have the rights for it themselves.

use std::time::Duration;

use kube::api::ApiResource;
use serde_json::{Value, json};
use testkit::{
    eventually,
    stage::{self, ACCOUNT, NAMESPACE, Stage},
    suite,
};
use trustplane::federate::{act::apply, decide::render::Component};

const PATIENCE: Duration = Duration::from_secs(30);
const POLICY: &str = "validatingadmissionpolicy/trustplane-federation-endpoint";

const NOBODY: &str = "nobody";
const READER: &str = "reader";
const HOST: &str = "host";
const BOTH: &str = "both";

const NEITHER_RIGHT: &str = "nobody may neither get Secret \"others-tls\" nor create routes/custom-host in namespace spire.";
const NO_SECRET: &str = "host may not get Secret \"others-tls\" in namespace spire.";
const NO_CERTIFICATE: &str = "reader may get Secret \"others-tls\", but may not create routes/custom-host in namespace spire.";

/// The refusal for users who change the host without the right.
fn no_host(who: &str) -> String {
    format!(
        "{who} may not create routes/custom-host in namespace spire. \
         This right is needed to change spec.federation.routeHost"
    )
}

/// A cluster with people who may change SpireServers, with the policy in force. They differ in what
/// they may do in the namespace of the SPIRE server.
async fn stage(name: &str) -> Stage {
    let stage = Stage::start(name).await;
    let run = async |command: &str| {
        let words: Vec<_> = command.split_whitespace().collect();
        stage.cluster.kubectl(&words).await.expect("a right is granted");
    };
    run("create clusterrole editor --verb=get,create,patch --resource=spireservers").await;
    run("create clusterrolebinding editor --clusterrole=editor --user=nobody --user=reader --user=host --user=both").await;
    run("create role -n spire secret --verb=get --resource=secrets --resource-name=others-tls")
        .await;
    run("create rolebinding -n spire secret --role=secret --user=reader --user=both").await;
    run("create role -n spire host --verb=create --resource=routes.route.openshift.io/custom-host")
        .await;
    run("create rolebinding -n spire host --role=host --user=host --user=both").await;
    let server = stage::server(stage::web("others-tls"));
    until_refused(NEITHER_RIGHT, async || create(&stage, NOBODY, &server).await).await;
    stage
}

type Answer = Result<String, String>;

/// Tries to create a SpireServer; nothing is made.
async fn create(stage: &Stage, who: &str, server: &Value) -> Answer {
    let file = stage.cluster.scratch().join(format!("{}.json", suite::next_number()));
    suite::write_private(&file, &server.to_string());
    let (who, file) = (format!("--as={who}"), file.display().to_string());
    stage.cluster.kubectl(&[&who, "create", "--dry-run=server", "-f", &file]).await
}

/// Tries to change the SpireServer; nothing is changed.
async fn change(stage: &Stage, who: &str, change: &Value) -> Answer {
    let (who, change) = (format!("--as={who}"), change.to_string());
    let patch = ["patch", "spireserver", "cluster", "--type=merge", "--dry-run=server", "-p"];
    stage.cluster.kubectl(&[&[&*who], &patch[..], &[&change]].concat()).await
}

/// Rights and policies are in force a moment after they were accepted.
async fn until_refused(told: &str, ask: impl AsyncFn() -> Answer) {
    eventually(PATIENCE, &format!("refused: {told}"), async || match ask().await {
        Err(why) if why.contains(told) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
}

async fn until_accepted(what: &str, ask: impl AsyncFn() -> Answer) {
    eventually(PATIENCE, what, async || ask().await.map(drop)).await;
}

/// A change to the Secret.
fn secret(name: Option<&str>) -> Value {
    let serving_cert = json!({ "externalSecretRef": name });
    json!({ "spec": { "federation": { "bundleEndpoint": { "httpsWeb": { "servingCert": serving_cert } } } } })
}

/// A change to the host.
fn host(name: Option<&str>) -> Value {
    json!({ "spec": { "federation": { "routeHost": name } } })
}

#[tokio::test]
async fn who_may_not_read_a_secret_can_t_have_it_put_into_the_route_by_way_of_the_spire_server() {
    let stage = stage("federation-deputy").await;
    let server = stage::server(stage::web("others-tls"));
    let by = async |who: &str| create(&stage, who, &server).await;
    until_refused(NO_SECRET, async || by(HOST).await).await;
    until_refused(NO_CERTIFICATE, async || by(READER).await).await;
    until_accepted("who has both rights names it", async || by(BOTH).await).await;

    stage.create(stage::web("tls")).await;
    let named = secret(Some("others-tls"));
    let by = async |who: &str| change(&stage, who, &named).await;
    until_refused(NEITHER_RIGHT, async || by(NOBODY).await).await;
    until_refused(NO_SECRET, async || by(HOST).await).await;
    until_refused(NO_CERTIFICATE, async || by(READER).await).await;
    until_accepted("who has both rights names it", async || by(BOTH).await).await;
    let third = secret(Some("third-tls"));
    let told = "both may not get Secret \"third-tls\" in namespace spire.";
    until_refused(told, async || change(&stage, BOTH, &third).await).await;
}

#[tokio::test]
async fn who_may_not_choose_hosts_of_routes_can_t_choose_that_of_the_bundle_endpoint() {
    let stage = stage("federation-deputy-host").await;
    let mut acme = stage::server(stage::web("tls"));
    acme["spec"]["federation"]["bundleEndpoint"]["httpsWeb"] = json!({ "acme": {
        "directoryUrl": "https://acme.test/directory", "domainName": "bank.test", "email": "admin@td-a.test",
    }});
    let mut named = stage::server(stage::spiffe());
    named["spec"]["federation"]["routeHost"] = json!("bank.test");
    for server in [&acme, &named] {
        until_refused(&no_host(READER), async || create(&stage, READER, server).await).await;
        until_accepted("who may chooses it", async || create(&stage, HOST, server).await).await;
    }

    stage.create(acme["spec"]["federation"].clone()).await;
    let domain = json!({ "domainName": "other.test" });
    let domain = json!({ "spec": { "federation": { "bundleEndpoint": { "httpsWeb": { "acme": domain } } } } });
    for changed in [domain, host(Some("other.test"))] {
        until_refused(&no_host(NOBODY), async || change(&stage, NOBODY, &changed).await).await;
        until_accepted("who may chooses it", async || change(&stage, HOST, &changed).await).await;
    }
}

#[tokio::test]
async fn what_stays_as_it_was_is_asked_of_nobody_and_neither_is_naming_no_secret() {
    let stage = stage("federation-deputy-free").await;
    for free in [stage::spiffe(), Value::Null] {
        let server = stage::server(free);
        until_accepted("a bundle endpoint", async || create(&stage, NOBODY, &server).await).await;
    }
    let mut federation = stage::web("tls");
    federation["routeHost"] = json!("federation.test");
    stage.create(federation).await;
    let mut other = json!({ "metadata": { "labels": { "team": "theirs" } } });
    other["spec"] =
        json!({ "logLevel": "debug", "federation": { "bundleEndpoint": { "refreshHint": 60 } } });
    let same = [secret(Some("tls")), host(Some("federation.test"))];
    for change_of in [&other, &same[0], &same[1], &secret(None)] {
        let answer = change(&stage, NOBODY, change_of).await;
        assert!(answer.is_ok(), "{change_of} {answer:?}");
    }
    let answer = change(&stage, NOBODY, &host(None)).await;
    let told = answer.expect_err("without a name of its own the Route has another host");
    assert!(told.contains(&no_host(NOBODY)), "{told}");

    let _controller = stage.controller(&[]).await;
    stage.until_condition("RouteAvailable", "Unknown", "FederationRouteCreated").await;
    assert_eq!(stage.refused(), Vec::<String>::new(), "its own status, too");
}

#[tokio::test]
async fn rights_count_in_the_namespace_that_an_overlay_gives_the_policy() {
    let stage = stage("federation-deputy-elsewhere").await;
    let server = stage::server(stage::web("others-tls"));
    until_accepted("rights count in spire", async || create(&stage, BOTH, &server).await).await;
    let patch = json!([
        { "op": "test", "path": "/spec/variables/0", "value": { "name": "serverNamespace", "expression": format!("'{NAMESPACE}'") } },
        { "op": "replace", "path": "/spec/variables/0/expression", "value": "'elsewhere'" },
    ]);
    let patched = ["patch", POLICY, "--type=json", "-p", &patch.to_string()];
    stage.cluster.kubectl(&patched).await.expect("as docs/federate.md has it");
    let told = "both may neither get Secret \"others-tls\" nor create routes/custom-host in namespace elsewhere.";
    until_refused(told, async || create(&stage, BOTH, &server).await).await;
}

#[tokio::test]
async fn every_object_of_ours_can_be_put_back_and_no_other_can_be_changed() {
    let stage = Stage::start("federation-deputy-names").await;
    stage.create(stage::spiffe()).await;
    let _controller = stage.controller(&[]).await;
    stage.until_condition("RouteAvailable", "Unknown", "FederationRouteCreated").await;
    const LABEL: &str = "app.kubernetes.io/managed-by";
    for part in Component::ALL {
        stage.meddle(part, json!({ "metadata": { "labels": { LABEL: "them" } } })).await;
        let pointer = "/metadata/labels/app.kubernetes.io~1managed-by";
        stage.until_field(part, pointer, json!("trustplane")).await;
    }
    assert_eq!(stage.refused(), Vec::<String>::new());

    let may = async |verb: &str, object: &str| {
        let who = format!("--as={ACCOUNT}");
        let answer =
            stage.cluster.kubectl(&["auth", "can-i", &who, "-n", NAMESPACE, verb, object]).await;
        answer.is_ok()
    };
    for verb in ["get", "patch"] {
        for object in ["configmaps/spire-bundle", "configmaps/trustplane-peers"] {
            assert!(may(verb, object).await, "{verb} {object}");
        }
        for part in Component::ALL {
            let ApiResource { plural, group, .. } = apply::resource(part);
            let other = format!("{plural}.{group}/theirs").replace("./", "/");
            assert!(!may(verb, &other).await, "{verb} {other}");
        }
    }
}

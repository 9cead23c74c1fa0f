use super::*;
use crate::{
    bundle::fetch::tests::{Reply, Server, host_certificate},
    federate::decide::{
        bootstrap::{Listing, object_name},
        render::{self, CONTROLLER_MANAGER},
    },
    k8s::{client, gate::Gate},
    spiffe::testing::{Ca, document, jwt_key, noon},
};

#[test]
fn an_object_is_named_after_its_trust_domain_where_kubernetes_takes_the_name() {
    assert_eq!(object_name("td-b.example.com"), "td-b.example.com");
    for odd in ["td_b", "-td", "td..b", &"a".repeat(255)] {
        let name = object_name(odd);
        assert!(name.starts_with("td-") && name.len() == 19, "{odd}: {name}");
    }
    assert_ne!(object_name("a_b"), object_name("a_c"));
}

/// The plan for an offer of td-a.test in a cluster with this object.
async fn planned(existing: Value) -> ImportPlan {
    let server = json!(render::tests::server(Value::Null));
    let wire = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let mut body = json!({ "metadata": {}, "items": [existing] });
        if request.uri().path().ends_with("/spireservers/cluster") {
            body = server.clone();
            body["spec"]["trustDomain"] = json!("td-b.test");
        }
        let body = kube::client::Body::from(body.to_string().into_bytes());
        async move { http::Response::builder().status(200).body(body) }
    });
    let client = client::over(wire, Gate::open());
    let cluster = Cluster { context: "b".to_owned(), client };
    let offer = Offer {
        trust_domain: "td-a.test".to_owned(),
        url: "https://a.example".to_owned(),
        profile: Profile::HttpsWeb,
        endpoint_id: None,
        ..offered()
    };
    cluster.plan(&offer).await.unwrap()
}

fn object(name: &str, class: Value) -> Value {
    json!({
        "metadata": { "name": name, "uid": "1", "resourceVersion": "7" },
        "spec": {
            "trustDomain": "td-a.test",
            "bundleEndpointURL": "https://a.example",
            "bundleEndpointProfile": { "type": "https_web" },
            "className": class,
        },
    })
}

#[tokio::test]
async fn an_object_of_another_controller_manager_is_left_to_it() {
    let free = planned(object("a", json!("another-spire"))).await;
    let taken = planned(object("td-a.test", json!("another-spire"))).await;
    let names = [free, taken].map(|plan| match plan {
        ImportPlan::Create { name, others, .. } if others.len() == 1 => name,
        other => panic!("{other:?}"),
    });
    assert_eq!(names[0], "td-a.test");
    assert!(names[1].starts_with("td-") && names[1].len() == 19, "{names:?}");
}

#[tokio::test]
async fn an_object_without_a_class_is_ours_as_is_one_of_our_class() {
    for class in [Value::Null, json!(""), json!(CONTROLLER_MANAGER)] {
        let plan = planned(object("a", class.clone())).await;
        assert!(matches!(plan, ImportPlan::Change { .. }), "{class}: {plan:?}");
    }
}

#[tokio::test]
async fn an_object_that_names_the_trust_domain_by_a_spiffe_id_is_changed_and_none_made_beside_it() {
    let mut standing = object("a", Value::Null);
    standing["spec"]["trustDomain"] = json!("spiffe://td-a.test");
    let plan = planned(standing).await;
    assert!(matches!(plan, ImportPlan::Change { .. }), "it is the older one: {plan:?}");
}

#[test]
fn a_document_that_spire_reads_otherwise_is_replaced_by_a_clean_one_of_the_same_authorities() {
    let offer = offered();
    let plan = |document: &str| {
        let ImportPlan::Create { name, wanted, .. } = ImportPlan::of(&offer, &[]) else {
            panic!("nothing stands there")
        };
        let metadata = ObjectMeta { name: Some(name), ..ObjectMeta::default() };
        let spec = crate::api::federated_trust_domain::FederatedTrustDomainSpec {
            trust_domain_bundle: Some(document.to_owned()),
            ..wanted
        };
        ImportPlan::of(&offer, &[FederatedTrustDomain { types: None, metadata, spec }])
    };
    assert!(matches!(plan(&offer.document), ImportPlan::Nothing));
    let mut doctored: Value = serde_json::from_str(&offer.document).unwrap();
    doctored["Keys"] = json!([Ca::new("evil").jwk()]);
    assert!(matches!(plan(&doctored.to_string()), ImportPlan::Change { .. }));
}

/// A SpireServer that lists these peers.
fn listing(peers: Value) -> SpireServer {
    render::tests::server(json!({
        "bundleEndpoint": { "profile": "https_spiffe", "refreshHint": 60 },
        "federatesWith": peers,
        "managedRoute": "true",
    }))
}

fn offered() -> Offer {
    Offer::of_td_b(&[&Ca::new("b")], Value::Null)
}

fn peer(trust_domain: &str, url: &str) -> Value {
    json!({
        "trustDomain": trust_domain,
        "bundleEndpointUrl": url,
        "bundleEndpointProfile": "https_spiffe",
        "endpointSpiffeId": "spiffe://td-b.test/spire/server",
    })
}

#[test]
fn a_trust_domain_that_the_spire_server_does_not_list_is_told_from_one_that_it_does() {
    let of = |peers: Value| Listing::of(&listing(peers), &offered());
    assert_eq!(of(json!([])), Listing::Unlisted);
    assert_eq!(of(json!([peer("td-c.test", "https://b.example")])), Listing::Unlisted);
    let none = render::tests::server(Value::Null);
    assert_eq!(Listing::of(&none, &offered()), Listing::Unlisted, "without federation");
    for same in ["https://b.example", "https://B.example:443/", "https://b.example./"] {
        assert_eq!(of(json!([peer("td-b.test", same)])), Listing::Listed, "{same}");
    }
}

#[test]
fn a_trust_domain_that_is_listed_with_another_endpoint_is_told_with_what_differs() {
    let mut other = peer("td-b.test", "https://b.example/bundle");
    other["bundleEndpointProfile"] = json!("https_web");
    other["endpointSpiffeId"] = Value::Null;
    let Listing::Differently(found) = Listing::of(&listing(json!([other])), &offered()) else {
        panic!("it differs")
    };
    let fields: Vec<_> = found.iter().map(|it| it.field).collect();
    assert_eq!(fields, ["bundleEndpointUrl", "bundleEndpointProfile", "endpointSpiffeId"]);
    assert_eq!((&*found[1].listed, &*found[1].offered), ("https_web", "https_spiffe"));
}

#[tokio::test]
async fn bootstrap_offers_no_jwt_key_that_only_the_endpoint_knows_of() {
    const NAME: &str = "federate::act::bootstrap::tests::bootstrap_offers_no_jwt_key_that_only_the_endpoint_knows_of";
    const ROOTS: &str = "TRUSTPLANE_TEST_ROOTS";
    let Some(roots) = std::env::var_os(ROOTS) else {
        // The environment says whom this machine trusts, and that of a test is everybody's.
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("roots.pem");
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", NAME, "--nocapture"]).env("NO_PROXY", "127.0.0.1");
        let ended = again.env(ROOTS, &file).env("SSL_CERT_FILE", &file).output().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        return;
    };
    let (ca, authority) = (Ca::new("web"), Ca::new("td-b"));
    std::fs::write(roots, ca.0.pem()).unwrap();
    // An attacker with a certificate for the host adds a key to the right authorities.
    let mut forged = document(&[&authority]);
    let key = jwt_key("forged");
    forged["keys"].as_array_mut().unwrap().push(key.clone());
    let server = Server::start(host_certificate(&ca), Reply::ok(&forged.to_string())).await;
    // Readers written in Go take any spelling of a name.
    forged["Keys"] = json!([key]);
    let spelt = Server::start(host_certificate(&ca), Reply::ok(&forged.to_string())).await;
    let mut spire_server = render::tests::server(json!({
        "managedRoute": "true",
        "bundleEndpoint": { "profile": "https_web", "refreshHint": 60 },
    }));
    spire_server.spec.trust_domain = "td-b.test".to_owned();
    let spire_server = json!(spire_server);
    let published = json!({
        "metadata": { "name": "spire-bundle" }, "data": { "bundle.crt": authority.0.pem() },
    });
    let wire = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let is_server = request.uri().path().ends_with("/spireservers/cluster");
        let body = if is_server { &spire_server } else { &published }.to_string();
        async move {
            http::Response::builder().status(200).body(kube::client::Body::from(body.into_bytes()))
        }
    });
    let client = client::over(wire, Gate::open());
    let cluster = Cluster { context: "b".to_owned(), client };
    let url = server.url("/").to_string();
    let offer = cluster.offer("spire", Some(&url), noon()).await.unwrap();
    assert!(offer.bundle.jwt.is_empty(), "trusted from now on: {offer:?}");
    let written = Bundle::parse(offer.document.as_bytes()).unwrap();
    assert_eq!(written, offer.bundle);
    assert!(!offer.document.contains("forged"), "{}", offer.document);
    let refused = cluster.offer("spire", Some(&spelt.url("/").to_string()), noon()).await;
    assert!(refused.is_err(), "SPIRE would read other keys than we do: {refused:?}");
}

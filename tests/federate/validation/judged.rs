//! What is judged twice, by the CRD and by `validate`: both say the same of every value here. A CRD
//! may be older than the controller, so neither can lean on the other.

use serde_json::{Value, json};
use trustplane::{api::spire_server::SpireServerSpec, federate::decide::validate};

use super::{federated, with};
use crate::{
    on_both,
    only::{Turn, minimal},
};

on_both! {
    crd_and_controller_judge_databases_alike,
    crd_and_controller_judge_urls_alike,
    crd_and_controller_judge_durations_alike,
    crd_and_controller_judge_labels_alike,
    crd_and_controller_judge_amounts_alike,
    crd_and_controller_judge_profiles_alike,
}

/// Values for a field, below `spec`.
struct Values {
    pointer: &'static str,
    right: Vec<Value>,
    wrong: Vec<Value>,
}

fn texts<const N: usize>(texts: [&str; N]) -> Vec<Value> {
    texts.map(Value::from).into()
}

/// Asks both about each.
async fn judge(turn: &Turn, base: Value, cases: Vec<Values>) {
    let defaulted = turn.would_create(&base).await.expect("the base is right");
    let mut differing = Vec::new();
    for Values { pointer, right, wrong } in cases {
        let right = right.into_iter().map(|value| (value, true));
        for (value, expected) in right.chain(wrong.into_iter().map(|value| (value, false))) {
            let pointer = format!("/spec{pointer}");
            let crd = turn.would_create(&with(base.clone(), &pointer, value.clone())).await;
            let spec = with(defaulted.clone(), &pointer, value.clone())["spec"].clone();
            let spec: SpireServerSpec = serde_json::from_value(spec).expect("a spec");
            let ours = validate::problems(&spec);
            if (crd.is_ok(), ours.is_empty()) != (expected, expected) {
                let expected = if expected { "right" } else { "wrong" };
                differing.push(format!(
                    "{pointer} {value} is {expected}\n  crd: {:?}\n  validate: {ours:?}",
                    crd.map(drop)
                ));
            }
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

async fn crd_and_controller_judge_databases_alike(turn: Turn) {
    let of = |kind: &str, texts: &[&str]| -> Vec<Value> {
        let one = |text: &&str| {
            json!({
                "databaseType": kind, "connectionString": text, "maxOpenConns": 2, "maxIdleConns": 1,
                "disableMigration": "false",
            })
        };
        texts.iter().map(one).collect()
    };
    let (mysql, times) = ("spire:pass@tcp(db.example.com:3306)/spire", "?parseTime=true");
    let mysql = |options: &str| format!("{mysql}{times}{options}");
    let with_mysql = |options: &[&str]| -> Vec<Value> {
        let texts: Vec<String> = options.iter().map(|options| mysql(options)).collect();
        of("mysql", &texts.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let right = [
        of("sqlite3", &["/run/spire/data/datastore.sqlite3", "/run/spire/data/a-b_c.1.db"]),
        with_mysql(&[
            "",
            "&charset=utf8mb4&collation=utf8mb4_bin",
            "&tls=true",
            "&tls=skip-verify",
        ]),
        with_mysql(&["&timeout=5s&readTimeout=500ms&writeTimeout=1m", "&maxAllowedPacket=0"]),
        of(
            "mysql",
            &[
                "tcp([2001:db8::1]:3306)/spire?parseTime=true",
                "tcp(db)/spire?charset=utf8&parseTime=true&rejectReadOnly=false",
                "u:p@ss/w?rd&allowAllFiles=true@tcp(db)/spire?parseTime=true",
            ],
        ),
        of(
            "postgres",
            &[
                "host=db",
                "host=db port=5432 user=spire password=p@ss;w=rd dbname=spire sslmode=verify-full",
                "host=2001:db8::1 connect_timeout=10  application_name=spire",
                r"host=db password='a \' b \\ sslkey=/x' dbname='spire'",
                "postgres://spire:p%40ss@db.example.com:5432/spire?sslmode=require&connect_timeout=5",
                "postgresql://db",
            ],
        ),
    ];
    let wrong = [
        of(
            "sqlite3",
            &[
                "datastore.sqlite3",
                "/etc/passwd",
                "/run/spire/data/../config/server.sqlite3",
                "/run/spire/data/..",
                "/run/spire/data/.sqlite3",
                "/run/spire/data/keys.json",
                "/run/spire/data/sub/a.sqlite3",
                "/run/spire/data/a.sqlite3?mode=ro",
                "/run/spire/data/%2e%2e%2fa.sqlite3",
                "file:/run/spire/data/a.sqlite3",
                "file:///etc/a.sqlite3",
                ":memory:",
                " /run/spire/data/a.sqlite3",
                "/run/spire/data/a.sqlite3\n",
                "host=db",
            ],
        ),
        with_mysql(&[
            "&allowAllFiles=true",
            "&allowAllFiles=1",
            "&allowCleartextPasswords=true",
            "&allowOldPasswords=true",
            "&serverPubKey=a",
            "&loc=Local",
            "&multiStatements=true",
            "&tls=custom",
            "&timeout=forever",
            "&charset=utf8%26allowAllFiles=true",
            "&%61llowAllFiles=true",
            "&sql_mode='a'",
            "&tls=true/spire?allowAllFiles=true",
            "\n&allowAllFiles=true",
            "&unknown",
        ]),
        of(
            "mysql",
            &[
                "/spire?parseTime=true",
                "spire:pass@tcp(db)/spire",
                "spire:pass@tcp(db)/spire?parseTime=false",
                "unix(/tmp/spire-server/private/api.sock)/spire?parseTime=true",
                "spire:pass@cloudsql(project:region:db)/spire?parseTime=true",
                "spire@tcp(db)/../spire?parseTime=true",
                "/run/spire/data/datastore.sqlite3",
                "host=db",
                "a",
            ],
        ),
        of(
            "postgres",
            &[
                "host=/tmp/spire-server/private",
                "host=db sslkey=/run/spire/data/keys.json",
                "host=db sslcert=/etc/passwd",
                "host=db sslrootcert=/etc/passwd",
                "host=db passfile=/run/spire/data/keys.json",
                "host=db service=a",
                "host=db sslinline=true",
                "host=db options=-csearch_path=a",
                "host=db user=a\tsslkey=/x",
                "host=db user=a\u{a0}sslkey=/x",
                "host=db user=a\u{b}sslkey=/x",
                "host=db user=a\nsslkey=/x",
                "host=db user= sslkey=/x",
                r"host=db user=a\ sslkey=/x",
                "host=db user='a'sslkey=/x",
                "host=db user='a",
                "host = db",
                "host=db sslmode=prefer",
                "postgres://db/spire?sslkey=/run/spire/data/keys.json",
                "postgres://db/spire?%73slkey=/x",
                "postgres://db/spire?sslmode=require;sslkey=/x",
                "postgres://%2Ftmp%2Fsocket/spire",
                "postgres://u:a%09sslkey=%2Fx@db/spire",
                "postgres://u:a%20sslkey=%2Fx@db/spire",
                "postgres://u:a%c2%a0sslkey=%2Fx@db/spire",
                "postgres://db/spire?host=/tmp",
                "postgres://db/spire#a",
                "http://db/spire",
                "/run/spire/data/datastore.sqlite3",
            ],
        ),
    ];
    let (right, wrong) = (right.concat(), wrong.concat());
    judge(&turn, minimal(), vec![Values { pointer: "/datastore", right, wrong }]).await;
}

async fn crd_and_controller_judge_urls_alike(turn: Turn) {
    let right = || {
        texts([
            "https://b.example.com",
            "https://b.example.com/",
            "https://b.example.com:8443/bundle",
            "https://b.example.com:1",
            "https://b.example.com:65535/",
            "https://b.example.com./",
            "https://b.example.com.:8443/",
            "https://xn--bcher-kva.example/",
            "https://192.0.2.1:443",
            "https://[2001:db8::1]:8443/",
            "https://b.example.com/a@b:c%20d",
            "HTTPS://b.example.com",
        ])
    };
    let wrong = || {
        texts([
            "",
            "b.example.com",
            "http://b.example.com",
            "https:b.example.com",
            "https:/b.example.com",
            "https://",
            "https:///x",
            "https://:8443/",
            "https://u@b.example.com/",
            "https://u:p@b.example.com/",
            "https://@b.example.com/",
            "https://b.example.com:/",
            "https://b.example.com:0/",
            "https://b.example.com:65536/",
            "https://b.example.com:99999999999999999999/",
            "https://b.example.com:https/",
            "https://b.example.com/#a",
            "https://b.example.com#a",
            "https://b_c.example.com/",
            "https://b..example.com/",
            "https://b.example.com../",
            "https://./",
            "https://-b.example.com/",
            "https://b example.com/",
            "https://b.example.com/%zz",
            "https://b.example.com/\n",
            "https://b\u{fc}cher.example/",
            "https://[::zz]/",
            "https://2001:db8::1/",
            "https://b.example.com\\@c.example.com/",
        ])
    };
    let query = || texts(["https://b.example.com/?a=b", "https://b.example.com?a=@"]);
    let issuer = Values {
        pointer: "/jwtIssuer",
        right: right(),
        wrong: wrong().into_iter().chain(query()).collect(),
    };
    judge(&turn, minimal(), vec![issuer]).await;
    let with_query = || right().into_iter().chain(query()).collect();
    let peer = |url: &Value| json!([{ "trustDomain": "b", "bundleEndpointUrl": url, "bundleEndpointProfile": "https_web" }]);
    let peers = |urls: Vec<Value>| urls.iter().map(peer).collect();
    let pointer = "/federation/federatesWith";
    let peers = Values { pointer, right: peers(with_query()), wrong: peers(wrong()) };
    let base = with(federated(), "/spec/federation/managedRoute", json!("true"));
    judge(&turn, base, vec![peers]).await;
    let acme = super::web(json!({ "acme": with(super::acme(), "/tosAccepted", json!("true")) }));
    let pointer = "/federation/bundleEndpoint/httpsWeb/acme/directoryUrl";
    judge(&turn, acme, vec![Values { pointer, right: with_query(), wrong: wrong() }]).await;
}

async fn crd_and_controller_judge_durations_alike(turn: Turn) {
    let of = |pointer, least, below, most, above| Values {
        pointer,
        right: texts([least, most, "10m", "24h", "1h30m", "24h0m0s", "600s", "1.5h", "0.5h0.125m"]),
        wrong: texts([
            below,
            above,
            "",
            "0s",
            "1us",
            "500ms",
            "3000000h",
            "999999h9999999m999999999s",
            "1d",
            "-1h",
            "+1h",
            "24",
            "h",
            "1h 30m",
            "30m1h",
            "1h1h",
            "1.h",
            ".5h",
            "1.2345h",
            "1e3h",
            "\u{661}h",
            "24h\n",
        ]),
    };
    let cases = vec![
        of("/caValidity", "10m", "9m59.999s", "87600h", "87600h0.001s"),
        of("/defaultX509Validity", "1m", "59.999s", "8760h", "8760h1s"),
        of("/defaultJWTValidity", "60s", "0.999m", "525600m", "525600.001m"),
    ];
    judge(&turn, minimal(), cases).await;
}

async fn crd_and_controller_judge_labels_alike(turn: Turn) {
    let keys =
        |keys: Vec<String>| -> Vec<Value> { keys.iter().map(|key| json!({ key: "a" })).collect() };
    let own = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
    let (name, domain) = ("n".repeat(63), [&*"d".repeat(63); 4].join(".")[..253].to_owned());
    let mut right = own(&["a", "a.b_c-d", "A1", "example.com/a", "kubernetes.io", "notk8s.io/a"]);
    right.extend([name.clone(), format!("{domain}/{name}")]);
    let mut wrong = own(&[
        "",
        "a b",
        "-a",
        "a-",
        "a/",
        "/a",
        "a/b/c",
        "Example.com/a",
        "a..b/c",
        "\u{fc}",
        "a\n",
    ]);
    wrong.extend([format!("{name}n"), format!("{domain}d/a")]);
    let reserved = [
        "kubernetes.io/a",
        "app.kubernetes.io/name",
        "k8s.io/a",
        "rbac.authorization.k8s.io/aggregate-to-view",
        "openshift.io/a",
        "config.openshift.io/inject-trusted-cabundle",
        "trustplane.dev/a",
        "a.trustplane.dev/b",
    ];
    let value = |value: &str| json!({ "a": value });
    let (values, no_values) = (["", "a", "a.b_c-d"], ["-a", "a b", "\u{fc}", "a\n"]);
    let labels = Values {
        pointer: "/labels",
        right: [keys(right.clone()), values.map(value).into()].concat(),
        wrong: [keys(wrong.clone()), keys(own(&reserved)), no_values.map(value).into()].concat(),
    };
    let nodes = Values {
        pointer: "/nodeSelector",
        right: [keys(right), keys(own(&reserved)), values.map(value).into()].concat(),
        wrong: [keys(wrong), no_values.map(value).into()].concat(),
    };
    judge(&turn, minimal(), vec![labels, nodes]).await;
}

async fn crd_and_controller_judge_profiles_alike(turn: Turn) {
    let peer = |profile: &str, id: Option<&str>| {
        let mut peer = json!({ "trustDomain": "b", "bundleEndpointUrl": "https://b", "bundleEndpointProfile": profile });
        if let Some(id) = id {
            peer["endpointSpiffeId"] = json!(id);
        }
        json!([peer])
    };
    let id = Some("spiffe://b/spire/server");
    let peers = Values {
        pointer: "/federation/federatesWith",
        right: vec![peer("https_spiffe", id), peer("https_web", None)],
        wrong: vec![peer("https_spiffe", None), peer("https_web", id)],
    };
    let endpoint = |profile: &str, web: Option<Value>| {
        let mut endpoint = json!({ "profile": profile, "refreshHint": 300 });
        if let Some(web) = web {
            endpoint["httpsWeb"] = web;
        }
        endpoint
    };
    let web = || Some(json!({ "servingCert": { "fileSyncInterval": 3600 } }));
    let endpoints = Values {
        pointer: "/federation/bundleEndpoint",
        right: vec![endpoint("https_spiffe", None), endpoint("https_web", web())],
        wrong: vec![
            endpoint("https_spiffe", web()),
            endpoint("https_spiffe", Some(json!({}))),
            endpoint("https_web", None),
            endpoint("https_web", Some(json!({}))),
        ],
    };
    judge(&turn, federated(), vec![peers, endpoints]).await;
}

async fn crd_and_controller_judge_amounts_alike(turn: Turn) {
    let long = "1".repeat(33);
    let cases = ["/resources/limits/memory", "/resources/requests/cpu"].map(|pointer| Values {
        pointer,
        right: texts(["1", "500m", "1.5Gi", "1e3", "1E-99", "1e99"]),
        wrong: texts(["1e2000000000", "1e-2000000000", "1E100", "1e", "half", "", &long]),
    });
    judge(&turn, minimal(), cases.into()).await;
}

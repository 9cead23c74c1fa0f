//! `trustplane review register`, `unregister`, `check` and `explain` as somebody runs them: the built program, and
//! API servers in this process, of which one is that of the cluster that trustplane review runs in.

mod stage;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use http::Method;
use serde_json::{Value, json};

use stage::{CONFIG, Cluster, Ran, Stage};

const CREDENTIAL: &str = "/api/v1/namespaces/trustplane/secrets/trustplane-review-cluster-b";
const ACCOUNT: &str = "/api/v1/namespaces/trustplane-review/serviceaccounts/trustplane-review";

/// What was done, by object.
fn steps(ran: &Ran) -> Vec<(String, String)> {
    let page = ran.json();
    let text = |step: &Value, field: &str| step[field].as_str().expect("a text").to_owned();
    let all = page["steps"].as_array().expect("steps").iter();
    all.map(|step| (text(step, "action"), text(step, "object"))).collect()
}

fn all_are(ran: &Ran, action: &str) -> bool {
    steps(ran).iter().all(|(done, _)| done == action)
}

#[tokio::test]
async fn registering_makes_an_account_a_token_and_an_entry_and_a_second_run_changes_nothing() {
    let stage = Stage::start().await;
    let register = stage.register();

    let before = stage.versions();
    let ran = stage.run(&[&register[..], &["--dry-run", "-o", "json"]].concat()).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(stage.versions(), before, "a dry run writes nothing");
    let planned = steps(&ran);

    let ran = stage.run(&[&register[..], &["-o", "json"]].concat()).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(steps(&ran), planned, "what was shown was done");
    assert_eq!(planned[0], ("create".to_owned(), "Namespace trustplane-review".to_owned()));
    assert_eq!(planned.last().unwrap().0, "change");

    // The token is that of the account, its own cluster takes it, and nobody saw it but the Secret.
    let token = stage.token();
    let (code, review) = stage.b.review(&token, &token);
    assert_eq!(code, 201, "{review}");
    let user = &review["status"]["user"]["username"];
    assert_eq!(user, "system:serviceaccount:trustplane-review:trustplane-review");
    assert!(!format!("{ran:?}{}", ran.err).contains(&token), "the token is shown");
    let elsewhere = stage.hub.seen().into_iter().filter(|it| it.contains(&token)).count();
    assert_eq!(elsewhere, 0, "the token was sent to another cluster");

    // Everything else in the configuration is as somebody wrote it.
    let text = stage.config();
    let (before, after) = CONFIG.split_once("# Callers.").unwrap();
    let entry =
        text.strip_prefix(before).and_then(|rest| rest.strip_suffix(&format!("# Callers.{after}")));
    let expected = format!(
        "  b:\n    issuer: \"https://kubernetes.default.svc\"\n    api_server: \"https://{}\"\n    \
         ca_cert: \"/etc/trustplane/clusters/b/ca.crt\"\n    token_path: \"/etc/trustplane/clusters/b/token\"\n",
        stage.b.address()
    );
    assert_eq!(entry.map(str::trim_end), Some(expected.trim_end()), "{text}");

    let before = stage.versions();
    let ran = stage.run(&[&register[..], &["-o", "json"]].concat()).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(all_are(&ran, "nothing"), "{ran:?}");
    assert_eq!(stage.versions(), before);
    let ran = stage.run(&register).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("unchanged  Namespace trustplane-review in b\n"), "{ran:?}");
}

#[tokio::test]
async fn whatever_is_amiss_is_put_right_by_another_run_and_nothing_else_is() {
    let stage = Stage::registered().await;
    let first = stage.token();
    // Somebody deleted the account, and the token went with it.
    stage.b.server.request(Method::DELETE, ACCOUNT, &Value::Null);
    let ran = stage.run(&[&stage.register()[..], &["-o", "json"]].concat()).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let changed: Vec<_> = steps(&ran).into_iter().filter(|(done, _)| done != "nothing").collect();
    let of = |done: &str, object: &str| (done.to_owned(), object.to_owned());
    assert_eq!(
        changed,
        [
            of("create", "ServiceAccount trustplane-review/trustplane-review"),
            of("create", "token of trustplane-review/trustplane-review"),
            of("change", "Secret trustplane/trustplane-review-cluster-b"),
        ]
    );
    let second = stage.token();
    assert_ne!(first, second);
    assert_eq!(stage.b.review(&second, &second).0, 201);
}

#[tokio::test]
async fn what_was_registered_is_taken_out_here_and_there_after_somebody_confirmed_it() {
    let stage = Stage::registered().await;
    let token = stage.token();
    let kubeconfig = stage.b.kubeconfig();
    let unregister = ["review", "unregister", "b", "--kubeconfig", kubeconfig];

    let before = stage.versions();
    let ran = stage.run(&unregister).await;
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("nobody can be asked. Add --yes"), "{}", ran.err);
    let ran = stage.run(&[&unregister[..], &["--dry-run"]].concat()).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("to remove  Namespace trustplane-review in b\n"), "{ran:?}");
    assert_eq!(stage.versions(), before);

    let ran = stage.run(&[&unregister[..], &["--yes", "-o", "json"]].concat()).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(stage.config(), CONFIG, "byte for byte as it was");
    assert_eq!(stage.hub.get(CREDENTIAL)["code"], 404);
    assert_eq!(stage.b.get(ACCOUNT)["code"], 404);
    assert_eq!(stage.b.review(&token, &token).0, 401, "the token is worth nothing any more");

    let ran = stage.run(&[&unregister[..], &["--yes", "-o", "json"]].concat()).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(all_are(&ran, "nothing"), "{ran:?}");
}

#[tokio::test]
async fn what_does_not_carry_our_label_stays_in_the_other_cluster() {
    let stage = Stage::registered().await;
    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/trustplane-review-remote";
    let patch = json!({ "metadata": { "labels": { "app.kubernetes.io/part-of": null } } });
    stage.b.server.request(Method::PATCH, role, &patch);
    let kubeconfig = stage.b.kubeconfig();
    let unregister = ["review", "unregister", "b", "--kubeconfig", kubeconfig, "--yes"];
    let ran = stage.run(&unregister).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("does not carry our label"), "{ran:?}");
    assert_eq!(stage.b.get(role)["kind"], "ClusterRole");
}

#[tokio::test]
async fn nothing_is_registered_where_it_would_do_harm() {
    let stage = Stage::start().await;
    let before = stage.versions();
    // The cluster that it runs in, under another name: their keys would be neither's.
    let itself = ["review", "register", "b", "--kubeconfig", stage.hub.kubeconfig()];
    let ran = stage.run(&itself).await;
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(
        ran.err.contains("nothing was changed") && ran.err.contains("the same one"),
        "{}",
        ran.err
    );
    // A name that means the local cluster.
    let local = ["review", "register", "local", "--kubeconfig", stage.b.kubeconfig()];
    let ran = stage.run(&local).await;
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("trustplane review runs in"), "{}", ran.err);
    // A configuration with faults, of which each is told.
    let map = "/api/v1/namespaces/trustplane/configmaps/trustplane-review-config";
    let (hub, faulty) = (&stage.hub.server, "clusters:\n  local: {}\n");
    hub.request(Method::PATCH, map, &json!({ "data": { "clusters.yaml": faulty } }));
    let ran = stage.run(&stage.register()).await;
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("the configuration has faults already: line 2,"), "{}", ran.err);
    assert_eq!(stage.versions().1, before.1, "nothing was done in the other cluster");
}

#[tokio::test]
async fn a_folder_does_instead_of_a_cluster_and_a_check_of_it_finds_all_in_order() {
    let stage = Stage::start().await;
    let folder = stage.folder.path().join("review");
    let out = folder.to_str().unwrap();
    let register = [&stage.register()[..], &["--out", out]].concat();
    let ran = stage.run(&register).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let [config, token] = ["clusters.yaml", "clusters/b/token"].map(|it| folder.join(it));
    let mode = fs::metadata(&token).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let token = fs::read_to_string(token).unwrap();

    let config = config.to_str().unwrap();
    let ran = stage.run(&["review", "check", config, "-o", "json"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let page = ran.json();
    assert_eq!(page["result"], "ok", "{page}");
    let checks = page["clusters"]["b"].as_array().unwrap();
    let names: Vec<_> = checks.iter().map(|it| it["check"].as_str().unwrap()).collect();
    assert_eq!(names, ["reach", "credential", "rights", "issuer", "keys"]);
    let ran = stage.run(&["review", "check", config]).await;
    assert!(ran.out.contains("\nb\nok      API server"), "{ran:?}");
    assert!(ran.out.ends_with("\nIn order.\n"), "{ran:?}");
    assert!(!format!("{}{}", ran.out, ran.err).contains(&token), "the token is shown");

    let unregister = ["review", "unregister", "b", "--out", out, "--yes"];
    let ran = stage.run(&unregister).await;
    assert_eq!(ran.code, 2, "it is the only one: {ran:?}");
    assert!(ran.err.contains("the only cluster"), "{}", ran.err);
}

#[tokio::test]
async fn a_check_tells_what_somebody_has_to_put_right_apart_from_what_could_not_be_asked() {
    let stage = Stage::start().await;
    let folder = stage.folder.path().join("review");
    let out = folder.to_str().unwrap();
    stage.run(&[&stage.register()[..], &["--out", out]].concat()).await;
    let path = folder.join("clusters.yaml");
    let config = path.to_str().unwrap();
    let good = fs::read_to_string(&path).unwrap();
    let check = async |text: &str| {
        fs::write(&path, text).unwrap();
        let ran = stage.run(&["review", "check", config, "-o", "json"]).await;
        let lines = ran.json()["clusters"]["b"].clone();
        let wrong = lines.as_array().into_iter().flatten().filter(|it| it["result"] != "ok");
        let wrong: Vec<_> = wrong.map(|it| (it["check"].clone(), it["result"].clone())).collect();
        (ran.code, wrong)
    };
    let one = |check: &str, result: &str| vec![(json!(check), json!(result))];

    let other = good.replace("kubernetes.default.svc", "elsewhere.test");
    assert_eq!(check(&other).await, (1, one("issuer", "act")));
    // A port that nobody listens on.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = closed.local_addr().unwrap().to_string();
    drop(closed);
    let away = good.replace(&stage.b.address(), &address);
    assert_eq!(check(&away).await, (2, one("reach", "not-asked")));
    // The CA of another cluster.
    let ca = folder.join("clusters/b/ca.crt");
    let right = fs::read_to_string(&ca).unwrap();
    fs::write(&ca, stage.hub.ca()).unwrap();
    assert_eq!(check(&good).await, (1, one("reach", "act")));
    fs::write(&ca, right).unwrap();
    stage.b.deny("tokenreviews");
    assert_eq!(check(&good).await, (1, one("rights", "act")));
    stage.b.deny("");
    assert_eq!(check(&good).await, (0, vec![]));
    stage.b.server.request(Method::DELETE, ACCOUNT, &Value::Null);
    assert_eq!(check(&good).await, (1, one("credential", "act")));
    assert_eq!(check("clusters: {a: {issuer: ''}}").await.0, 1);
    fs::remove_file(&path).unwrap();
    let ran = stage.run(&["review", "check", config]).await;
    assert_eq!(ran.code, 2, "{ran:?}");
}

#[tokio::test]
async fn a_check_names_the_keys_that_two_clusters_publish() {
    let stage = Stage::start().await;
    let thief = Cluster::start().await;
    let folder = stage.folder.path().join("review");
    let out = folder.to_str().unwrap();
    stage.run(&[&stage.register()[..], &["--out", out]].concat()).await;
    let other = ["review", "register", "thief", "--kubeconfig", thief.kubeconfig(), "--out", out];
    let ran = stage.run(&other).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let keys = stage.b.get("/openid/v1/jwks")["keys"].as_array().unwrap().clone();
    thief.server.publish_copied_keys(keys);
    let config = folder.join("clusters.yaml");
    let ran = stage.run(&["review", "check", config.to_str().unwrap(), "-o", "json"]).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    let page = ran.json();
    let shared = page["lines"].as_array().unwrap().iter().find(|it| it["check"] == "shared-keys");
    let found = shared.expect("a line")["found"].as_str().unwrap().to_owned();
    assert!(found.contains("is published by b, thief, so it is nobody's"), "{found}");
}

#[tokio::test]
async fn a_token_is_explained_and_sent_to_nobody() {
    let stage = Stage::start().await;
    let folder = stage.folder.path().join("review");
    let out = folder.to_str().unwrap();
    stage.run(&[&stage.register()[..], &["--out", out]].concat()).await;
    let config = folder.join("clusters.yaml");
    let config = ["--config", config.to_str().unwrap()];
    let token = stage.b.token_of("default", "cart");
    let file = stage.folder.path().join("token");
    fs::write(&file, format!("{token}\n")).unwrap();
    let file = file.to_str().unwrap();
    let explain = ["review", "explain", file];

    for cluster in [&stage.hub, &stage.b] {
        cluster.forget();
    }
    let ran = stage.run(&[&explain[..], &config].concat()).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("account      system:serviceaccount:default:cart"), "{ran:?}");
    assert!(ran.out.contains("It is a token of b."), "{ran:?}");
    let signature = token.rsplit('.').next().unwrap();
    for said in [&ran.out, &ran.err] {
        assert!(!said.contains(signature) && !said.contains(&token[..40]), "the token is shown");
    }
    let seen = [stage.hub.seen(), stage.b.seen()].concat();
    assert!(!seen.is_empty() && seen.iter().all(|it| !it.contains(&token)), "the token was sent");
    let asked: Vec<_> = stage.b.paths().into_iter().filter(|it| it != "/openid/v1/jwks").collect();
    assert_eq!(asked, [""; 0], "only keys are fetched");

    // The same without any connection, and from the standard input.
    let keys = stage.folder.path().join("keys");
    fs::create_dir(&keys).unwrap();
    fs::write(keys.join("b.json"), stage.b.get("/openid/v1/jwks").to_string()).unwrap();
    let offline = ["--keys", keys.to_str().unwrap(), "-o", "json"];
    stage.b.forget();
    let explain = [&["review", "explain"][..], &config, &offline].concat();
    let ran = stage.run_with(&explain, &token).await;
    assert_eq!((ran.code, &ran.json()["result"]), (0, &json!("of")), "{ran:?}");
    assert_eq!(ran.json()["cluster"], "b");
    assert_eq!(stage.b.paths(), [""; 0]);

    // One that nobody's key signed, and one whose cluster's keys are not known.
    let forged = Cluster::start().await.token_of("default", "cart");
    let ran = stage.run_with(&explain, &forged).await;
    assert_eq!((ran.code, &ran.json()["result"]), (1, &json!("refused")), "{ran:?}");
    fs::remove_file(keys.join("b.json")).unwrap();
    let ran = stage.run_with(&explain, &token).await;
    assert_eq!((ran.code, &ran.json()["result"]), (2, &json!("undecided")), "{ran:?}");
    let ran = stage.run_with(&explain, "opaque").await;
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(!ran.out.contains("opaque"), "{ran:?}");
}

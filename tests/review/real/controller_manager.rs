//! kube-controller-manager, which asks us who reads its metrics, and its own cluster whether they may.

use http::Request;
use serde_json::json;
use testkit::{
    Access, eventually, free_port,
    review::{Member, ask},
    suite,
    tied::{self, Tied},
    toolbox,
};

use super::stage::{SOON, Stage, until_allowed};

/// As anybody who delegates authentication to us and authorization to their own cluster.
fn start(stage: &Stage) -> (Tied, Access) {
    let d = &stage.d;
    let port = free_port().expect("a free port");
    let serving = d.ca().issue("127.0.0.1");
    let file = |name: &str, content: &str| d.file(name, content).display().to_string();
    let ours = d.kubeconfig(&stage.product.address.access(&stage.caller));
    let own = d.kubeconfig(d.admin()).display().to_string();
    let log = suite::subfolder("controller-manager").join("kube-controller-manager.log");
    let program = toolbox().expect("the stage runs").join("kube-controller-manager");
    let mut command = tied::command(&program, &log, None);
    command.args([
        format!("--kubeconfig={own}"),
        format!("--authentication-kubeconfig={}", ours.display()),
        format!("--authorization-kubeconfig={own}"),
        "--authentication-skip-lookup=true".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        format!("--tls-cert-file={}", file("tls.crt", &serving.certificate)),
        format!("--tls-private-key-file={}", file("tls.key", &serving.key)),
        "--controllers=namespace-controller".to_owned(),
        "--leader-elect=false".to_owned(),
    ]);
    let url = format!("https://127.0.0.1:{port}");
    let access = Access { url, authority: d.ca().root(), token: String::new() };
    (Tied::spawn(command).expect("kube-controller-manager starts"), access)
}

async fn code(server: &Access, path: &str, token: &str) -> kube::Result<u16> {
    let request = Request::get(path).body(Vec::new()).expect("a request");
    Ok(ask(&server.with_token(token.to_owned()), request).await?.code)
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_of_kube_controller_manager_are_for_the_one_account_that_may_read_them() {
    let stage = Stage::get().await;
    let role = ["create", "clusterrole", "metrics", "--verb=get", "--non-resource-url=/metrics"];
    stage.d.kubectl(&role).await.expect("the role is accepted");
    let user = "b:system:serviceaccount:monitoring:scraper";
    let of_user = format!("--user={user}");
    let bind = ["create", "clusterrolebinding", "metrics", "--clusterrole=metrics", &of_user];
    stage.d.kubectl(&bind).await.expect("the binding is accepted");
    let attributes = json!({ "nonResourceAttributes": { "path": "/metrics", "verb": "get" } });
    until_allowed(&stage.d, user, &attributes).await;
    let (_process, server) = start(stage);
    eventually(SOON, "kube-controller-manager serves", async || {
        match code(&server, "/healthz", "").await {
            Ok(200) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    let token = async |member: &Member, name: &str| {
        let account = member.account("monitoring", name).await;
        member.token(&account).await
    };
    let (scraper, other) = (token(&stage.b, "scraper").await, token(&stage.b, "other").await);
    // Of the same name, elsewhere.
    let of_c = token(&stage.c, "scraper").await;
    let forged = format!("{}x", scraper);
    for (token, expected) in [(&scraper, 200), (&other, 403), (&of_c, 403), (&forged, 401)] {
        assert_eq!(code(&server, "/metrics", token).await.expect("an answer"), expected);
    }
}

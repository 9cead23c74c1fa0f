//! The ways to delete a SpireServer by editing it: an owner that does not exist, or a finalizer.

use serde_json::{Value, json};

use super::{PATIENCE, grant};
use testkit::{
    eventually,
    stage::{self, Stage},
};

fn owners() -> Value {
    json!({ "ownerReferences": [{
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": "no-such-role",
        "uid": "11111111-2222-3333-4444-555555555555",
    }] })
}

#[tokio::test]
async fn who_may_not_delete_a_spire_server_sets_neither_owners_nor_finalizers() {
    let stage = Stage::start("federation-edit-deletion").await;
    grant(&stage).await;
    for command in [
        "create clusterrole spire-deleter --verb=delete --resource=spireservers",
        "create clusterrolebinding spire-deleter --clusterrole=spire-deleter --user=operator",
    ] {
        let words: Vec<_> = command.split_whitespace().collect();
        stage.cluster.kubectl(&words).await.expect("a right is granted");
    }
    stage.create(stage::spiffe()).await;
    let collector = "system:serviceaccount:kube-system:generic-garbage-collector";
    let change = async |who: &str, metadata: &Value| {
        let patch = json!({ "metadata": metadata }).to_string();
        let who = format!("--as={who}");
        let words = ["patch", "spireserver", "cluster", "--type=merge", "--dry-run=server", "-p"];
        stage.cluster.kubectl(&[&[&*who], &words[..], &[&patch]].concat()).await
    };
    let refused = async |metadata: Value| {
        let words = "editor may not delete SpireServer \"cluster\"";
        eventually(PATIENCE, words, async || match change("editor", &metadata).await {
            Err(why) if why.contains(words) => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await;
        for who in ["operator", collector] {
            let what = format!("{who} may set {metadata}");
            eventually(PATIENCE, &what, async || change(who, &metadata).await.map(drop)).await;
        }
    };
    let finalizers = json!({ "finalizers": ["example.com/hold"] });
    refused(owners()).await;
    refused(finalizers.clone()).await;

    // Unchanged values need no right.
    stage.change(json!({ "metadata": owners() })).await;
    stage.change(json!({ "metadata": finalizers })).await;
    let labelled = json!({ "labels": { "team": "a" } });
    change("editor", &labelled).await.expect("an editor may label it");
    refused(json!({ "ownerReferences": null })).await;
    refused(json!({ "finalizers": null })).await;

    // The collector itself, by the rights that Kubernetes gives it.
    stage.change(json!({ "metadata": { "finalizers": null } })).await;
    let _collector = stage.collector();
    let gone = ["wait", "--for=delete", "spireserver/cluster", "--timeout=60s"];
    stage.cluster.kubectl(&gone).await.expect("the owner is gone, and so it goes");
}

//! The same policy where the SpireServer is new: there is no old object to compare with.

use kube::{Api, api::DynamicObject, api::PostParams};
use serde_json::{Value, json};

use super::{Answer, Base, Needs, PATIENCE, Row, Who, answer, base, grant, grant_halves, rows};
use crate::hostile_database::both;
use testkit::{
    eventually,
    stage::{self, Stage},
    suite,
};

/// Tries to create a SpireServer that has the field of a row from the beginning.
async fn attempt(api: &Api<DynamicObject>, row: &Row) -> Answer {
    let object = both(base(row.base), json!({ "spec": row.spec }));
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    answer(api.create(&dry, &serde_json::from_value(object).expect("an object")).await)
}

#[tokio::test]
async fn a_new_spire_server_needs_the_same_rights_for_a_field_as_a_changed_one() {
    let stage = Stage::start("federation-create-rights").await;
    grant(&stage).await;
    let rows: Vec<_> = rows().into_iter().filter(|row| row.needs != Needs::Nothing).collect();
    assert!(rows.iter().any(|row| row.base == Base::Acme), "hosts are among them");
    for who in Who::ALL {
        let api = who.api(&stage).await;
        for row in &rows {
            let what = format!("{} by {who:?}", row.field);
            // Rights and policies count a moment after they were made.
            eventually(PATIENCE, &what, async || {
                match (attempt(&api, row).await, row.needs.are_met_by(who)) {
                    (Ok(_), true) => Ok(()),
                    (Err((403, why)), false) if why.contains("trustplane-federation-endpoint") => {
                        Ok(())
                    }
                    (answer, _) => Err(format!("{answer:?}")),
                }
            })
            .await;
        }
    }
}

#[tokio::test]
async fn the_database_of_a_new_server_is_for_those_who_could_make_the_server_by_hand() {
    let stage = Stage::start("federation-create-database").await;
    grant(&stage).await;
    grant_halves(&stage).await;
    let create = async |who: &str, datastore: &Value| {
        let mut server = stage::server(stage::spiffe());
        if !datastore.is_null() {
            server["spec"]["datastore"] = datastore.clone();
        }
        let file = stage.cluster.scratch().join(format!("{}.json", suite::next_number()));
        suite::write_private(&file, &server.to_string());
        let (file, who) = (file.display().to_string(), format!("--as={who}"));
        stage.cluster.kubectl(&["create", "--dry-run=server", "-f", &file, &who]).await
    };
    let allowed = async |who: &str, datastore: Value| {
        let what = format!("{who} may create one with {datastore}");
        eventually(PATIENCE, &what, async || create(who, &datastore).await.map(drop)).await;
    };
    let told = async |who: &str, datastore: Value, words: &str| {
        eventually(PATIENCE, words, async || match create(who, &datastore).await {
            Err(why) if why.contains(words) => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await;
    };
    let whole = || json!({ "databaseType": "postgres", "connectionString": "host=db" });
    let file = || json!({ "connectionString": "/run/spire/data/other.sqlite3" });
    let named = |name: &str| json!({ "tlsSecretName": name });
    for datastore in [whole(), file(), named("own-tls")] {
        told("editor", datastore.clone(), "editor may not update ConfigMap spire-server").await;
        told("half", datastore.clone(), "half may not update StatefulSet spire-server").await;
        allowed("owner", datastore).await;
    }
    told("owner", named("others-tls"), "owner may not get Secret \"others-tls\"").await;
    for who in ["editor", "half", "owner"] {
        allowed(who, Value::Null).await;
        allowed(who, json!({})).await;
    }
}

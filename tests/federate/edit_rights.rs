//! What the right to edit a SpireServer is worth, field by field: a matrix of people and fields, on the
//! real API server with the policy of deploy/federate in force.
//!
//! The fields come from the CRD, so that a new one needs a row here and one in docs/security.md.

mod creation;
mod deletion;

use std::{collections::BTreeSet, time::Duration};

use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use testkit::{
    eventually,
    stage::{self, NAMESPACE, Stage},
};
use trustplane::{
    api::spire_server::SpireServer,
    federate::decide::render::{Component, SERVING_CERT},
};

use crate::rendered::objects;

const PATIENCE: Duration = Duration::from_secs(30);
const CRD: &str = include_str!("../../crds/federate/operator.openshift.io_spireservers.yaml");
const MANUAL: &str = include_str!("../../docs/security.md");

/// People who may edit the SpireServer, by what they may do besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    Editor,
    /// May get all Secrets of the server's namespace.
    Reader,
    /// And update the server's ConfigMap and StatefulSet.
    Operator,
    ClusterAdmin,
}

impl Who {
    const ALL: [Self; 4] = [Self::Editor, Self::Reader, Self::Operator, Self::ClusterAdmin];

    fn name(self) -> &'static str {
        match self {
            Self::Editor => "editor",
            Self::Reader => "reader",
            Self::Operator => "operator",
            Self::ClusterAdmin => "root",
        }
    }

    /// Asks as them.
    async fn api(self, stage: &Stage) -> Api<DynamicObject> {
        let mut config = stage.cluster.admin_access().config().await.expect("a configuration");
        config.auth_info.impersonate = Some(self.name().to_owned());
        if self == Self::ClusterAdmin {
            config.auth_info.impersonate_groups = Some(vec!["system:masters".to_owned()]);
        }
        let client = Client::try_from(config).expect("a client");
        stage::spire_servers(client)
    }
}

/// What it takes to set a field, besides the right to edit. In the words of docs/security.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    Nothing,
    Host,
    SecretAndHost,
    Objects,
    SecretAndObjects,
}

impl Needs {
    fn words(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Host => "`create` `routes/custom-host`",
            Self::SecretAndHost => "`get` that Secret, `create` `routes/custom-host`",
            Self::Objects => "`update` ConfigMap and StatefulSet `spire-server`",
            Self::SecretAndObjects => {
                "`get` that Secret, `update` ConfigMap and StatefulSet `spire-server`"
            }
        }
    }

    fn are_met_by(self, who: Who) -> bool {
        match self {
            Self::Nothing => true,
            Self::Host | Self::SecretAndHost => who == Who::ClusterAdmin,
            Self::Objects | Self::SecretAndObjects => who >= Who::Operator,
        }
    }
}

/// The value when the field is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Base {
    /// Nothing: the field is for good, or comes with the object.
    None,
    /// A server whose endpoint proves itself, with a peer.
    Spiffe,
    Acme,
    ServingCert,
}

struct Row {
    field: &'static str,
    needs: Needs,
    base: Base,
    /// The spec, or the change to it, that sets the field and no other that needs a right.
    spec: Value,
}

fn row(field: &'static str, needs: Needs, base: Base, spec: Value) -> Row {
    Row { field, needs, base, spec }
}

/// A change of one field, such as `federation.routeHost`.
fn set(path: &str, value: Value) -> Value {
    path.rsplit('.').fold(value, |inner, name| json!({ name: inner }))
}

fn rows() -> Vec<Row> {
    use {Base::*, Needs::*};
    let free = |field: &'static str, value: Value| row(field, Nothing, Spiffe, set(field, value));
    let at_creation =
        |field: &'static str, value: Value| row(field, Nothing, None, set(field, value));
    let database =
        |field: &'static str, value: Value| row(field, Objects, Spiffe, set(field, value));
    let peer = |field: &'static str, name: &str, value: Value| {
        let mut peer = peer();
        peer[name] = value;
        row(field, Nothing, Spiffe, json!({ "federation": { "federatesWith": [peer] } }))
    };
    let acme =
        |field: &'static str, needs, value: Value| row(field, needs, Acme, set(field, value));
    let cert = |field: &'static str, needs, value: Value| {
        row(field, needs, ServingCert, set(field, value))
    };
    let by_web = json!({ "trustDomain": "b", "bundleEndpointUrl": "https://b", "bundleEndpointProfile": "https_web" });
    vec![
        at_creation("trustDomain", json!("other.example.com")),
        at_creation("clusterName", json!("other")),
        free("logLevel", json!("debug")),
        free("logFormat", json!("json")),
        free("jwtIssuer", json!("https://other.example.com")),
        free("caValidity", json!("87600h")),
        free("defaultX509Validity", json!("8760h")),
        free("defaultJWTValidity", json!("8760h")),
        free("caKeyType", json!("ec-p256")),
        free("jwtKeyType", json!("ec-p384")),
        free("caSubject.country", json!("DE")),
        free("caSubject.organization", json!("{{ .Files }} $HOME /etc/passwd")),
        free("caSubject.commonName", json!("a\"b\\c\n")),
        at_creation("persistence.size", json!("2Gi")),
        at_creation("persistence.accessMode", json!("ReadWriteMany")),
        at_creation("persistence.storageClass", json!("fast")),
        row(
            "datastore.databaseType",
            Objects,
            Spiffe,
            json!({ "datastore": { "databaseType": "postgres", "connectionString": "host=db" } }),
        ),
        database("datastore.connectionString", json!("/run/spire/data/other.sqlite3")),
        row(
            "datastore.tlsSecretName",
            SecretAndObjects,
            Spiffe,
            set("datastore.tlsSecretName", json!("others-tls")),
        ),
        database("datastore.maxOpenConns", json!(2)),
        database("datastore.maxIdleConns", json!(1)),
        database("datastore.connMaxLifetime", json!(1)),
        database("datastore.disableMigration", json!("true")),
        row(
            "federation.bundleEndpoint.profile",
            Nothing,
            None,
            json!({ "federation": { "bundleEndpoint": { "profile": "https_web", "httpsWeb": { "servingCert": {} } } } }),
        ),
        free("federation.bundleEndpoint.refreshHint", json!(3600)),
        acme(
            "federation.bundleEndpoint.httpsWeb.acme.directoryUrl",
            Nothing,
            json!("https://other.example.com/dir"),
        ),
        acme("federation.bundleEndpoint.httpsWeb.acme.domainName", Host, json!("bank.example.com")),
        acme("federation.bundleEndpoint.httpsWeb.acme.email", Nothing, json!("me@example.com")),
        acme("federation.bundleEndpoint.httpsWeb.acme.tosAccepted", Nothing, json!("true")),
        cert(
            "federation.bundleEndpoint.httpsWeb.servingCert.fileSyncInterval",
            Nothing,
            json!(3600),
        ),
        cert(
            "federation.bundleEndpoint.httpsWeb.servingCert.externalSecretRef",
            SecretAndHost,
            json!("others-tls"),
        ),
        peer("federation.federatesWith[].trustDomain", "trustDomain", json!("other")),
        peer(
            "federation.federatesWith[].bundleEndpointUrl",
            "bundleEndpointUrl",
            json!("https://169.254.169.254/"),
        ),
        row(
            "federation.federatesWith[].bundleEndpointProfile",
            Nothing,
            Spiffe,
            json!({ "federation": { "federatesWith": [by_web] } }),
        ),
        peer(
            "federation.federatesWith[].endpointSpiffeId",
            "endpointSpiffeId",
            json!("spiffe://b/other"),
        ),
        free("federation.managedRoute", json!("false")),
        row(
            "federation.routeHost",
            Host,
            Spiffe,
            set("federation.routeHost", json!("bank.example.com")),
        ),
        free("labels", json!({ "team": "theirs", "example.com/a": "b" })),
        free(
            "resources",
            json!({ "limits": { "cpu": "1" }, "requests": { "memory": "1Gi" }, "claims": [{ "name": "a" }] }),
        ),
        free(
            "affinity",
            json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [{ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["mine"] }] }] } } }),
        ),
        free("tolerations", json!([{ "operator": "Exists" }])),
        free("nodeSelector", json!({ "kubernetes.io/hostname": "mine" })),
    ]
}

fn peer() -> Value {
    json!({
        "trustDomain": "b", "bundleEndpointUrl": "https://b",
        "bundleEndpointProfile": "https_spiffe", "endpointSpiffeId": "spiffe://b/spire/server",
    })
}

/// Those of a Pod, or of whatever name: they are one field each.
const WHOLE: [&str; 5] = ["labels", "resources", "affinity", "tolerations", "nodeSelector"];

/// Every field of the spec that holds a value, as the CRD has it.
fn fields() -> BTreeSet<String> {
    fn walk(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
        let properties = schema["properties"].as_object().filter(|_| !WHOLE.contains(&path));
        match (properties, schema.get("items").filter(|_| !WHOLE.contains(&path))) {
            (Some(properties), _) => properties.iter().for_each(|(name, schema)| {
                walk(schema, format!("{path}.{name}").trim_start_matches('.'), found);
            }),
            (None, Some(items)) => walk(items, &format!("{path}[]"), found),
            (None, None) => drop(found.insert(path.to_owned())),
        }
    }
    let crd: Value = serde_saphyr::from_str(CRD).expect("YAML");
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let mut found = BTreeSet::new();
    walk(schema, "", &mut found);
    found
}

/// Field and needs of every row of the manual's table.
fn manual() -> Vec<(String, String)> {
    let table = MANUAL.split("| field of the spec |").nth(1).expect("the table");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    rows.map(|line| (cells(line)[0].trim_matches('`').to_owned(), cells(line)[2].clone())).collect()
}

#[test]
fn every_field_of_the_spec_is_in_the_table_of_the_manual_with_the_rights_that_it_needs() {
    let rows = rows();
    let listed: BTreeSet<String> = rows.iter().map(|row| row.field.to_owned()).collect();
    assert_eq!(listed, fields(), "a row for each field of the CRD, here");
    let ours: Vec<_> =
        rows.iter().map(|row| (row.field.to_owned(), row.needs.words().to_owned())).collect();
    assert_eq!(manual(), ours, "and in docs/security.md");
}

fn base(base: Base) -> Value {
    let acme = json!({ "directoryUrl": "https://acme.test/dir", "domainName": "a.test", "email": "admin@a.test" });
    let web = |web: Value| json!({ "bundleEndpoint": { "profile": "https_web", "httpsWeb": web } });
    stage::server(match base {
        Base::None => Value::Null,
        Base::Spiffe => {
            json!({ "bundleEndpoint": { "profile": "https_spiffe" }, "federatesWith": [peer()] })
        }
        Base::Acme => web(json!({ "acme": acme })),
        Base::ServingCert => web(json!({ "servingCert": {} })),
    })
}

type Answer = Result<Value, (u16, String)>;

fn answer(outcome: kube::Result<DynamicObject>) -> Answer {
    match outcome {
        Ok(object) => Ok(json!(object)),
        Err(kube::Error::Api(status)) => Err((status.code, status.message)),
        Err(error) => panic!("no answer: {error}"),
    }
}

/// Tries, and changes nothing.
async fn attempt(api: &Api<DynamicObject>, row: &Row) -> Answer {
    if row.base == Base::None {
        let mut object = base(Base::None);
        for (name, value) in row.spec.as_object().expect("fields") {
            object["spec"][name] = value.clone();
        }
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        return answer(api.create(&dry, &serde_json::from_value(object).expect("an object")).await);
    }
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    let patch = Patch::Merge(json!({ "spec": row.spec }));
    answer(api.patch("cluster", &dry, &patch).await)
}

/// Of all that is made of a SpireServer: what reads, runs or is allowed.
#[derive(Debug, PartialEq)]
struct Reach {
    rights: Vec<Value>,
    runs: Vec<Value>,
    volumes: BTreeSet<String>,
    secrets: BTreeSet<String>,
    files: BTreeSet<String>,
    route: Value,
}

impl Reach {
    fn of(object: &Value) -> Self {
        let server: SpireServer = serde_json::from_value(object.clone()).expect("a SpireServer");
        let objects = objects(&server);
        let of = |part| objects.get(&part).cloned().unwrap_or_default();
        let rights = [
            Component::ServiceAccount,
            Component::ClusterRole,
            Component::ClusterRoleBinding,
            Component::Role,
            Component::RoleBinding,
        ];
        // The owner is the SpireServer, which has another uid each time.
        let rights = rights.map(|part| {
            let mut object = of(part);
            object["metadata"]["ownerReferences"] = Value::Null;
            object
        });
        let pod = of(Component::StatefulSet)["spec"]["template"]["spec"].clone();
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        // Where it runs, and with how much, is for the editor to say. Ports and mounts follow the profile.
        let mut rest = pod.clone();
        for name in ["affinity", "tolerations", "nodeSelector", "volumes", "containers"] {
            rest.as_object_mut().expect("a Pod").remove(name);
        }
        let mut runs = vec![rest];
        for mut container in list(&pod["containers"]) {
            for name in ["resources", "ports", "volumeMounts"] {
                container.as_object_mut().expect("a container").remove(name);
            }
            runs.push(container);
        }
        let volumes = list(&pod["volumes"]).into_iter();
        let (secrets, volumes): (Vec<_>, Vec<_>) =
            volumes.partition(|volume| volume["secret"]["secretName"].is_string());
        let secret =
            |it: &Value| it["secret"]["secretName"].as_str().unwrap_or_default().to_owned();
        let conf =
            of(Component::ServerConfigMap)["data"]["server.conf"].as_str().unwrap_or("").to_owned();
        let mut files = BTreeSet::new();
        paths(&serde_json::from_str(&conf).expect("JSON"), &mut files);
        Self {
            rights: rights.into(),
            runs,
            volumes: volumes.iter().map(ToString::to_string).collect(),
            secrets: secrets.iter().map(secret).collect(),
            files,
            route: of(Component::Route)["metadata"]["annotations"].clone(),
        }
    }
}

/// Texts that the server may take for files.
fn paths(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::String(text) if text.starts_with('/') && text != "/live" && text != "/ready" => {
            found.insert(text.clone());
        }
        Value::Array(values) => values.iter().for_each(|value| paths(value, found)),
        Value::Object(fields) => fields.values().for_each(|value| paths(value, found)),
        _ => {}
    }
}

async fn grant(stage: &Stage) {
    for command in [
        "create clusterrole spire-editor --verb=get,create,patch,update --resource=spireservers",
        "create clusterrolebinding spire-editor --clusterrole=spire-editor --user=editor --user=reader --user=operator",
        "create role -n spire reader --verb=get --resource=secrets",
        "create rolebinding -n spire reader --role=reader --user=reader --user=operator",
        "create role -n spire configmap --verb=update --resource=configmaps --resource-name=spire-server",
        "create rolebinding -n spire configmap --role=configmap --user=operator --user=half",
        "create role -n spire set --verb=update --resource=statefulsets.apps --resource-name=spire-server",
        "create rolebinding -n spire set --role=set --user=operator",
    ] {
        let words: Vec<_> = command.split_whitespace().collect();
        stage.cluster.kubectl(&words).await.expect("a right is granted");
    }
}

#[tokio::test]
async fn the_right_to_edit_a_spire_server_reads_no_secret_or_file_runs_nothing_and_widens_no_right()
{
    assert_eq!(NAMESPACE, "spire");
    let stage = Stage::start("federation-edit-rights").await;
    grant(&stage).await;
    let mut apis = Vec::new();
    for who in Who::ALL {
        apis.push((who, who.api(&stage).await));
    }
    let (rows, admin) = (rows(), &apis[3].1);
    let (mut wrong, mut asked) = (Vec::new(), 0);
    for standing in [Base::None, Base::Spiffe, Base::Acme, Base::ServingCert] {
        let object = serde_json::from_value(base(standing)).expect("an object");
        let dry = PostParams { dry_run: standing == Base::None, ..PostParams::default() };
        let made = json!(admin.create(&dry, &object).await.expect("the base is accepted"));
        in_force(&apis, standing).await;
        let before = Reach::of(&made);
        for row in rows.iter().filter(|row| row.base == standing) {
            let mut line = format!("{:<66}", row.field);
            for (who, api) in &apis {
                let answer = attempt(api, row).await;
                asked += 1;
                line.push_str(if answer.is_ok() { "  yes" } else { "   no" });
                match (answer, row.needs.are_met_by(*who)) {
                    (Ok(after), true) if row.needs == Needs::Nothing => {
                        wrong.extend(climbed(row, &before, &Reach::of(&after)));
                    }
                    (Ok(_), true) => {}
                    (Err((403, why)), false)
                        if why.contains(&format!("{} may not", who.name())) => {}
                    (Err((403, why)), false)
                        if why.contains("may neither") || why.contains("but may not") => {}
                    (answer, _) => wrong.push(format!("{} by {who:?}: {answer:?}", row.field)),
                }
            }
            println!("{line}");
        }
        if standing != Base::None {
            admin.delete("cluster", &Default::default()).await.expect("it can be deleted");
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(asked, 4 * rows.len());
}

/// Rights and policies count a moment after they were made.
async fn in_force(apis: &[(Who, Api<DynamicObject>)], standing: Base) {
    let rows = rows();
    let of = |field: &str| rows.iter().find(|row| row.field == field).expect("a row");
    let (free, guarded) = match standing {
        Base::None => (of("clusterName"), None),
        Base::Spiffe => (of("logLevel"), Some(of("datastore.tlsSecretName"))),
        Base::Acme | Base::ServingCert => return,
    };
    eventually(PATIENCE, "rights and policy are in force", async || {
        for (_, api) in apis {
            attempt(api, free).await.map_err(|(_, why)| why)?;
        }
        let Some(guarded) = guarded else { return Ok(()) };
        match (attempt(&apis[0].1, guarded).await, attempt(&apis[2].1, guarded).await) {
            (Err((403, _)), Ok(_)) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

/// What a field reached that it must not reach by itself.
fn climbed(row: &Row, before: &Reach, after: &Reach) -> Vec<String> {
    let mut found = Vec::new();
    let mut same = |what: &str, same: bool, shown: String| {
        if !same {
            found.push(format!("{} changes {what}: {shown}", row.field));
        }
    };
    same("rights", before.rights == after.rights, format!("{:?}", after.rights));
    same("what runs", before.runs == after.runs, format!("{:?}", after.runs));
    same("volumes", before.volumes == after.volumes, format!("{:?}", after.volumes));
    let route = after.route.is_null() || after.route == before.route;
    same("the Secret of the Route", route, after.route.to_string());
    // The one that the cluster itself fills for the server's Service.
    let own = BTreeSet::from([SERVING_CERT.to_owned()]);
    let secrets: BTreeSet<_> = after.secrets.difference(&before.secrets).cloned().collect();
    same("Secrets", secrets.is_subset(&own), format!("{secrets:?}"));
    let fixed = |path: &String| path.starts_with("/run/spire/server-tls/");
    let files: Vec<_> = after.files.difference(&before.files).filter(|path| !fixed(path)).collect();
    same("files", files.is_empty(), format!("{files:?}"));
    found
}

/// `half` may change the ConfigMap alone, `owner` all that the database needs but other Secrets.
async fn grant_halves(stage: &Stage) {
    for command in [
        "create clusterrolebinding half-editor --clusterrole=spire-editor --user=half",
        "create role -n spire own --verb=get --resource=secrets --resource-name=own-tls",
        "create rolebinding -n spire own --role=own --user=owner",
        "create rolebinding -n spire owner-configmap --role=configmap --user=owner",
        "create rolebinding -n spire owner-set --role=set --user=owner",
        "create clusterrolebinding owner-editor --clusterrole=spire-editor --user=owner",
    ] {
        let words: Vec<_> = command.split_whitespace().collect();
        stage.cluster.kubectl(&words).await.expect("a right is granted");
    }
}

#[tokio::test]
async fn the_database_of_the_server_is_for_those_who_could_change_the_server_by_hand() {
    let stage = Stage::start("federation-edit-database").await;
    grant(&stage).await;
    grant_halves(&stage).await;
    stage.create(stage::spiffe()).await;
    let change = async |who: &str, datastore: Value| {
        let patch = json!({ "spec": { "datastore": datastore } }).to_string();
        let who = format!("--as={who}");
        let words = ["patch", "spireserver", "cluster", "--type=merge", "--dry-run=server", "-p"];
        stage.cluster.kubectl(&[&[&*who], &words[..], &[&patch]].concat()).await
    };
    let told = async |who: &str, datastore: Value, words: &str| {
        eventually(PATIENCE, words, async || match change(who, datastore.clone()).await {
            Err(why) if why.contains(words) => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await;
    };
    let allowed = async |who: &str, datastore: Value| {
        let what = format!("{who} may set {datastore}");
        eventually(PATIENCE, &what, async || change(who, datastore.clone()).await.map(drop)).await;
    };
    let other = || json!({ "databaseType": "postgres", "connectionString": "host=db" });
    let named = |name: &str| json!({ "databaseType": "postgres", "connectionString": "host=db", "tlsSecretName": name });
    told("editor", other(), "editor may not update ConfigMap spire-server in namespace spire.")
        .await;
    told("half", other(), "half may not update StatefulSet spire-server in namespace spire.").await;
    allowed("operator", other()).await;
    allowed("owner", named("own-tls")).await;
    told(
        "owner",
        named("others-tls"),
        "owner may not get Secret \"others-tls\" in namespace spire.",
    )
    .await;

    // What stays as it was, and a default that nobody changed, is asked of nobody.
    allowed("editor", json!({})).await;
    allowed("editor", Value::Null).await;
    stage.change(json!({ "spec": { "datastore": named("others-tls") } })).await;
    allowed("editor", named("others-tls")).await;
    told("editor", Value::Null, "editor may not update ConfigMap spire-server").await;
    told("half", Value::Null, "half may not update StatefulSet spire-server").await;
    allowed("operator", Value::Null).await;
    told("editor", json!({ "maxOpenConns": 5 }), "editor may not update ConfigMap").await;
    told("editor", json!({ "tlsSecretName": null }), "editor may not update ConfigMap").await;
    told("owner", json!({ "maxOpenConns": 5 }), "owner may not get Secret \"others-tls\"").await;
}

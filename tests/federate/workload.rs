//! A workload: an agent on a node, known by the token of its Pod, and an identity from an object of
//! the controller manager.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use k8s_openapi::{
    Resource,
    api::{
        authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
        core::v1::{Node, Pod, ServiceAccount},
    },
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use testkit::{
    eventually,
    spire::{Credentials, SpireAgent, SpireServer},
    stage::{CLUSTER_NAME, NAMESPACE},
};
use trustplane::federate::decide::render::Component;

use crate::side::Side;

/// The account of agents in the configuration that we render, and the name of its Pod.
const AGENT: &str = "spire-agent";
/// Where Pods run.
pub const NODE: &str = "worker";
/// The controller manager looks every ten seconds, an agent every five.
const GIVEN_WITHIN: Duration = Duration::from_secs(60);

/// A process of this user, in the eyes of an agent.
pub struct Workload {
    agent: SpireAgent,
    id: String,
}

impl Workload {
    /// Brings a node with an agent into the cluster, and an entry that federates for what runs on it.
    pub async fn of(side: &Side, federates_with: &str) -> Self {
        let client = &side.stage.admin;
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
        create(&accounts, json!({ "metadata": { "name": AGENT } })).await;
        let (node, token) = node_with_agent(client).await;
        let published = side.stage.object(Component::BundleConfigMap).await;
        let credentials = Credentials {
            cluster: CLUSTER_NAME,
            token: &token,
            bundle: published["data"]["bundle.crt"].as_str().expect("a published bundle"),
        };
        let agent = SpireAgent::start(&side.spire, credentials).await;

        let trust_domain = side.spire.trust_domain();
        let id = format!("spiffe://{trust_domain}/shop");
        let parent = format!("spiffe://{trust_domain}/spire/agent/k8s_psat/{CLUSTER_NAME}/{node}");
        let this_user = format!("unix:uid:{}", rustix::process::getuid().as_raw());
        let entry = json!({
            "apiVersion": "spire.spiffe.io/v1alpha1",
            "kind": "ClusterStaticEntry",
            "metadata": { "name": "shop" },
            "spec": {
                "spiffeID": id,
                "parentID": parent,
                "selectors": [this_user],
                "federatesWith": [federates_with],
            },
        });
        let _: DynamicObject =
            create(&Api::all_with(client.clone(), &static_entries()), entry).await;
        Self { agent, id }
    }

    /// Waits until it is given all authorities of that server, and no others, for that trust domain.
    pub async fn until_it_trusts(&self, other: &SpireServer) {
        let trust_domain = format!("spiffe://{}", other.trust_domain());
        let bundle = other.bundle_show().await;
        let authorities = authorities(&bundle);
        let what =
            format!("a workload is given {} authorities of {trust_domain}", authorities.len());
        eventually(GIVEN_WITHIN, &what, async || {
            let given = self.agent.identity().await?;
            assert_eq!(given.id, self.id);
            let names: Vec<_> = given.federated.iter().map(|(name, _)| &**name).collect();
            assert!(names.is_empty() || names == [&*trust_domain], "{names:?}");
            match given.federated.first() {
                Some((_, der)) if is_made_of(der, &authorities) => Ok(()),
                Some((_, der)) => Err(format!("{} bytes of authorities", der.len())),
                None => Err("no bundle of another trust domain".to_owned()),
            }
        })
        .await;
    }
}

fn authorities(bundle: &Value) -> Vec<Vec<u8>> {
    let keys = bundle["keys"].as_array().expect("keys");
    let x509 = keys.iter().filter(|key| key["use"] == "x509-svid");
    let der = |key: &Value| STANDARD.decode(key["x5c"][0].as_str().unwrap_or_default());
    x509.map(|key| der(key).expect("base64")).collect()
}

/// Whether these, in some order, are all that there is.
fn is_made_of(der: &[u8], parts: &[Vec<u8>]) -> bool {
    der.len() == parts.iter().map(Vec::len).sum::<usize>()
        && parts.iter().all(|part| der.windows(part.len()).any(|it| it == part))
}

/// A node with the Pod of an agent. Answers the node's uid, and a token as a kubelet asks for it: for the
/// server alone, and good as long as the Pod is there.
pub async fn node_with_agent(client: &Client) -> (String, String) {
    let node = json!({ "metadata": { "name": NODE } });
    let node: Node = create(&Api::all(client.clone()), node).await;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    let pod = json!({
        "metadata": { "name": AGENT },
        "spec": {
            "nodeName": NODE,
            "serviceAccountName": AGENT,
            "containers": [{ "name": AGENT, "image": AGENT }],
        },
    });
    let pod: Pod = create(&Api::namespaced(client.clone(), NAMESPACE), pod).await;
    let bound = BoundObjectReference {
        api_version: Some(Pod::API_VERSION.to_owned()),
        kind: Some(Pod::KIND.to_owned()),
        name: Some(AGENT.to_owned()),
        uid: pod.metadata.uid,
    };
    let spec = TokenRequestSpec {
        audiences: Some(vec!["spire-server".to_owned()]),
        bound_object_ref: Some(bound),
        ..TokenRequestSpec::default()
    };
    let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let answer = accounts.create_token_request(AGENT, &PostParams::default(), &request).await;
    let token = answer.expect("a token").status.and_then(|it| it.token);
    (node.metadata.uid.expect("a node has a uid"), token.expect("a token in the answer"))
}

async fn create<K>(api: &Api<K>, object: Value) -> K
where
    K: Serialize + DeserializeOwned + Clone + std::fmt::Debug,
{
    let object = serde_json::from_value(object).expect("an object");
    api.create(&PostParams::default(), &object).await.expect("it is accepted")
}

fn static_entries() -> ApiResource {
    ApiResource {
        group: "spire.spiffe.io".into(),
        version: "v1alpha1".into(),
        api_version: "spire.spiffe.io/v1alpha1".into(),
        kind: "ClusterStaticEntry".into(),
        plural: "clusterstaticentries".into(),
    }
}

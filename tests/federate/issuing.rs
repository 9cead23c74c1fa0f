//! A Secret that a real cert-manager keeps, for the Route of a bundle endpoint.

use std::time::Duration;

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use openssl::x509::X509;
use serde_json::{Value, json};
use testkit::{
    SecretFixture,
    authority::Authority,
    eventually, parts,
    stage::{NAMESPACE, Stage},
    suite,
    tied::Tied,
};

const PATIENCE: Duration = Duration::from_secs(60);
/// Of the Certificate and of its Secret, for `externalSecretRef`.
pub const NAME: &str = "federation-tls";

/// cert-manager, and a Certificate for the host of the cluster's bundle endpoint.
pub struct Issuing {
    client: Client,
    _cert_manager: Tied,
}

impl Issuing {
    /// Starts it, and waits for the first certificate.
    pub async fn start(stage: &Stage, authority: &Authority) -> Self {
        let kubeconfig = stage.cluster.kubeconfig(stage.cluster.admin_access());
        let cert_manager = parts::cert_manager(stage.cluster.servers(), &kubeconfig).await;
        let cert_manager = cert_manager.expect("cert-manager");
        let issuing = Self { client: stage.admin.clone(), _cert_manager: cert_manager };
        let root = SecretFixture::tls("authority", &authority.pair()).secret();
        let secrets: Api<_> = Api::namespaced(stage.admin.clone(), NAMESPACE);
        secrets.create(&PostParams::default(), &root).await.expect("the Secret is accepted");
        let issuer = json!({ "ca": { "secretName": "authority" } });
        issuing.create("Issuer", "authority", issuer).await;
        let certificate = json!({
            "secretName": NAME,
            "dnsNames": [stage.host()],
            "privateKey": { "algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always" },
            "issuerRef": { "name": "authority" },
        });
        issuing.create("Certificate", NAME, certificate).await;
        issuing.until_through(1).await;
        issuing
    }

    fn api(&self, kind: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("cert-manager.io", "v1", kind);
        Api::namespaced_with(self.client.clone(), NAMESPACE, &ApiResource::from_gvk(&kind))
    }

    async fn create(&self, kind: &str, name: &str, spec: Value) {
        let object = json!({
            "apiVersion": "cert-manager.io/v1",
            "kind": kind,
            "metadata": { "name": name },
            "spec": spec,
        });
        let object = serde_json::from_value(object).expect("an object");
        let created = self.api(kind).create(&PostParams::default(), &object).await;
        created.expect("cert-manager's object is accepted");
    }

    async fn status(&self) -> Value {
        let certificate = self.api("Certificate").get(NAME).await.expect("the Certificate");
        certificate.data["status"].clone()
    }

    /// Waits until cert-manager is through with an issuance, or it would not take the next.
    async fn until_through(&self, revision: u64) {
        eventually(PATIENCE, &format!("cert-manager has issued {revision}"), async || {
            let status = self.status().await;
            let mut conditions = status["conditions"].as_array().into_iter().flatten();
            let through = status["revision"] == revision && !conditions.any(is_issuing);
            if through { Ok(()) } else { Err(status) }
        })
        .await;
    }

    /// Has the certificate renewed now, as `cmctl renew` does.
    pub async fn renew(&self) {
        let status = self.status().await;
        let mut conditions = status["conditions"].as_array().cloned().expect("conditions");
        conditions.retain(|it| it["type"] != "Issuing");
        conditions.push(json!({
            "type": "Issuing",
            "status": "True",
            "reason": "ManuallyTriggered",
            "message": "asked for by a test",
            "lastTransitionTime": chrono::Utc::now().to_rfc3339(),
        }));
        let patch = Patch::Merge(json!({ "status": { "conditions": conditions } }));
        let certificates = self.api("Certificate");
        let patched = certificates.patch_status(NAME, &PatchParams::default(), &patch).await;
        patched.expect("the renewal is asked for");
        self.until_through(status["revision"].as_u64().expect("a revision") + 1).await;
    }

    /// Serial number of the certificate in the Secret.
    pub async fn serial(&self) -> String {
        let secrets: Api<k8s_openapi::api::core::v1::Secret> =
            Api::namespaced(self.client.clone(), NAMESPACE);
        let data = secrets.get(NAME).await.expect("the Secret").data.expect("what was issued");
        suite::register_key(std::str::from_utf8(&data["tls.key"].0).expect("PEM"));
        serial(&X509::from_pem(&data["tls.crt"].0).expect("a certificate"))
    }
}

fn is_issuing(condition: &Value) -> bool {
    condition["type"] == "Issuing" && condition["status"] == "True"
}

/// Serial number of a certificate.
pub fn serial(certificate: &X509) -> String {
    let number = certificate.serial_number().to_bn().and_then(|number| number.to_hex_str());
    number.expect("a serial number").to_string()
}

//! What the suite may rely on: the router and `make stack` do what they say. The suite's runner calls
//! these on its stack.

mod leftovers;

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use openssl::asn1::Asn1Time;
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::pkey::PKey;
use openssl::rsa::Rsa;
use openssl::x509::X509Builder;
use serde_json::json;
use testkit::{Pair, pair, suite};

pub use self::leftovers::nothing_is_left_after;
use super::Stack;
use super::visit::{Visit, visit};

const SERVED_WITHIN: Duration = Duration::from_secs(20);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Routes that change while a client connects.
const CHANGING: usize = 30;
/// Clients that connect all the time.
const CLIENTS: usize = 4;
/// Fewer reloads than this would show nothing.
const FEWEST_RELOADS: usize = 5;

/// A Route whose key does not match is refused, with the reason in its status. It gets 503 and the
/// default certificate, the others go on, and once fixed it is served.
pub async fn a_bad_pair_is_refused_and_stops_nobody(stack: &Stack) -> Result<(), String> {
    let stage = Stage::set(stack, "bad-pair").await?;
    let (good_host, bad_host) = (stage.host("good"), stage.host("bad"));
    let (good, bad) = (pair::issued(&good_host), pair::mismatched(&bad_host));
    stage.route("good", &good).await?;
    stage.serves(&good_host, &good, 200).await?;
    stage.route("bad", &bad).await?;

    stage.admitted("bad", "False", "ExtendedValidationFailed").await?;
    stage.serves_default(&bad_host, 503).await?;
    let renewed = pair::issued(&good_host);
    stage.hold("good", &renewed).await?;
    stage.serves(&good_host, &renewed, 200).await?;
    stage.admitted("good", "True", "").await?;

    let fixed = pair::issued(&bad_host);
    stage.hold("bad", &fixed).await?;
    stage.serves(&bad_host, &fixed, 200).await?;
    stage.admitted("bad", "True", "").await?;
    stage.clear().await
}

/// HAProxy refuses its whole configuration for one RSA key of 1024 bits, which the router's own check
/// lets pass. Until that Route is gone HAProxy keeps the configuration it had, so no other change is
/// served meanwhile: run it alone.
pub async fn a_configuration_that_haproxy_refuses_is_never_loaded(
    stack: &Stack,
) -> Result<(), String> {
    let stage = Stage::set(stack, "refused").await?;
    let host = stage.host("good");
    let good = pair::issued(&host);
    stage.route("good", &good).await?;
    stage.serves(&host, &good, 200).await?;
    let before = stage.logged("refuses").await;

    stage.route("weak", &short_pair()?).await?;
    stage.until_logged("refuses", before + 1).await?;
    stage.serves(&host, &good, 200).await?;
    stage.serves_default(&stage.host("weak"), 503).await?;

    stage.routes().delete("weak", &Default::default()).await.map_err(text)?;
    let renewed = pair::issued(&host);
    stage.hold("good", &renewed).await?;
    stage.serves(&host, &renewed, 200).await?;
    stage.clear().await
}

/// A client that connects again and again gets its answer every time, while 30 Routes come and change.
/// Prints how many connections it made, over how many reloads.
pub async fn a_reload_loses_no_connection(stack: &Stack) -> Result<(), String> {
    let stage = Stage::set(stack, "reload").await?;
    let host = stage.host("steady");
    let steady = pair::issued(&host);
    stage.route("steady", &steady).await?;
    stage.serves(&host, &steady, 200).await?;
    let before = stage.reloads().await;
    let expected = Visit { certificate: steady.certificate.clone(), code: 200 };
    let enough = || async { stage.reloads().await >= before + FEWEST_RELOADS };
    let client = || async {
        let mut connections = 0;
        while connections % 10 != 0 || !enough().await {
            let seen = visit(stack.router(), &host).await?;
            if seen != expected {
                return Err(format!("after {connections} connections: {seen:?}"));
            }
            connections += 1;
        }
        Ok::<usize, String>(connections)
    };
    let connecting = futures::future::try_join_all((0..CLIENTS).map(|_| client()));
    let changing = async {
        for number in 0.. {
            let name = format!("changing-{}", number % CHANGING);
            let held = pair::issued(&stage.host(&name));
            match number {
                0..CHANGING => stage.route(&name, &held).await?,
                _ => stage.hold(&name, &held).await?,
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok::<_, String>(Vec::new())
    };
    let connections = tokio::select! {
        connections = connecting => connections?,
        failed = changing => failed?,
    };
    let connections: usize = connections.into_iter().sum();
    let reloads = stage.reloads().await - before;
    println!("{connections} connections over {reloads} reloads, none lost");
    stage.clear().await
}

/// A namespace of its own.
struct Stage<'a> {
    stack: &'a Stack,
    namespace: String,
}

impl<'a> Stage<'a> {
    async fn set(stack: &'a Stack, name: &str) -> Result<Self, String> {
        let namespace = format!("{name}-{}", suite::next_number());
        let namespaces: Api<Namespace> = Api::all(stack.client.clone());
        let object: Namespace =
            serde_json::from_value(json!({ "metadata": { "name": namespace } })).map_err(text)?;
        namespaces.create(&PostParams::default(), &object).await.map_err(text)?;
        Ok(Self { stack, namespace })
    }

    async fn clear(self) -> Result<(), String> {
        let namespaces: Api<Namespace> = Api::all(self.stack.client.clone());
        namespaces.delete(&self.namespace, &Default::default()).await.map(drop).map_err(text)
    }

    fn host(&self, name: &str) -> String {
        format!("{name}.{}.test", self.namespace)
    }

    fn routes(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("route.openshift.io", "v1", "Route");
        let resource = ApiResource::from_gvk(&kind);
        Api::namespaced_with(self.stack.client.clone(), &self.namespace, &resource)
    }

    async fn route(&self, name: &str, held: &Pair) -> Result<(), String> {
        let route = json!({
            "apiVersion": "route.openshift.io/v1",
            "kind": "Route",
            "metadata": { "name": name },
            "spec": {
                "host": self.host(name),
                "to": { "kind": "Service", "name": "backend" },
                "tls": { "termination": "edge", "certificate": held.certificate, "key": held.key },
            },
        });
        let route: DynamicObject = serde_json::from_value(route).map_err(text)?;
        self.routes().create(&PostParams::default(), &route).await.map(drop).map_err(text)
    }

    async fn hold(&self, name: &str, held: &Pair) -> Result<(), String> {
        let tls = json!({ "certificate": held.certificate, "key": held.key });
        let patch = Patch::Merge(json!({ "spec": { "tls": tls } }));
        self.routes().patch(name, &PatchParams::default(), &patch).await.map(drop).map_err(text)
    }

    async fn serves(&self, host: &str, held: &Pair, code: u16) -> Result<(), String> {
        self.shows(host, &held.certificate, code).await
    }

    async fn serves_default(&self, host: &str, code: u16) -> Result<(), String> {
        self.shows(host, &self.stack.default_certificate(), code).await
    }

    async fn shows(&self, host: &str, certificate: &str, code: u16) -> Result<(), String> {
        let expected = Visit { certificate: certificate.to_owned(), code };
        let deadline = Instant::now() + SERVED_WITHIN;
        loop {
            match visit(self.stack.router(), host).await {
                Ok(seen) if seen == expected => return Ok(()),
                seen if Instant::now() > deadline => {
                    return Err(format!("{host} should be {expected:?}, not {seen:?}"));
                }
                _ => tokio::time::sleep(LOOK_AGAIN).await,
            }
        }
    }

    async fn admitted(&self, name: &str, status: &str, reason: &str) -> Result<(), String> {
        let deadline = Instant::now() + SERVED_WITHIN;
        loop {
            let route = self.routes().get(name).await.map_err(text)?;
            let condition = &route.data["status"]["ingress"][0]["conditions"][0];
            let is = |field: &str, value: &str| condition[field].as_str().unwrap_or("") == value;
            if is("type", "Admitted") && is("status", status) && is("reason", reason) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!(
                    "Route {name} should be Admitted={status} {reason}: {condition}"
                ));
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// How often the router has reloaded HAProxy so far.
    async fn reloads(&self) -> usize {
        self.logged("reloaded").await
    }

    /// How many lines of the router's log have this word.
    async fn logged(&self, word: &str) -> usize {
        let log = self.stack.servers.lock().await.logs.join("router.log");
        let log = std::fs::read_to_string(log).unwrap_or_default();
        log.lines().filter(|line| line.contains(word)).count()
    }

    async fn until_logged(&self, word: &str, times: usize) -> Result<(), String> {
        let deadline = Instant::now() + SERVED_WITHIN;
        while self.logged(word).await < times {
            if Instant::now() > deadline {
                return Err(format!("the router's log does not say {word:?} {times} times"));
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }
}

/// Self-signed, with an RSA key of 1024 bits.
fn short_pair() -> Result<Pair, String> {
    let make = || {
        let key = PKey::from_rsa(Rsa::generate(1024)?)?;
        let mut certificate = X509Builder::new()?;
        certificate.set_version(2)?;
        certificate.set_not_before(Asn1Time::days_from_now(0)?.as_ref())?;
        certificate.set_not_after(Asn1Time::days_from_now(9)?.as_ref())?;
        certificate.set_pubkey(&key)?;
        certificate.sign(&key, MessageDigest::sha256())?;
        Ok::<_, ErrorStack>((certificate.build().to_pem()?, key.private_key_to_pem_pkcs8()?))
    };
    let (certificate, key) = make().map_err(text)?;
    let certificate = String::from_utf8(certificate).map_err(text)?;
    let key = String::from_utf8(key).map_err(text)?;
    suite::register_key(&key);
    Ok(Pair { authority: certificate.clone(), certificate, key })
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

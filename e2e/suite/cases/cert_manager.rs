//! Certificates that cert-manager issues and renews.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};
use testkit::{Pair, authority::Authority, eventually, suite};
use tokio::task::JoinSet;
use trustplane::k8s::api_error;

use super::*;
use crate::suite::client::{Fingerprint, fingerprint_of};
use crate::suite::load::Load;
use crate::suite::namespace::{CaseNamespace, PATIENCE};
use crate::suite::observation::Expected;

const GROUP: &str = "cert-manager.io";
const RENEWALS: usize = 20;
const LONG_RENEWALS: usize = 100;

pub async fn a_route_annotated_before_its_certificate_exists(scene: Scene) -> Shown {
    let place = scene.place().await;
    let authority = Authority::new("e2e root of cert-manager");
    place.route(&place.edge("shop").annotated("shop-tls")).await;
    place.shows("shop", Expected::Default, NOT_FOUND, &[IS_MISSING]).await;

    ask_for_certificate(&place, &authority).await;

    let pair = issued(&place, &authority).await;
    place.shows("shop", &pair, MANAGED, &[IS_MISSING, INJECTED]).await;
    Ok(())
}

pub async fn renewals_under_load_show_no_other_certificate(scene: Scene) -> Shown {
    let place = scene.place().await;
    let authority = Authority::new("e2e root of cert-manager");
    ask_for_certificate(&place, &authority).await;
    let first = issued(&place, &authority).await;
    place.route(&place.edge("shop").annotated("shop-tls")).await;
    place.shows("shop", &first, MANAGED, &[INJECTED]).await;
    let observer = Observer::of(&place);
    let load = Load::on(&scene.world, vec![place.host("shop")], &authority.root());

    let renewals =
        if std::env::var_os("TRUSTPLANE_LONG").is_some() { LONG_RENEWALS } else { RENEWALS };
    let mut delays = Vec::new();
    for renewal in 1..=renewals {
        is_through(&place, renewal).await;
        renew(&place).await;
        delays.push(seen_served(&observer, &load, renewal + 1).await);
    }

    let tally = load.stop().await;
    delays.sort();
    scene.note(format!(
        "renewal under load: {renewals} renewals by cert-manager, every new serial seen by the clients; {tally}"
    ));
    scene.note(format!(
        "from the Secret's write to the new certificate served: p50 {:.2} s, p99 {:.2} s",
        quantile(&delays, 0.50),
        quantile(&delays, 0.99)
    ));
    tally.is_flawless();
    assert_eq!(tally.first_seen.len(), renewals + 1, "certificates seen by the clients");
    let last = issued(&place, &authority).await;
    let events: Vec<&str> =
        std::iter::once(INJECTED).chain(std::iter::repeat_n(UPDATED, renewals)).collect();
    place.shows("shop", &last, MANAGED, &events).await;
    Ok(())
}

/// An Issuer that signs in the authority's name, and a Certificate for the host of Route shop.
async fn ask_for_certificate(place: &CaseNamespace, authority: &Authority) {
    place.tls("authority", &authority.pair()).await;
    let client = || place.world.client.clone();
    let issuer = json!({
        "apiVersion": "cert-manager.io/v1",
        "kind": "Issuer",
        "metadata": { "name": "authority" },
        "spec": { "ca": { "secretName": "authority" } },
    });
    place.create(&place.objects(client(), GROUP, "v1", "Issuer"), issuer).await;
    let certificate = json!({
        "apiVersion": "cert-manager.io/v1",
        "kind": "Certificate",
        "metadata": { "name": "shop" },
        "spec": {
            "secretName": "shop-tls",
            "dnsNames": [place.host("shop")],
            "duration": "24h",
            "renewBefore": "8h",
            "privateKey": { "algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always" },
            "issuerRef": { "name": "authority" },
        },
    });
    place.create(&certificates(place), certificate).await;
}

fn certificates(place: &CaseNamespace) -> Api<DynamicObject> {
    place.objects(place.world.client.clone(), GROUP, "v1", "Certificate")
}

/// The pair that cert-manager put into the Secret.
async fn issued(place: &CaseNamespace, authority: &Authority) -> Pair {
    eventually(PATIENCE, "cert-manager issues the certificate", async || {
        let secret = api_error::with_timeout(place.secrets().get("shop-tls")).await;
        let pair = secret.ok().and_then(|secret| pair_in(&secret, authority.root()));
        pair.ok_or("no Secret with a pair")
    })
    .await
}

fn pair_in(secret: &Secret, authority: String) -> Option<Pair> {
    let text = |entry: &str| {
        let bytes = &secret.data.as_ref()?.get(entry)?.0;
        String::from_utf8(bytes.clone()).ok().filter(|text| !text.is_empty())
    };
    let pair = Pair { certificate: text("tls.crt")?, key: text("tls.key")?, authority };
    suite::register_key(&pair.key);
    Some(pair)
}

async fn certificate(place: &CaseNamespace) -> Value {
    let certificate = api_error::with_timeout(certificates(place).get("shop")).await;
    serde_json::to_value(certificate.expect("the Certificate is there")).expect("JSON")
}

fn is_issuing(condition: &Value) -> bool {
    condition["type"] == "Issuing" && condition["status"] == "True"
}

/// Waits until cert-manager is through with an issuance, or it would not take the next.
async fn is_through(place: &CaseNamespace, revision: usize) {
    eventually(PATIENCE, &format!("cert-manager is through with {revision}"), async || {
        let status = certificate(place).await["status"].take();
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        let through = status["revision"] == json!(revision) && !conditions.any(is_issuing);
        if through { Ok(()) } else { Err(status) }
    })
    .await;
}

/// Asks for a renewal now, as `cmctl renew` does.
async fn renew(place: &CaseNamespace) {
    let mut conditions = certificate(place).await["status"]["conditions"].take();
    let known = conditions.as_array_mut().expect("an issued Certificate has conditions");
    known.retain(|condition| condition["type"] != "Issuing");
    known.push(json!({
        "type": "Issuing",
        "status": "True",
        "reason": "ManuallyTriggered",
        "message": "asked for by the suite",
        "lastTransitionTime": chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Secs, true),
    }));
    let (api, patch) =
        (certificates(place), Patch::Merge(json!({ "status": { "conditions": conditions } })));
    let patched =
        api_error::with_timeout(api.patch_status("shop", &PatchParams::default(), &patch)).await;
    patched.expect("the renewal is asked for");
}

/// Waits until the newest certificate of the Secret was served. Returns how long that took.
async fn seen_served(observer: &Observer, load: &Load, issued: usize) -> Duration {
    eventually(PATIENCE, &format!("certificate {issued} is served"), async || {
        let (written, newest) = observer.newest(issued).ok_or("the Secret is not renewed")?;
        let served = load.so_far().first_seen.get(&newest).copied();
        Ok::<_, &str>(served.ok_or("it is not served yet")?.saturating_duration_since(written))
    })
    .await
}

/// Watches the Secret, and remembers when each certificate appeared in it.
struct Observer {
    seen: Arc<Mutex<HashMap<Fingerprint, (usize, Instant)>>>,
    _task: JoinSet<()>,
}

impl Observer {
    fn of(place: &CaseNamespace) -> Self {
        let seen: Arc<Mutex<HashMap<Fingerprint, (usize, Instant)>>> = Arc::default();
        let config = watcher::Config::default().fields("metadata.name=shop-tls");
        let mut secrets =
            watcher(place.secrets(), config).default_backoff().applied_objects().boxed();
        let notes = seen.clone();
        let mut task = JoinSet::new();
        task.spawn(async move {
            while let Some(secret) = secrets.next().await {
                let pair = secret.ok().and_then(|secret| pair_in(&secret, String::new()));
                let Some(pair) = pair else { continue };
                let mut notes = notes.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                let number = notes.len() + 1;
                let newest = fingerprint_of(&pair.certificate);
                notes.entry(newest).or_insert((number, Instant::now()));
            }
        });
        Self { seen, _task: task }
    }

    /// The certificate of this number, and when it appeared.
    fn newest(&self, number: usize) -> Option<(Instant, Fingerprint)> {
        let seen = self.seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (fingerprint, (_, when)) = seen.iter().find(|(_, (known, _))| *known == number)?;
        Some((*when, *fingerprint))
    }
}

fn quantile(sorted: &[Duration], part: f64) -> f64 {
    let rank = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).map_or(f64::NAN, Duration::as_secs_f64)
}

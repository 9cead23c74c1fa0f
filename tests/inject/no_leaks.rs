//! Moments in which a library would print what passes through it. That nothing was printed is
//! checked over the whole suite's output by tests/suite_audit.rs; here the moments are brought about.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use testkit::{
    Cluster, Launch, RouteFixture, SecretFixture, eventually, pair,
    proxy::{Fault, Proxy},
};

use crate::scene::{PATIENCE, Scene};

#[tokio::test]
async fn answers_that_break_off_in_the_middle_of_a_key_are_not_logged() {
    let cluster = Cluster::get().await;
    let ns = cluster.namespace("truncated").await;
    let issued = pair::issued("shop.example.com");
    let broken = Arc::new(AtomicUsize::new(0));
    let count = broken.clone();
    let proxy = Proxy::start(&cluster, move |asked| {
        let holds_a_key = asked.path.contains("/secrets") || asked.path.contains("/routes");
        if holds_a_key
            && !asked.is_watch()
            && count.fetch_add(1, Ordering::SeqCst).is_multiple_of(2)
        {
            // Valid JSON up to here, and the key is in it.
            return Fault::MangleBody(Box::new(|body| body.slice(..body.len().saturating_sub(2))));
        }
        Fault::Forward
    })
    .await;
    SecretFixture::tls("shop-tls", &issued).create(&ns).await;
    RouteFixture::edge("shop")
        .holding(&pair::issued("shop.example.com"))
        .annotated("shop-tls")
        .create(&ns)
        .await;
    let kubeconfig = cluster.account_kubeconfig_through(proxy.url());
    let mut controller = Launch::within(&ns).kubeconfig(kubeconfig).start();
    controller.ready().await;
    let scene = Scene { ns, controller };

    scene.holds("shop", &issued).await;
    eventually(PATIENCE, "several answers were broken off", async || {
        match broken.load(Ordering::SeqCst) {
            enough if enough >= 6 => Ok(()),
            few => Err(few),
        }
    })
    .await;

    let log = scene.controller.log();
    assert!(log.contains("could not be decoded"), "the moment came");
    for line in issued.key.lines().filter(|line| !line.starts_with("-----")) {
        assert!(!log.contains(line), "a line of the key is in the log");
    }
    assert!(!log.contains("BEGIN"), "nothing like a key or a certificate is in the log");
}

#[tokio::test]
async fn a_refused_write_names_the_field_and_never_its_value() {
    let cluster = Cluster::get().await;
    let ns = cluster.namespace("refused").await;
    let issued = pair::issued("shop.example.com");
    let quoted = issued.key.clone();
    let proxy = Proxy::start(&cluster, move |asked| {
        if asked.is_write_to("routes/shop") {
            return Fault::answer(422, &format!("spec.tls.key: Invalid value: {quoted:?}: no"));
        }
        Fault::Forward
    })
    .await;
    SecretFixture::tls("shop-tls", &issued).create(&ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&ns).await;
    let kubeconfig = cluster.account_kubeconfig_through(proxy.url());
    let mut controller = Launch::within(&ns).kubeconfig(kubeconfig).start();
    controller.ready().await;
    let scene = Scene { ns, controller };

    let event = scene.event("shop", "InjectionFailed").await;
    assert!(!event.note.contains("BEGIN"), "{}", event.note);
    assert!(!scene.controller.log().contains("BEGIN"));
}

//! Routes of all kinds, and whose certificate they hold.

use serde_json::json;
use testkit::{Pair, RouteFixture, authority::Authority};
use trustplane::names::SECRET_NAME_ANNOTATION;

use super::*;
use crate::suite::namespace::CaseNamespace;
use crate::suite::observation::Expected;

/// The whole promise in one Route: for use after each way of installing, too.
pub async fn smoke(scene: Scene) -> Shown {
    let place = scene.place().await;
    let authority = Authority::new("e2e root");
    let (first, renewed) =
        (authority.issue(&place.host("shop")), authority.issue(&place.host("shop")));
    place.tls("shop-tls", &first).await;
    place.route(&place.edge("shop")).await;
    place.shows("shop", Expected::Default, NO_CERTIFICATE, &[]).await;

    place.annotate("shop", Some("shop-tls")).await;
    place.shows("shop", &first, MANAGED, &[INJECTED]).await;

    place.renew("shop-tls", &renewed).await;
    place.shows("shop", &renewed, MANAGED, &[INJECTED, UPDATED]).await;

    place.annotate("shop", None).await;
    place.shows("shop", Expected::Default, NO_CERTIFICATE, &[INJECTED, UPDATED, CLEARED]).await;
    Ok(())
}

pub async fn a_reencrypt_route_keeps_its_destination_authority(scene: Scene) -> Shown {
    let place = scene.place().await;
    let authority = Authority::new("e2e root");
    let (first, renewed) =
        (authority.issue(&place.host("shop")), authority.issue(&place.host("shop")));
    let destination = match place.world.own_stack() {
        Some(stack) => stack.backend_authority(),
        None => Authority::new("e2e backend").root(),
    };
    place.tls("shop-tls", &first).await;
    let route = RouteFixture::reencrypt("shop", &destination).host(&place.host("shop"));
    place.route(&route).await;
    place.shows("shop", Expected::Default, NO_CERTIFICATE, &[]).await;
    let untouched = tls_but_the_pair(&place).await;
    assert_eq!(untouched["destinationCACertificate"], json!(destination));

    place.annotate("shop", Some("shop-tls")).await;
    place.shows("shop", &first, MANAGED, &[INJECTED]).await;
    assert_eq!(tls_but_the_pair(&place).await, untouched);

    place.renew("shop-tls", &renewed).await;
    place.shows("shop", &renewed, MANAGED, &[INJECTED, UPDATED]).await;
    assert_eq!(tls_but_the_pair(&place).await, untouched);

    place.annotate("shop", None).await;
    place.shows("shop", Expected::Default, NO_CERTIFICATE, &[INJECTED, UPDATED, CLEARED]).await;
    assert_eq!(tls_but_the_pair(&place).await, untouched);
    Ok(())
}

async fn tls_but_the_pair(place: &CaseNamespace) -> serde_json::Value {
    let mut tls = place.look_up("shop").await["spec"]["tls"].take();
    let fields = tls.as_object_mut().expect("the Route is secured");
    fields.remove("certificate");
    fields.remove("key");
    tls
}

pub async fn a_route_of_an_ingress_is_left_alone(scene: Scene) -> Shown {
    let place = scene.place().await;
    let pair = Authority::new("e2e root").issue(&place.host("*"));
    place.tls("shop-tls", &pair).await;
    // Of a class that nobody serves: what counts is that the Route has an owner.
    let ingresses = place.objects(place.world.client.clone(), "networking.k8s.io", "v1", "Ingress");
    let backend = json!({ "service": { "name": "backend", "port": { "number": 80 } } });
    let ingress = json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": { "name": "web" },
        "spec": { "ingressClassName": "trustplane-e2e-none", "defaultBackend": backend },
    });
    let ingress = place.create(&ingresses, ingress).await;
    let owner = json!([{
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "name": "web",
        "uid": ingress.metadata.uid,
        "controller": true,
    }]);
    let route = place.edge("shop").annotated("shop-tls").with("/metadata/ownerReferences", owner);
    place.route(&route).await;
    place.shows("shop", Expected::Default, "no condition", &[]).await;
    let admitted = place.version("shop").await;

    place.is_caught_up(&pair).await;

    place.shows("shop", Expected::Default, "no condition", &[]).await;
    assert_eq!(place.version("shop").await, admitted, "the Route was written");
    Ok(())
}

pub async fn a_route_goes_from_custom_to_managed_and_back(scene: Scene) -> Shown {
    let place = scene.place().await;
    let theirs = Authority::new("e2e user's own root").issue(&place.host("shop"));
    let held = Authority::new("e2e root").issue(&place.host("shop"));
    place.tls("shop-tls", &held).await;
    place.route(&place.edge("shop").holding(&theirs)).await;
    place.shows("shop", &theirs, CUSTOM, &[]).await;

    place.annotate("shop", Some("shop-tls")).await;
    place.shows("shop", &held, MANAGED, &[INJECTED]).await;

    let own = json!({
        "metadata": { "annotations": { SECRET_NAME_ANNOTATION: null } },
        "spec": { "tls": { "certificate": theirs.certificate, "key": theirs.key } },
    });
    place.patch_route("shop", own).await;
    place.shows("shop", &theirs, CUSTOM, &[INJECTED]).await;

    place.annotate("shop", Some("shop-tls")).await;
    place.shows("shop", &held, MANAGED, &[INJECTED_TWICE]).await;

    // Both annotations at once: the user takes the pair over.
    place.patch_route("shop", json!({ "metadata": { "annotations": null } })).await;
    place.shows("shop", &held, CUSTOM, &[INJECTED_TWICE]).await;
    Ok(())
}

pub async fn a_wildcard_route_serves_every_name_of_its_domain(scene: Scene) -> Shown {
    let place = scene.place().await;
    let pair = Authority::new("e2e root").issue(&place.host("*.apps"));
    place.tls("all-tls", &pair).await;
    let route = RouteFixture::edge("all").host(&place.host("www.apps")).annotated("all-tls");
    let route = route.with("/spec/wildcardPolicy", json!("Subdomain"));
    place.route(&route).await;
    if place.world.own_stack().is_none() && !place.is_admitted("all").await {
        return Err(Skip("the router does not admit wildcard Routes".to_owned()));
    }

    for name in ["www.apps", "shop.apps", "any.apps"] {
        place.shows_at("all", &place.host(name), &pair, MANAGED, &[INJECTED]).await;
    }
    Ok(())
}

pub async fn the_same_names_in_twenty_namespaces(scene: Scene) -> Shown {
    let authority = Authority::new("e2e root");
    let mut places: Vec<(CaseNamespace, Pair)> = Vec::new();
    for _ in 0..20 {
        let place = scene.place().await;
        let pair = authority.issue(&place.host("shop"));
        place.tls("shop-tls", &pair).await;
        place.route(&place.edge("shop").annotated("shop-tls")).await;
        places.push((place, pair));
    }
    for (place, pair) in &places {
        place.shows("shop", pair, MANAGED, &[INJECTED]).await;
    }
    let mut before = Vec::new();
    for (place, _) in &places[2..] {
        before.push(place.version("shop").await);
    }

    let renewed = authority.issue(&places[0].0.host("shop"));
    places[0].0.renew("shop-tls", &renewed).await;
    places[1].0.delete_secret("shop-tls").await;

    places[0].0.shows("shop", &renewed, MANAGED, &[INJECTED, UPDATED]).await;
    let events = [INJECTED, IS_MISSING];
    places[1].0.shows("shop", Expected::Default, NOT_FOUND, &events).await;
    for ((place, pair), before) in places[2..].iter().zip(before) {
        place.shows("shop", pair, MANAGED, &[INJECTED]).await;
        assert_eq!(place.version("shop").await, before, "the Route in {} was written", place.name);
    }
    Ok(())
}

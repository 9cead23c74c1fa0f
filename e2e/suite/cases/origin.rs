//! The cases of openshift/origin for `externalCertificate`, with the annotation in its place.

use serde_json::json;
use testkit::{Pair, RouteFixture, SecretFixture, authority::Authority};

use super::*;
use crate::suite::namespace::{CaseNamespace, version};
use crate::suite::observation::Expected;

/// More than five, on purpose.
const SIX: [&str; 6] = ["shop", "cart", "blog", "help", "jobs", "news"];

/// A pair for all hosts of a place.
fn pair_for(place: &CaseNamespace, authority: &str) -> Pair {
    Authority::new(authority).issue(&place.host("*"))
}

/// Six Routes that serve the pair of one Secret.
async fn six_managed(scene: &Scene) -> (CaseNamespace, Pair) {
    let place = scene.place().await;
    let pair = pair_for(&place, "e2e root");
    place.tls("shop-tls", &pair).await;
    for route in SIX {
        place.route(&place.edge(route).annotated("shop-tls")).await;
    }
    for route in SIX {
        place.shows(route, &pair, MANAGED, &[INJECTED]).await;
    }
    (place, pair)
}

/// A Route that serves the pair of a Secret.
async fn one_managed(scene: &Scene) -> (CaseNamespace, Pair) {
    let place = scene.place().await;
    let pair = pair_for(&place, "e2e root");
    place.tls("shop-tls", &pair).await;
    place.route(&place.edge("shop").annotated("shop-tls")).await;
    place.shows("shop", &pair, MANAGED, &[INJECTED]).await;
    (place, pair)
}

pub async fn six_routes_share_one_secret(scene: Scene) -> Shown {
    six_managed(&scene).await;
    Ok(())
}

pub async fn a_secret_in_another_namespace_is_not_served(scene: Scene) -> Shown {
    let (elsewhere, place) = (scene.place().await, scene.place().await);
    elsewhere.tls("shop-tls", &pair_for(&place, "e2e root")).await;

    place.route(&place.edge("shop").annotated("shop-tls")).await;

    place.shows("shop", Expected::Default, NOT_FOUND, &[IS_MISSING]).await;
    Ok(())
}

pub async fn an_opaque_secret_is_not_served(scene: Scene) -> Shown {
    let place = scene.place().await;
    place.secret(SecretFixture::tls("shop-tls", &pair_for(&place, "e2e root")).opaque()).await;

    place.route(&place.edge("shop").annotated("shop-tls")).await;

    place.shows("shop", Expected::Default, WRONG_TYPE, &[IS_WRONG_TYPE]).await;
    Ok(())
}

pub async fn a_passthrough_route_serves_what_its_backend_has(scene: Scene) -> Shown {
    let place = scene.place().await;
    let pair = pair_for(&place, "e2e root");
    place.tls("shop-tls", &pair).await;

    let route = RouteFixture::passthrough("shop").host(&place.host("shop"));
    place.route(&route.annotated("shop-tls")).await;

    let (condition, events) = ("none PassthroughTermination", ["Warning PassthroughTermination"]);
    place.shows("shop", Expected::BackendNot(&pair), condition, &events).await;
    Ok(())
}

pub async fn a_secret_that_is_absent_leaves_the_default(scene: Scene) -> Shown {
    let place = scene.place().await;

    place.route(&place.edge("shop").annotated("shop-tls")).await;

    place.shows("shop", Expected::Default, NOT_FOUND, &[IS_MISSING]).await;
    Ok(())
}

pub async fn a_deleted_secret_takes_all_six_routes_back_to_the_default(scene: Scene) -> Shown {
    let (place, _) = six_managed(&scene).await;

    place.delete_secret("shop-tls").await;

    for route in SIX {
        place.shows(route, Expected::Default, NOT_FOUND, &[INJECTED, IS_MISSING]).await;
    }
    Ok(())
}

pub async fn a_secret_that_is_created_again_is_served_again(scene: Scene) -> Shown {
    let (place, pair) = six_managed(&scene).await;
    place.delete_secret("shop-tls").await;
    for route in SIX {
        place.shows(route, Expected::Default, NOT_FOUND, &[INJECTED, IS_MISSING]).await;
    }

    place.tls("shop-tls", &pair).await;

    for route in SIX {
        place.shows(route, &pair, MANAGED, &[INJECTED_TWICE, IS_MISSING]).await;
    }
    Ok(())
}

pub async fn a_secret_from_a_new_authority_is_served_by_all_six_routes(scene: Scene) -> Shown {
    let (place, old) = six_managed(&scene).await;
    let new = pair_for(&place, "e2e new root");

    place.renew("shop-tls", &new).await;

    for route in SIX {
        place.shows(route, &new, MANAGED, &[INJECTED, UPDATED]).await;
        let host = place.host(route);
        let served = place.world.visit(&host).await.expect("a handshake");
        assert!(served.judged_with(&old.authority, &host).is_err(), "the old root is good for it");
    }
    Ok(())
}

pub async fn a_route_that_switches_to_a_second_secret_serves_its_pair(scene: Scene) -> Shown {
    let (place, _) = one_managed(&scene).await;
    let second = pair_for(&place, "e2e second root");
    place.tls("second-tls", &second).await;

    place.annotate("shop", Some("second-tls")).await;

    place.shows("shop", &second, MANAGED, &[INJECTED, UPDATED]).await;
    Ok(())
}

pub async fn a_route_that_switches_to_an_opaque_secret_goes_back_to_the_default(
    scene: Scene,
) -> Shown {
    let (place, pair) = one_managed(&scene).await;
    place.secret(SecretFixture::tls("opaque", &pair).opaque()).await;

    place.annotate("shop", Some("opaque")).await;

    place.shows("shop", Expected::Default, WRONG_TYPE, &[INJECTED, IS_WRONG_TYPE]).await;
    Ok(())
}

pub async fn a_route_that_switches_to_an_absent_secret_goes_back_to_the_default(
    scene: Scene,
) -> Shown {
    let (place, _) = one_managed(&scene).await;

    place.annotate("shop", Some("absent")).await;

    place.shows("shop", Expected::Default, NOT_FOUND, &[INJECTED, IS_MISSING]).await;
    Ok(())
}

pub async fn labels_alone_cause_no_write(scene: Scene) -> Shown {
    let (place, pair) = six_managed(&scene).await;
    let mut labelled = Vec::new();
    for route in SIX {
        let label = json!({ "metadata": { "labels": { "team": "web" } } });
        labelled.push(version(&place.patch_route(route, label).await));
    }
    place.label_secret("shop-tls", "team", "web").await;

    place.is_caught_up(&pair).await;

    for (route, labelled) in SIX.into_iter().zip(labelled) {
        place.shows(route, &pair, MANAGED, &[INJECTED]).await;
        assert_eq!(place.version(route).await, labelled, "Route {route} was written");
    }
    Ok(())
}

pub async fn without_the_annotation_a_route_goes_back_to_the_default(scene: Scene) -> Shown {
    let (place, _) = one_managed(&scene).await;

    place.annotate("shop", None).await;

    place.shows("shop", Expected::Default, NO_CERTIFICATE, &[INJECTED, CLEARED]).await;
    Ok(())
}

pub async fn an_annotation_that_is_put_back_is_obeyed_again(scene: Scene) -> Shown {
    let (place, pair) = one_managed(&scene).await;
    place.annotate("shop", None).await;
    place.shows("shop", Expected::Default, NO_CERTIFICATE, &[INJECTED, CLEARED]).await;

    place.annotate("shop", Some("shop-tls")).await;

    place.shows("shop", &pair, MANAGED, &[INJECTED_TWICE, CLEARED]).await;
    Ok(())
}

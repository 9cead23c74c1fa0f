//! origin's stress file: many namespaces with many pairs, in two rounds.

use std::time::Instant;

use super::*;
use crate::suite::many_routes::ManyRoutes;

pub async fn four_namespaces_of_25_pairs_in_two_rounds(scene: Scene) -> Shown {
    two_rounds(scene, 4, 25).await
}

pub async fn ten_namespaces_of_100_pairs_in_two_rounds(scene: Scene) -> Shown {
    two_rounds(scene, 10, 100).await
}

async fn two_rounds(scene: Scene, namespaces: usize, each: usize) -> Shown {
    let start = Instant::now();
    let mut routes = ManyRoutes::start(&scene, namespaces, each).await;
    let first = start.elapsed();

    let (start, all) = (Instant::now(), routes.len());
    routes.renew(0..all).await;
    routes.is_served("CertificateUpdated").await;

    let (first, second) = (first.as_secs_f64(), start.elapsed().as_secs_f64());
    scene.note(format!(
        "{all} Routes: created and all served in {first:.1} s; all renewed and served in {second:.1} s"
    ));
    Ok(())
}

//! Renewals while something breaks. Visitors come all the time, and none of them may notice.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use testkit::eventually_equals;

use super::*;
use crate::stack::Stack;
use crate::suite::load::Load;
use crate::suite::many_routes::ManyRoutes;

/// Longest until a watch that failed is tried again.
const WATCHED_WITHIN: Duration = Duration::from_secs(60);

pub async fn the_leader_is_killed_in_the_middle_of_200_renewals(scene: Scene) -> Shown {
    let routes = ManyRoutes::start(&scene, 4, 50).await;
    let stack = scene.world.stack();
    let killed = stack.leader().await.expect("a replica leads");

    renewed_while(&scene, routes, "leader killed -9", async || {
        assert_eq!(stack.kill_leader().await, killed);
    })
    .await;

    assert_ne!(stack.leader().await, Some(killed), "the killed replica still leads");
    Ok(())
}

pub async fn the_api_server_is_restarted_in_the_middle_of_renewals(scene: Scene) -> Shown {
    let routes = ManyRoutes::start(&scene, 2, 20).await;
    let world = &scene.world;

    renewed_while(&scene, routes, "API server restarted", async || {
        world.without_roles(world.stack().restart_api_server()).await;
    })
    .await;
    Ok(())
}

pub async fn watches_expire_in_the_middle_of_renewals(scene: Scene) -> Shown {
    let routes = ManyRoutes::start(&scene, 2, 20).await;
    let world = &scene.world;
    let start = Utc::now();

    renewed_while(&scene, routes, "etcd compacted, API server restarted", async || {
        world.without_roles(world.stack().compact_and_restart_api_server()).await;
    })
    .await;

    // Routes are served before their own watch is back: a renewal is a matter of Secrets.
    for resource in ["routes", "secrets"] {
        let what = format!("the watch of {resource} expired, so they are listed again");
        let look = async || was_listed(world.stack(), resource, start);
        eventually_equals(WATCHED_WITHIN, &what, true, look).await;
    }
    Ok(())
}

/// Renews half of the Routes, disturbs, renews the other half. In the end everybody serves the newest
/// pair, and in between nobody ever held or served anything but a pair of its own.
async fn renewed_while(
    scene: &Scene,
    mut routes: ManyRoutes,
    what: &str,
    disturb: impl AsyncFnOnce(),
) {
    let load = Load::on(&scene.world, routes.hosts(), &routes.root());
    let all = routes.len();
    routes.renew(0..all / 2).await;
    disturb().await;
    let start = Instant::now();
    routes.renew(all / 2..all).await;
    let (served, untold) = routes.is_served_but_not_reported("CertificateUpdated").await;

    let seconds = (served - start).as_secs_f64();
    let sent = routes.was_never_mismatched();
    let tally = load.stop().await;
    scene.note(format!(
        "{what} in the middle of {all} renewals: all served {seconds:.1} s later; {sent} pairs \
         sent, none mismatched; Events lost {untold}; {tally}"
    ));
    tally.is_flawless();
    // Events follow once no pair is due: those of the first half may be refused meanwhile, or die with
    // who would have written them. They are told again only after a minute, for which nobody waits.
    assert!(untold <= all / 2, "{untold} Events are missing");
}

/// Only an expired watch is listed again.
fn was_listed(stack: &Stack, resource: &str, since: DateTime<Utc>) -> bool {
    stack.audit().by_account().iter().any(|entry| {
        (&*entry.verb, &*entry.resource, entry.code) == ("list", resource, 200)
            && entry.time > since
    })
}

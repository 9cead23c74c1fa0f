//! The parts around the product work as the other cases expect.

use rustix::process::Signal;

use super::*;
use crate::stack::checks;

pub async fn a_bad_pair_is_refused_by_the_router_and_stops_nobody(scene: Scene) -> Shown {
    held(checks::a_bad_pair_is_refused_and_stops_nobody(scene.world.stack()).await)
}

pub async fn a_configuration_that_haproxy_refuses_is_never_loaded(scene: Scene) -> Shown {
    held(checks::a_configuration_that_haproxy_refuses_is_never_loaded(scene.world.stack()).await)
}

pub async fn a_reload_loses_no_connection(scene: Scene) -> Shown {
    held(checks::a_reload_loses_no_connection(scene.world.stack()).await)
}

pub async fn a_stack_that_is_interrupted_leaves_nothing(_: Scene) -> Shown {
    held(checks::nothing_is_left_after(Signal::INT).await)
}

pub async fn a_stack_that_is_killed_leaves_nothing(_: Scene) -> Shown {
    held(checks::nothing_is_left_after(Signal::KILL).await)
}

fn held(check: Result<(), String>) -> Shown {
    if let Err(why) = check {
        panic!("{why}");
    }
    Ok(())
}

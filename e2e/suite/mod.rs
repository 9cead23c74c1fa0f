//! The cases: what a user does, and what a TLS client is served afterwards.
//!
//! - `cases/`: what is shown, one function a promise.
//! - `client`: who connects, and tells what it was served.
//! - `namespace`, `observation`: what a case does in a namespace, and what it sees there.
//! - `capabilities`, `permissions`: what a cluster can show, found out before anything is done.
//! - `runner`, `table`: runs the cases, and says what they saw.

mod capabilities;
mod cases;
mod client;
mod load;
mod many_routes;
mod namespace;
mod observation;
mod permissions;
mod runner;
mod table;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use testkit::arguments::Arguments;
use testkit::suite;
use tokio::signal::unix::{SignalKind, signal};

use self::capabilities::Capabilities;
use self::runner::{Case, CaseResult};
use self::world::World;
use crate::reach::Reach;
use crate::stack::Stack;

/// Nobody has it.
const DOMAIN: &str = "e2e.trustplane.example";
/// How a shell says that a Ctrl-C ended something.
const INTERRUPTED: u8 = 130;

/// Runs the suite on a stack of its own.
pub async fn on_a_stack() -> ExitCode {
    let arguments = Arguments::of(std::env::args().skip(1));
    let Some(cases) = chosen(&arguments) else { return ExitCode::SUCCESS };
    let start = Instant::now();
    let stack = match Stack::start("e2e").await {
        Ok(stack) => Arc::new(stack),
        Err(why) => return failed(&why),
    };
    println!("e2e: the stack is up after {:.1} s", start.elapsed().as_secs_f64());
    let reach = Reach {
        kubeconfig: stack.kubeconfig(),
        router: Some(stack.router().to_string()),
        stack: Some(stack.clone()),
    };
    let world = match World::new(reach, DOMAIN.to_owned()).await {
        Ok(world) => Arc::new(world),
        Err(why) => return failed(&why),
    };
    let code = tokio::select! {
        code = all(&world, &cases, &arguments, None) => code,
        () = interrupted() => ExitCode::from(INTERRUPTED),
    };
    drop(world);
    if let Ok(stack) = Arc::try_unwrap(stack) {
        stack.stop().await;
    }
    println!("e2e: {:.0} s in all", start.elapsed().as_secs_f64());
    code
}

/// Runs what any cluster can show against the one that KUBECONFIG names.
pub async fn on_a_cluster() -> ExitCode {
    let arguments = Arguments::of(std::env::args().skip(1));
    let Some(cases) = chosen(&arguments) else { return ExitCode::SUCCESS };
    let domain = std::env::var("TRUSTPLANE_E2E_DOMAIN").unwrap_or_else(|_| DOMAIN.to_owned());
    let router = std::env::var("TRUSTPLANE_E2E_ROUTER").ok();
    let reach = Reach { kubeconfig: kubeconfig(), router, stack: None };
    let world = match World::new(reach, domain).await {
        Ok(world) => Arc::new(world),
        Err(why) => return failed(&why),
    };
    if let Err(why) = capabilities::state_rights(&world.client).await {
        return failed(&why);
    }
    let code = tokio::select! {
        code = visiting(&world, &cases, &arguments) => code,
        () = interrupted() => ExitCode::from(INTERRUPTED),
    };
    match world.leave_nothing().await {
        Ok(count) => println!("all {count} namespaces that were made are gone again"),
        Err(why) => return failed(&why),
    }
    code
}

/// On a foreign cluster the first thing to know is whether anybody does the work.
async fn visiting(world: &Arc<World>, cases: &[Case], arguments: &Arguments) -> ExitCode {
    match capabilities::try_a_route(world).await {
        Ok(named) => all(world, cases, arguments, named).await,
        Err(why) => failed(&why),
    }
}

/// Runs the cases. A Route may have named a router, in case that we were not told of one.
async fn all(
    world: &Arc<World>,
    cases: &[Case],
    arguments: &Arguments,
    named: Option<String>,
) -> ExitCode {
    let Some(router) = world.reach.router.clone().or(named) else {
        return failed("the router does not say its name: set TRUSTPLANE_E2E_ROUTER");
    };
    println!(
        "e2e: router {router}, hosts in {}, namespaces trustplane-e2e-{}-*",
        world.domain, world.run
    );
    if let Err(why) = world.meet_router(router).await {
        return failed(&why);
    }
    let outcomes = runner::run(cases, world, &Capabilities::of(world, arguments).await).await;
    table::print(&outcomes);
    let path = suite::folder().join("e2e.json");
    table::write(&outcomes, &path);
    println!("as JSON: {}", path.display());
    let forbidden = world.forbidden();
    if !forbidden.is_empty() {
        return failed(&format!("the injector lacks rights: {forbidden:#?}"));
    }
    ExitCode::from(u8::from(outcomes.iter().any(CaseResult::has_failed)))
}

/// The cases of the command line, unless there is nothing to run.
fn chosen(arguments: &Arguments) -> Option<Vec<Case>> {
    let mut cases = cases::all();
    cases.retain(|case| arguments.selects(case.name));
    if arguments.list {
        cases.iter().for_each(|case| println!("{}: test", case.name));
        return None;
    }
    if cases.is_empty() {
        println!("e2e: no case has such a name");
        return None;
    }
    Some(cases)
}

fn kubeconfig() -> PathBuf {
    let given = std::env::var_os("KUBECONFIG");
    let first = given.and_then(|paths| std::env::split_paths(&paths).find(|path| path.exists()));
    first.unwrap_or_else(|| {
        let home = std::env::home_dir().unwrap_or_default();
        home.join(".kube").join("config")
    })
}

async fn interrupted() {
    let mut ended = signal(SignalKind::terminate()).expect("signals can be awaited");
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = ended.recv() => {}
    }
    println!("e2e: interrupted; cleaning up");
}

fn failed(why: &str) -> ExitCode {
    println!("e2e: {why}");
    ExitCode::FAILURE
}

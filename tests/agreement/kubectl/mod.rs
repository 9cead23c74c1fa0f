//! The real kubectl against the sandbox, served on a loopback port: the same commands as against a
//! real API server, and the same words from both.

mod run;
mod scripts;

use run::{Kubectl, Script};

use trustplane::kit::clock::Clock;
use trustplane::sandbox::api::ApiServer;
use trustplane::sandbox::loopback::Port;
use trustplane::sandbox::serve::{Options, Serving};
use trustplane::sandbox::store::Store;

use crate::real::Real;

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_says_the_same_of_two_real_servers() {
    let (one, two) = tokio::join!(Real::start("kubectl-one"), Real::start("kubectl-two"));
    let pair = (Kubectl::new(one.kubeconfig()), Kubectl::new(two.kubeconfig()));
    let scripts = scripts::all();
    let runs = scripts.iter().map(|script: &Script| script.compare(&pair.0, &pair.1));
    let failures: Vec<_> = futures::future::join_all(runs).await.concat();
    println!("{}", failures.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_says_the_same_of_the_sandbox() {
    let real = Real::start("kubectl").await;
    let clock = Clock::system();
    let server = ApiServer::new(Store::new(100_000, 1), clock.clone());
    let options = Options { port: Port::Rather(0), kubeconfig: None };
    let serving = Serving::start(server, options, &clock).await.expect("a loopback port");
    let pair = (Kubectl::new(real.kubeconfig()), Kubectl::new(serving.kubeconfig()));
    let scripts = scripts::all();
    let runs = scripts.iter().map(|script: &Script| script.compare(&pair.0, &pair.1));
    let failures: Vec<_> = futures::future::join_all(runs).await.concat();
    println!("{}", failures.join("\n"));
    println!("{} failures", failures.len());
}

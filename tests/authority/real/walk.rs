//! The walk of docs/spiffe.md: every file and every command word for word, and what each prints.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rustix::process::Signal;
use testkit::{
    Cluster, Controller, Launch, eventually, free_port,
    manual::{Manual, Step, Steps},
    pair,
    spire::Names,
    suite,
    tied::Tied,
    tools::text_of,
};
use trustplane::{
    authority::agent::workload_client::fetch_svid,
    runtime::tls_listener::CertReloader,
    spiffe::{chain, svid::PresentedSvid},
};

use super::machine::Machine;
use crate::stage::Partner;

const SOON: Duration = Duration::from_secs(60);
const PAGE: &str = "docs/spiffe.md";
const TRY_IT: &str = "Try it without a cluster";

/// Commands of the page that stand in a sentence.
const IN_SENTENCES: [&str; 3] = [
    "trustplane authority --help",
    "kubectl explain spiffefederation.spec.bundleSource --recursive",
    "kubectl -n trustplane events --for configmap/trustplane-bundle",
];

/// All that the walk consists of.
const SECTIONS: [&str; 10] = [
    "1. Install",
    "2. See what it publishes",
    "3. Federate with a partner",
    "4. Fetch its bundle now",
    "5. Let the partner's workloads join",
    "6. Run an agent",
    "7. See who has joined",
    "8. Rotate our CA",
    "9. Take Teleport's federations over",
    "10. End the trust",
];

/// The administrator's, and that of a workload of the partner.
fn machine(cluster: &Cluster) -> Machine {
    let server = format!("127.0.0.1:{}", free_port().expect("a free port"));
    let kubeconfig = cluster.kubeconfig(cluster.admin_access());
    Machine::new(cluster.scratch().join("checkout"), kubeconfig, server)
}

/// Runs a command that does not end.
fn second_terminal(machine: &Machine, steps: &Steps) -> Tied {
    let [Step::Commands { text, prints: None }] = &*steps.0 else {
        panic!("one command, whose output nobody sees")
    };
    machine.another_terminal(text, "agent-walk")
}

/// What the partner's SPIRE agent writes for a workload.
fn write_svid(machine: &Machine, partner: &Partner) {
    let svid = partner.svid("/ci/deploy");
    let pem = |label: &str, der: &[u8]| {
        let lines = STANDARD.encode(der);
        format!("-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n")
    };
    let chain: String = svid.chain.iter().map(|it| pem("CERTIFICATE", it)).collect();
    let key = pem("PRIVATE KEY", svid.key.secret_der());
    suite::register_der_key(suite::KeyOf::Svid, svid.key.secret_der());
    suite::write_private(&machine.folder.join("svid.0.pem"), &chain);
    suite::write_private(&machine.folder.join("svid.0.key"), &key);
}

/// What a node would start from the Deployment.
async fn start(cluster: &Cluster, machine: &Machine, names: &Names, roots: &Path) -> Controller {
    let token = cluster.token_of("trustplane", "trustplane-authority").await;
    let kubeconfig = cluster.kubeconfig(&cluster.admin_access().with_token(token));
    let listen = format!("--spiffe-listen=127.0.0.1:{}", free_port().expect("a free port"));
    let join = format!("--join-listen={}", machine.server);
    let arguments = [
        "authority",
        "--trust-domain=td.example.org",
        "--namespace=trustplane",
        "--leader-elect",
        "--leader-elect-namespace=trustplane",
        "--listen=127.0.0.1:0",
        "--log-format=json",
        &listen,
        &join,
    ];
    let launch = Launch::exactly("authority-walk", &arguments, kubeconfig);
    let launch = launch.env("SSL_CERT_FILE", roots.to_str().expect("a path is text"));
    let proxied = names.environment();
    let launch = proxied.iter().fold(launch, |launch, (name, value)| launch.env(name, value));
    let mut controller = launch.start();
    controller.ready().await;
    controller
}

/// The partner of the page, and a file with the CA of its certificate.
async fn partner(cluster: &Cluster, names: &Names) -> (Partner, PathBuf) {
    let issued = pair::issued("partner.example");
    let file = |name: &str, text: &str| {
        let path = cluster.scratch().join(name);
        suite::write_private(&path, text);
        path
    };
    let (certificate, key) =
        (file("partner.crt", &issued.certificate), file("partner.key", &issued.key));
    let served = CertReloader::read(&certificate, &key).expect("a pair");
    let partner = Partner::start_web("partner.example", served).await;
    names.point("partner.example", partner.address());
    (partner, file("roots.pem", &issued.authority))
}

/// The SPIFFE ID that a workload gets at this socket, and its SVID.
async fn svid_at(socket: &Path) -> Result<(String, Vec<u8>), String> {
    let (chain, _) = fetch_svid(socket).await.map_err(|error| error.to_string())?;
    let split = chain::split(&chain).ok_or("no chain")?;
    let svid = PresentedSvid::read(&split).map_err(|error| error.to_string())?;
    Ok((svid.id().map_err(|error| error.to_string())?.to_string(), chain))
}

#[test]
fn every_command_of_the_page_and_of_the_readme_is_in_the_walk() {
    let manual = Manual::read(PAGE);
    assert_eq!(manual.sections(), SECTIONS, "each of them is walked below");
    let all = SECTIONS.iter().chain([&TRY_IT]).map(|heading| manual.section(heading));
    let is_command = |it: &Step| matches!(it, Step::Commands { .. });
    let walked: usize = all.map(|steps| steps.0.into_iter().filter(is_command).count()).sum();
    assert_eq!(walked, text_of(PAGE).matches("\n```sh\n").count());
    let Step::Commands { text, .. } = &manual.section(TRY_IT).0[0] else { panic!("no command") };
    let readme = text_of("README.md");
    let shown: Vec<_> = readme.split('`').collect();
    for tour in text.lines().map(|line| line.trim_start_matches("trustplane ")) {
        assert!(shown.contains(&&*format!("cargo run -- {tour}")), "{tour}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_walk_of_the_manual_leads_to_a_partner_that_is_followed_and_ends_the_trust() {
    let manual = Manual::read(PAGE);
    let cluster = Cluster::start_another("authority-walk").await;
    let machine = machine(&cluster);
    machine.run(&manual.section(TRY_IT)).await;
    machine.run(&manual.section("1. Install")).await;

    let names = Names::start().await;
    let (mut partner, roots) = partner(&cluster, &names).await;
    let first = partner.document();
    let mut controller = start(&cluster, &machine, &names, &roots).await;
    let published = ["-n", "trustplane", "get", "configmap", "trustplane-bundle"];
    eventually(SOON, "the bundle is published", async || cluster.kubectl(&published).await).await;
    machine.run(&manual.section("2. See what it publishes")).await;
    for command in IN_SENTENCES {
        assert!(text_of(PAGE).contains(&format!("`{command}`")), "{command} is not on the page");
        machine.shell(command).await;
    }
    machine.run(&manual.section("3. Federate with a partner")).await;

    partner.prepare();
    let (refresh, accept) = manual.section("4. Fetch its bundle now").split_before("spiffe accept");
    machine.run(&refresh).await;
    partner.answer(&first);
    let asked = "trustplane.dev/refresh-requested=again";
    let annotate = ["annotate", "--overwrite", "spiffefederation", "partner.example", asked];
    cluster.kubectl(&annotate).await.expect("it is asked for");
    let reason = r#"-o=jsonpath={.status.conditions[?(@.type=="Synced")].reason}"#;
    let refused = ["get", "spiffefederation", "partner.example", reason];
    eventually(SOON, "the older bundle is refused", async || {
        let reason = cluster.kubectl(&refused).await;
        if reason.as_deref() == Ok("SequenceRefused") { Ok(()) } else { Err(reason) }
    })
    .await;
    machine.run(&accept).await;

    write_svid(&machine, &partner);
    machine.run(&manual.section("5. Let the partner's workloads join")).await;
    let (agent, fetch) = manual.section("6. Run an agent").split_before("spire-agent api");
    let mut agent = second_terminal(&machine, &agent);
    let socket = machine.folder.join("agent.sock");
    eventually(SOON, "the agent serves", async || svid_at(&socket).await).await;
    machine.run(&fetch).await;
    machine.run(&manual.section("7. See who has joined")).await;
    let (id, before) = svid_at(&socket).await.expect("an SVID");

    machine.run(&manual.section("8. Rotate our CA")).await;
    eventually(SOON, "the agent has an SVID of the new CA", async || {
        let (same, after) = svid_at(&socket).await?;
        if (same == id) && after != before { Ok(()) } else { Err("the old one".to_owned()) }
    })
    .await;
    machine.run(&manual.section("9. Take Teleport's federations over")).await;
    machine.run(&manual.section("10. End the trust")).await;
    assert_eq!(machine.different(), Vec::<String>::new(), "the page shows something else");
    agent.signal(Signal::INT);
    assert_eq!(agent.ended(SOON).await, Some(0));
    assert!(!socket.exists(), "nothing is left behind");
    assert_eq!(controller.terminate().await.0, 0);
}

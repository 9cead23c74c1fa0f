//! Two trust domains by hand, as docs/sandbox.md says it: every command word for word but for its ports, which
//! others of this machine may have; and those of the walk of docs/spiffe.md that it says work there, too.

use std::time::Duration;

use testkit::{
    eventually, free_port,
    manual::{Manual, Step, Steps},
    tied::Tied,
};

use super::machine::Machine;

const SOON: Duration = Duration::from_secs(60);
const PORTS: [&str; 5] = ["18080", "18443", "18445", "28080", "28443"];
const BUNDLE: &str = "-n trustplane get configmap trustplane-bundle";

/// The commands below a heading, one text for each terminal.
fn terminals(manual: &Manual, heading: &str) -> Vec<String> {
    let text = |step| match step {
        Step::Commands { text, prints: None } => text,
        _ => panic!("commands alone, whose output nobody sees"),
    };
    let mut texts: Vec<String> = manual.section(heading).0.into_iter().map(text).collect();
    for port in PORTS {
        let other = free_port().expect("a free port").to_string();
        assert!(texts.iter().any(|it| it.contains(port)), "{port} is not on the page");
        texts.iter_mut().for_each(|it| *it = it.replace(port, &other));
    }
    texts
}

/// Waits until this administrator sees what the authority published.
async fn until_published(machine: &Machine, whose: &str) {
    let get = format!("kubectl --kubeconfig {whose}.kubeconfig {BUNDLE}");
    let what = format!("the bundle of {whose} is published");
    eventually(SOON, &what, async || machine.try_shell(&get).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_two_sandboxes_of_the_manual_federate_and_ours_rotates_and_revokes() {
    let folder = tempfile::tempdir().expect("a folder");
    let ours = folder.path().join("ours.kubeconfig");
    let machine = Machine::new(folder.path().to_owned(), ours, String::new());
    let texts = terminals(&Manual::read("docs/sandbox.md"), "A trust domain by hand");
    let [our_sandbox, their_sandbox, our_authority, their_authority, federate] = &*texts else {
        panic!("five terminals: {texts:#?}")
    };
    let start = |commands: &str, name: &str| machine.another_terminal(commands, name);
    let mut running: Vec<Tied> =
        vec![start(our_sandbox, "by-hand-1"), start(their_sandbox, "by-hand-2")];
    for whose in ["ours", "partner"] {
        let get = format!("kubectl --kubeconfig {whose}.kubeconfig get namespaces");
        eventually(SOON, "the sandbox answers", async || machine.try_shell(&get).await).await;
    }
    running.push(start(our_authority, "by-hand-3"));
    running.push(start(their_authority, "by-hand-4"));
    until_published(&machine, "ours").await;
    until_published(&machine, "partner").await;

    let printed = machine.shell(federate).await;
    println!("$ {federate}\n{printed}");
    assert!(printed.contains("spiffefederation.trustplane.dev/partner.example condition met"));
    assert!(printed.contains("partner.example  trusted, sequence 1"), "{printed}");

    let walk = Manual::read("docs/spiffe.md");
    let (refresh, _) = walk.section("4. Fetch its bundle now").split_before("spiffe accept");
    // There the partner has rotated before.
    let [Step::Commands { text, .. }] = &*refresh.0 else { panic!("one command") };
    let printed = machine.shell(text).await;
    assert!(printed.contains("partner.example  trusted, sequence 1"), "{printed}");
    machine.run(&walk.section("8. Rotate our CA")).await;
    machine.run(&without_apply(&walk.section("9. Take Teleport's federations over"))).await;
    assert_eq!(machine.different(), Vec::<String>::new(), "the page shows something else");
    for terminal in &mut running {
        assert_eq!(terminal.exit_code(), None, "it runs until it is ended");
    }
}

/// The file and the first of its commands.
fn without_apply(steps: &Steps) -> Steps {
    let step = |step: &Step| match step {
        Step::Commands { text, .. } => {
            let kept: Vec<_> = text.lines().filter(|line| !line.contains("--apply")).collect();
            Step::Commands { text: kept.join("\n"), prints: None }
        }
        file => file.clone(),
    };
    Steps(steps.0.iter().map(step).collect())
}

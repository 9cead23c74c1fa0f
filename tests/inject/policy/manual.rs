//! The commands of docs/security.md do what it says.

use std::time::Duration;

use testkit::eventually;

use crate::policy::guarded;

const MANUAL: &str = include_str!("../../../docs/security.md");

/// The block of commands that contains this.
fn commands_with(part: &str) -> &'static str {
    let blocks = MANUAL.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let mut found = blocks.filter(|block| block.contains(part));
    let block = found.next().unwrap_or_else(|| panic!("no commands with {part}"));
    assert!(found.next().is_none(), "several blocks have {part}");
    block
}

#[tokio::test]
async fn its_probe_tells_whether_the_policy_holds_and_its_grants_are_enough() {
    let cluster = guarded::cluster().await;
    cluster.kubectl(&["create", "namespace", "shop"]).await.expect("there is none yet");
    let probe = commands_with("role policy-probe");

    let said = cluster.shell(probe).await;
    assert!(
        said.contains("denied request: policy-probe may neither get Secret \"policy-probe\""),
        "{said}"
    );
    let left =
        cluster.kubectl(&["get", "roles,rolebindings,routes", "-n", "shop", "-o", "name"]).await;
    assert_eq!(left.as_deref(), Ok(""), "it cleans up");

    let granted = cluster.shell(commands_with("role route-secrets")).await;
    assert_eq!(granted.lines().filter(|line| line.ends_with(" created")).count(), 4, "{granted}");
    let custom_hosts = ["create", "routes.route.openshift.io", "--subresource=custom-host"];
    for right in [&custom_hosts[..], &["get", "secrets/shop-tls"]] {
        let question = [&["auth", "can-i", "--namespace=shop", "--as=jane"], right].concat();
        // A Role is in force a moment after it was accepted.
        eventually(Duration::from_secs(30), "jane may", async || {
            let answer = cluster.kubectl(&question).await;
            answer.ok().filter(|answer| answer.trim() == "yes").ok_or("not yet")
        })
        .await;
    }
    let collector = "kubectl auth can-i create routes.route.openshift.io --subresource=custom-host \
        --as=system:serviceaccount:kube-system:generic-garbage-collector --all-namespaces";
    let unwrapped = MANUAL.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(unwrapped.contains(&collector.split_whitespace().collect::<Vec<_>>().join(" ")));
    assert_eq!(cluster.shell(collector).await.trim(), "no");
}

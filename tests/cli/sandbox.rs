//! The commands of an administrator on `trustplane sandbox`, whose injector runs in the same process.

use std::path::PathBuf;
use std::time::Duration;

use testkit::eventually;

use crate::check::{found, results, that_are};
use crate::program::{command, trustplane};

/// The built program with its injector; it dies with the test.
async fn sandbox() -> (tokio::process::Child, PathBuf, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let kubeconfig = folder.path().join("kubeconfig");
    let path = kubeconfig.to_str().expect("text");
    let flags = ["sandbox", "--api-port", "0", "--edge-port", "0", "--kubeconfig", path];
    let running = command(&kubeconfig, &flags)
        .env_remove("RUST_LOG")
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("it starts");
    eventually(Duration::from_secs(20), "the sandbox runs", async || {
        let ran = trustplane(&kubeconfig, &["check", "-o", "json"]).await;
        if ran.code == 0 { Ok(()) } else { Err(ran) }
    })
    .await;
    (running, kubeconfig, folder)
}

#[tokio::test]
async fn the_sandbox_is_named_as_what_it_is_and_uninstall_does_not_fight_its_injector() {
    let (_running, kubeconfig, _folder) = sandbox().await;

    let ran = trustplane(&kubeconfig, &["check", "-o", "json"]).await;
    let lines = results(&ran);
    assert_eq!(that_are(&lines, "not-yet"), [""; 0], "{ran:?}");
    assert_eq!(that_are(&lines, "warning"), [""; 0], "{ran:?}");
    assert_eq!((&ran.json()["sandbox"], &ran.json()["installed"]), (&true.into(), &false.into()));
    assert!(found(&ran, "api-server").ends_with("its injector runs"), "{ran:?}");
    let table = trustplane(&kubeconfig, &["check"]).await;
    assert!(table.out.ends_with("This is the sandbox. Nothing is installed here.\n"), "{table:?}");

    // There is nothing to install and nothing to test there, and it says so.
    let ran = trustplane(&kubeconfig, &["check", "--installed", "-o", "json"]).await;
    assert_eq!(that_are(&results(&ran), "failed"), ["deployment"], "{ran:?}");
    assert_eq!(found(&ran, "deployment"), "none: nothing can be installed in the sandbox");
    assert!(!ran.out.contains("kubectl apply"), "{ran:?}");
    let ran = trustplane(&kubeconfig, &["check", "--probe-policy", "--yes", "-o", "json"]).await;
    assert_eq!(results(&ran)["policy"], "warning", "{ran:?}");
    assert!(found(&ran, "policy").ends_with("--probe-policy tested nothing"), "{ran:?}");

    let refused = trustplane(&kubeconfig, &["uninstall", "--routes=clear", "--yes"]).await;
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.err.contains("this is the trustplane sandbox"), "{refused:?}");
    assert!(refused.err.contains("trustplane sandbox --no-inject"), "{refused:?}");
    let flags = ["uninstall", "--routes=clear", "--yes", "--while-running"];
    let done = trustplane(&kubeconfig, &flags).await;
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.out.ends_with("there is nothing else to remove.\n"), "{done:?}");
}

use super::*;
use crate::{
    demo::tour::expect::Seen,
    runtime::printable::{HOSTILE, is_harmless},
};

fn outcome(number: usize, differences: &[&str]) -> StepResult {
    StepResult {
        number,
        title: "Something happens",
        commands: &[],
        seen: Seen { served: Err("nobody looked".to_owned()), condition: None, event: None },
        seconds: 0.1,
        differences: differences.iter().map(|it| (*it).to_owned()).collect(),
    }
}

#[test]
fn a_step_that_did_not_show_what_it_should_fails_the_command() {
    assert!(all_hold([(1, true), (2, true)]).is_ok());
    let steps = [outcome(1, &[]), outcome(2, &["no Event"]), outcome(3, &["no"])];
    let failed = all_hold(steps.iter().map(|step| (step.number, step.holds())));
    let said = failed.unwrap_err().to_string();
    assert!(said.starts_with("not every step showed what it should: 2, 3."), "{said}");
}

#[test]
fn the_report_for_scripts_says_whether_all_held() {
    let read = |outcomes: &[StepResult]| -> serde_json::Value {
        serde_json::from_str(&report(&access(), outcomes, 1.0)).unwrap()
    };
    assert_eq!(read(&[outcome(1, &[])])["holds"], true);
    let failed = read(&[outcome(1, &[]), outcome(2, &["no Event"])]);
    assert_eq!(failed["holds"], false);
    assert_eq!(failed["steps"][1]["differences"][0], "no Event");
    assert_eq!(failed["steps"][1]["served"]["error"], "nobody looked");
    let hostile = [outcome(1, &[HOSTILE])];
    assert!(is_harmless(&report(&access(), &hostile, 1.0)));
    assert_eq!(read(&hostile)["steps"][0]["differences"][0], HOSTILE);
}

fn access() -> Access {
    Access {
        kubeconfig: "/tmp/trustplane-sandbox-0123456789abcdef/kubeconfig".to_owned(),
        server: "https://127.0.0.1:6443".to_owned(),
        edge: ([127, 0, 0, 1], 8443).into(),
        pid: 1,
    }
}

#[test]
fn what_is_said_after_the_tour_fits_terminals_of_50_and_80_columns() {
    for width in [50, 80] {
        let shown = by_hand(&access(), width);
        assert!(page::fits(&shown, width), "{width}:\n{shown}");
    }
}

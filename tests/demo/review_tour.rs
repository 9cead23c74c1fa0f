//! The built program: `trustplane demo review`.

use serde_json::Value;

use crate::tours::{check_widths, report};

const TOUR: &str = "review";

/// A step: which tokens were reviewed, what was told of each, and which clusters received it.
type Row = Vec<(String, String, Vec<String>)>;

fn row(step: &Value) -> Row {
    let answers = step["answers"].as_array().expect("answers");
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let answer = |it: &Value| {
        let outcome = it["outcome"].as_object().expect("an outcome").keys().next();
        let received_by = it["received_by"].as_array().expect("names").iter().map(text).collect();
        (text(&it["token"]), outcome.expect("one").clone(), received_by)
    };
    answers.iter().map(answer).collect()
}

#[test]
fn each_token_goes_to_its_own_cluster_and_an_outage_is_no_verdict() {
    let report = report(TOUR);
    let steps = report["steps"].as_array().unwrap();
    let token = |which: &str, outcome: &str, received_by: &[&str]| {
        let received_by = received_by.iter().map(|it| (*it).to_owned()).collect();
        (which.to_owned(), outcome.to_owned(), received_by)
    };
    let home = || token("home", "authenticated", &["home"]);
    let branch = || token("branch", "authenticated", &["branch"]);
    let expected = [
        vec![home(), branch()],
        vec![token("forged", "refused", &[])],
        vec![home(), token("branch", "refused", &["branch"])],
        vec![home(), branch()],
        vec![branch()],
        vec![home(), token("branch", "unanswered", &[])],
    ];
    assert_eq!(steps.iter().map(row).collect::<Vec<_>>(), expected);
    assert_eq!(steps[4]["credential"]["is_renewed"], true);
    assert_eq!(steps[4]["credential"]["lives"], 600, "the first one would have lived a year");
    assert_eq!(steps[5]["answers"][1]["outcome"]["unanswered"]["retry_after"], "1");
    assert!(!report.to_string().contains("eyJ"), "a token is shown");
}

#[test]
fn the_text_fits_and_ends_by_itself() {
    check_widths(TOUR, 6);
}

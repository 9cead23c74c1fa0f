use super::*;

const WEB: &str = "\
kind: spiffe_federation
version: v1
metadata:
  # name must match the name of the trust domain you are federating with.
  name: example.com
spec:
  bundle_source:
    https_web:
      bundle_endpoint_url: https://example.com/webapi/spiffe/bundle.json
";

#[test]
fn teleport_s_own_example_becomes_a_federation() {
    let objects = objects(WEB).unwrap();
    let expected = json!({
        "apiVersion": "trustplane.dev/v1",
        "kind": "SPIFFEFederation",
        "metadata": { "name": "example.com" },
        "spec": { "bundleSource": { "httpsWeb": {
            "bundleEndpointURL": "https://example.com/webapi/spiffe/bundle.json"
        } } },
    });
    assert_eq!(objects, [expected]);
}

#[test]
fn a_name_that_kubernetes_does_not_take_is_replaced_and_the_trust_domain_stays() {
    for name in ["under_score.test", "-a.test", "a..test"] {
        let objects = objects(&WEB.replace("example.com\nspec", &format!("{name}\nspec"))).unwrap();
        assert_eq!(objects[0]["spec"]["trustDomain"], name);
        let made = objects[0]["metadata"]["name"].as_str().unwrap();
        assert!(
            made.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'),
            "{made}"
        );
    }
}

#[test]
fn every_fault_is_told_with_its_line() {
    let file = format!(
        "{WEB}---\n{}---\n{}",
        WEB.replace("https_web", "https_spiffe"),
        WEB.replace("kind: spiffe_federation", "kind: role")
    );
    let faults = objects(&file).unwrap_err();
    let lines: Vec<_> = faults.iter().map(|it| it.line).collect();
    assert_eq!(lines, [18, 21]);
    assert!(faults[0].what.contains("SPIFFE ID of the endpoint"), "{}", faults[0]);
    assert!(faults[1].what.contains("only spiffe_federation v1 and token v2"), "{}", faults[1]);
}

#[test]
fn an_unknown_field_a_second_source_and_broken_yaml_are_faults() {
    for (wrong, line, text) in [
        (WEB.replace("      bundle_endpoint_url", "      bundle_endpoint"), 9, "bundle_endpoint"),
        (format!("{WEB}    static:\n      bundle: '{{}}'\n"), 7, "more than one"),
        (WEB.replace("https://", "http://"), 9, "https://"),
        ("kind: [\n".to_owned(), 0, ""),
        (String::new(), 1, "no resource"),
    ] {
        let faults = objects(&wrong).unwrap_err();
        assert!(line == 0 || faults[0].line == line, "{wrong}: {faults:?}");
        assert!(faults[0].what.contains(text), "{faults:?}");
    }
}

const TOKEN: &str = "\
kind: token
version: v2
metadata:
  name: spiffe-join-token
spec:
  roles: [Bot]
  bot_name: my-bot
  join_method: spiffe
  spiffe:
    allow:
      - spiffe_id: spiffe://example.com/foo/*
      - spiffe_id: spiffe://second.example.com/bar/foo/fizz
";

#[test]
fn teleport_s_own_example_of_a_token_becomes_a_join_token() {
    let expected = json!({
        "apiVersion": "trustplane.dev/v1",
        "kind": "JoinToken",
        "metadata": { "name": "spiffe-join-token" },
        "spec": {
            "roles": ["Bot"], "botName": "my-bot", "joinMethod": "spiffe",
            "spiffe": { "allow": [
                { "spiffeID": "spiffe://example.com/foo/*" },
                { "spiffeID": "spiffe://second.example.com/bar/foo/fizz" },
            ] },
        },
    });
    assert_eq!(objects(TOKEN).unwrap(), [expected]);
    let expiring = TOKEN.replace("-token\n", "-token\n  expires: 2030-06-15T14:00:00+02:00\n");
    assert_eq!(objects(&expiring).unwrap()[0]["spec"]["expires"], "2030-06-15T12:00:00Z");
    let shouting = TOKEN.replace("spiffe://example.com", "SPIFFE://Example.com");
    assert_eq!(objects(&shouting), objects(TOKEN), "the API wants lower case");
}

#[test]
fn a_federation_and_a_token_can_be_in_one_file() {
    let objects = objects(&format!("{WEB}---\n{TOKEN}")).unwrap();
    assert_eq!([&objects[0]["kind"], &objects[1]["kind"]], ["SPIFFEFederation", "JoinToken"]);
}

#[test]
fn all_faults_of_a_token_are_told_each_with_its_line() {
    let wrong = TOKEN
        .replace("spiffe-join-token", "Not_A_Name\n  expires: tomorrow")
        .replace("[Bot]", "[Bot, Bot, Node]")
        .replace("my-bot", "my/bot")
        .replace("foo/*", "**/foo")
        .replace("second.example.com", "*");
    let faults = objects(&wrong).unwrap_err();
    let told: Vec<_> = faults.iter().map(|it| (it.line, it.what.as_str())).collect();
    let expected = [
        (4, "metadata.name can't be"),
        (7, "role Bot is there twice"),
        (7, "role Node is not known"),
        (8, "bot_name is no segment"),
        (12, "spiffe_id: ** stands for"),
        (13, "spiffe_id: the trust domain can't have"),
        (5, "expires is no time"),
    ];
    assert_eq!(told.len(), expected.len(), "{told:?}");
    for ((line, what), (expected_line, words)) in told.iter().zip(expected) {
        assert!(*line == expected_line && what.starts_with(words), "{told:?}");
    }
}

#[test]
fn a_token_that_could_not_be_used_is_refused_with_its_line() {
    for (wrong, line, text) in [
        (TOKEN.replace("join_method: spiffe", "join_method: github"), 8, "only spiffe"),
        (TOKEN.replace("  bot_name: my-bot\n", ""), 6, "needs bot_name"),
        (TOKEN.replace("[Bot]", "[Agent]"), 7, "bot_name is for role Bot"),
        (TOKEN.replace("[Bot]\n  bot_name: my-bot", "[]"), 6, "roles is empty"),
        (TOKEN.replace("second.example.com/bar/foo/fizz", "example.com/foo/*"), 12, "twice"),
        (TOKEN.replace("spiffe_id: spiffe://second", "id: spiffe://second"), 12, "id"),
        (TOKEN.replace("bot_name", "bot"), 7, "bot"),
    ] {
        let faults = objects(&wrong).unwrap_err();
        assert!(faults[0].line == line && faults[0].what.contains(text), "{wrong}: {faults:?}");
        assert!(!faults[0].what.contains("line "), "one line number is enough: {faults:?}");
    }
    let (head, _) = TOKEN.split_once("  spiffe:\n").unwrap();
    let faults = objects(head).unwrap_err();
    assert!(faults[0].what.contains("spiffe.allow is missing"), "{faults:?}");
}

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
        WEB.replace("kind: spiffe_federation", "kind: token")
    );
    let faults = objects(&file).unwrap_err();
    let lines: Vec<_> = faults.iter().map(|it| it.line).collect();
    assert_eq!(lines, [18, 21]);
    assert!(faults[0].what.contains("SPIFFE ID of the endpoint"), "{}", faults[0]);
    assert!(faults[1].what.contains("only spiffe_federation v1"), "{}", faults[1]);
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

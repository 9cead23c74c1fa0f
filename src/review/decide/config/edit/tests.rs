use super::*;

const TEXT: &str = "\
# Ours, by hand.
renewal: {interval: 30m}   # shorter

clusters:
  # The one that we run in.
  local:
    issuer: https://kubernetes.default.svc

  # The shop's.
  shop:
    issuer: \"https://kubernetes.default.svc\"
    api_server: \"https://shop.example.com:6443\"
    # From the mount.
    ca_cert: /etc/trustplane/clusters/shop/ca.crt
    token_path: /etc/trustplane/clusters/shop/token

    # Deeper comments belong to it.

# Callers.
authorized_clients:
- local/monitoring/*
";

fn entry() -> NewEntry {
    NewEntry {
        issuer: "https://kubernetes.default.svc".into(),
        additional_issuers: vec![],
        api_server: "https://till.example.com:6443".into(),
        ca_cert: Some("/etc/trustplane/clusters/till/ca.crt".into()),
        token_path: "/etc/trustplane/clusters/till/token".into(),
    }
}

const ENTRY: &str = "  till:
    issuer: \"https://kubernetes.default.svc\"
    api_server: \"https://till.example.com:6443\"
    ca_cert: \"/etc/trustplane/clusters/till/ca.crt\"
    token_path: \"/etc/trustplane/clusters/till/token\"
";

fn added(text: &str) -> String {
    with_entry(text, "till", &entry()).unwrap().expect("a change")
}

#[test]
fn a_new_entry_comes_after_the_last_one_and_every_other_byte_stays() {
    let comment = "    # Deeper comments belong to it.\n";
    let expected = TEXT.replace(comment, &format!("{comment}{ENTRY}"));
    assert_eq!(added(TEXT), expected);
}

#[test]
fn what_was_added_and_removed_again_leaves_the_text_as_it_was() {
    let windows = TEXT.replace('\n', "\r\n");
    let deep = TEXT.replace("\n  ", "\n      ");
    for text in [TEXT, &windows, &deep, "clusters:\n a:\n  issuer: i\n"] {
        let removed = without_entry(&added(text), "till").unwrap();
        assert_eq!(removed.as_deref(), Some(text));
    }
    assert!(
        added(&windows).lines().count() > 10 && !added(&windows).replace("\r\n", "").contains('\n')
    );
}

#[test]
fn an_empty_configuration_begins_with_the_entry() {
    assert_eq!(added(""), format!("clusters:\n{ENTRY}"));
    assert_eq!(added("# Nothing yet."), format!("# Nothing yet.\nclusters:\n{ENTRY}"));
}

#[test]
fn a_text_without_an_end_of_its_last_line_gets_one() {
    let text = "clusters:\n  a:\n    issuer: i";
    assert_eq!(added(text), format!("{text}\n{ENTRY}"));
}

#[test]
fn an_entry_that_is_there_is_not_written_again_and_may_say_more() {
    let mut text = added(TEXT);
    assert_eq!(with_entry(&text, "till", &entry()), Ok(None));
    text = text.replace(
        "  till:\n",
        "  till:\n    kids: [k1]\n    additional_issuers: [https://old.test]\n",
    );
    assert_eq!(with_entry(&text, "till", &entry()), Ok(None));
}

#[test]
fn an_entry_that_says_otherwise_is_not_overwritten() {
    let mut other = entry();
    other.issuer = "https://new.test".into();
    other.api_server = "https://moved.example.com:6443".into();
    other.ca_cert = None;
    let refused = with_entry(&added(TEXT), "till", &other).unwrap_err().to_string();
    for words in [
        "its api_server is https://till.example.com:6443, not https://moved.example.com:6443",
        "it does not list issuer https://new.test",
        "its ca_cert is /etc/trustplane/clusters/till/ca.crt, not missing",
    ] {
        assert!(refused.contains(words), "{refused}");
    }
    let local = with_entry(TEXT, "local", &entry()).unwrap_err().to_string();
    assert!(local.contains("it is the cluster that trustplane review runs in"), "{local}");
}

#[test]
fn a_cluster_is_not_registered_under_two_names() {
    let mut same = entry();
    same.api_server = "https://shop.example.com:6443".into();
    let refused = with_entry(TEXT, "till", &same);
    assert_eq!(refused, Err(EditError::SameServer("shop".into())));
}

#[test]
fn what_is_not_written_line_by_line_is_left_alone() {
    for text in [
        "clusters: {a: {issuer: i}}",
        "clusters: {\n  a: {issuer: i}\n}\n",
        "{\"clusters\": {\"a\": {\"issuer\": \"i\"}}}",
        "? clusters\n: ? a\n  : issuer: i\n",
    ] {
        assert_eq!(with_entry(text, "till", &entry()), Err(EditError::Form), "{text}");
    }
    // An entry in braces on a line of its own is one.
    assert_eq!(
        added("clusters:\n  a: {issuer: i}\n"),
        format!("clusters:\n  a: {{issuer: i}}\n{ENTRY}")
    );
}

#[test]
fn a_configuration_with_faults_is_not_changed() {
    let text = TEXT.replace("https://shop", "http://shop");
    for refused in [with_entry(&text, "till", &entry()), without_entry(&text, "shop")] {
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("already: line 12, column 17: api_server must be"), "{refused}");
    }
}

#[test]
fn an_entry_is_removed_with_what_is_deeper_and_nothing_else() {
    let expected = TEXT.find("  shop:").zip(TEXT.find("\n# Callers."));
    let (begin, end) = expected.unwrap();
    let expected = format!("{}{}", &TEXT[..begin], &TEXT[end..]);
    assert_eq!(without_entry(TEXT, "shop"), Ok(Some(expected)));
    assert_eq!(without_entry(TEXT, "till"), Ok(None));
}

#[test]
fn an_entry_that_something_else_names_is_not_removed() {
    let refused = without_entry(TEXT, "local").unwrap_err().to_string();
    assert!(refused.contains("local/monitoring/*: no such cluster is configured"), "{refused}");
    let only = without_entry("clusters:\n  a:\n    issuer: i\n", "a");
    assert_eq!(only, Err(EditError::Last));
}

#[test]
fn names_and_texts_that_yaml_would_take_for_something_else_are_quoted() {
    let mut odd = entry();
    odd.issuer = "a: \"b\" # c\u{7f}".into();
    odd.additional_issuers = vec!["https://old.test".into(), odd.issuer.clone()];
    for name in ["1", "1.5", "null", "no", "0x10", "e", "till.eu"] {
        let text = with_entry(TEXT, name, &odd).unwrap().expect("a change");
        assert_eq!(read(&text).unwrap().clusters[name].issuers, odd.issuers(), "{text}");
    }
}

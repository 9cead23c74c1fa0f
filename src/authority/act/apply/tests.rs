use super::*;

#[test]
fn what_is_absent_in_the_new_status_is_removed_from_the_old_one() {
    let old = json!({ "fingerprint": "a", "from": { "httpsWeb": { "pins": ["b"] } }, "same": 1 });
    let mut new = json!({ "from": { "static": { "bundle": "" } }, "same": 1 });
    null_absent(&mut new, &old);
    let expected = json!({
        "fingerprint": null,
        "from": { "static": { "bundle": "" }, "httpsWeb": null },
        "same": 1,
    });
    assert_eq!(new, expected);
}

#[test]
fn nothing_of_a_key_is_printed() {
    let state = AuthorityState {
        trust_domain: "td".to_owned(),
        sequence: 1,
        refresh_hint: 1,
        cas: Vec::new(),
        rotating: false,
        handled: Requests::default(),
        longer_hint_until: None,
    };
    let keys = Keys::from([("a".to_owned(), Zeroizing::new(b"very secret".to_vec()))]);
    let shown = format!("{:?}", Stored { state, keys, meta: ObjectMeta::default() });
    assert!(shown.contains("1 keys") && !shown.contains("secret"), "{shown}");
}

#[test]
fn a_request_of_any_length_leaves_room_in_the_secret() {
    let longest = "\u{1}".repeat(250_000);
    let annotations = json!({ ROTATE_ANNOTATION: longest, REVOKE_ANNOTATION: longest });
    let config_map = json!({ "metadata": { "annotations": annotations } });
    let asked = requests(&serde_json::from_value(config_map).unwrap());
    assert!(asked.rotate.is_some() && asked.revoke.is_some());
    let text = serde_json::to_string(&asked).unwrap();
    assert!(text.len() < 1024, "{} bytes", text.len());
}

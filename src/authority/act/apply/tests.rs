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

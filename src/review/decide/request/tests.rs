use serde_json::json;

use super::*;

const BOTH: [Version; 2] = [Version::V1, Version::V1Beta1];

fn read_json(document: &Value) -> Result<Request, Failure> {
    read_as(document, FieldValidation::Warn)
}

fn read_as(document: &Value, validation: FieldValidation) -> Result<Request, Failure> {
    read(document.to_string().as_bytes(), Format::Json, &BOTH[..1], validation)
}

fn failure(document: &Value) -> (u16, &'static str) {
    let failure = read_json(document).err().unwrap();
    (failure.code, failure.reason)
}

fn accepted() -> Answer {
    let extra = BTreeMap::from([("a/pod-name".to_owned(), vec!["cart-0".to_owned()])]);
    let user = UserInfo {
        username: Some("system:serviceaccount:shop:cart".to_owned()),
        uid: Some("u-1".to_owned()),
        groups: Some(vec!["system:authenticated".to_owned()]),
        extra: Some(extra),
    };
    Answer::Authenticated(Box::new(Accepted {
        user,
        audiences: vec!["till".to_owned()],
        dropped: 0,
    }))
}

#[test]
fn a_review_is_read_in_every_format_alike() {
    let document = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "metadata": { "name": "one" },
        "spec": { "token": "a.b.c", "audiences": ["till"] },
    });
    let yaml = "apiVersion: authentication.k8s.io/v1\nkind: TokenReview\nmetadata: {name: one}\n\
                spec:\n  token: a.b.c\n  audiences: [till]\n";
    let protobuf = protobuf::write(&document);
    for (format, body) in [
        (Format::Json, document.to_string().into_bytes()),
        (Format::Yaml, yaml.as_bytes().to_vec()),
        (Format::Protobuf, protobuf),
    ] {
        let request = read(&body, format, &BOTH, FieldValidation::Strict).ok().unwrap();
        assert_eq!(*request.token, "a.b.c", "{format:?}");
        assert_eq!(request.audiences, ["till"]);
        assert_eq!(request.version, Version::V1);
        assert_eq!(request.metadata["name"], "one");
        assert!(request.warnings.is_empty());
    }
}

#[test]
fn kind_and_version_may_be_missing_and_must_not_be_others() {
    let spec = json!({ "token": "t" });
    assert!(read_json(&json!({ "spec": spec })).is_ok());
    for (version, kind) in [
        ("authentication.k8s.io/v1", "Pod"),
        ("authentication.k8s.io/v1beta1", "TokenReview"),
        ("v1", "TokenReview"),
    ] {
        let document = json!({ "apiVersion": version, "kind": kind, "spec": spec });
        assert_eq!(failure(&document), (400, "BadRequest"), "{version} {kind}");
    }
    let beta = json!({ "apiVersion": "authentication.k8s.io/v1beta1", "spec": spec }).to_string();
    let request = read(beta.as_bytes(), Format::Json, &BOTH, FieldValidation::Warn).ok().unwrap();
    assert_eq!(request.version, Version::V1Beta1);
    let answer = request.answered(&accepted(), Format::Json);
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(answer["apiVersion"], "authentication.k8s.io/v1beta1");
}

#[test]
fn a_review_without_a_token_is_refused_in_kubernetes_words() {
    for spec in [json!(null), json!({}), json!({ "token": "" }), json!({ "token": null })] {
        let failure = read_json(&json!({ "spec": spec })).err().unwrap();
        assert_eq!((failure.code, failure.reason), (400, "BadRequest"));
        assert_eq!(failure.message, "token is required for TokenReview in authentication");
    }
}

#[test]
fn a_body_that_is_no_review_is_refused_and_never_quoted() {
    for body in [
        "",
        "{",
        "[]",
        "7",
        "null",
        r#"{"spec": "hidden"}"#,
        r#"{"spec": {"token": ["hidden"]}}"#,
        r#"{"kind": ["hidden"]}"#,
        r#"{"spec": {"token": "t", "audiences": "hidden"}}"#,
        r#"{"spec": {"token": "t", "audiences": [7]}}"#,
        "\u{0}hidden",
        r#"{"spec": {"token": "hidden"#,
        r#"{"metadata": "hidden", "spec": {"token": "t"}}"#,
    ] {
        for format in Format::ALL {
            let found = read(body.as_bytes(), format, &BOTH, FieldValidation::Warn);
            let failure = found.err().unwrap_or_else(|| panic!("{body} as {format:?}"));
            assert_eq!((failure.code, failure.reason), (400, "BadRequest"), "{body}");
            assert!(!failure.message.contains("hidden"), "{}", failure.message);
        }
    }
    let long = json!({ "spec": { "token": "t", "audiences": vec!["a".repeat(1024); 65] } });
    assert_eq!(failure(&long), (400, "BadRequest"));
}

#[test]
fn fields_that_nobody_knows_are_warned_of_or_refused_or_ignored() {
    let document = json!({
        "spec": { "token": "t", "tokens": 1 }, "sepc": {}, "status": { "user": { "name": "x" } },
    });
    let warned = read_as(&document, FieldValidation::Warn).ok().unwrap().warnings;
    assert_eq!(
        warned,
        [
            r#"unknown field "sepc""#,
            r#"unknown field "spec.tokens""#,
            r#"unknown field "status.user.name""#
        ]
    );
    let strict = read_as(&document, FieldValidation::Strict).err().unwrap();
    assert_eq!((strict.code, strict.reason), (400, "BadRequest"));
    assert!(strict.message.starts_with(r#"strict decoding error: unknown field "sepc", "#));
    assert!(read_as(&document, FieldValidation::Ignore).ok().unwrap().warnings.is_empty());
}

#[test]
fn the_callers_own_status_does_not_come_back() {
    let document = json!({
        "spec": { "token": "t" },
        "status": { "authenticated": true, "user": { "username": "system:admin" }, "audiences": ["x"] },
    });
    let request = read_json(&document).ok().unwrap();
    let no = Answer::NotAuthenticated("invalid bearer token".to_owned());
    for format in Format::ALL {
        let answer = request.answered(&no, format);
        assert!(!String::from_utf8_lossy(&answer).contains("system:admin"), "{format:?}");
    }
    let answer: Value = serde_json::from_slice(&request.answered(&no, Format::Json)).unwrap();
    // As Kubernetes: `authenticated` is left out.
    assert_eq!(answer["status"], json!({ "user": {}, "error": "invalid bearer token" }));
    assert_eq!(answer["spec"]["token"], "t");
}

#[test]
fn an_answer_is_the_same_in_every_format() {
    let request = read_json(&json!({ "spec": { "token": "t", "audiences": ["till"] } }));
    let request = request.ok().unwrap();
    let json: Value = serde_json::from_slice(&request.answered(&accepted(), Format::Json)).unwrap();
    assert_eq!(json["status"]["authenticated"], true);
    assert_eq!(json["status"]["user"]["extra"]["a/pod-name"], json!(["cart-0"]));
    let yaml = String::from_utf8(request.answered(&accepted(), Format::Yaml)).unwrap();
    assert_eq!(serde_saphyr::from_str::<Value>(&yaml).unwrap(), json);
    assert_eq!(request.answered(&accepted(), Format::Protobuf), protobuf::write(&json));
}

#[test]
fn media_types_are_those_of_kubernetes() {
    for (text, expected) in [
        (None, Some(Format::Json)),
        (Some("application/json; charset=utf-8"), Some(Format::Json)),
        (Some("Application/YAML"), Some(Format::Yaml)),
        (Some("application/vnd.kubernetes.protobuf"), Some(Format::Protobuf)),
        (Some("application/cbor"), None),
        (Some("application/x-www-form-urlencoded"), None),
    ] {
        let found = Format::of_body(text).map_err(|failure| (failure.code, failure.reason));
        assert_eq!(found, expected.ok_or((415, "UnsupportedMediaType")), "{text:?}");
    }
    for (text, expected) in [
        ("", Some(Format::Json)),
        ("*/*", Some(Format::Json)),
        ("application/vnd.kubernetes.protobuf,application/json", Some(Format::Protobuf)),
        ("application/xml, application/yaml;q=0.5", Some(Format::Yaml)),
        ("application/xml", None),
    ] {
        let found = Format::of_answer(text).map_err(|failure| (failure.code, failure.reason));
        assert_eq!(found, expected.ok_or((406, "NotAcceptable")), "{text}");
    }
}

#[test]
fn parameters_are_checked_as_kubernetes_checks_them() {
    let read = |name, value| {
        Parameters::read([(name, value)].into_iter()).map_err(|it| (it.code, it.reason))
    };
    let deadline = |text| read("timeout", text).map(|it| it.deadline);
    assert_eq!(deadline("3s"), Ok(Duration::from_secs(3)));
    assert_eq!(deadline("30s"), Ok(DEADLINE), "ours is shorter");
    assert_eq!(deadline("0s"), Ok(DEADLINE));
    assert_eq!(deadline("abc"), Err((400, "BadRequest")));
    assert_eq!(read("dryRun", "All").map(|_| ()), Ok(()));
    assert_eq!(read("dryRun", "x"), Err((422, "Invalid")));
    assert_eq!(read("fieldValidation", "x"), Err((422, "Invalid")));
    let strict = read("fieldValidation", "Strict").unwrap();
    assert_eq!(strict.field_validation, FieldValidation::Strict);
    assert!(read("pretty", "true").is_ok());
}

#[test]
fn a_body_that_would_be_much_longer_in_memory_is_refused() {
    let json = |filling: &str| {
        let filling = filling.repeat(LONGEST_BODY / 2 / filling.len());
        format!(r#"{{"spec": {{"token": "t"}}, "x": [{filling}0]}}"#)
    };
    let lines = "a: [x, x, x, x, x, x, x, x]\n".replace("a: ", "- &a ");
    let aliases = format!("spec: {{token: t}}\nx:\n{lines}{}", "- *a\n".repeat(20_000));
    let long =
        format!("spec: {{token: t}}\nx: [&a {}{}]\n", "y".repeat(1 << 20), ", *a".repeat(20));
    for (format, body) in [
        (Format::Json, json(r#"{"":0},"#)),
        (Format::Json, json("[[0],0],")),
        (Format::Yaml, json(r#"{"":0},"#)),
        (Format::Yaml, aliases),
        (Format::Yaml, long),
    ] {
        let code = read(body.as_bytes(), format, &BOTH, FieldValidation::Ignore).err();
        assert_eq!(code.map(|it| it.code), Some(400), "{format:?} {}", &body[..60]);
    }
    let many = json!({ "spec": { "token": "t", "audiences": vec![""; MOST_AUDIENCES + 1] } });
    assert_eq!(failure(&many), (400, "BadRequest"));
    let body = protobuf::write(&many);
    let code = read(&body, Format::Protobuf, &BOTH, FieldValidation::Ignore).err();
    assert_eq!(code.map(|it| it.code), Some(400));
}

//! Looks back on a whole run of the suite: no key or token in anything that was printed or said, no request
//! that our role does not allow, no rule in the role that was never used.
//!
//! Runs after the other tests (`make test-all` does that), and fails when there is nothing to look at.

use std::{
    collections::{BTreeSet, HashSet},
    fs,
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use chrono::{TimeDelta, Utc};
use openssl::{
    ec::{EcGroup, EcKey},
    nid::Nid,
    pkey::PKey,
};
use serde_json::Value;
use testkit::{
    ACCOUNT, at,
    review::leaks,
    suite::{self, KeyOf},
};
use trustplane::authority::{
    act::signer::make_ca,
    decide::ca::{self, Policy},
};

/// Long enough to be no accident, short enough that a piece of a key is found.
const PIECE: usize = 32;

/// Where `make test` has the suite leave what it saw.
fn suite_folder() -> PathBuf {
    testkit::target_folder().join("suite")
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("a folder can be read").path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

fn named(folder: &Path, name: &str) -> Vec<PathBuf> {
    files(folder)
        .into_iter()
        .filter(|path| path.file_name().is_some_and(|file| file == name))
        .collect()
}

/// Pieces of every key that the tests made, as PEM and as a Secret's base64 holds it; of keys in DER, such as
/// those of our CAs, in hex, too.
fn pieces(folder: &Path) -> HashSet<Vec<u8>> {
    let mut pieces = HashSet::new();
    for path in named(folder, suite::DER_KEYS) {
        let text = fs::read_to_string(path).expect("keys can be read");
        pieces.extend(text.lines().flat_map(|line| der_pieces(&der_key(line).1)));
    }
    for path in named(folder, "keys") {
        let text = fs::read_to_string(path).expect("keys can be read");
        let mut key = String::new();
        for line in text.lines() {
            key.push_str(line);
            key.push('\n');
            if line.len() >= PIECE && !line.starts_with("-----") {
                // The end of a line: its beginning may be the same in all keys of a kind.
                pieces.insert(line.as_bytes()[line.len() - PIECE..].to_vec());
            }
            if line.starts_with("-----END") {
                pieces.extend(encoded_pieces(&key));
                key.clear();
            }
        }
    }
    pieces
}

fn encoded_pieces(key: &str) -> impl Iterator<Item = Vec<u8>> {
    let encoded = STANDARD.encode(key);
    let middle = encoded.len() / 2;
    [encoded.as_bytes()[middle..middle + PIECE].to_vec()].into_iter()
}

/// Whose it is, and the key, of a line of the file.
fn der_key(line: &str) -> (&str, Vec<u8>) {
    let (of, key) = line.split_once(' ').expect("two words");
    (of, hex::decode(key).expect("hex"))
}

/// Only of the private number: the public one stands beside it in the key, and in certificates.
fn der_pieces(der: &[u8]) -> Vec<Vec<u8>> {
    let parsed = PKey::private_key_from_der(der).and_then(|key| key.ec_key()).expect("an EC key");
    let number = parsed.private_key().to_vec_padded(32).expect("P-256");
    let in_hex = hex::encode(&number[..PIECE / 2]);
    // The first line of PEM ends within the number.
    let line = STANDARD.encode(&der[..48]);
    // Other base64 may begin at any byte, and has four characters for three bytes.
    let base64 = (0..3).map(|from| STANDARD.encode(&number[from..from + PIECE / 4 * 3]));
    let pieces = [in_hex.to_uppercase(), in_hex, line[line.len() - PIECE..].to_owned()];
    pieces.into_iter().chain(base64).map(String::into_bytes).collect()
}

/// Files below the folder that hold a piece of a key.
fn leaks(folder: &Path) -> Vec<PathBuf> {
    let pieces = pieces(folder);
    // These are secret by design, and no output of ours.
    let secret_by_design =
        |path: &PathBuf| ["keys", suite::DER_KEYS, "audit.log"].iter().any(|it| path.ends_with(it));
    let mut leaking = files(folder);
    leaking.retain(|path| {
        !secret_by_design(path) && holds_a_piece(&fs::read(path).expect("readable"), &pieces)
    });
    leaking
}

fn holds_a_piece(text: &[u8], pieces: &HashSet<Vec<u8>>) -> bool {
    let in_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=".contains(byte);
    text.split(|byte| !in_base64(byte))
        .filter(|run| run.len() >= PIECE)
        .any(|run| run.windows(PIECE).any(|window| pieces.contains(window)))
        || byte_lists(text).any(|bytes| {
            let text = hex::encode(bytes);
            text.as_bytes().windows(PIECE).any(|window| pieces.contains(window))
        })
}

/// Lists such as `[48, 129, 135]`, which is how Rust shows bytes.
fn byte_lists(text: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let in_list = |byte: &u8| byte.is_ascii_digit() || b", ".contains(byte);
    let lists = text.split(move |byte| !in_list(byte)).filter(|run| run.len() >= PIECE);
    lists.filter_map(|list| {
        let text = str::from_utf8(list).ok()?;
        text.split(',').map(|number| number.trim().parse().ok()).collect()
    })
}

#[test]
fn no_key_is_in_any_log_event_metric_or_panic_of_the_suite() {
    let folder = suite_folder();
    let count = pieces(&folder).len();
    let looked_at = files(&folder);
    assert!(count > 1_000, "there is no run to look at: run `make test-all`");
    for of in KeyOf::ALL.map(|it| format!("{it:?}")) {
        let registered = named(&folder, suite::DER_KEYS).into_iter().any(|path| {
            let text = fs::read_to_string(path).expect("keys can be read");
            text.lines().any(|line| der_key(line).0 == of)
        });
        assert!(registered, "no key of kind {of} to look for: run `make test-all`");
    }
    for kind in ["controllers", "metrics", "events"] {
        let seen =
            looked_at.iter().filter(|path| path.components().any(|part| part.as_os_str() == kind));
        assert!(seen.count() > 10, "no {kind} to look at: run `make test-all`");
    }
    assert!(
        !named(&folder, "output.log").is_empty(),
        "no output of the tests to look at: run `make test-all`"
    );

    let leaks = leaks(&folder);

    assert!(leaks.is_empty(), "key bytes in {leaks:#?}");
    println!("{} files hold none of {count} pieces of keys", looked_at.len());
}

#[test]
fn a_leak_planted_on_purpose_is_found() {
    let key = PKey::generate_ed25519().and_then(|key| key.private_key_to_pem_pkcs8());
    let rsa = openssl::rsa::Rsa::generate(2048).and_then(|key| key.private_key_to_pem());
    let keys = [key, rsa].map(|pem| String::from_utf8(pem.expect("a key")).expect("PEM is text"));
    let folder = tempfile::tempdir().expect("a folder");
    let write =
        |name: &str, text: String| fs::write(folder.path().join(name), text).expect("written");
    write("keys", keys.concat());
    let line = |key: &String| key.lines().nth(1).expect("a line of base64").to_owned();
    write("quoted.log", format!("{{\"message\":\"refused {}\"}}", keys[0].replace('\n', "\\n")));
    write("line.log", format!("a line: {}", line(&keys[1])));
    write("event.json", format!("{{\"note\":\"{}\"}}", line(&keys[0])));
    write("secret.log", format!("data: {}", STANDARD.encode(&keys[1])));
    write("clean.log", "nothing but MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQ".to_owned());

    let found: BTreeSet<_> = leaks(folder.path())
        .into_iter()
        .filter_map(|path| path.file_name().map(|name| name.to_owned()))
        .collect();

    let expected = ["quoted.log", "line.log", "event.json", "secret.log"];
    assert_eq!(found, expected.map(Into::into).into());
}

/// Writes logs that show a key in every way that comes to mind.
fn plant(key: &[u8], of: KeyOf, folder: &Path) -> BTreeSet<PathBuf> {
    let write = |name: &str, text: String| fs::write(folder.join(name), text).expect("written");
    write(suite::DER_KEYS, format!("{of:?} {}\n", hex::encode(key)));
    let pem = PKey::private_key_from_der(key).and_then(|key| key.private_key_to_pem_pkcs8());
    let pem = String::from_utf8(pem.expect("a key")).expect("PEM is text");
    write("pem.log", pem.clone());
    write("quoted.log", pem.replace('\n', "\\n"));
    write("secret.json", format!("{{\"data\":{{\"a.key\":\"{}\"}}}}", STANDARD.encode(key)));
    for before in ["", "x", "xy"] {
        write(&format!("inside{before}.log"), STANDARD.encode([before.as_bytes(), key].concat()));
    }
    write("hex.log", format!("key={}", hex::encode(key)));
    write("upper.log", hex::encode_upper(key));
    write("debug.log", format!("SecretBytes({key:?})"));
    let mut planted: BTreeSet<_> = files(folder).into_iter().collect();
    planted.remove(&folder.join(suite::DER_KEYS));
    assert_eq!(planted.len(), 9);
    planted
}

#[test]
fn a_key_of_an_svid_or_of_a_workload_planted_on_purpose_is_found_however_it_is_shown() {
    // As `trustplane agent` makes it, and as Go and SPIRE write it.
    let ours = rcgen::KeyPair::generate().expect("a key").serialize_der();
    let curve = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).expect("P-256");
    let theirs = EcKey::generate(&curve).and_then(PKey::from_ec_key);
    let theirs = theirs.and_then(|key| key.private_key_to_pkcs8()).expect("a key");
    for (key, of) in [(&ours, KeyOf::Workload), (&theirs, KeyOf::Svid)] {
        let folder = tempfile::tempdir().expect("a folder");
        let planted = plant(key, of, folder.path());
        assert_eq!(leaks(folder.path()).into_iter().collect::<BTreeSet<_>>(), planted, "{of:?}");
    }
}

#[test]
fn a_key_of_a_ca_planted_on_purpose_is_found_and_its_public_half_is_no_leak() {
    let made = make_ca("own.test", TimeDelta::days(1), Utc::now()).expect("a CA");
    let folder = tempfile::tempdir().expect("a folder");
    let write =
        |name: &str, text: String| fs::write(folder.path().join(name), text).expect("written");
    let planted = plant(&made.key[..], KeyOf::Ca, folder.path());
    let now = Utc::now();
    let policy = Policy {
        refresh_hint: TimeDelta::minutes(5),
        ca_ttl: TimeDelta::days(1),
        svid_ttl: TimeDelta::hours(1),
    };
    let state = ca::first("own.test", made.ca, ca::Before::default(), &policy, now);
    write("bundle.json", state.document().expect("a bundle"));
    write("state.json", serde_json::to_string(&state).expect("JSON"));

    assert_eq!(leaks(folder.path()).into_iter().collect::<BTreeSet<_>>(), planted);
}

#[test]
fn no_token_is_in_what_another_cluster_was_sent_nor_in_any_other_file_of_the_suite() {
    let folder = suite_folder();
    let count = leaks::registered(&folder);
    assert!(count > 100, "there is no run of review to look at: run `make test-all`");

    // One token that is nobody's stands in the audit log of an API server, and it is not known yet which request had it.
    let is_made_there = |of: &str, file: &str| of == "nobody" && file.ends_with("audit.log");
    let mut leaks = leaks::leaks(&folder);
    leaks.retain(|it| !is_made_there(&it.of, &it.file.to_string_lossy()));

    assert!(leaks.is_empty(), "{leaks:#?}");
    println!("{count} tokens are only where their clusters were asked about them");
}

#[test]
fn a_token_planted_on_purpose_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("it is in the folder")).expect("a folder");
        fs::write(path, text).expect("written");
    };
    let signature = |character: &str| character.repeat(86);
    let [of_a, of_b] = ["a", "b"].map(|it| format!("e30.e30.{}", signature(it)));
    write("tokens", &format!("a {of_a}\nb {of_b}\n"));
    // As it should be.
    write("traffic/a/1/2.sent", &of_a);
    write("review-a-3/audit.log", &of_a);
    write("controllers/clean.log", "e30.e30.");
    // As it should not be.
    write("traffic/b/1/2.sent", &of_a);
    write("review-a-3/kube-apiserver.log", &of_a);
    write("review-a-b-3/audit.log", &of_a);
    write("controllers/review.log", &format!("{{\"token\":\"{of_b}\"}}"));
    write("output.log", &STANDARD.encode(&of_b));

    let found: Vec<_> = leaks::leaks(folder.path())
        .into_iter()
        .map(|it| (it.of, it.file.strip_prefix(folder.path()).expect("in it").to_owned()))
        .collect();

    let expected = [
        ("a", "review-a-3/kube-apiserver.log"),
        ("a", "review-a-b-3/audit.log"),
        ("a", "traffic/b/1/2.sent"),
        ("b", "controllers/review.log"),
        ("b", "output.log"),
    ];
    assert_eq!(found, expected.map(|(of, file)| (of.to_owned(), PathBuf::from(file))));
}

/// Requests of our own binary, without those of tests that provoke a refusal.
fn requests() -> Vec<Value> {
    let mut requests = Vec::new();
    for log in named(&suite_folder(), "audit.log") {
        let is_of = |prefix: &str| {
            let mut parts = log.components();
            parts.any(|part| part.as_os_str().to_string_lossy().starts_with(prefix))
        };
        let provoked = is_of("forbidding");
        // There the API server is restarted, and forbids everything until it knows its roles again;
        // e2e/suite judges the rest itself.
        let excused = |entry: &Value| is_of("e2e-") && entry["responseStatus"]["code"] == 403;
        let text = fs::read_to_string(&log).expect("the audit log can be read");
        let entries = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let ours = |entry: &Value| {
            let agent = entry["userAgent"].as_str().unwrap_or_default();
            entry["user"]["username"] == ACCOUNT && agent.starts_with("trustplane/")
        };
        requests.extend(entries.filter(|entry| !provoked && ours(entry) && !excused(entry)));
    }
    assert!(requests.len() > 1_000, "there is no run to look at: run `make test-all`");
    requests
}

#[test]
fn no_request_was_forbidden_over_the_whole_suite() {
    let requests = requests();
    let forbidden: Vec<_> = requests
        .iter()
        .filter(|entry| entry["responseStatus"]["code"] == 403)
        .map(|entry| format!("{} {}", entry["verb"], entry["requestURI"]))
        .collect();
    assert!(forbidden.is_empty(), "{forbidden:#?}");
    println!("{} requests, none forbidden", requests.len());
}

/// Group, resource with subresource, verb.
type Permission = (String, String, String);

fn used() -> BTreeSet<Permission> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of = |entry: &Value| {
        let object = &entry["objectRef"];
        let resource = match text(&object["subresource"]).as_str() {
            "" => text(&object["resource"]),
            subresource => format!("{}/{subresource}", text(&object["resource"])),
        };
        (text(&object["apiGroup"]), resource, text(&entry["verb"]))
    };
    requests().iter().filter(|entry| entry["objectRef"].is_object()).map(of).collect()
}

fn granted() -> BTreeSet<Permission> {
    let mut granted = BTreeSet::new();
    for path in files(&at("deploy/base")) {
        let text = fs::read_to_string(&path).expect("a manifest");
        for document in text.split("\n---\n") {
            let Ok(object) = serde_saphyr::from_str::<Value>(document) else { continue };
            for rule in object["rules"].as_array().into_iter().flatten() {
                granted.extend(permissions(rule));
            }
        }
    }
    assert!(granted.len() > 10, "the role was not found");
    granted
}

fn permissions(rule: &Value) -> Vec<Permission> {
    let list = |name: &str| {
        rule[name]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|value| value.as_str().map(str::to_owned))
            .collect::<Vec<_>>()
    };
    let mut permissions = Vec::new();
    for group in list("apiGroups") {
        for resource in list("resources") {
            for verb in list("verbs") {
                permissions.push((group.clone(), resource.clone(), verb));
            }
        }
    }
    permissions
}

#[test]
fn the_role_holds_what_was_used_and_nothing_else() {
    // OpenShift asks for it when a certificate is written; a CRD never does.
    let asked_by_openshift_only = |(_, resource, _): &Permission| resource == "routes/custom-host";
    let granted: BTreeSet<_> =
        granted().into_iter().filter(|permission| !asked_by_openshift_only(permission)).collect();
    assert_eq!(granted, used());
}

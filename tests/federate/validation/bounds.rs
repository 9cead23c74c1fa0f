//! Every rule of the CRD, found by walking its schema: what lies on a bound is accepted, and what
//! lies beyond it is refused with a message that names the field.
//!
//! A new rule is found by itself. Where nothing here can break it, these tests fail, and say which
//! table to add an example to.

use std::rc::Rc;

use serde_json::{Value, json};

use super::{acme, federated, peer, spec, web, with, with_peers, without};
use crate::{
    on_both,
    only::{Turn, minimal},
};

on_both! {
    what_lies_on_a_bound_of_the_schema_is_accepted_and_what_lies_beyond_is_refused_by_its_name,
    every_rule_with_words_of_its_own_refuses_an_object_with_them,
}

const CRD: &str = include_str!("../../../crds/federate/operator.openshift.io_spireservers.yaml");

/// A bound of a value.
const BOUNDS: [&str; 12] = [
    "enum",
    "format",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minimum",
    "pattern",
    "required",
    DISTINCT,
];
const DISTINCT: &str = "x-kubernetes-list-map-keys";
const RULES: &str = "x-kubernetes-validations";
/// Keywords of a schema that bound no value.
const NO_BOUNDS: [&str; 8] = [
    "type",
    "description",
    "default",
    "properties",
    "items",
    "additionalProperties",
    "x-kubernetes-list-type",
    RULES,
];

/// What is said about objects; the status is not for people to write.
fn schema() -> Value {
    let crd: Value = serde_saphyr::from_str(CRD).expect("the CRD is YAML");
    let mut schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone();
    let properties = schema["properties"].as_object_mut().expect("fields");
    properties.retain(|name, _| name == "spec");
    schema
}

/// A place in the schema.
struct SchemaPath<'a> {
    schema: &'a Value,
    /// Such as `spec.federation.federatesWith[].trustDomain`.
    path: String,
    /// An object with a value there, and what that needs.
    object: Rc<dyn Fn(Value) -> Value + 'a>,
}

/// The key of whatever stands in a map.
const ENTRY: &str = "entry";

impl<'a> SchemaPath<'a> {
    fn root(schema: &'a Value) -> Self {
        Self { schema, path: String::new(), object: Rc::new(completed) }
    }

    /// This place and all below it.
    fn all(self) -> Vec<Self> {
        let below: Vec<_> = self.below().into_iter().flat_map(Self::all).collect();
        std::iter::once(self).chain(below).collect()
    }

    fn below(&self) -> Vec<Self> {
        let field = |(name, schema): (&'a String, &'a Value)| {
            let path = field_of(&self.path, name);
            let parent = self.sample();
            self.inner(schema, path, move |value| with(parent.clone(), &format!("/{name}"), value))
        };
        let fields = self.schema["properties"].as_object().into_iter().flatten().map(field);
        let part = |name: &str| self.schema.get(name).filter(|it| it.is_object());
        let items = part("items")
            .map(|items| self.inner(items, format!("{}[]", self.path), |value| json!([value])));
        let entries = part("additionalProperties").map(|entries| {
            self.inner(entries, format!("{}.*", self.path), |value| json!({ ENTRY: value }))
        });
        fields.chain(items).chain(entries).collect()
    }

    fn inner(&self, schema: &'a Value, path: String, around: impl Fn(Value) -> Value + 'a) -> Self {
        let outer = self.object.clone();
        Self { schema, path, object: Rc::new(move |value| outer(around(value))) }
    }

    /// As the API server names it in objects that are made here.
    fn name(&self) -> String {
        self.path.replace("[]", "[0]").replace(".*", &format!(".{ENTRY}"))
    }

    /// An entry of a map has another name in the answers of rules than in those of bounds.
    fn is_named_in(&self, why: &str) -> bool {
        let (plain, brackets) = (format!(".{ENTRY}"), format!("[{ENTRY}]"));
        why.contains(&self.name()) || why.contains(&self.name().replace(&plain, &brackets))
    }

    fn sample(&self) -> Value {
        sample(self.schema, &self.path)
    }

    fn list(&self, length: u64) -> Value {
        list(self.schema, &self.path, length)
    }

    /// So many entries of a map.
    fn map(&self, size: u64) -> Value {
        let entry = sample(&self.schema["additionalProperties"], &format!("{}.*", self.path));
        (0..size).map(|number| (format!("{ENTRY}{number}"), entry.clone())).collect()
    }

    /// Every bound that is found here, with the words for it.
    fn bounds(&self) -> Vec<(String, Bound)> {
        let keywords = self.schema.as_object().into_iter().flatten();
        let named = |(keyword, value): (&String, &Value)| {
            let rule = format!("{}: {keyword} {value}", self.path);
            let bounds = self.bounds_of(keyword, value).into_iter();
            bounds.map(|bound| (rule.clone(), bound)).collect::<Vec<_>>()
        };
        keywords.flat_map(named).collect()
    }

    fn bounds_of(&self, keyword: &str, value: &Value) -> Vec<Bound> {
        let size = value.as_u64().unwrap_or_default();
        match keyword {
            "enum" => vec![Bound {
                on: value.as_array().cloned().unwrap_or_default(),
                beyond: json!("another"),
                says: "Unsupported value".to_owned(),
            }],
            "minimum" | "maximum" => vec![of_number(keyword, value)],
            "format" => self.widest(value).map(of_width).into_iter().collect(),
            "minLength" | "maxLength" => vec![self.of_length(keyword, size)],
            "pattern" => vec![self.of_pattern()],
            "minItems" | "maxItems" | "maxProperties" => vec![self.of_size(keyword, size)],
            DISTINCT => vec![self.of_keys()],
            "required" => names(value).into_iter().map(|name| self.of_required(name)).collect(),
            other if NO_BOUNDS.contains(&other) => Vec::new(),
            other => panic!("{}: add how to break {other}", self.path),
        }
    }

    fn of_length(&self, keyword: &str, length: u64) -> Bound {
        let text = text_of(&self.path);
        let (beyond, says) = match keyword {
            "minLength" => {
                ("a".repeat(length as usize - 1), format!("should be at least {length} chars long"))
            }
            _ => (text.of(length + 1), format!("may not be more than {length} bytes")),
        };
        Bound { on: vec![json!(text.of(length))], beyond: json!(beyond), says }
    }

    fn of_pattern(&self) -> Bound {
        let text = text(&self.path).unwrap_or_else(|| panic!("{}: add it to `text`", self.path));
        let on = vec![json!(text.of(0))];
        Bound { on, beyond: json!(text.wrong), says: "should match".to_owned() }
    }

    fn of_size(&self, keyword: &str, size: u64) -> Bound {
        let (on, beyond, says) = match keyword {
            "minItems" => {
                (self.list(size), self.list(size - 1), format!("should have at least {size} items"))
            }
            "maxItems" => {
                (self.list(size), self.list(size + 1), format!("must have at most {size} items"))
            }
            _ => (self.map(size), self.map(size + 1), format!("must have at most {size} items")),
        };
        Bound { on: vec![on], beyond, says }
    }

    /// Two of the same.
    fn of_keys(&self) -> Bound {
        let item = &self.list(1)[0];
        let says = "Duplicate value".to_owned();
        Bound { on: vec![self.list(2)], beyond: json!([item, item]), says }
    }

    fn of_required(&self, name: &str) -> Bound {
        let whole = self.sample();
        let beyond = without(whole.clone(), &format!("/{name}"));
        let says = format!("{}: Required value", field_of(&self.name(), name));
        Bound { on: vec![whole], beyond, says }
    }

    /// The largest number that a format lets through, where no maximum is smaller.
    fn widest(&self, format: &Value) -> Option<u64> {
        match format.as_str() {
            _ if self.schema["maximum"].is_number() => None,
            Some("int32") => Some(i32::MAX as u64),
            // The sandbox does not look.
            Some("int64") => None,
            other => panic!("{}: add how to break the format {other:?}", self.path),
        }
    }

    /// The rules with words of their own.
    fn rules(&self) -> Vec<&'a str> {
        let rules = self.schema[RULES].as_array().into_iter().flatten();
        rules.map(|rule| rule["message"].as_str().expect("a rule says what to do")).collect()
    }
}

/// A bound of one value.
struct Bound {
    on: Vec<Value>,
    beyond: Value,
    /// Besides the name of the field.
    says: String,
}

fn of_number(keyword: &str, value: &Value) -> Bound {
    let number = value.as_i64().expect("a whole number");
    let (beyond, words) = match keyword {
        "minimum" => (number - 1, "greater"),
        _ => (number + 1, "less"),
    };
    let says = format!("should be {words} than or equal to {number}");
    Bound { on: vec![value.clone()], beyond: json!(beyond), says }
}

fn of_width(widest: u64) -> Bound {
    let says = "must be of type".to_owned();
    Bound { on: vec![json!(widest)], beyond: json!(widest + 1), says }
}

/// A text of any length that the rules of its field accept, and one that they do not.
struct Text {
    head: &'static str,
    fill: &'static str,
    tail: &'static str,
    wrong: &'static str,
}

impl Text {
    /// Of this length, or the shortest there is.
    fn of(&self, length: u64) -> String {
        let ends = self.head.len() + self.tail.len();
        let inner = (length as usize).saturating_sub(ends).max(1);
        let filled: String = self.fill.chars().cycle().take(inner).collect();
        format!("{}{filled}{}", self.head, self.tail)
    }
}

fn field_of(path: &str, name: &str) -> String {
    format!("{path}.{name}").trim_start_matches('.').to_owned()
}

/// Something that may stand at a place.
fn sample(schema: &Value, path: &str) -> Value {
    if let Some(sample) = particular(path) {
        return sample;
    }
    let number = |keyword: &str| schema[keyword].as_u64();
    match schema["type"].as_str() {
        Some("string") if schema["enum"].is_array() => schema["enum"][0].clone(),
        Some("string") => json!(text_of(path).of(number("minLength").unwrap_or_default())),
        Some("integer") => json!(number("minimum").unwrap_or(1)),
        Some("array") => list(schema, path, number("minItems").unwrap_or_default()),
        Some("object") => {
            let field = |name| sample(&schema["properties"][name], &field_of(path, name));
            let required = names(&schema["required"]).into_iter();
            required.map(|name| (name.to_owned(), field(name))).collect()
        }
        other => panic!("{path}: add how to make a value of type {other:?}"),
    }
}

/// So many items, told apart where they must differ.
fn list(schema: &Value, path: &str, length: u64) -> Value {
    let keys = names(&schema[DISTINCT]);
    let item = |number: u64| {
        let mut item = sample(&schema["items"], &format!("{path}[]"));
        for key in &keys {
            let text = item[key].as_str().expect("a key is a text");
            item[key] = json!(format!("{text}{number}"));
        }
        item
    };
    (0..length).map(item).collect()
}

fn text_of(path: &str) -> Text {
    text(path).unwrap_or(Text { head: "", fill: "a", tail: "", wrong: "" })
}

/// Texts that are more than so many characters.
fn text(path: &str) -> Option<Text> {
    let (head, fill, tail, wrong) = match path.trim_start_matches("spec.") {
        "trustDomain" | "clusterName" | "federation.federatesWith[].trustDomain" => {
            ("", "a", "", "a/b")
        }
        "jwtIssuer" => ("https://a/", "a", "", "http://a"),
        "caValidity" | "defaultX509Validity" | "defaultJWTValidity" => {
            ("00001h0000001.000m", "0", "s", "1d")
        }
        "persistence.size" => ("", "1", "", "one"),
        "persistence.storageClass" => ("", "a", "", "a/b"),
        "datastore.connectionString" => ("/run/spire/data/", "a", ".sqlite3", "/etc/a.sqlite3"),
        "datastore.tlsSecretName"
        | "federation.bundleEndpoint.httpsWeb.servingCert.externalSecretRef" => {
            ("", "a", "", "spire/a")
        }
        "federation.bundleEndpoint.httpsWeb.acme.directoryUrl"
        | "federation.federatesWith[].bundleEndpointUrl" => ("https://a/", "a", "", "http://a"),
        "federation.bundleEndpoint.httpsWeb.acme.domainName" | "federation.routeHost" => {
            ("", "a.", "a", "a_b")
        }
        "federation.bundleEndpoint.httpsWeb.acme.email" => ("a", "a", "@example.com", "a"),
        "federation.federatesWith[].endpointSpiffeId" => ("spiffe://", "a", "", "https://a"),
        "labels.*" | "nodeSelector.*" => ("", "a", "", "-a"),
        "resources.limits.*" | "resources.requests.*" => ("", "1", "", "half"),
        _ => return None,
    };
    Some(Text { head, fill, tail, wrong })
}

/// Values that must be more than their own schema says, because of what stands beside them.
fn particular(path: &str) -> Option<Value> {
    match path {
        "" => Some(minimal()),
        "spec" => Some(minimal()["spec"].clone()),
        "spec.federation.federatesWith[]" => Some(peer("b.example.com")),
        _ => None,
    }
}

/// The object with what one field needs of another: each profile has fields of its own, and each
/// database is reached in its own way.
fn completed(mut object: Value) -> Value {
    if let Some(endpoint) = object.pointer_mut("/spec/federation/bundleEndpoint") {
        if endpoint.get("httpsWeb").is_some() && endpoint.get("profile").is_none() {
            endpoint["profile"] = json!("https_web");
        }
        if endpoint["profile"] == "https_web" && endpoint.get("httpsWeb").is_none() {
            endpoint["httpsWeb"] = json!({ "servingCert": {} });
        }
    }
    if let Some(datastore) = object.pointer_mut("/spec/datastore")
        && datastore.get("connectionString").is_none()
    {
        match datastore["databaseType"].as_str() {
            Some("mysql") => datastore["connectionString"] = json!("tcp(db)/a?parseTime=true"),
            Some("postgres") => datastore["connectionString"] = json!("host=db"),
            _ => {}
        }
    }
    let peers = object.pointer_mut("/spec/federation/federatesWith").and_then(Value::as_array_mut);
    for peer in peers.into_iter().flatten().filter_map(Value::as_object_mut) {
        if peer.get("bundleEndpointProfile") == Some(&json!("https_web")) {
            peer.remove("endpointSpiffeId");
        }
    }
    object
}

/// URLs that break one rule each.
fn no_urls(about: impl Fn(Value) -> Value) -> Vec<Breach> {
    let wrong = ["https:///x", "https://u:p@b/", "https://b:0/", "https://b/#x", "https://b/?x#y"];
    wrong.into_iter().map(|text| New(about(json!(text)))).collect()
}

/// Values that break a rule with a message of its own.
enum Breach {
    New(Value),
    /// What stands there, and what it may not become.
    Change(Value, Value),
}

use Breach::{Change, New};

/// Rules about more than one text.
fn breaches(path: &str) -> Vec<Breach> {
    let serving_cert = || web(json!({ "servingCert": {} }));
    let by_acme = || web(json!({ "acme": acme() }));
    let other = |pointer: &str, value: &str| with(minimal(), pointer, json!(value));
    match path {
        "" => vec![New(other("/metadata/name", "other"))],
        "spec" => {
            vec![New(with_peers([peer("a.example.com")])), Change(federated(), minimal())]
        }
        "spec.trustDomain" => {
            vec![Change(minimal(), other("/spec/trustDomain", "b.example.com"))]
        }
        "spec.clusterName" => vec![Change(minimal(), other("/spec/clusterName", "b"))],
        "spec.jwtIssuer" => no_urls(spec("/jwtIssuer")),
        "spec.federation.bundleEndpoint.httpsWeb.acme.directoryUrl" => {
            no_urls(|url| web(json!({ "acme": with(acme(), "/directoryUrl", url) })))
        }
        "spec.federation.federatesWith[].bundleEndpointUrl" => {
            no_urls(|url| with_peers([with(peer("b.example.com"), "/bundleEndpointUrl", url)]))
        }
        "spec.datastore" => [
            json!({ "connectionString": "/etc/passwd" }),
            json!({ "databaseType": "mysql", "connectionString": "a" }),
            json!({ "databaseType": "postgres", "connectionString": "a" }),
        ]
        .map(|datastore| New(spec("/datastore")(datastore)))
        .into(),
        "spec.labels" => {
            ["a b", "example.k8s.io/a"].map(|key| New(spec("/labels")(json!({ key: "a" })))).into()
        }
        "spec.nodeSelector" => vec![New(spec("/nodeSelector")(json!({ "a b": "a" })))],
        "spec.persistence" => vec![Change(minimal(), other("/spec/persistence/size", "2Gi"))],
        "spec.federation.bundleEndpoint" => vec![
            New(without(serving_cert(), "/spec/federation/bundleEndpoint/httpsWeb")),
            New(with(
                serving_cert(),
                "/spec/federation/bundleEndpoint/profile",
                json!("https_spiffe"),
            )),
            Change(federated(), serving_cert()),
        ],
        "spec.federation.bundleEndpoint.httpsWeb" => vec![
            New(web(json!({}))),
            Change(by_acme(), serving_cert()),
            Change(serving_cert(), by_acme()),
        ],
        "spec.federation.federatesWith" => {
            vec![New(with_peers([peer("b.example.com"), peer("b.example.com")]))]
        }
        "spec.federation.federatesWith[]" => {
            let by_web = with(peer("b.example.com"), "/bundleEndpointProfile", json!("https_web"));
            let without_id = without(peer("b.example.com"), "/endpointSpiffeId");
            vec![New(with_peers([without_id])), New(with_peers([by_web]))]
        }
        _ => Vec::new(),
    }
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// How many of these rules stand anywhere in a schema, whatever leads there.
fn count(schema: &Value, keywords: &[&str]) -> usize {
    let below = |value: &Value| count(value, keywords);
    match schema {
        Value::Object(fields) => {
            let of = |(name, value): (&String, &Value)| match &**name {
                "properties" => value.as_object().into_iter().flatten().map(|it| below(it.1)).sum(),
                "required" | RULES if keywords.contains(&&**name) => {
                    value.as_array().map_or(0, Vec::len)
                }
                "format" if schema["maximum"].is_number() || value == "int64" => 0,
                name if keywords.contains(&name) => 1,
                _ => below(value),
            };
            fields.iter().map(of).sum()
        }
        Value::Array(values) => values.iter().map(below).sum(),
        _ => 0,
    }
}

/// What is wrong, all of it at once.
#[derive(Default)]
struct Complaints(Vec<String>);

impl Complaints {
    fn note(&mut self, rule: &str, wrong: &str, object: &Value, why: &str) {
        self.0.push(format!("{rule}: {wrong}: {object}\n{why}"));
    }

    fn none(self) {
        assert!(self.0.is_empty(), "{}", self.0.join("\n\n"));
    }
}

async fn what_lies_on_a_bound_of_the_schema_is_accepted_and_what_lies_beyond_is_refused_by_its_name(
    turn: Turn,
) {
    let schema = schema();
    let (mut complaints, mut accepted, mut broken) = (Complaints::default(), 0, 0);
    for place in SchemaPath::root(&schema).all() {
        for (rule, Bound { on, beyond, says }) in place.bounds() {
            for object in on.into_iter().map(&*place.object) {
                match turn.would_create(&object).await {
                    Ok(_) => accepted += 1,
                    Err(why) => complaints.note(&rule, "refused", &object, &why),
                }
            }
            let object = (place.object)(beyond);
            match turn.would_create(&object).await {
                Err(why) if place.is_named_in(&why) && why.contains(&says) => broken += 1,
                Err(why) => complaints.note(&rule, &format!("not told: {says}"), &object, &why),
                Ok(_) => complaints.note(&rule, "accepted", &object, ""),
            }
        }
    }
    let found = count(&schema, &BOUNDS);
    println!("{found} bounds found, {broken} broken; {accepted} objects on a bound accepted");
    complaints.none();
    assert_eq!(broken, found, "nothing was missed on the way");
}

async fn every_rule_with_words_of_its_own_refuses_an_object_with_them(turn: Turn) {
    let schema = schema();
    let (mut complaints, mut broken) = (Complaints::default(), 0);
    for place in SchemaPath::root(&schema).all() {
        let told = refusals(&turn, &place, &mut complaints).await;
        for rule in place.rules() {
            match told.iter().any(|why| why.contains(rule)) {
                true => broken += 1,
                false => complaints.note(
                    &place.path,
                    "add an example to `text` or `breaches` that breaks",
                    &json!(rule),
                    &told.join("\n"),
                ),
            }
        }
    }
    let found = count(&schema, &[RULES]);
    println!("{found} rules with words of their own found, {broken} broken");
    complaints.none();
    assert_eq!(broken, found, "nothing was missed on the way");
}

/// What is said of all objects that break the rules of a place.
async fn refusals(turn: &Turn, place: &SchemaPath<'_>, complaints: &mut Complaints) -> Vec<String> {
    let wrong = text(&place.path).map(|text| New((place.object)(json!(text.wrong))));
    let mut told = Vec::new();
    for breach in breaches(&place.path).into_iter().chain(wrong) {
        let (answer, object) = match breach {
            New(object) => (turn.would_create(&object).await, object),
            Change(before, after) => {
                turn.create(&before).await;
                let answer = turn.would_become(&after).await;
                turn.delete().await;
                (answer, after)
            }
        };
        match answer {
            Err(why) if place.is_named_in(&why) => told.push(why),
            Err(why) => complaints.note(&place.path, "is not named", &object, &why),
            Ok(_) => complaints.note(&place.path, "accepted", &object, ""),
        }
    }
    told
}

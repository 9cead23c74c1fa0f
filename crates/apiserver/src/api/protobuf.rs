//! Protobuf bodies, which commands such as `kubectl create secret` and `kubectl create token` send, and
//! clients in Go. Only the kinds of such commands and reviews are supported; answers are always JSON.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

/// Magic number of every body.
const MAGIC: &[u8] = b"k8s\0";

/// The type of a field.
#[derive(Clone, Copy)]
enum Field {
    Text,
    Texts,
    Flag,
    Number,
    TextMap,
    BytesMap,
    /// Lists of texts by text.
    TextsMap,
    Message(Message),
    Messages(Message),
    IntOrString,
    /// Ignored in a create.
    Ignored,
}

/// Number, name and type of the fields.
type Message = &'static [(u64, &'static str, Field)];

const OWNER: Message = &[
    (1, "kind", Field::Text),
    (3, "name", Field::Text),
    (4, "uid", Field::Text),
    (5, "apiVersion", Field::Text),
    (6, "controller", Field::Flag),
    (7, "blockOwnerDeletion", Field::Flag),
];
const METADATA: Message = &[
    (1, "name", Field::Text),
    (2, "generateName", Field::Text),
    (3, "namespace", Field::Text),
    (4, "selfLink", Field::Ignored),
    (5, "uid", Field::Text),
    (6, "resourceVersion", Field::Text),
    (7, "generation", Field::Number),
    (8, "creationTimestamp", Field::Ignored),
    (9, "deletionTimestamp", Field::Ignored),
    (10, "deletionGracePeriodSeconds", Field::Ignored),
    (11, "labels", Field::TextMap),
    (12, "annotations", Field::TextMap),
    (13, "ownerReferences", Field::Messages(OWNER)),
    (14, "finalizers", Field::Texts),
    (17, "managedFields", Field::Ignored),
];
const SECRET: Message = &[
    (1, "metadata", Field::Message(METADATA)),
    (2, "data", Field::BytesMap),
    (3, "type", Field::Text),
    (4, "stringData", Field::TextMap),
    (5, "immutable", Field::Flag),
];
const CONFIG_MAP: Message = &[
    (1, "metadata", Field::Message(METADATA)),
    (2, "data", Field::TextMap),
    (3, "binaryData", Field::BytesMap),
    (4, "immutable", Field::Flag),
];
const NAMESPACE: Message = &[
    (1, "metadata", Field::Message(METADATA)),
    (2, "spec", Field::Message(&[(1, "finalizers", Field::Texts)])),
    (3, "status", Field::Ignored),
];
const SERVICE_ACCOUNT: Message = &[
    (1, "metadata", Field::Message(METADATA)),
    (2, "secrets", Field::Messages(&[(3, "name", Field::Text)])),
    (3, "imagePullSecrets", Field::Messages(&[(1, "name", Field::Text)])),
    (4, "automountServiceAccountToken", Field::Flag),
];
const PORT: Message = &[
    (1, "name", Field::Text),
    (2, "protocol", Field::Text),
    (3, "port", Field::Number),
    (4, "targetPort", Field::IntOrString),
    (5, "nodePort", Field::Number),
    (6, "appProtocol", Field::Text),
];
const SERVICE_SPEC: Message = &[
    (1, "ports", Field::Messages(PORT)),
    (2, "selector", Field::TextMap),
    (3, "clusterIP", Field::Text),
    (4, "type", Field::Text),
    (5, "externalIPs", Field::Texts),
    (7, "sessionAffinity", Field::Text),
    (8, "loadBalancerIP", Field::Text),
    (9, "loadBalancerSourceRanges", Field::Texts),
    (10, "externalName", Field::Text),
    (11, "externalTrafficPolicy", Field::Text),
    (12, "healthCheckNodePort", Field::Number),
    (13, "publishNotReadyAddresses", Field::Flag),
    (17, "ipFamilyPolicy", Field::Text),
    (18, "clusterIPs", Field::Texts),
    (19, "ipFamilies", Field::Texts),
    (20, "allocateLoadBalancerNodePorts", Field::Flag),
    (21, "loadBalancerClass", Field::Text),
    (22, "internalTrafficPolicy", Field::Text),
    (23, "trafficDistribution", Field::Text),
];
const SERVICE: Message = &[
    (1, "metadata", Field::Message(METADATA)),
    (2, "spec", Field::Message(SERVICE_SPEC)),
    (3, "status", Field::Ignored),
];
const USER: Message = &[
    (1, "username", Field::Text),
    (2, "uid", Field::Text),
    (3, "groups", Field::Texts),
    (4, "extra", Field::TextsMap),
];
const TOKEN_REVIEW: Message = &[
    (1, "metadata", Field::Message(METADATA)),
    (2, "spec", Field::Message(&[(1, "token", Field::Text), (2, "audiences", Field::Texts)])),
    (
        3,
        "status",
        Field::Message(&[
            (1, "authenticated", Field::Flag),
            (2, "user", Field::Message(USER)),
            (3, "error", Field::Text),
            (4, "audiences", Field::Texts),
        ]),
    ),
];
const BOUND_OBJECT: Message = &[
    (1, "kind", Field::Text),
    (2, "apiVersion", Field::Text),
    (3, "name", Field::Text),
    (4, "uid", Field::Text),
];
const TOKEN_REQUEST: Message = &[
    (1, "metadata", Field::Message(METADATA)),
    (
        2,
        "spec",
        Field::Message(&[
            (1, "audiences", Field::Texts),
            (3, "boundObjectRef", Field::Message(BOUND_OBJECT)),
            (4, "expirationSeconds", Field::Number),
        ]),
    ),
    (3, "status", Field::Ignored),
];
const SELF_SUBJECT_REVIEW: Message =
    &[(1, "metadata", Field::Message(METADATA)), (2, "status", Field::Ignored)];
const RESOURCE_ATTRIBUTES: Message = &[
    (1, "namespace", Field::Text),
    (2, "verb", Field::Text),
    (3, "group", Field::Text),
    (4, "version", Field::Text),
    (5, "resource", Field::Text),
    (6, "subresource", Field::Text),
    (7, "name", Field::Text),
];
const SUBJECT_ACCESS_REVIEW: Message = &[
    (1, "metadata", Field::Message(METADATA)),
    (
        2,
        "spec",
        Field::Message(&[
            (1, "resourceAttributes", Field::Message(RESOURCE_ATTRIBUTES)),
            (
                2,
                "nonResourceAttributes",
                Field::Message(&[(1, "path", Field::Text), (2, "verb", Field::Text)]),
            ),
            (3, "user", Field::Text),
            (4, "groups", Field::Texts),
            (5, "extra", Field::TextsMap),
            (6, "uid", Field::Text),
        ]),
    ),
    (3, "status", Field::Ignored),
];
const TYPE: Message = &[(1, "apiVersion", Field::Text), (2, "kind", Field::Text)];

/// The object in the body; None for unsupported kinds.
pub(super) fn decode(body: &[u8]) -> Option<Value> {
    let mut envelope = Reader(body.strip_prefix(MAGIC)?);
    let (mut types, mut raw) = (json!({}), &[][..]);
    while let Some((number, content)) = envelope.next() {
        match (number, content) {
            (1, Content::Bytes(bytes)) => types = message(TYPE, bytes)?,
            (2, Content::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let shape = match (types["apiVersion"].as_str()?, types["kind"].as_str()?) {
        ("v1", "Secret") => SECRET,
        ("v1", "ConfigMap") => CONFIG_MAP,
        ("v1", "Namespace") => NAMESPACE,
        ("v1", "ServiceAccount") => SERVICE_ACCOUNT,
        ("v1", "Service") => SERVICE,
        ("authentication.k8s.io/v1", "TokenRequest") => TOKEN_REQUEST,
        ("authentication.k8s.io/v1", "TokenReview") => TOKEN_REVIEW,
        ("authentication.k8s.io/v1", "SelfSubjectReview") => SELF_SUBJECT_REVIEW,
        ("authorization.k8s.io/v1", "SubjectAccessReview") => SUBJECT_ACCESS_REVIEW,
        _ => return None,
    };
    let mut object = message(shape, raw)?;
    object["apiVersion"] = types["apiVersion"].take();
    object["kind"] = types["kind"].take();
    Some(object)
}

fn message(shape: Message, bytes: &[u8]) -> Option<Value> {
    let mut object = Map::new();
    let mut reader = Reader(bytes);
    while let Some((number, content)) = reader.next() {
        let (_, name, field) = shape.iter().find(|(known, ..)| *known == number)?;
        let name = (*name).to_owned();
        match (field, content) {
            (Field::Ignored, _) => {}
            (Field::Flag, Content::Number(number)) => {
                object.insert(name, (number != 0).into());
            }
            (Field::Number, Content::Number(number)) => {
                object.insert(name, number.cast_signed().into());
            }
            (Field::Text, Content::Bytes(bytes)) => {
                object.insert(name, text(bytes)?);
            }
            (Field::Texts, Content::Bytes(bytes)) => push(&mut object, name, text(bytes)?),
            (Field::Message(shape), Content::Bytes(bytes)) => {
                object.insert(name, message(shape, bytes)?);
            }
            (Field::Messages(shape), Content::Bytes(bytes)) => {
                push(&mut object, name, message(shape, bytes)?);
            }
            (Field::TextMap, Content::Bytes(bytes)) => {
                let (key, value) = entry(bytes)?;
                object.entry(name).or_insert_with(|| json!({}))[key] = text(value)?;
            }
            (Field::BytesMap, Content::Bytes(bytes)) => {
                let (key, value) = entry(bytes)?;
                object.entry(name).or_insert_with(|| json!({}))[key] =
                    STANDARD.encode(value).into();
            }
            (Field::TextsMap, Content::Bytes(bytes)) => {
                let (key, value) = entry(bytes)?;
                let list = message(&[(1, "items", Field::Texts)], value)?["items"].take();
                object.entry(name).or_insert_with(|| json!({}))[key] = list;
            }
            (Field::IntOrString, Content::Bytes(bytes)) => {
                object.insert(name, int_or_string(bytes)?);
            }
            _ => return None,
        }
    }
    Some(Value::Object(object))
}

fn push(object: &mut Map<String, Value>, name: String, value: Value) {
    if let Value::Array(list) = object.entry(name).or_insert_with(|| json!([])) {
        list.push(value);
    }
}

fn text(bytes: &[u8]) -> Option<Value> {
    std::str::from_utf8(bytes).ok().map(Value::from)
}

/// One entry of a map.
fn entry(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (mut key, mut value) = ("", &[][..]);
    let mut reader = Reader(bytes);
    while let Some((number, content)) = reader.next() {
        match (number, content) {
            (1, Content::Bytes(bytes)) => key = std::str::from_utf8(bytes).ok()?,
            (2, Content::Bytes(bytes)) => value = bytes,
            _ => return None,
        }
    }
    Some((key, value))
}

fn int_or_string(bytes: &[u8]) -> Option<Value> {
    let (mut is_text, mut number, mut name) = (false, 0, json!(""));
    let mut reader = Reader(bytes);
    while let Some(field) = reader.next() {
        match field {
            (1, Content::Number(kind)) => is_text = kind == 1,
            (2, Content::Number(value)) => number = value.cast_signed(),
            (3, Content::Bytes(bytes)) => name = text(bytes)?,
            _ => return None,
        }
    }
    Some(if is_text { name } else { number.into() })
}

enum Content<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Iterates over fields; ends at the end or at invalid bytes.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<(u64, Content<'a>)> {
        let tag = self.varint()?;
        let content = match tag & 7 {
            0 => Content::Number(self.varint()?),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                let (bytes, rest) = self.0.split_at_checked(length)?;
                self.0 = rest;
                Content::Bytes(bytes)
            }
            _ => return None,
        };
        Some((tag >> 3, content))
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let length = u8::try_from(bytes.len()).unwrap();
        [&[number << 3 | 2, length], bytes].concat()
    }

    #[test]
    fn a_secret_is_read_as_kubectl_sends_it() {
        let types = [field(1, b"v1"), field(2, b"Secret")].concat();
        let entry = [field(1, b"tls.crt"), field(2, b"x")].concat();
        let metadata = [field(1, b"shop-tls"), field(8, b"")].concat();
        let secret =
            [field(1, &metadata), field(2, &entry), field(3, b"kubernetes.io/tls")].concat();
        let body = [MAGIC, &field(1, &types), &field(2, &secret)].concat();
        let expected = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "shop-tls" },
            "data": { "tls.crt": "eA==" }, "type": "kubernetes.io/tls",
        });
        assert_eq!(decode(&body), Some(expected));
    }

    #[test]
    fn a_request_for_a_token_is_read_as_kubectl_sends_it() {
        let types = [field(1, b"authentication.k8s.io/v1"), field(2, b"TokenRequest")].concat();
        let bound = [field(1, b"Secret"), field(2, b"v1"), field(3, b"s"), field(4, b"u")].concat();
        // The seconds are a number: 600, in two bytes.
        let spec = [field(1, b"vault"), field(3, &bound), vec![4 << 3, 0xd8, 0x04]].concat();
        let status = [field(1, b""), field(2, b"")].concat();
        let request = [field(1, b""), field(2, &spec), field(3, &status)].concat();
        let body = [MAGIC, &field(1, &types), &field(2, &request)].concat();
        let expected = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {},
            "spec": {
                "audiences": ["vault"], "expirationSeconds": 600,
                "boundObjectRef": { "kind": "Secret", "apiVersion": "v1", "name": "s", "uid": "u" },
            },
        });
        assert_eq!(decode(&body), Some(expected));
    }

    #[test]
    fn a_review_is_read_as_clients_in_go_send_it() {
        let types = [field(1, b"authentication.k8s.io/v1"), field(2, b"TokenReview")].concat();
        let spec = [field(1, b"a.b.c"), field(2, b"vault")].concat();
        let extra = [field(1, b"k"), field(2, &field(1, b"v"))].concat();
        let user = [field(1, b"me"), field(4, &extra)].concat();
        let status = [vec![1 << 3, 0], field(2, &user), field(3, b"")].concat();
        let review = [field(1, b""), field(2, &spec), field(3, &status)].concat();
        let body = [MAGIC, &field(1, &types), &field(2, &review)].concat();
        let user = json!({ "username": "me", "extra": { "k": ["v"] } });
        let expected = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "metadata": {},
            "spec": { "token": "a.b.c", "audiences": ["vault"] },
            "status": { "authenticated": false, "user": user, "error": "" },
        });
        assert_eq!(decode(&body), Some(expected));
    }

    #[test]
    fn a_body_that_is_no_object_of_a_known_kind_is_refused() {
        let types = [field(1, b"v1"), field(2, b"Pod")].concat();
        assert_eq!(decode(&[MAGIC, &field(1, &types)].concat()), None);
        assert_eq!(decode(b"{}"), None);
    }
}

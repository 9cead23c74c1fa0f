//! TokenReview in protobuf, which clients written in Go send for built-in types.
//!
//! The messages are those of k8s.io/api/authentication/v1/generated.proto, as far as they are read here.

use std::collections::BTreeMap;

use prost::Message;
use serde_json::{Map, Value, json};

pub(super) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";
/// In front of every object.
const MAGIC: &[u8] = b"k8s\0";

#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
struct Envelope {
    #[prost(message, optional, tag = "1")]
    type_meta: Option<TypeMeta>,
    #[prost(bytes = "vec", tag = "2")]
    raw: Vec<u8>,
    #[prost(string, tag = "3")]
    content_encoding: String,
    #[prost(string, tag = "4")]
    content_type: String,
}

#[derive(Clone, PartialEq, Message)]
struct TypeMeta {
    #[prost(string, tag = "1")]
    api_version: String,
    #[prost(string, tag = "2")]
    kind: String,
}

#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
struct TokenReview {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    spec: Option<Spec>,
    #[prost(message, optional, tag = "3")]
    status: Option<Status>,
}

/// What is read of a caller's: a status is not looked at, and could be long.
#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
struct Asked {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    spec: Option<Spec>,
}

#[derive(Clone, PartialEq, Message)]
struct ObjectMeta {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
struct Spec {
    #[prost(string, tag = "1")]
    token: String,
    #[prost(string, repeated, tag = "2")]
    audiences: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(bool, tag = "1")]
    authenticated: bool,
    #[prost(message, optional, tag = "2")]
    user: Option<User>,
    #[prost(string, tag = "3")]
    error: String,
    #[prost(string, repeated, tag = "4")]
    audiences: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct User {
    #[prost(string, tag = "1")]
    username: String,
    #[prost(string, tag = "2")]
    uid: String,
    #[prost(string, repeated, tag = "3")]
    groups: Vec<String>,
    #[prost(btree_map = "string, message", tag = "4")]
    extra: BTreeMap<String, Values>,
}

#[derive(Clone, PartialEq, Message)]
struct Values {
    #[prost(string, repeated, tag = "1")]
    items: Vec<String>,
}

/// As JSON would have it, without a status.
pub(super) fn read(body: &[u8]) -> Option<Value> {
    let Envelope { type_meta, raw, content_encoding, .. } =
        Envelope::decode(body.strip_prefix(MAGIC)?).ok()?;
    let TypeMeta { api_version, kind } = type_meta.unwrap_or_default();
    if !content_encoding.is_empty() {
        return None;
    }
    let mut document = Map::new();
    document.insert("apiVersion".to_owned(), api_version.into());
    document.insert("kind".to_owned(), kind.as_str().into());
    // Whatever another kind has in these fields, it is no token.
    if kind.is_empty() || kind == super::KIND {
        let Asked { metadata, spec } = Asked::decode(&*raw).ok()?;
        let (metadata, spec) = (metadata.unwrap_or_default(), spec.unwrap_or_default());
        document.insert("metadata".to_owned(), json!({ "name": metadata.name }));
        if spec.audiences.len() > super::MOST_AUDIENCES {
            return None;
        }
        let spec = json!({ "token": spec.token, "audiences": spec.audiences });
        document.insert("spec".to_owned(), spec);
    }
    Some(document.into())
}

/// Of an answer.
pub(super) fn write(document: &Value) -> Vec<u8> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let texts = |value: &Value| value.as_array().into_iter().flatten().map(text).collect();
    let (status, user) = (&document["status"], &document["status"]["user"]);
    let extra = user["extra"].as_object().into_iter().flatten();
    let user = User {
        username: text(&user["username"]),
        uid: text(&user["uid"]),
        groups: texts(&user["groups"]),
        extra: extra.map(|(name, all)| (name.clone(), Values { items: texts(all) })).collect(),
    };
    let review = TokenReview {
        metadata: Some(ObjectMeta { name: text(&document["metadata"]["name"]) }),
        spec: Some(Spec {
            token: text(&document["spec"]["token"]),
            audiences: texts(&document["spec"]["audiences"]),
        }),
        status: Some(Status {
            authenticated: status["authenticated"] == true,
            user: Some(user),
            error: text(&status["error"]),
            audiences: texts(&status["audiences"]),
        }),
    };
    let envelope = Envelope {
        type_meta: Some(TypeMeta {
            api_version: text(&document["apiVersion"]),
            kind: text(&document["kind"]),
        }),
        raw: review.encode_to_vec(),
        ..Envelope::default()
    };
    [MAGIC, &envelope.encode_to_vec()].concat()
}

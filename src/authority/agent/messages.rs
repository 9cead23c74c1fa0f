//! The messages of SPIFFE's Workload API, as far as we serve and use it.
//! `proto/spiffe/workload/workloadapi.proto` has the same, and a test compares the two.

use std::collections::BTreeMap;

use prost::{Message, Oneof};

pub const FETCH_X509_SVID: &str = "/SpiffeWorkloadAPI/FetchX509SVID";
pub const FETCH_X509_BUNDLES: &str = "/SpiffeWorkloadAPI/FetchX509Bundles";
pub const FETCH_JWT_SVID: &str = "/SpiffeWorkloadAPI/FetchJWTSVID";
pub const FETCH_JWT_BUNDLES: &str = "/SpiffeWorkloadAPI/FetchJWTBundles";
pub const VALIDATE_JWT_SVID: &str = "/SpiffeWorkloadAPI/ValidateJWTSVID";

/// Metadata that every call must have, so that no browser or proxy can be made to call by accident.
pub const HEADER: &str = "workload.spiffe.io";

/// Of FetchX509SVID, FetchX509Bundles and FetchJWTBundles.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Empty {}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct X509SvidResponse {
    #[prost(message, repeated, tag = "1")]
    pub svids: Vec<X509Svid>,
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub crl: Vec<Vec<u8>>,
    /// DER, one after the other, by the SPIFFE ID of a trust domain.
    #[prost(btree_map = "string, bytes", tag = "3")]
    pub federated_bundles: BTreeMap<String, Vec<u8>>,
}

/// Debug would print the key.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub struct X509Svid {
    #[prost(string, tag = "1")]
    pub spiffe_id: String,
    /// The SVID first, then its intermediates, DER.
    #[prost(bytes = "vec", tag = "2")]
    pub x509_svid: Vec<u8>,
    /// PKCS#8.
    #[prost(bytes = "vec", tag = "3")]
    pub x509_svid_key: Vec<u8>,
    /// Of the SVID's own trust domain.
    #[prost(bytes = "vec", tag = "4")]
    pub bundle: Vec<u8>,
    #[prost(string, tag = "5")]
    pub hint: String,
}

impl std::fmt::Debug for X509Svid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("X509Svid").field("spiffe_id", &self.spiffe_id).finish_non_exhaustive()
    }
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct X509BundlesResponse {
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub crl: Vec<Vec<u8>>,
    #[prost(btree_map = "string, bytes", tag = "2")]
    pub bundles: BTreeMap<String, Vec<u8>>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct JwtBundlesResponse {
    /// JWK sets.
    #[prost(btree_map = "string, bytes", tag = "1")]
    pub bundles: BTreeMap<String, Vec<u8>>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct JwtSvidRequest {
    #[prost(string, repeated, tag = "1")]
    pub audience: Vec<String>,
    #[prost(string, tag = "2")]
    pub spiffe_id: String,
}

/// Debug would print the token.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub struct ValidateJwtSvidRequest {
    #[prost(string, tag = "1")]
    pub audience: String,
    #[prost(string, tag = "2")]
    pub svid: String,
}

impl std::fmt::Debug for ValidateJwtSvidRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ValidateJwtSvidRequest").finish_non_exhaustive()
    }
}

#[derive(Clone, PartialEq, Message)]
pub struct ValidateJwtSvidResponse {
    #[prost(string, tag = "1")]
    pub spiffe_id: String,
    #[prost(message, optional, tag = "2")]
    pub claims: Option<Struct>,
}

/// `google.protobuf.Struct`.
#[derive(Clone, PartialEq, Message)]
pub struct Struct {
    #[prost(btree_map = "string, message", tag = "1")]
    pub fields: BTreeMap<String, Value>,
}

/// `google.protobuf.Value`.
#[derive(Clone, PartialEq, Message)]
pub struct Value {
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5, 6")]
    pub kind: Option<Kind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Kind {
    /// Always 0.
    #[prost(int32, tag = "1")]
    Null(i32),
    #[prost(double, tag = "2")]
    Number(f64),
    #[prost(string, tag = "3")]
    String(String),
    #[prost(bool, tag = "4")]
    Bool(bool),
    #[prost(message, tag = "5")]
    Struct(Struct),
    #[prost(message, tag = "6")]
    List(ListValue),
}

/// `google.protobuf.ListValue`.
#[derive(Clone, PartialEq, Message)]
pub struct ListValue {
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<Value>,
}

impl From<serde_json::Map<String, serde_json::Value>> for Struct {
    fn from(object: serde_json::Map<String, serde_json::Value>) -> Self {
        let field = |(name, value): (String, serde_json::Value)| (name, value.into());
        Self { fields: object.into_iter().map(field).collect() }
    }
}

impl From<serde_json::Value> for Value {
    fn from(value: serde_json::Value) -> Self {
        use serde_json::Value as Json;
        let kind = match value {
            Json::Null => Kind::Null(0),
            Json::Bool(value) => Kind::Bool(value),
            Json::Number(value) => Kind::Number(value.as_f64().unwrap_or(f64::NAN)),
            Json::String(value) => Kind::String(value),
            Json::Array(all) => {
                Kind::List(ListValue { values: all.into_iter().map(Into::into).collect() })
            }
            Json::Object(object) => Kind::Struct(object.into()),
        };
        Self { kind: Some(kind) }
    }
}

#[cfg(test)]
mod tests {
    use prost_reflect::{DescriptorPool, DynamicMessage};
    use serde_json::json;

    use super::*;

    /// What the .proto file makes of our bytes, as JSON.
    fn as_proto(name: &str, message: &impl Message) -> serde_json::Value {
        let files = protox::compile(["spiffe/workload/workloadapi.proto"], ["proto"]).unwrap();
        let pool = DescriptorPool::from_file_descriptor_set(files).unwrap();
        let descriptor = pool.get_message_by_name(name).unwrap();
        let found = DynamicMessage::decode(descriptor, &*message.encode_to_vec()).unwrap();
        assert_eq!(found.unknown_fields().count(), 0);
        serde_json::to_value(found).unwrap()
    }

    #[test]
    fn responses_are_those_of_the_proto_file() {
        let svid = X509Svid {
            spiffe_id: "id".to_owned(),
            x509_svid: vec![1],
            x509_svid_key: vec![2],
            bundle: vec![3],
            hint: "hint".to_owned(),
        };
        let bundles = BTreeMap::from([("spiffe://td".to_owned(), vec![4])]);
        let response = X509SvidResponse {
            svids: vec![svid],
            crl: vec![vec![5]],
            federated_bundles: bundles.clone(),
        };
        let expected = json!({
            "svids": [{"spiffeId": "id", "x509Svid": "AQ==", "x509SvidKey": "Ag==", "bundle": "Aw==", "hint": "hint"}],
            "crl": ["BQ=="], "federatedBundles": {"spiffe://td": "BA=="},
        });
        assert_eq!(as_proto("X509SVIDResponse", &response), expected);
        let response = X509BundlesResponse { crl: vec![vec![5]], bundles: bundles.clone() };
        let expected = json!({"crl": ["BQ=="], "bundles": {"spiffe://td": "BA=="}});
        assert_eq!(as_proto("X509BundlesResponse", &response), expected);
        let expected = json!({"bundles": {"spiffe://td": "BA=="}});
        assert_eq!(as_proto("JWTBundlesResponse", &JwtBundlesResponse { bundles }), expected);
    }

    #[test]
    fn requests_and_claims_are_those_of_the_proto_file() {
        let request = JwtSvidRequest { audience: vec!["a".to_owned()], spiffe_id: "id".to_owned() };
        let expected = json!({"audience": ["a"], "spiffeId": "id"});
        assert_eq!(as_proto("JWTSVIDRequest", &request), expected);
        let request = ValidateJwtSvidRequest { audience: "a".to_owned(), svid: "t".to_owned() };
        let expected = json!({"audience": "a", "svid": "t"});
        assert_eq!(as_proto("ValidateJWTSVIDRequest", &request), expected);
        let claims = json!({
            "aud": ["a", "b"], "exp": 7.0, "admin": false, "none": null, "deep": {"list": [1.5, {}]},
        });
        let fields = claims.as_object().unwrap().clone();
        let response =
            ValidateJwtSvidResponse { spiffe_id: "id".to_owned(), claims: Some(fields.into()) };
        let expected = json!({"spiffeId": "id", "claims": claims});
        assert_eq!(as_proto("ValidateJWTSVIDResponse", &response), expected);
    }

    #[test]
    fn neither_a_key_nor_a_token_is_printed() {
        let svid = X509Svid { x509_svid_key: vec![83, 69, 67], ..X509Svid::default() };
        assert!(!format!("{svid:?}").contains("83"), "{svid:?}");
        let request = ValidateJwtSvidRequest { svid: "secret".to_owned(), ..Default::default() };
        assert!(!format!("{request:?}").contains("secret"), "{request:?}");
    }
}

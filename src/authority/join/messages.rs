//! The messages of `proto/trustplane/join/v1/join.proto`, which a test compares with these.

use std::collections::BTreeMap;

use bytes::{BufMut as _, Bytes, BytesMut};
use prost::{Enumeration, Message, Oneof};

pub const METHOD: &str = "/trustplane.join.v1.JoinService/RegisterUsingSPIFFEMethod";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum Role {
    Unspecified = 0,
    Bot = 1,
    Agent = 2,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct JoinRequest {
    #[prost(string, tag = "1")]
    pub token: String,
    #[prost(enumeration = "Role", tag = "2")]
    pub role: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub csr: Vec<u8>,
    #[prost(string, tag = "4")]
    pub node_name: String,
    #[prost(int64, tag = "5")]
    pub expires: i64,
    #[prost(bool, tag = "6")]
    pub follow: bool,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct InitialRequest {
    #[prost(message, optional, tag = "1")]
    pub join_request: Option<JoinRequest>,
    #[prost(bytes = "vec", tag = "2")]
    pub x509_svid: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ChallengeSolution {
    #[prost(bytes = "vec", tag = "1")]
    pub signed_nonce: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct Request {
    #[prost(oneof = "RequestPayload", tags = "1, 2")]
    pub payload: Option<RequestPayload>,
}

#[derive(Clone, PartialEq, Eq, Oneof)]
pub enum RequestPayload {
    #[prost(message, tag = "1")]
    Init(InitialRequest),
    #[prost(message, tag = "2")]
    ChallengeSolution(ChallengeSolution),
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct Challenge {
    #[prost(bytes = "vec", tag = "1")]
    pub nonce: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct Certs {
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub x509_svid: Vec<Vec<u8>>,
    #[prost(string, tag = "2")]
    pub spiffe_id: String,
    #[prost(int64, tag = "3")]
    pub expires: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct TrustBundles {
    #[prost(btree_map = "string, bytes", tag = "1")]
    pub bundles: BTreeMap<String, Vec<u8>>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct Response {
    #[prost(oneof = "ResponsePayload", tags = "1, 2, 3")]
    pub payload: Option<ResponsePayload>,
}

#[derive(Clone, PartialEq, Eq, Oneof)]
pub enum ResponsePayload {
    #[prost(message, tag = "1")]
    Challenge(Challenge),
    #[prost(message, tag = "2")]
    Certs(Certs),
    #[prost(message, tag = "3")]
    TrustBundles(TrustBundles),
}

/// A message as gRPC sends it: that it is not compressed, its length, and its bytes.
pub fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(1 + size_of::<u32>() + length);
    frame.put_u8(0);
    // All bundles that an API server holds have less than 4 GiB.
    frame.put_u32(length.try_into().unwrap_or(u32::MAX));
    // A buffer that grows takes every message.
    let _ = message.encode(&mut frame);
    frame.freeze()
}

#[cfg(test)]
mod tests {
    use prost_reflect::{DescriptorPool, DynamicMessage};
    use serde_json::{Value, json};

    use super::*;

    /// What the .proto file makes of our bytes, as JSON.
    fn as_proto(name: &str, message: &impl Message) -> Value {
        let files = protox::compile(["trustplane/join/v1/join.proto"], ["proto"]).unwrap();
        let pool = DescriptorPool::from_file_descriptor_set(files).unwrap();
        let descriptor = pool.get_message_by_name(&format!("trustplane.join.v1.{name}")).unwrap();
        let found = DynamicMessage::decode(descriptor, &*message.encode_to_vec()).unwrap();
        assert_eq!(found.unknown_fields().count(), 0);
        serde_json::to_value(found).unwrap()
    }

    #[test]
    fn requests_are_those_of_the_proto_file() {
        let join_request = JoinRequest {
            token: "ci".to_owned(),
            role: Role::Agent.into(),
            csr: vec![1],
            node_name: "node".to_owned(),
            expires: 7,
            follow: true,
        };
        let init = InitialRequest { join_request: Some(join_request), x509_svid: vec![2] };
        let request = Request { payload: Some(RequestPayload::Init(init)) };
        let expected = json!({"init": {
            "joinRequest": {
                "token": "ci", "role": "ROLE_AGENT", "csr": "AQ==", "nodeName": "node", "expires": "7", "follow": true,
            },
            "x509Svid": "Ag==",
        }});
        assert_eq!(as_proto("RegisterUsingSPIFFEMethodRequest", &request), expected);
        let solution = ChallengeSolution { signed_nonce: vec![3] };
        let request = Request { payload: Some(RequestPayload::ChallengeSolution(solution)) };
        let expected = json!({"challengeSolution": {"signedNonce": "Aw=="}});
        assert_eq!(as_proto("RegisterUsingSPIFFEMethodRequest", &request), expected);
    }

    #[test]
    fn responses_are_those_of_the_proto_file() {
        let of = |payload| {
            let response = Response { payload: Some(payload) };
            as_proto("RegisterUsingSPIFFEMethodResponse", &response)
        };
        let challenge = Challenge { nonce: vec![1] };
        assert_eq!(
            of(ResponsePayload::Challenge(challenge)),
            json!({"challenge": {"nonce": "AQ=="}})
        );
        let certs = Certs { x509_svid: vec![vec![2]], spiffe_id: "id".to_owned(), expires: 7 };
        let expected = json!({"certs": {"x509Svid": ["Ag=="], "spiffeId": "id", "expires": "7"}});
        assert_eq!(of(ResponsePayload::Certs(certs)), expected);
        let bundles = BTreeMap::from([("td.test".to_owned(), vec![3])]);
        let expected = json!({"trustBundles": {"bundles": {"td.test": "Aw=="}}});
        assert_eq!(of(ResponsePayload::TrustBundles(TrustBundles { bundles })), expected);
    }
}

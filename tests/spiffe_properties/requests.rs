//! Requests for certificates, and the messages that carry them: good ones, what is nearly one, and junk.

use std::sync::LazyLock;

use openssl::{
    hash::MessageDigest,
    pkey::{PKey, Private},
    rsa::Rsa,
    x509::{X509Req, X509ReqBuilder},
};
use proptest::{prelude::*, sample::Index};
use prost::Message as _;
use rcgen::{CertificateParams, KeyPair};
use trustplane::{
    authority::join::{
        messages::{
            ChallengeSolution, InitialRequest, JoinRequest, Request, RequestPayload, Response, Role,
        },
        request,
    },
    spiffe::{
        key::{PublicKey, RequestError},
        svid::PresentedSvid,
    },
};

use crate::{
    certificates::{PARTIES, Party},
    check,
    documents::{Damage, damage},
    svids,
};

/// Of all kinds of keys, also of those that are not taken.
static REQUESTS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let algorithms = [
        &rcgen::PKCS_ECDSA_P256_SHA256,
        &rcgen::PKCS_ECDSA_P384_SHA384,
        &rcgen::PKCS_ECDSA_P521_SHA512,
        &rcgen::PKCS_ED25519,
    ];
    let by_rcgen = algorithms.map(|algorithm| {
        let key = KeyPair::generate_for(algorithm).expect("a key");
        let request = CertificateParams::default().serialize_request(&key).expect("a request");
        request.der().to_vec()
    });
    let by_openssl = [1024, 2048].map(|bits| {
        let key = PKey::from_rsa(Rsa::generate(bits).expect("a key")).expect("a key");
        of_rsa(&key)
    });
    by_rcgen.into_iter().chain(by_openssl).collect()
});

fn of_rsa(key: &PKey<Private>) -> Vec<u8> {
    let mut builder = X509ReqBuilder::new().expect("a request");
    builder.set_pubkey(key).expect("a request");
    builder.sign(key, MessageDigest::sha256()).expect("a signature");
    builder.build().to_der().expect("DER")
}

/// Made once, or signed anew after damages by the key in it or another one.
fn request() -> impl Strategy<Value = Vec<u8>> {
    let damages = || {
        let count = prop_oneof![2 => Just(0), 3 => Just(1), 1 => 2..4_usize];
        count.prop_flat_map(|count| prop::collection::vec(damage(), count))
    };
    let subject = prop_oneof![4 => Just(Party::Workload), 1 => prop::sample::select(&PARTIES[..])];
    let signed = (subject, damages())
        .prop_map(|(subject, damages)| Party::Workload.request(subject, &damages));
    let made = (any::<Index>(), damages())
        .prop_map(|(at, damages)| damaged(at.get(&REQUESTS).clone(), &damages));
    prop_oneof![2 => signed, 1 => made, 1 => prop::collection::vec(any::<u8>(), 0..60)]
}

fn damaged(mut bytes: Vec<u8>, damages: &[Damage]) -> Vec<u8> {
    damages.iter().for_each(|damage| damage.apply(&mut bytes));
    bytes
}

#[test]
fn a_request_for_a_certificate_is_accepted_only_if_openssl_takes_it_for_signed_by_its_key() {
    check(&request(), |der| {
        let Ok(key) = PublicKey::of_request(&der) else { return Ok(false) };
        let parsed = X509Req::from_der(&der);
        let parsed = parsed.map_err(|error| TestCaseError::fail(error.to_string()))?;
        let theirs = parsed.public_key();
        let theirs = theirs.map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert!(matches!(parsed.verify(&theirs), Ok(true)));
        // What we sign is the key that was asked for.
        let whole = theirs.public_key_to_der().expect("DER");
        prop_assert!(whole.ends_with(key.bytes()));
        Ok(true)
    });
}

/// A first message or a second one, in bytes.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let role = prop_oneof![5 => Just(Role::Bot as i32), 3 => Just(2), 1 => any::<i32>()];
    let good = Just(()).prop_map(|()| Party::Workload.request(Party::Workload, &[]));
    let csr = prop_oneof![3 => good, 1 => request()];
    let join_request = ("[a-z./]{0,8}", role, csr, "\\PC{0,8}", any::<i64>(), any::<bool>());
    let join_request = join_request.prop_map(|(token, role, csr, node_name, expires, follow)| {
        JoinRequest { token, role, csr, node_name, expires, follow }
    });
    let join_request = prop_oneof![12 => join_request.prop_map(Some), 1 => Just(None)];
    let init = (join_request, svids::presented()).prop_map(|(join_request, presented)| {
        let x509_svid = svids::joined(&presented.chain());
        RequestPayload::Init(InitialRequest { join_request, x509_svid })
    });
    let solution = prop::collection::vec(any::<u8>(), 0..80).prop_map(|signed_nonce| {
        RequestPayload::ChallengeSolution(ChallengeSolution { signed_nonce })
    });
    let payload = prop_oneof![8 => init, 1 => solution].prop_map(Some);
    let encoded = payload.prop_map(|payload| Request { payload }.encode_to_vec());
    let damages = prop_oneof![3 => Just(0), 1 => 1..3_usize];
    let damages = damages.prop_flat_map(|count| prop::collection::vec(damage(), count));
    let broken = (encoded, damages).prop_map(|(bytes, damages)| damaged(bytes, &damages));
    prop_oneof![9 => broken, 1 => prop::collection::vec(any::<u8>(), 0..80)]
}

#[test]
fn every_message_of_a_join_has_an_answer_that_quotes_nothing() {
    check(&message(), |bytes| {
        // What a client makes of such bytes.
        let _ = Response::decode(&*bytes);
        let Ok(request) = Request::decode(&*bytes) else { return Ok(false) };
        prop_assert_eq!(Request::decode(&*request.encode_to_vec()), Ok(request.clone()));
        let Some(RequestPayload::Init(init)) = request.payload else { return Ok(false) };
        let parsed = match request::parse(&init) {
            Ok(parsed) => parsed,
            Err(why) => {
                prop_assert!(why.is_ascii() && why.len() < 200, "{why}");
                return Ok(false);
            }
        };
        prop_assert!((1..=5).contains(&parsed.chain.len()));
        prop_assert_eq!(&svids::joined(&parsed.chain), &init.x509_svid);
        let of_request = PublicKey::of_request(&parsed.request.csr);
        let of_request = match of_request {
            Ok(key) => Some(key),
            Err(error) => {
                prop_assert_eq!(error, RequestError::Signature);
                None
            }
        };
        prop_assert_eq!(&of_request, &parsed.new_key);
        let Ok(svid) = PresentedSvid::read(&parsed.chain) else { return Ok(false) };
        // Junk is nobody's signature.
        let has_signed = svid.key().is_ok_and(|key| key.has_signed(b"nonce", &bytes));
        prop_assert!(!has_signed);
        Ok(of_request.is_some())
    });
}

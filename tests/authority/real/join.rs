//! Joining with a client in Go that reads our `.proto` and docs/spiffe.md, and shares no code with the server
//! (e2e/spiffe-verdict). The cases are those of `crate::join`.

use std::net::SocketAddr;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use openssl::{
    asn1::{Asn1Object, Asn1OctetString},
    ec::{EcGroup, EcKey},
    hash::MessageDigest,
    nid::Nid,
    pkey::{PKey, Private},
    rsa::Rsa,
    stack::Stack,
    x509::{
        X509, X509Extension, X509NameBuilder, X509PurposeId, X509ReqBuilder, X509StoreContext,
        extension::{BasicConstraints, ExtendedKeyUsage, KeyUsage, SubjectAlternativeName},
        store::X509StoreBuilder,
        verify::X509VerifyParam,
    },
};
use rcgen::KeyPair;
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};
use testkit::spiffe_verdict::{self, SpiffeVerdict, is_ok};
use tonic::{Code, Status};
use trustplane::authority::join::messages::Certs;

use super::spire::ENDPOINT_ID;
use crate::{
    join::{
        self,
        client::{Attempt, Joins, PartnerCa, svid_params},
        refusals, scene,
    },
    stage::{OWN, Replica, Stage},
};

/// The client in Go, and where it finds our replicas.
pub struct GoClient {
    program: SpiffeVerdict,
    /// Our bundle, by which it knows them.
    document: String,
    addresses: Vec<SocketAddr>,
}

/// What the client received of one attempt.
struct Talk {
    received: Vec<Value>,
    end: Status,
}

impl GoClient {
    pub fn new(document: String, addresses: &[SocketAddr]) -> Self {
        Self { program: SpiffeVerdict::start(), document, addresses: addresses.to_vec() }
    }

    fn of(stage: &Stage, replica: &Replica) -> Self {
        Self::new(stage.document(), &[replica.authority.join_address().unwrap()])
    }

    /// Sends these steps in place of the usual ones; e2e/spiffe-verdict/join.go has them.
    fn talks(&mut self, attempts: &[(&Attempt, Option<&[&str]>)]) -> Vec<Talk> {
        let addresses = self.addresses.iter().cycle();
        let described = addresses.zip(attempts).map(|(address, (attempt, sends))| {
            let mut described = described(attempt);
            described["address"] = json!(address);
            described["sends"] = json!(sends);
            described
        });
        let described: Vec<_> = described.collect();
        let question = spiffe_verdict::join(OWN, &self.document, ENDPOINT_ID, &described);
        let answer = self.program.ask(&question);
        assert!(is_ok(&answer), "{answer}");
        let results = answer["results"].as_array().unwrap().iter();
        let talks: Vec<_> = results.map(Talk::of).collect();
        assert_eq!(talks.len(), attempts.len());
        talks
    }
}

impl Joins for GoClient {
    async fn join_all(&mut self, attempts: &[&Attempt]) -> Vec<Result<Certs, Status>> {
        let usual: Vec<_> = attempts.iter().map(|it| (*it, None)).collect();
        self.talks(&usual).into_iter().map(Talk::certs).collect()
    }
}

impl Talk {
    fn of(result: &Value) -> Self {
        let code = result["code"].as_i64().and_then(|it| i32::try_from(it).ok()).unwrap();
        let end = Status::new(Code::from_i32(code), result["message"].as_str().unwrap());
        Self { received: result["received"].as_array().cloned().unwrap_or_default(), end }
    }

    fn certs(self) -> Result<Certs, Status> {
        let Some(certs) = self.received.iter().find_map(|it| it.get("certs")) else {
            assert_ne!(self.end.code(), Code::Ok, "neither certificates nor an error");
            return Err(self.end);
        };
        let chain = certs["x509_svid"].as_array().unwrap().iter();
        Ok(Certs {
            x509_svid: chain.map(|it| STANDARD.decode(it.as_str().unwrap()).unwrap()).collect(),
            spiffe_id: certs["spiffe_id"].as_str().unwrap().to_owned(),
            // 64 bits are text in protobuf's JSON.
            expires: certs["expires"].as_str().unwrap().parse().unwrap(),
        })
    }
}

fn described(attempt: &Attempt) -> Value {
    let bytes = |bytes: &[u8]| STANDARD.encode(bytes);
    let request = &attempt.request;
    json!({
        "key": bytes(&attempt.key.serialize_der()),
        "init": {
            "join_request": {
                "token": request.token,
                "role": request.role,
                "csr": bytes(&request.csr),
                "node_name": request.node_name,
                "expires": request.expires,
                "follow": request.follow,
            },
            "x509_svid": bytes(&attempt.svid),
        },
        "signed_td": attempt.server,
        "signed_nonce": attempt.signed_nonce.as_deref().map(bytes),
        "signed_token": attempt.signed_token,
        "signed_csr": attempt.signed_csr.as_deref().map(bytes),
        "solution": attempt.replayed.as_deref().map(bytes),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn thirty_joins_are_refused_to_the_go_client_by_one_text() {
    let (stage, ca, replica, client) = scene().await;
    let mut go = GoClient::of(&stage, &replica);
    refusals::are_all_alike(&stage, &ca, &client, &mut go).await;
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_join_has_codes_of_its_own_for_the_go_client() {
    let (stage, ca, replica, _) = scene().await;
    let mut go = GoClient::of(&stage, &replica);
    refusals::have_codes_of_their_own(&stage, &ca, &mut go).await;

    let attempt = Attempt::new(&ca, "/ci/deploy");
    let cases: [(&[&str], Code); 5] = [
        (&[], Code::DeadlineExceeded),
        (&["init"], Code::DeadlineExceeded),
        (&["init", "init"], Code::InvalidArgument),
        (&["truncated"], Code::InvalidArgument),
        // The right signature comes too late.
        (&["init", "forged", "solution"], Code::PermissionDenied),
    ];
    let talks = go.talks(&cases.map(|(sends, _)| (&attempt, Some(sends))));
    for ((sends, code), talk) in cases.iter().zip(talks) {
        assert_eq!(talk.end.code(), *code, "{sends:?}: {}", talk.end);
        let is_local = talk.end.message().contains("context deadline");
        assert!(!is_local, "{sends:?}: the client gave up, not the server");
        assert!(talk.received.iter().all(|it| it.get("certs").is_none()), "{sends:?}");
    }
    replica.stop().await;
}

/// A key of each kind that docs/spiffe.md has a signature for.
fn key_of_each_kind() -> [(&'static str, KeyPair); 4] {
    let on_curve = |curve| {
        let group = EcGroup::from_curve_name(curve).unwrap();
        EcKey::generate(&group).and_then(PKey::from_ec_key).unwrap()
    };
    let pair =
        |key: PKey<Private>| KeyPair::try_from(&*key.private_key_to_pkcs8().unwrap()).unwrap();
    [
        ("P-256", pair(on_curve(Nid::X9_62_PRIME256V1))),
        ("P-384", pair(on_curve(Nid::SECP384R1))),
        ("RSA", pair(Rsa::generate(2048).and_then(PKey::from_rsa).unwrap())),
        ("Ed25519", pair(PKey::generate_ed25519().unwrap())),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn the_go_client_joins_with_a_key_of_each_kind_and_is_sent_the_bundles() {
    let (stage, ca, replica, _) = scene().await;
    let mut go = GoClient::of(&stage, &replica);
    for (kind, key) in key_of_each_kind() {
        let svid = svid_params(&[&format!("spiffe://{}/ci/{kind}", join::PARTNER)]);
        let mut attempt = Attempt::for_key(key, &ca, svid);
        attempt.request.follow = true;
        let talk = go.talks(&[(&attempt, None)]).remove(0);
        let [challenge, certs, bundles] = &talk.received[..] else {
            panic!("{kind}: {:?}, {}", talk.received, talk.end)
        };
        let nonce = STANDARD.decode(challenge["challenge"]["nonce"].as_str().unwrap()).unwrap();
        assert_eq!(nonce.len(), 32);
        assert_eq!(certs["certs"]["spiffe_id"], format!("spiffe://{OWN}/bot/deployer"));
        let bundles = bundles["trust_bundles"]["bundles"].as_object().unwrap();
        assert_eq!(bundles.keys().collect::<Vec<_>>(), [OWN, join::PARTNER]);
        let ours = STANDARD.decode(bundles[OWN].as_str().unwrap()).unwrap();
        assert_eq!(String::from_utf8(ours).unwrap(), stage.document());
    }
    replica.stop().await;
}

/// A request that asks for everything that an SVID must not have.
fn greedy_request() -> Vec<u8> {
    let key = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    let key = EcKey::generate(&key).and_then(PKey::from_ec_key).unwrap();
    let mut builder = X509ReqBuilder::new().unwrap();
    let mut name = X509NameBuilder::new().unwrap();
    name.append_entry_by_text("CN", "root").unwrap();
    builder.set_subject_name(&name.build()).unwrap();
    let names = SubjectAlternativeName::new()
        .uri(&format!("spiffe://{OWN}/admin"))
        .dns("*.own.test")
        .email("root@own.test")
        .ip("127.0.0.1")
        .build(&builder.x509v3_context(None))
        .unwrap();
    let usages = KeyUsage::new().critical().key_cert_sign().crl_sign().key_agreement().build();
    let mut purposes = ExtendedKeyUsage::new();
    let purposes = purposes.code_signing().time_stamping().build();
    let unknown = Asn1Object::from_str("1.3.6.1.4.1.99999.1").unwrap();
    let content = Asn1OctetString::new_from_bytes(b"\x05\x00").unwrap();
    let mut wishes = Stack::new().unwrap();
    for wish in [
        BasicConstraints::new().critical().ca().pathlen(5).build(),
        usages,
        purposes,
        Ok(names),
        X509Extension::new_from_der(&unknown, false, &content),
    ] {
        wishes.push(wish.unwrap()).unwrap();
    }
    builder.add_extensions(&wishes).unwrap();
    builder.set_pubkey(&key).unwrap();
    builder.sign(&key, MessageDigest::sha256()).unwrap();
    builder.build().to_der().unwrap()
}

/// Whether OpenSSL takes it for this side of TLS.
fn openssl_accepts(ca: &[u8], chain: &[Vec<u8>], purpose: X509PurposeId) -> bool {
    let mut parameters = X509VerifyParam::new().unwrap();
    parameters.set_purpose(purpose).unwrap();
    let mut trusted = X509StoreBuilder::new().unwrap();
    trusted.add_cert(X509::from_der(ca).unwrap()).unwrap();
    trusted.set_param(&parameters).unwrap();
    let mut between = Stack::new().unwrap();
    for it in &chain[1..] {
        between.push(X509::from_der(it).unwrap()).unwrap();
    }
    let leaf = X509::from_der(&chain[0]).unwrap();
    let mut context = X509StoreContext::new().unwrap();
    let verify = |context: &mut openssl::x509::X509StoreContextRef| context.verify_cert();
    context.init(&trusted.build(), &leaf, &between, verify).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_request_the_public_key_alone_counts_and_openssl_and_go_spiffe_accept_the_svid() {
    let (stage, ca, replica, _) = scene().await;
    let mut go = GoClient::of(&stage, &replica);
    let mut attempt = Attempt::new(&ca, "/ci/greedy");
    attempt.request.csr = greedy_request();
    let certs = go.join_once(&attempt).await.unwrap();

    let id = format!("spiffe://{OWN}/bot/deployer");
    let text = X509::from_der(&certs.x509_svid[0]).unwrap().to_text().unwrap();
    let text = String::from_utf8(text).unwrap();
    let extensions = text.split("X509v3 extensions:").nth(1).unwrap();
    let found: Vec<_> = extensions.lines().map(str::trim).filter(|it| !it.is_empty()).collect();
    let value = |name: &str| {
        let at = found.iter().position(|it| it.starts_with(name));
        found[at.unwrap_or_else(|| panic!("no {name} in {text}")) + 1]
    };
    assert_eq!(value("X509v3 Basic Constraints: critical"), "CA:FALSE");
    assert_eq!(value("X509v3 Key Usage: critical"), "Digital Signature");
    let purposes = "TLS Web Server Authentication, TLS Web Client Authentication";
    assert_eq!(value("X509v3 Extended Key Usage:"), purposes);
    assert_eq!(value("X509v3 Subject Alternative Name:"), format!("URI:{id}"));
    for wish in
        ["root", "99999", "Code Signing", "DNS:", "email:", "IP Address", "Certificate Sign"]
    {
        assert!(!text.contains(wish), "{wish} in {text}");
    }

    let document: Value = serde_json::from_str(&stage.document()).unwrap();
    let authority = STANDARD.decode(document["keys"][0]["x5c"][0].as_str().unwrap()).unwrap();
    for (side, purpose) in
        [("client", X509PurposeId::SSL_CLIENT), ("server", X509PurposeId::SSL_SERVER)]
    {
        assert!(openssl_accepts(&authority, &certs.x509_svid, purpose), "{side}");
        assert!(!openssl_accepts(ca.issuer.der(), &certs.x509_svid, purpose), "by any CA");
    }
    let chain: Vec<_> = certs.x509_svid.into_iter().map(CertificateDer::from).collect();
    let verify = spiffe_verdict::verify(OWN, &stage.document(), &chain);
    let answer = go.program.ask(&verify);
    assert!(is_ok(&answer) && answer["id"] == id, "{answer}");
    let stranger = PartnerCa::new(OWN);
    let other = json!({ "keys": [stranger.jwk()] }).to_string();
    assert!(!is_ok(&go.program.ask(&spiffe_verdict::verify(OWN, &other, &chain))), "by any bundle");
    replica.stop().await;
}

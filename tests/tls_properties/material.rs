//! Good pairs, made while the tests run.

use std::sync::LazyLock;

use chrono::{DateTime, TimeZone, Utc};
use openssl::asn1::Asn1Time;
use openssl::bn::{BigNum, MsbOption};
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::rsa::Rsa;
use openssl::x509::extension::{
    AuthorityKeyIdentifier, BasicConstraints, ExtendedKeyUsage, KeyUsage, SubjectAlternativeName,
    SubjectKeyIdentifier,
};
use openssl::x509::{X509, X509Name, X509NameBuilder};
use rcgen::{
    BasicConstraints as Constraints, CertificateParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
};

/// A pair as texts, the issuer of its leaf, and its description.
pub struct Texts {
    pub kind: String,
    pub crt: String,
    pub key: String,
    pub issuers: String,
}

/// A time at which every certificate is valid.
pub fn noon() -> DateTime<Utc> {
    Utc.with_ymd_and_hms(2026, 6, 1, 12, 0, 0).unwrap()
}

/// Starting points of the mutations: every kind and length of chain, most of them quick to judge.
pub static POOL: LazyLock<Vec<Texts>> = LazyLock::new(|| {
    let by_openssl = [0, 1, 3, 4, 6, 8, 9, 10, 12, 13, 17, 20].map(generated_by_openssl);
    let by_rcgen = (0..8).map(generated_by_rcgen);
    by_openssl.into_iter().chain(by_rcgen).collect()
});

/// A few RSA keys are shared, because they are slow to make.
static RSA_KEYS: LazyLock<Vec<(u32, PKey<Private>)>> = LazyLock::new(|| {
    let sizes = [2048, 2048, 3072, 2048, 4096];
    let make = |bits| PKey::from_rsa(Rsa::generate(bits).unwrap()).unwrap();
    sizes.into_iter().map(|bits| (bits, make(bits))).collect()
});

const CURVES: [(&str, Nid); 3] =
    [("P-256", Nid::X9_62_PRIME256V1), ("P-384", Nid::SECP384R1), ("P-521", Nid::SECP521R1)];

const URIS: [&str; 5] = [
    "spiffe://example.org/shop",
    "https://shop.example.com:8443/",
    "https://shop.example.com/a%20b",
    "https://somebody@shop.example.com/",
    "https://[2001:db8::1]:8443/",
];

fn text(pem: Vec<u8>) -> String {
    String::from_utf8(pem).unwrap()
}

/// The `n`th pair: cycles through kinds and forms of keys, lengths of chains, digests and names.
pub fn generated_by_openssl(n: usize) -> Texts {
    let rsa = n % 5 == 4;
    let (kind, key) = match rsa {
        true => {
            let (bits, key) = &RSA_KEYS[n / 5 % RSA_KEYS.len()];
            (format!("RSA {bits}"), key.clone())
        }
        false => {
            let (name, nid) = CURVES[n % 3];
            let group = EcGroup::from_curve_name(nid).unwrap();
            (name.to_owned(), PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap())
        }
    };
    let (form, pem) = match (n / 2 % 2, rsa) {
        (0, _) => ("PKCS#8", key.private_key_to_pem_pkcs8()),
        (_, true) => ("PKCS#1", key.rsa().unwrap().private_key_to_pem()),
        (_, false) => ("SEC 1", key.ec_key().unwrap().private_key_to_pem()),
    };
    let mut chain = Vec::<(X509, PKey<Private>)>::new();
    for depth in 0..n % 4 {
        let key = match n % 7 {
            0 => RSA_KEYS[depth % 2].1.clone(),
            other => {
                let group = EcGroup::from_curve_name(CURVES[(other + depth) % 3].1).unwrap();
                PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap()
            }
        };
        let issued = certificate(&format!("authority {depth}"), &key, chain.last(), true, n);
        chain.push((issued, key));
    }
    let leaf = certificate("shop", &key, chain.last(), false, n);
    let issuers = text(chain.last().map_or(&leaf, |(issuer, _)| issuer).to_pem().unwrap());
    let mut crt = text(leaf.to_pem().unwrap());
    for (issuer, _) in chain.iter().rev() {
        crt += &text(issuer.to_pem().unwrap());
    }
    if n % 3 == 1 {
        crt = crt.replace('\n', "\r\n");
    }
    Texts { kind: format!("openssl {kind} {form}"), crt, key: text(pem.unwrap()), issuers }
}

fn name(text: &str, n: usize) -> X509Name {
    let mut name = X509NameBuilder::new().unwrap();
    name.append_entry_by_text("CN", &format!("{text} {n}")).unwrap();
    name.append_entry_by_text("O", "Bäckerei & Söhne").unwrap();
    name.append_entry_by_text("C", "DE").unwrap();
    name.build()
}

fn certificate(
    subject: &str,
    key: &PKey<Private>,
    issuer: Option<&(X509, PKey<Private>)>,
    authority: bool,
    n: usize,
) -> X509 {
    let digest = [MessageDigest::sha256(), MessageDigest::sha384(), MessageDigest::sha512()][n % 3];
    made(subject, key, issuer, authority, n, digest)
}

fn made(
    subject: &str,
    key: &PKey<Private>,
    issuer: Option<&(X509, PKey<Private>)>,
    authority: bool,
    n: usize,
    digest: MessageDigest,
) -> X509 {
    let subject = name(subject, n);
    let mut builder = X509::builder().unwrap();
    builder.set_version(2).unwrap();
    let mut serial = BigNum::new().unwrap();
    serial.rand(1 + (n as i32 * 7) % 159, MsbOption::ONE, false).unwrap();
    builder.set_serial_number(&serial.to_asn1_integer().unwrap()).unwrap();
    builder.set_subject_name(&subject).unwrap();
    builder.set_issuer_name(issuer.map_or(&*subject, |(issuer, _)| issuer.subject_name())).unwrap();
    let days = |days: i64| Asn1Time::from_unix(noon().timestamp() + days * 86_400).unwrap();
    builder.set_not_before(&days(-100)).unwrap();
    // Times after 2049 have another encoding.
    builder.set_not_after(&days(if n % 6 == 5 { 36_500 } else { 100 })).unwrap();
    builder.set_pubkey(key).unwrap();
    let parent = issuer.map(|(issuer, _)| &**issuer);
    let mut extensions =
        vec![SubjectKeyIdentifier::new().build(&builder.x509v3_context(parent, None)).unwrap()];
    if parent.is_some() {
        let id =
            AuthorityKeyIdentifier::new().keyid(true).build(&builder.x509v3_context(parent, None));
        extensions.push(id.unwrap());
    }
    if authority {
        extensions.push(BasicConstraints::new().critical().ca().build().unwrap());
        extensions.push(KeyUsage::new().critical().key_cert_sign().crl_sign().build().unwrap());
    } else {
        let mut names = SubjectAlternativeName::new();
        names
            .dns(&format!("Shop-{n}.example.com"))
            .dns("*.apps.example.com")
            .ip("10.0.0.1")
            .uri(URIS[n % URIS.len()]);
        extensions.push(names.build(&builder.x509v3_context(parent, None)).unwrap());
        extensions.push(ExtendedKeyUsage::new().server_auth().client_auth().build().unwrap());
        extensions.push(KeyUsage::new().critical().digital_signature().build().unwrap());
    }
    extensions.into_iter().for_each(|extension| builder.append_extension(extension).unwrap());
    builder.sign(issuer.map_or(key, |(_, key)| key), digest).unwrap();
    builder.build()
}

/// The `n`th pair, made with rcgen.
pub fn generated_by_rcgen(n: usize) -> Texts {
    let (kind, key) = match n % 5 {
        4 => {
            let (bits, key) = &RSA_KEYS[n / 5 % RSA_KEYS.len()];
            let pem = text(key.private_key_to_pem_pkcs8().unwrap());
            (format!("RSA {bits}"), KeyPair::from_pem(&pem).unwrap())
        }
        other => {
            let (name, algorithm) = [
                ("P-256", &rcgen::PKCS_ECDSA_P256_SHA256),
                ("P-384", &rcgen::PKCS_ECDSA_P384_SHA384),
                ("P-521", &rcgen::PKCS_ECDSA_P521_SHA512),
            ][other % 3];
            (name.to_owned(), KeyPair::generate_for(algorithm).unwrap())
        }
    };
    let mut params = params(&format!("shop {n}"));
    params.subject_alt_names = CertificateParams::new(vec![
        format!("shop-{n}.example.com"),
        "*.example.org".into(),
        "::1".into(),
    ])
    .unwrap()
    .subject_alt_names;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = n.is_multiple_of(2);
    let (crt, issuers) = match n % 2 {
        0 => {
            let mut ca = self::params("rcgen authority");
            ca.is_ca = IsCa::Ca(Constraints::Constrained(0));
            ca.key_usages = vec![KeyUsagePurpose::KeyCertSign];
            let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate().unwrap()).unwrap();
            let leaf = params.signed_by(&key, &ca).unwrap();
            (leaf.pem() + &ca.pem(), ca.pem())
        }
        _ => {
            let leaf = params.self_signed(&key).unwrap();
            (leaf.pem(), leaf.pem())
        }
    };
    Texts { kind: format!("rcgen {kind} PKCS#8"), crt, key: key.serialize_pem(), issuers }
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = rcgen::date_time_ymd(2026, 1, 1);
    params.not_after = rcgen::date_time_ymd(2027, 1, 1);
    params
}

/// A pair in the `n`th form that people and tools write.
pub fn written_down(n: usize, mut texts: Texts) -> Texts {
    let each = |texts: &mut Texts, change: &dyn Fn(&str) -> String| {
        (texts.crt, texts.key) = (change(&texts.crt), change(&texts.key));
    };
    let how = match n % 10 {
        0 => "as it is",
        1 => {
            each(&mut texts, &|text| text.replace('\r', "").replace('\n', "\r\n"));
            "CRLF"
        }
        2 => {
            each(&mut texts, &|text| format!("Bag Attributes\n    localKeyID: 01 02\n{text}"));
            "text before"
        }
        3 => {
            each(&mut texts, &|text| format!("{text}\nkept by the web team\n"));
            "text after"
        }
        4 => {
            each(&mut texts, &|text| text.trim_end().to_owned());
            "no final newline"
        }
        5 => {
            each(&mut texts, &|text| text.replace('\r', "").replace('\n', " \t\n"));
            "spaces at line ends"
        }
        6 => {
            let leaf = X509::from_pem(texts.crt.as_bytes()).unwrap();
            texts.crt = text(leaf.to_pem().unwrap()) + &texts.crt;
            DOUBLED
        }
        7 if texts.key.contains("EC PRIVATE KEY") => {
            let curve = crate::mutation::block("EC PARAMETERS", &[6, 5, 43, 129, 4, 0, 34]);
            texts.key = curve + &texts.key;
            "EC PARAMETERS"
        }
        8 => {
            texts = self_signed_with_sha_1(n, texts);
            "self-signed with SHA-1"
        }
        _ => {
            each(&mut texts, &|text| text.replace('\r', "").replace('\n', "\n\n"));
            "blank lines"
        }
    };
    Texts { kind: format!("{}, {how}", texts.kind), ..texts }
}

/// The name in [`written_down`] of a repeated leaf.
pub const DOUBLED: &str = "leaf twice";

fn self_signed_with_sha_1(n: usize, texts: Texts) -> Texts {
    let key = PKey::private_key_from_pem(texts.key.as_bytes()).unwrap();
    let crt = text(made("shop", &key, None, false, n, MessageDigest::sha1()).to_pem().unwrap());
    // Go does not verify SHA-1, so only the leaf itself works as caCertificate.
    Texts { issuers: crt.clone(), crt, ..texts }
}

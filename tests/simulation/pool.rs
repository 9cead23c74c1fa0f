//! Certificates and contents of Secrets, made once per run, each known to be good or bad.

use std::{collections::HashMap, sync::OnceLock};

use base64::{Engine, engine::general_purpose::STANDARD};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use serde_json::{Value, json};
use trustplane::tls::{self, Pair};

pub const HOSTS: [&str; 2] = ["shop.example.com", "blog.example.com"];
const PAIRS: usize = 6;

pub struct Pool {
    pub pairs: Vec<Pair>,
    /// CA that signed all pairs.
    pub authority: String,
    /// CA that signed none of them.
    pub stranger: String,
    /// Pieces of the private keys, which must not be found anywhere.
    pub needles: Vec<String>,
}

pub fn pool() -> &'static Pool {
    static POOL: OnceLock<Pool> = OnceLock::new();
    POOL.get_or_init(Pool::make)
}

impl Pool {
    fn make() -> Self {
        let (authority, stranger) = (authority("an authority"), self::authority("a stranger"));
        let pairs: Vec<Pair> = (0..PAIRS).map(|_| pair(&authority)).collect();
        let needles = pairs.iter().flat_map(|pair| needles(pair.key().expose())).collect();
        Self { pairs, authority: authority.pem(), stranger: stranger.pem(), needles }
    }
}

fn pair(authority: &CertifiedIssuer<'static, KeyPair>) -> Pair {
    let key = KeyPair::generate().expect("a key can be made");
    let parameters = CertificateParams::new(HOSTS.map(str::to_owned)).expect("these are names");
    let certificate = parameters.signed_by(&key, authority).expect("it can be signed");
    tls::judge(certificate.pem().as_bytes(), key.serialize_pem().as_bytes())
        .expect("a router would serve it")
}

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut parameters = CertificateParams::new(Vec::new()).expect("no names are names");
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate().expect("a key can be made");
    CertifiedIssuer::self_signed(parameters, key).expect("it can be signed")
}

/// The key's second line (the first starts like that of every key), and a part of its base64 form
/// in a Secret.
fn needles(key: &str) -> [String; 2] {
    let lines: Vec<&str> = key.lines().filter(|line| !line.starts_with("-----")).collect();
    let encoded = STANDARD.encode(key);
    let middle = encoded.len() / 2;
    [lines[1].to_owned(), encoded[middle..middle + 48].to_owned()]
}

/// Content of a Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Content {
    /// A pair that the router would serve.
    Good(u8),
    /// The certificate of one pair with the key of another.
    Mismatched,
    /// Text that is no certificate.
    Garbage,
    /// Two empty values, as in cert-manager's first Secret.
    Empty,
    /// A good pair in a Secret of type Opaque.
    Opaque,
}

impl Content {
    pub const ALL: [Self; 10] = [
        Self::Good(0),
        Self::Good(1),
        Self::Good(2),
        Self::Good(3),
        Self::Good(4),
        Self::Good(5),
        Self::Mismatched,
        Self::Garbage,
        Self::Empty,
        Self::Opaque,
    ];

    pub fn kind(self) -> &'static str {
        if self == Self::Opaque { "Opaque" } else { "kubernetes.io/tls" }
    }

    /// Certificate and key.
    pub fn texts(self) -> (&'static str, &'static str) {
        let pair = |number: u8| &pool().pairs[usize::from(number) % PAIRS];
        match self {
            Self::Good(number) => (pair(number).certificate(), pair(number).key().expose()),
            Self::Opaque => Self::Good(0).texts(),
            Self::Mismatched => (pair(0).certificate(), pair(1).key().expose()),
            Self::Garbage => ("no certificate", "no key"),
            Self::Empty => ("", ""),
        }
    }

    /// `data` of a Secret.
    pub fn data(self) -> Value {
        let (certificate, key) = self.texts();
        json!({ "tls.crt": STANDARD.encode(certificate), "tls.key": STANDARD.encode(key) })
    }

    /// The content of a Secret in the store.
    pub fn of(secret: &Value) -> Self {
        static HELD: OnceLock<HashMap<(&str, String), Content>> = OnceLock::new();
        let held = HELD.get_or_init(|| {
            let entry = |content: Self| ((content.kind(), content.data().to_string()), content);
            Self::ALL.into_iter().map(entry).collect()
        });
        let kind = secret["type"].as_str().unwrap_or_default();
        *held
            .get(&(kind, secret["data"].to_string()))
            .expect("every Secret's content is of the pool")
    }

    /// Whether the router would refuse it for any Route.
    pub fn is_refused(self) -> bool {
        matches!(self, Self::Mismatched | Self::Garbage | Self::Empty)
    }

    pub fn pair(self) -> Option<&'static Pair> {
        match self {
            Self::Good(number) => Some(&pool().pairs[usize::from(number) % PAIRS]),
            _ => None,
        }
    }
}

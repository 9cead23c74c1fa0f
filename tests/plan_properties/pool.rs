//! Keys and certificates, made when the tests start, and the judgement of `tls` about them.
//!
//! Cases refer to texts by number, so that a failing case can be printed.

use std::{collections::HashSet, sync::LazyLock};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use trustplane::{
    inject::decide::secret_state::SecretState,
    tls::{self, Fingerprint, Pair, Problem},
};

pub static POOL: LazyLock<Pool> = LazyLock::new(Pool::make);

/// Certificate and key as a Secret or a Route holds them.
#[derive(Clone)]
pub struct Texts {
    pub certificate: String,
    pub key: String,
}

impl Texts {
    pub fn both(&self) -> (&str, &str) {
        (&self.certificate, &self.key)
    }
}

pub struct Pool {
    /// Pairs that the router serves. The last two share one key, as a renewal may.
    pub pairs: Vec<Pair>,
    /// Texts that the router would refuse, each for another reason.
    pub invalid: Vec<Refused>,
    /// A good pair in a Route with somebody else's caCertificate.
    pub ca_mismatch: Vec<Problem>,
    pub authority: String,
    windows: HashSet<String>,
}

/// A shared run of this many characters with a key is no coincidence.
const WINDOW: usize = 12;

impl Pool {
    fn make() -> Self {
        let authority = authority();
        let mut texts: Vec<Texts> = (0..6).map(|number| self_signed(number, &key())).collect();
        let crlf = Texts {
            certificate: texts[0].certificate.replace('\n', "\r\n"),
            key: texts[0].key.replace('\n', "\r\n"),
        };
        let shared = key();
        texts.extend([
            crlf,
            issued(&authority),
            self_signed(20, &shared),
            self_signed(21, &shared),
        ]);
        let pairs: Vec<Pair> = texts
            .iter()
            .map(|it| tls::judge(it.certificate.as_bytes(), it.key.as_bytes()).unwrap())
            .collect();
        let ca_mismatch =
            tls::ca_problems(pairs[0].certificate(), &authority.pem(), chrono::Utc::now());
        assert!(!ca_mismatch.is_empty(), "the authority did not issue the first pair");
        Self {
            invalid: invalid(&texts),
            ca_mismatch,
            windows: texts.iter().flat_map(|it| windows(&it.key)).collect(),
            authority: authority.pem(),
            pairs,
        }
    }

    pub fn texts(&self, number: usize) -> Texts {
        let pair = &self.pairs[number];
        Texts { certificate: pair.certificate().to_owned(), key: pair.key().expose().to_owned() }
    }

    /// Whether the text holds a piece of any key.
    pub fn leaks_into(&self, text: &str) -> bool {
        text.split(|c: char| !is_base64(c)).filter(|run| run.len() >= WINDOW).any(|run| {
            (0..=run.len() - WINDOW).any(|at| self.windows.contains(&run[at..at + WINDOW]))
        })
    }
}

fn is_base64(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '+' || c == '/'
}

fn windows(key: &str) -> Vec<String> {
    let body: String = key.lines().filter(|line| !line.starts_with("---")).collect();
    (0..body.len().saturating_sub(WINDOW)).map(|at| body[at..at + WINDOW].to_owned()).collect()
}

fn key() -> KeyPair {
    KeyPair::generate().unwrap()
}

fn parameters(number: i32) -> CertificateParams {
    let names = vec![format!("shop{number}.example.com"), "*.apps.example.com".to_owned()];
    let mut parameters = CertificateParams::new(names).unwrap();
    parameters.not_before = date_time_ymd(2020 + number, 1, 1);
    parameters.not_after = date_time_ymd(2022 + number, 1, 1);
    parameters
}

fn self_signed(number: i32, key: &KeyPair) -> Texts {
    let certificate = parameters(number).self_signed(key).unwrap();
    Texts { certificate: certificate.pem(), key: key.serialize_pem() }
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut parameters = CertificateParams::new(Vec::new()).unwrap();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(parameters, key()).unwrap()
}

fn issued(authority: &CertifiedIssuer<'static, KeyPair>) -> Texts {
    let key = key();
    let leaf = parameters(10).signed_by(&key, authority).unwrap();
    Texts { certificate: leaf.pem() + &authority.pem(), key: key.serialize_pem() }
}

/// A pair that the router would refuse.
pub struct Refused {
    problems: Vec<Problem>,
    /// None unless it is UTF-8.
    pub texts: Option<Texts>,
}

impl Refused {
    fn of((certificate, key): (&[u8], &[u8])) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        let texts = text(certificate).zip(text(key));
        Self {
            problems: tls::judge(certificate, key).unwrap_err(),
            texts: texts.map(|(certificate, key)| Texts { certificate, key }),
        }
    }

    pub fn state(&self) -> SecretState {
        let pair = self.texts.as_ref().map(|it| Fingerprint::of(&it.certificate, &it.key));
        SecretState::Invalid { problems: self.problems.clone().into(), pair }
    }
}

fn invalid(texts: &[Texts]) -> Vec<Refused> {
    let (one, other) = (&texts[0], &texts[1]);
    let refused: [(&[u8], &[u8]); 7] = [
        (b"", b""),
        (one.certificate.as_bytes(), b""),
        (one.certificate.as_bytes(), other.key.as_bytes()),
        (one.key.as_bytes(), one.certificate.as_bytes()),
        (&[0xff; 1000], &[0xfe; 1000]),
        (one.certificate.as_bytes(), &one.key.as_bytes()[..one.key.len() - 60]),
        ("-----BEGIN CERTIFICATE-----\n!\n".repeat(100).leak().as_bytes(), b"what"),
    ];
    refused.map(Refused::of).into()
}

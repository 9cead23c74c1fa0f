//! Certificates and keys like those of users. Every call makes new ones, and every key is
//! registered with the suite.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, RsaKeySize, SerialNumber, date_time_ymd,
};

use crate::suite;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A certificate, or a chain with the leaf first, and its key, both as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Pair {
    pub certificate: String,
    pub key: String,
    /// The root, in PEM.
    pub authority: String,
}

impl fmt::Debug for Pair {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A failing assertion must not print the key.
        let line = self.certificate.lines().nth(3).unwrap_or_default();
        write!(formatter, "Pair(certificate …{line}…)")
    }
}

impl Pair {
    /// This certificate with the other's key.
    pub fn with_key_of(&self, other: &Pair) -> Self {
        Self { key: other.key.clone(), ..self.clone() }
    }
}

/// An EC P-256 leaf for `host`, signed by a new root, valid for 30 days since yesterday.
pub fn issued(host: &str) -> Pair {
    Order::of(host).make()
}

/// Like [`issued`], with an RSA key of 2048 bits.
pub fn rsa(host: &str) -> Pair {
    Order::of(host).rsa().make()
}

/// Like [`issued`], with an intermediate in the certificate.
pub fn with_chain(host: &str) -> Pair {
    Order::of(host).intermediate().make()
}

/// A certificate that expired yesterday.
pub fn expired(host: &str) -> Pair {
    Order::of(host).valid_from_to(-30, -1).make()
}

/// A valid certificate with an intermediate that expired yesterday.
pub fn with_expired_chain(host: &str) -> Pair {
    Order { intermediate_to_day: -1, ..Order::of(host).intermediate() }.make()
}

/// A certificate that starts tomorrow.
pub fn not_yet_valid(host: &str) -> Pair {
    Order::of(host).valid_from_to(1, 30).make()
}

/// A certificate that expires in a day.
pub fn expiring(host: &str) -> Pair {
    Order::of(host).valid_from_to(-60, 1).make()
}

/// A certificate and the key of another.
pub fn mismatched(host: &str) -> Pair {
    issued(host).with_key_of(&issued(host))
}

/// A pair that the router refuses because of its key type.
pub fn ed25519(host: &str) -> Pair {
    Order { key: Kind::Ed25519, ..Order::of(host) }.make()
}

/// A chain of this many P-256 certificates, each issued by the next, 420 bytes each.
pub fn long_chain(certificates: usize) -> Pair {
    chain_of(Kind::P256, certificates).expect("rcgen makes certificates")
}

/// Like [`long_chain`], with P-521, whose signatures are the slowest to verify, 600 bytes each.
pub fn slow_chain(certificates: usize) -> Pair {
    chain_of(Kind::P521, certificates).expect("rcgen makes certificates")
}

/// Two CAs with one key that issue each other repeatedly, so that the chain has no self-issued end.
fn chain_of(kind: Kind, certificates: usize) -> Result<Pair, rcgen::Error> {
    let key = fresh_key(kind)?;
    let params = |name: &str| {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.serial_number = Some(SerialNumber::from(u64::from(fastrand::u16(1..))));
        params
    };
    let (one, other) = (params("a"), params("b"));
    let issued_by_other = one.signed_by(&key, &Issuer::from_params(&other, &key))?.pem();
    let issued_by_one = other.signed_by(&key, &Issuer::from_params(&one, &key))?.pem();
    let both = [&*issued_by_other, &*issued_by_one];
    let certificate = both.into_iter().cycle().take(certificates).collect();
    Ok(Pair { certificate, key: key.serialize_pem(), authority: String::new() })
}

/// Builder of a pair.
pub struct Order {
    hosts: Vec<String>,
    key: Kind,
    intermediate: bool,
    intermediate_to_day: i64,
    from_day: i64,
    to_day: i64,
}

#[derive(Clone, Copy)]
enum Kind {
    P256,
    P521,
    Rsa2048,
    Ed25519,
}

impl Order {
    /// A pair for one host.
    pub fn of(host: &str) -> Self {
        Self {
            hosts: vec![host.to_owned()],
            key: Kind::P256,
            intermediate: false,
            intermediate_to_day: 3_650,
            from_day: -1,
            to_day: 30,
        }
    }

    /// Adds a host.
    pub fn and(mut self, host: &str) -> Self {
        self.hosts.push(host.to_owned());
        self
    }

    /// Uses an RSA key of 2048 bits.
    pub fn rsa(self) -> Self {
        Self { key: Kind::Rsa2048, ..self }
    }

    /// Signs with an intermediate, which is part of the certificate.
    pub fn intermediate(self) -> Self {
        Self { intermediate: true, ..self }
    }

    /// Sets the validity in days from now.
    pub fn valid_from_to(self, from_day: i64, to_day: i64) -> Self {
        Self { from_day, to_day, ..self }
    }

    pub fn make(self) -> Pair {
        self.try_make().expect("rcgen makes certificates")
    }

    fn try_make(self) -> Result<Pair, rcgen::Error> {
        let root = CertifiedIssuer::self_signed(authority("Test root"), fresh_key(Kind::P256)?)?;
        let key = fresh_key(self.key)?;
        let mut leaf = CertificateParams::new(self.hosts)?;
        leaf.distinguished_name.push(DnType::CommonName, "Test leaf");
        leaf.use_authority_key_identifier_extension = true;
        (leaf.not_before, leaf.not_after) = (
            date_time_ymd(1970, 1, 1) + since_epoch(self.from_day),
            date_time_ymd(1970, 1, 1) + since_epoch(self.to_day),
        );
        let certificate = if self.intermediate {
            let mut between = authority("Test intermediate");
            between.not_after = date_time_ymd(1970, 1, 1) + since_epoch(self.intermediate_to_day);
            let between = CertifiedIssuer::signed_by(between, fresh_key(Kind::P256)?, &root)?;
            leaf.signed_by(&key, &between)?.pem() + &between.pem()
        } else {
            leaf.signed_by(&key, &root)?.pem()
        };
        Ok(Pair { certificate, key: key.serialize_pem(), authority: root.pem() })
    }
}

fn fresh_key(kind: Kind) -> Result<KeyPair, rcgen::Error> {
    let key = match kind {
        Kind::P256 => KeyPair::generate()?,
        Kind::P521 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P521_SHA512)?,
        Kind::Rsa2048 => KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_2048)?,
        Kind::Ed25519 => KeyPair::generate_for(&rcgen::PKCS_ED25519)?,
    };
    suite::register_key(&key.serialize_pem());
    Ok(key)
}

/// Parameters of a CA with this name.
pub fn authority(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn since_epoch(days_from_now: i64) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let distance = DAY * u32::try_from(days_from_now.unsigned_abs()).unwrap_or(u32::MAX);
    if days_from_now < 0 { now.saturating_sub(distance) } else { now + distance }
}

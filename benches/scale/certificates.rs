//! Pairs as an issuer gives them out: a leaf and two intermediates, RSA, with the leaf's key about 5 KB.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
    PKCS_RSA_SHA256, RsaKeySize, SerialNumber, date_time_ymd,
};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// RSA keys take long to make, and nothing here depends on who shares one.
const DIFFERENT_KEYS: usize = 4;

/// What a TLS Secret holds.
pub struct Pair {
    /// The leaf first.
    pub chain: String,
    pub key: String,
}

/// Gives out pairs for every host of the population, no two of them the same.
pub struct Issuer {
    issuing: CertifiedIssuer<'static, KeyPair>,
    /// The intermediates, as PEM.
    above: String,
    keys: Vec<KeyPair>,
    given_out: AtomicU64,
}

impl Issuer {
    pub fn new() -> Result<Self, rcgen::Error> {
        let root = CertifiedIssuer::self_signed(authority("Bench root"), rsa()?)?;
        let policy = CertifiedIssuer::signed_by(authority("Bench policy"), rsa()?, &root)?;
        let issuing = CertifiedIssuer::signed_by(authority("Bench issuing"), rsa()?, &policy)?;
        let above = issuing.pem() + &policy.pem();
        let keys = (0..DIFFERENT_KEYS).map(|_| rsa()).collect::<Result<_, _>>()?;
        Ok(Self { issuing, above, keys, given_out: AtomicU64::new(1) })
    }

    pub fn pair(&self) -> Result<Arc<Pair>, rcgen::Error> {
        let number = self.given_out.fetch_add(1, Ordering::Relaxed);
        let key = &self.keys[number as usize % self.keys.len()];
        let mut leaf = CertificateParams::new(vec!["*.apps.example.com".to_owned()])?;
        leaf.distinguished_name.push(DnType::CommonName, "*.apps.example.com");
        leaf.use_authority_key_identifier_extension = true;
        leaf.serial_number = Some(SerialNumber::from(number));
        let today = date_time_ymd(1970, 1, 1)
            + SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        (leaf.not_before, leaf.not_after) = (today - DAY, today + 90 * DAY);
        let chain = leaf.signed_by(key, &self.issuing)?.pem() + &self.above;
        Ok(Arc::new(Pair { chain, key: key.serialize_pem() }))
    }
}

fn rsa() -> Result<KeyPair, rcgen::Error> {
    KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048)
}

fn authority(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

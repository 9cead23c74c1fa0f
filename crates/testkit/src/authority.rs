//! A CA for one case, and the only one that its clients trust.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, date_time_ymd,
};

use crate::{Pair, suite};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A root that issues leaves.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    /// A new CA with this name.
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        valid_around_now(&mut params);
        let issuer = CertifiedIssuer::self_signed(params, fresh_key());
        Self { issuer: issuer.expect("rcgen makes certificates") }
    }

    /// Its certificate in PEM, for clients.
    pub fn root(&self) -> String {
        self.issuer.pem()
    }

    /// Its certificate and key, for another issuer.
    pub fn pair(&self) -> Pair {
        let root = self.root();
        Pair { certificate: root.clone(), key: self.issuer.key().serialize_pem(), authority: root }
    }

    /// A pair for a host, valid from yesterday until tomorrow.
    pub fn issue(&self, host: &str) -> Pair {
        let key = fresh_key();
        let certificate = self.leaf(host).and_then(|leaf| leaf.signed_by(&key, &self.issuer));
        let certificate = certificate.expect("rcgen makes certificates").pem();
        Pair { certificate, key: key.serialize_pem(), authority: self.root() }
    }

    /// A pair by which Kubernetes knows a user.
    pub fn issue_client(&self, user: &str) -> Pair {
        let key = fresh_key();
        let certificate = self.leaf("client.test").and_then(|mut leaf| {
            leaf.distinguished_name = DistinguishedName::new();
            leaf.distinguished_name.push(DnType::CommonName, user);
            leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            leaf.signed_by(&key, &self.issuer)
        });
        let certificate = certificate.expect("rcgen makes certificates").pem();
        Pair { certificate, key: key.serialize_pem(), authority: self.root() }
    }

    fn leaf(&self, host: &str) -> Result<CertificateParams, rcgen::Error> {
        let mut leaf = CertificateParams::new([host.to_owned()])?;
        leaf.distinguished_name.push(DnType::CommonName, "trustplane e2e leaf");
        leaf.use_authority_key_identifier_extension = true;
        valid_around_now(&mut leaf);
        Ok(leaf)
    }
}

fn valid_around_now(params: &mut CertificateParams) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = date_time_ymd(1970, 1, 1) + now;
    (params.not_before, params.not_after) = (now - DAY, now + DAY);
}

fn fresh_key() -> KeyPair {
    let key = KeyPair::generate().expect("rcgen makes keys");
    suite::register_key(&key.serialize_pem());
    key
}

//! Certificates that the sandbox makes for itself: for its API server, its edge, its backend and
//! the tours. Their keys are never written to disk.

use chrono::{DateTime, Datelike, Days, Utc};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::{runtime::redact::PrivateKeyPem, spiffe::id::SpiffeId};

/// The lifetime of a Let's Encrypt certificate.
const LIFETIME: Days = Days::new(90);

/// A certificate authority of one session.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

pub struct Issued {
    pub certificate: String,
    pub key: PrivateKeyPem,
    pub der: CertificateDer<'static>,
    key_der: PrivateKeyDer<'static>,
}

impl Issued {
    /// The key as rustls takes it.
    pub fn key_der(&self) -> PrivateKeyDer<'static> {
        self.key_der.clone_key()
    }

    fn new(certificate: &rcgen::Certificate, key: &KeyPair) -> Self {
        Self {
            certificate: certificate.pem(),
            key: PrivateKeyPem::new(key.serialize_pem()),
            der: certificate.der().clone(),
            key_der: PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        }
    }
}

impl Authority {
    pub fn new(name: &str, now: DateTime<Utc>) -> Result<Self, rcgen::Error> {
        Self::root(named(name, &[], now)?)
    }

    /// A new root of the trust domain with this ID.
    pub fn of_trust_domain(
        id: &SpiffeId,
        name: &str,
        now: DateTime<Utc>,
    ) -> Result<Self, rcgen::Error> {
        let mut params = named(name, &[], now)?;
        params.subject_alt_names = vec![uri(id)?];
        Self::root(params)
    }

    fn root(mut params: CertificateParams) -> Result<Self, rcgen::Error> {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        Ok(Self(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?))
    }

    pub fn pem(&self) -> String {
        self.0.pem()
    }

    pub fn der(&self) -> &CertificateDer<'static> {
        self.0.der()
    }

    /// A server's certificate for these hosts; the first is its common name.
    pub fn issue(&self, hosts: &[&str], now: DateTime<Utc>) -> Result<Issued, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = server(hosts.first().copied().unwrap_or_default(), hosts, now)?;
        params.use_authority_key_identifier_extension = true;
        Ok(Issued::new(&params.signed_by(&key, &self.0)?, &key))
    }

    /// An X509-SVID, which serves both sides of TLS.
    pub fn issue_svid(&self, id: &SpiffeId, now: DateTime<Utc>) -> Result<Issued, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = named("trustplane sandbox", &[], now)?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.subject_alt_names = vec![uri(id)?];
        params.use_authority_key_identifier_extension = true;
        Ok(Issued::new(&params.signed_by(&key, &self.0)?, &key))
    }
}

fn uri(id: &SpiffeId) -> Result<SanType, rcgen::Error> {
    Ok(SanType::URI(id.to_string().try_into()?))
}

/// A self-signed server certificate.
pub fn self_signed(name: &str, hosts: &[&str], now: DateTime<Utc>) -> Result<Issued, rcgen::Error> {
    let key = KeyPair::generate()?;
    Ok(Issued::new(&server(name, hosts, now)?.self_signed(&key)?, &key))
}

fn server(
    name: &str,
    hosts: &[&str],
    now: DateTime<Utc>,
) -> Result<CertificateParams, rcgen::Error> {
    let mut params = named(name, hosts, now)?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(params)
}

fn named(
    name: &str,
    hosts: &[&str],
    now: DateTime<Utc>,
) -> Result<CertificateParams, rcgen::Error> {
    let hosts: Vec<String> = hosts.iter().copied().map(str::to_owned).collect();
    let mut params = CertificateParams::new(hosts)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let day = |time: DateTime<Utc>| {
        // Months and days of a calendar are small numbers.
        date_time_ymd(time.year(), time.month() as u8, time.day() as u8)
    };
    // From yesterday on: clocks differ, and rcgen counts in days.
    params.not_before = day(now - Days::new(1));
    params.not_after = day(now + LIFETIME);
    Ok(params)
}

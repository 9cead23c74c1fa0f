//! Makes CAs, and signs with them.

use std::time::Duration;

use aws_lc_rs::rand;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use chrono::{DateTime, SubsecRound, TimeDelta, Utc};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PKCS_RSA_SHA256,
    PublicKeyData, SanType, SerialNumber, SignatureAlgorithm, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use zeroize::Zeroizing;

use crate::{
    authority::decide::ca::{Ca, NewCa},
    bundle::serve::ServerSvid,
    spiffe::{
        id::SpiffeId,
        key::{KeyKind, PublicKey},
    },
};

/// Clocks differ a little.
const BACKDATED: TimeDelta = TimeDelta::seconds(10);

/// Never quotes a key.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    #[error("the key of CA {0} is missing or damaged in the Secret")]
    Key(String),
    #[error("the certificate of CA {0} is damaged in the Secret")]
    Certificate(String),
    #[error("the SPIFFE ID can't stand in a certificate")]
    Id,
    #[error("the CA has expired")]
    Expired,
    #[error("the system has no random numbers")]
    Random,
    #[error("no certificate could be made: {0}")]
    Rcgen(#[from] rcgen::Error),
}

/// Signs SVIDs. A key in an HSM or at a cloud provider can stand behind it.
pub trait Signer: Send + Sync {
    /// Signs an SVID for this ID and a new key, valid for at most `ttl` and never longer than the CA. The
    /// chain ends below the published authority.
    fn sign(
        &self,
        id: &SpiffeId,
        ttl: TimeDelta,
        now: DateTime<Utc>,
    ) -> Result<ServerSvid, SignError>;

    /// The same for a key that somebody else holds.
    fn sign_for(
        &self,
        key: &PublicKey,
        id: &SpiffeId,
        ttl: TimeDelta,
        now: DateTime<Utc>,
    ) -> Result<IssuedSvid, SignError>;

    fn ca_id(&self) -> &str;
}

/// An SVID whose key we do not know.
#[derive(Clone, Debug, PartialEq)]
pub struct IssuedSvid {
    /// The SVID first, then its intermediates.
    pub chain: Vec<CertificateDer<'static>>,
    /// In hexadecimal.
    pub serial: String,
    pub not_after: DateTime<Utc>,
}

/// With a key that lies in the Secret.
pub struct LocalSigner {
    id: String,
    chain: Vec<CertificateDer<'static>>,
    not_after: DateTime<Utc>,
    issuer: Issuer<'static, KeyPair>,
}

/// A CA and its key, as PKCS#8.
pub struct MadeCa {
    pub ca: NewCa,
    pub key: Zeroizing<Vec<u8>>,
}

/// Makes a self-signed CA for this trust domain.
pub fn make_ca(
    trust_domain: &str,
    ttl: TimeDelta,
    now: DateTime<Utc>,
) -> Result<MadeCa, SignError> {
    let now = now.trunc_subsecs(0);
    let (not_before, not_after) = (now - BACKDATED, now + ttl);
    let id = hex::encode(rand_bytes());
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let mut params = ca_params(trust_domain, &id);
    let uri = format!("spiffe://{trust_domain}").try_into().map_err(|_| SignError::Id)?;
    params.subject_alt_names = vec![SanType::URI(uri)];
    set_validity(&mut params, not_before, not_after);
    let certificate = params.self_signed(&key)?;
    let key_der = Zeroizing::new(key.serialize_der());
    let chain = vec![STANDARD.encode(certificate.der())];
    Ok(MadeCa { ca: NewCa { id, chain, not_before, not_after }, key: key_der })
}

impl LocalSigner {
    pub fn new(trust_domain: &str, ca: &Ca, key: &[u8]) -> Result<Self, SignError> {
        let broken_key = || SignError::Key(ca.id.clone());
        let der = PrivatePkcs8KeyDer::from(key);
        let key = KeyPair::from_pkcs8_der_and_sign_algo(&der, &PKCS_ECDSA_P256_SHA256)
            .map_err(|_| broken_key())?;
        let chain = ca.certificates().ok_or_else(|| SignError::Certificate(ca.id.clone()))?;
        let issuer = Issuer::new(ca_params(trust_domain, &ca.id), key);
        Ok(Self { id: ca.id.clone(), chain, not_after: ca.not_after, issuer })
    }

    fn issue(
        &self,
        key: &impl PublicKeyData,
        id: &SpiffeId,
        ttl: TimeDelta,
        now: DateTime<Utc>,
    ) -> Result<IssuedSvid, SignError> {
        let now = now.trunc_subsecs(0);
        let not_after = (now + ttl).min(self.not_after).trunc_subsecs(0);
        if not_after <= now {
            return Err(SignError::Expired);
        }
        let serial = serial()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "trustplane");
        params.subject_alt_names =
            vec![SanType::URI(id.to_string().try_into().map_err(|_| SignError::Id)?)];
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        // Without one, rcgen makes it of the key, and a renewal with the same key would repeat it.
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        set_validity(&mut params, now - BACKDATED, not_after);
        let leaf = params.signed_by(key, &self.issuer)?;
        // The last of the CA's chain is what others verify with.
        let above = self.chain.split_last().map(|(_, below)| below).unwrap_or_default();
        let chain = std::iter::once(leaf.der().clone()).chain(above.iter().cloned()).collect();
        Ok(IssuedSvid { chain, serial: hex::encode(serial), not_after })
    }
}

/// For rcgen, which writes the key into a certificate.
impl PublicKeyData for PublicKey {
    fn der_bytes(&self) -> &[u8] {
        self.bytes()
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        match self.kind {
            KeyKind::P256 => &PKCS_ECDSA_P256_SHA256,
            KeyKind::P384 => &PKCS_ECDSA_P384_SHA384,
            KeyKind::Rsa => &PKCS_RSA_SHA256,
            KeyKind::Ed25519 => &PKCS_ED25519,
        }
    }
}

impl Signer for LocalSigner {
    fn sign(
        &self,
        id: &SpiffeId,
        ttl: TimeDelta,
        now: DateTime<Utc>,
    ) -> Result<ServerSvid, SignError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let chain = self.issue(&key, id, ttl, now)?.chain;
        Ok(ServerSvid { chain, key: PrivatePkcs8KeyDer::from(key.serialize_der()).into() })
    }

    fn sign_for(
        &self,
        key: &PublicKey,
        id: &SpiffeId,
        ttl: TimeDelta,
        now: DateTime<Utc>,
    ) -> Result<IssuedSvid, SignError> {
        self.issue(key, id, ttl, now)
    }

    fn ca_id(&self) -> &str {
        &self.id
    }
}

/// The parts of a CA certificate that its SVIDs refer to.
fn ca_params(trust_domain: &str, id: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "trustplane");
    // A common name may have 64 characters at most, a trust domain more.
    let short: String = trust_domain.chars().take(40).collect();
    params
        .distinguished_name
        .push(DnType::CommonName, format!("{short} {}", &id[..id.len().min(16)]));
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn rand_bytes() -> [u8; 10] {
    let mut bytes = [0; 10];
    // An ID, not a secret.
    fastrand::fill(&mut bytes);
    bytes
}

/// Positive, and of full length in DER.
fn serial() -> Result<[u8; 16], SignError> {
    let mut serial = [0; 16];
    rand::fill(&mut serial).map_err(|_| SignError::Random)?;
    serial[0] = serial[0] & 0x7f | 0x40;
    Ok(serial)
}

fn set_validity(
    params: &mut CertificateParams,
    not_before: DateTime<Utc>,
    not_after: DateTime<Utc>,
) {
    let since_1970 =
        |at: DateTime<Utc>| Duration::from_secs(at.timestamp().try_into().unwrap_or(0));
    params.not_before = date_time_ymd(1970, 1, 1) + since_1970(not_before);
    params.not_after = date_time_ymd(1970, 1, 1) + since_1970(not_after);
}

#[cfg(test)]
mod tests;

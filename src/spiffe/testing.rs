//! Authorities and SVIDs for tests.

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use chrono::{DateTime, Utc};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};

use super::{bundle::Bundle, id::SpiffeId};

/// Certificates are valid then, unless a test says otherwise.
pub(crate) fn noon() -> DateTime<Utc> {
    "2030-06-15T12:00:00Z".parse().unwrap()
}

pub(crate) fn id(text: &str) -> SpiffeId {
    SpiffeId::parse(text).unwrap()
}

pub(crate) fn bundle(authorities: &[&Ca]) -> Bundle {
    Bundle::parse(document(authorities).to_string().as_bytes()).unwrap()
}

pub(crate) fn document(authorities: &[&Ca]) -> Value {
    json!({"keys": authorities.iter().map(|authority| authority.jwk()).collect::<Vec<_>>()})
}

/// A key for JWT-SVIDs: the base point of P-256.
pub(crate) fn jwt_key(kid: &str) -> Value {
    json!({
        "kty": "EC", "use": "jwt-svid", "kid": kid, "crv": "P-256",
        "x": "axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpY", "y": "T-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU",
    })
}

pub(crate) struct Ca(pub(crate) CertifiedIssuer<'static, KeyPair>);

impl Ca {
    pub(crate) fn new(name: &str) -> Self {
        Self::with(name, |_| {})
    }

    pub(crate) fn with(name: &str, change: impl FnOnce(&mut CertificateParams)) -> Self {
        let mut params = ca_params(name);
        change(&mut params);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// An authority below this one.
    pub(crate) fn below(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Self {
        let mut params = ca_params(name);
        change(&mut params);
        Self(CertifiedIssuer::signed_by(params, KeyPair::generate().unwrap(), &self.0).unwrap())
    }

    pub(crate) fn der(&self) -> CertificateDer<'static> {
        self.0.der().clone()
    }

    pub(crate) fn jwk(&self) -> Value {
        let (x, y) = self.0.key().public_key_raw()[1..].split_at(32);
        let number = |bytes| URL_SAFE_NO_PAD.encode(bytes);
        let x5c = [STANDARD.encode(self.0.der())];
        json!({
            "kty": "EC", "use": "x509-svid", "crv": "P-256", "x": number(x), "y": number(y), "x5c": x5c,
        })
    }

    /// As SPIRE issues them.
    pub(crate) fn svid(&self, uri: &str) -> Issued {
        self.issue(svid_params(&[uri]))
    }

    pub(crate) fn issue(&self, params: CertificateParams) -> Issued {
        let key = KeyPair::generate().unwrap();
        let der = params.signed_by(&key, &self.0).unwrap().der().clone();
        Issued { der, key: PrivatePkcs8KeyDer::from(key.serialize_der()).into() }
    }
}

pub(crate) struct Issued {
    pub(crate) der: CertificateDer<'static>,
    pub(crate) key: PrivateKeyDer<'static>,
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    (params.not_before, params.not_after) = (date_time_ymd(2025, 1, 1), date_time_ymd(2035, 1, 1));
    params.use_authority_key_identifier_extension = true;
    params
}

pub(crate) fn ca_params(name: &str) -> CertificateParams {
    let mut params = params(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

pub(crate) fn svid_params(uris: &[&str]) -> CertificateParams {
    let mut params = params("workload");
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.subject_alt_names = uris.iter().map(|uri| uri_name(uri)).collect();
    params
}

pub(crate) fn uri_name(uri: &str) -> SanType {
    SanType::URI(uri.try_into().unwrap())
}

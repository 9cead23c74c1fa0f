//! The SVID that a client joins with: from files, or from the Workload API of its own trust domain.
//!
//! It is read for every join, so a renewed one is used. Its faults are found before anybody is asked: the
//! server would refuse it without a word of why.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use chrono::{DateTime, SecondsFormat, Utc};
use rustls::{
    SignatureScheme,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject as _},
    sign::{Signer, SigningKey},
};
use zeroize::Zeroizing;

use crate::{
    authority::agent::workload_client::{self, WorkloadApiError},
    runtime::redact::Pkcs8Key,
    spiffe::{
        id::SpiffeId,
        key::{KeyError, KeyKind},
        svid::{PresentedSvid, SvidError, SvidWarning},
    },
};

/// The server takes no longer chain.
pub const MOST_INTERMEDIATES: usize = 4;

#[derive(Clone, Debug)]
pub enum SvidSource {
    Files {
        svid: PathBuf,
        key: PathBuf,
    },
    /// The path of a UNIX socket.
    WorkloadApi(PathBuf),
}

/// Never quotes a key.
#[derive(Debug, thiserror::Error)]
pub enum OwnSvidError {
    #[error(
        "cannot read {path}: {error}. Are --svid-file and --svid-key-file right, and may we read both?"
    )]
    Read { path: String, error: io::Error },
    #[error("{0} holds no certificate in PEM. It needs the SVID, and after it its intermediates")]
    NoCertificate(String),
    #[error("{0} holds no private key in PEM, or one with a passphrase, which can't be used")]
    NoKey(String),
    #[error(transparent)]
    WorkloadApi(#[from] WorkloadApiError),
    #[error(
        "our own certificate contains no URI SAN, so it is no SVID. Get one from your trust domain's Workload API, or correct --svid-file"
    )]
    NoUri,
    #[error("our own SVID: {0}. Get a new one from the trust domain that issued it")]
    Svid(SvidError),
    #[error("our own SVID {id} expired at {at}. Get a new one: is what renews it still running?")]
    Expired { id: SpiffeId, at: String },
    #[error("our own SVID {id} is not valid before {at}: is the clock of this machine right?")]
    NotYetValid { id: SpiffeId, at: String },
    #[error(
        "our own SVID {0} is for TLS servers alone. Ask its trust domain for one with the extended key usage clientAuth"
    )]
    ServerAlone(SpiffeId),
    #[error("our own SVID: {0}")]
    Key(#[from] KeyError),
    #[error("the private key is not the one of our own SVID {0}. Do both files belong together?")]
    OtherKey(SpiffeId),
    #[error(
        "the private key can't be used: it is none of ECDSA P-256, ECDSA P-384, RSA and Ed25519, or damaged"
    )]
    Unusable,
    #[error(
        "our own SVID comes with {0} intermediate certificates, and {MOST_INTERMEDIATES} are taken at most"
    )]
    LongChain(usize),
}

impl From<SvidError> for OwnSvidError {
    fn from(error: SvidError) -> Self {
        match error {
            SvidError::NoUri => Self::NoUri,
            error => Self::Svid(error),
        }
    }
}

/// An SVID of another trust domain, with its key.
pub struct OwnSvid {
    pub id: SpiffeId,
    chain: Vec<CertificateDer<'static>>,
    signer: Box<dyn Signer>,
}

impl SvidSource {
    pub async fn read(&self, now: DateTime<Utc>) -> Result<OwnSvid, OwnSvidError> {
        match self {
            Self::Files { svid, key } => {
                let text = read(svid)?;
                let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
                let none = || OwnSvidError::NoCertificate(svid.display().to_string());
                let chain = chain.ok().filter(|it| !it.is_empty()).ok_or_else(none)?;
                let text = read(key)?;
                let key_der = PrivateKeyDer::from_pem_slice(&text)
                    .map_err(|_| OwnSvidError::NoKey(key.display().to_string()))?;
                OwnSvid::new(chain, Zeroizing::new(key_der), now)
            }
            Self::WorkloadApi(socket) => {
                let (chain, key) = workload_client::fetch_svid(socket).await?;
                Self::from_workload_api(&chain, &key, now)
            }
        }
    }

    fn from_workload_api(
        chain: &[u8],
        key: &Pkcs8Key,
        now: DateTime<Utc>,
    ) -> Result<OwnSvid, OwnSvidError> {
        let chain = split(chain).ok_or(OwnSvidError::Svid(SvidError::Unreadable))?;
        let key = PrivatePkcs8KeyDer::from(key.expose().to_vec()).into();
        OwnSvid::new(chain, Zeroizing::new(key), now)
    }
}

fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, OwnSvidError> {
    let unread = |error| OwnSvidError::Read { path: path.display().to_string(), error };
    fs::read(path).map(Zeroizing::new).map_err(unread)
}

/// Certificates in DER that follow each other.
fn split(mut bytes: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let mut chain = Vec::new();
    while !bytes.is_empty() {
        let (rest, _) = x509_parser::parse_x509_certificate(bytes).ok()?;
        chain.push(bytes[..bytes.len() - rest.len()].to_vec().into());
        bytes = rest;
    }
    Some(chain)
}

impl OwnSvid {
    /// Fails on everything that a server would refuse whatever it trusts.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: Zeroizing<PrivateKeyDer<'static>>,
        now: DateTime<Utc>,
    ) -> Result<Self, OwnSvidError> {
        let svid = PresentedSvid::read(&chain).map_err(OwnSvidError::from)?;
        let id = svid.id().map_err(OwnSvidError::from)?.clone();
        let warning = svid.check_form().map_err(OwnSvidError::from)?;
        if warning == Some(SvidWarning::ServerAuthAlone) {
            return Err(OwnSvidError::ServerAlone(id));
        }
        check_time(&svid, &id, now)?;
        let intermediates = chain.len() - 1;
        if intermediates > MOST_INTERMEDIATES {
            return Err(OwnSvidError::LongChain(intermediates));
        }
        let public = svid.key()?;
        let key = aws_lc_rs::sign::any_supported_type(&key).map_err(|_| OwnSvidError::Unusable)?;
        let signer = signer(&key, public.kind).ok_or_else(|| OwnSvidError::OtherKey(id.clone()))?;
        // The public half in the key's file may be another one: only a signature proves that the key fits.
        let proof = signer.sign(b"trustplane").map_err(|_| OwnSvidError::Unusable)?;
        if !public.has_signed(b"trustplane", &proof) {
            return Err(OwnSvidError::OtherKey(id));
        }
        Ok(Self { id, chain, signer })
    }

    /// DER, one after the other.
    pub fn chain(&self) -> Vec<u8> {
        self.chain.iter().flat_map(|it| it.as_ref()).copied().collect()
    }

    /// By the one algorithm of the key's kind.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, OwnSvidError> {
        self.signer.sign(message).map_err(|_| OwnSvidError::Unusable)
    }
}

fn check_time(
    svid: &PresentedSvid<'_>,
    id: &SpiffeId,
    now: DateTime<Utc>,
) -> Result<(), OwnSvidError> {
    let (start, end) = svid.validity().ok_or(OwnSvidError::Svid(SvidError::Unreadable))?;
    let shown = |at: DateTime<Utc>| at.to_rfc3339_opts(SecondsFormat::Secs, true);
    match svid.check_time(now) {
        Err(SvidError::NotYetValid) => {
            Err(OwnSvidError::NotYetValid { id: id.clone(), at: shown(start) })
        }
        Err(SvidError::Expired) => Err(OwnSvidError::Expired { id: id.clone(), at: shown(end) }),
        checked => checked.map_err(OwnSvidError::from),
    }
}

fn signer(key: &Arc<dyn SigningKey>, kind: KeyKind) -> Option<Box<dyn Signer>> {
    key.choose_scheme(&[match kind {
        KeyKind::P256 => SignatureScheme::ECDSA_NISTP256_SHA256,
        KeyKind::P384 => SignatureScheme::ECDSA_NISTP384_SHA384,
        KeyKind::Rsa => SignatureScheme::RSA_PSS_SHA256,
        KeyKind::Ed25519 => SignatureScheme::ED25519,
    }])
}

#[cfg(test)]
mod tests;

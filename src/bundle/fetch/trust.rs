//! The two profiles of endpoints as TLS configurations.

use std::sync::{Arc, Mutex};

use chrono::{DateTime, TimeDelta, Utc};
use rustls::{
    CertificateError, ClientConfig, OtherError, RootCertStore,
    client::{Resumption, WebPkiServerVerifier, danger::ServerCertVerifier},
    crypto::aws_lc_rs,
    pki_types::UnixTime,
    time_provider::TimeProvider,
};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use x509_parser::{certificate::X509Certificate, prelude::FromDer};

use super::FetchError;
use crate::{
    runtime::{lock::lock, server_verifier::server_verifier},
    spiffe::{
        bundle::Bundle,
        id::{SpiffeId, TrustDomain},
        svid::{self, SvidWarning},
    },
};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are no CA certificates on this machine: install them, or set SSL_CERT_FILE ({0})")]
pub struct RootsError(String);

/// The CAs that this machine trusts, or those of the file that `SSL_CERT_FILE` names.
pub fn web_roots() -> Result<Arc<RootCertStore>, RootsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map_or("none was found".to_owned(), ToString::to_string);
        return Err(RootsError(why));
    }
    Ok(Arc::new(roots))
}

/// Oddities of the certificates that a fetch accepted.
#[derive(Clone, Debug, Default)]
pub(super) struct Warnings(Arc<Mutex<Vec<SvidWarning>>>);

impl Warnings {
    fn add(&self, warning: SvidWarning) {
        let mut all = lock(&self.0);
        // The target of a redirect may have the same one.
        if !all.contains(&warning) {
            all.push(warning);
        }
    }

    pub(super) fn take(&self) -> Vec<SvidWarning> {
        std::mem::take(&mut *lock(&self.0))
    }
}

/// How an endpoint is verified, by its profile.
#[derive(Clone, Debug)]
pub enum Trust {
    /// https_web: one of these CAs signed a certificate for the URL's host.
    Web {
        roots: Arc<RootCertStore>,
        /// SHA-256 of the public keys (SPKI) of which the certificate must have one; any if empty. Only the
        /// server's own certificate counts: a chain may carry others that nothing leads to.
        pins: Vec<[u8; 32]>,
    },
    /// https_spiffe: the server has an SVID for this ID.
    Spiffe {
        id: SpiffeId,
        /// Of the ID's trust domain.
        bundle: Arc<Bundle>,
    },
}

/// The server's key is none of the pinned ones.
#[derive(Debug, thiserror::Error)]
#[error("the public key is not pinned")]
pub(super) struct NotPinned;

impl Trust {
    /// https_web without pins.
    pub fn web(roots: Arc<RootCertStore>) -> Self {
        Self::Web { roots, pins: Vec::new() }
    }

    /// For the fetch after this bundle was fetched: an endpoint whose ID is in the trust domain that
    /// it serves is verified with the latest bundle.
    pub fn after(self, trust_domain: &TrustDomain, latest: Arc<Bundle>) -> Self {
        match self {
            Self::Spiffe { id, .. } if id.trust_domain() == trust_domain => {
                Self::Spiffe { id, bundle: latest }
            }
            other => other,
        }
    }

    /// Without a client certificate: bundles are public.
    pub(super) fn client_config(
        &self,
        now: DateTime<Utc>,
        warnings: &Warnings,
    ) -> Result<Arc<ClientConfig>, FetchError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let time = Moment { began: now, at: Instant::now() };
        let builder = ClientConfig::builder_with_details(provider, Arc::new(time))
            .with_safe_default_protocol_versions()
            .map_err(|error| FetchError::Handshake(error.to_string()))?;
        let mut config = match self {
            Self::Web { roots, pins } if pins.is_empty() => {
                builder.with_root_certificates(roots.clone())
            }
            Self::Web { roots, pins } => {
                let verifier = pinned(roots, pins.clone())?;
                builder.dangerous().with_custom_certificate_verifier(verifier)
            }
            Self::Spiffe { id, bundle } => {
                let (id, bundle, warnings) = (id.clone(), bundle.clone(), warnings.clone());
                // The SPIFFE ID counts, whatever the host's name is.
                let verifier = server_verifier(move |chain, _, _| {
                    let verified = svid::verify(chain, &id, &bundle, time.now());
                    let warning = verified
                        .map_err(|error| CertificateError::Other(OtherError(Arc::new(error))))?;
                    warning.into_iter().for_each(|it| warnings.add(it));
                    Ok(())
                });
                builder.dangerous().with_custom_certificate_verifier(verifier)
            }
        }
        .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.resumption = Resumption::disabled();
        Ok(Arc::new(config))
    }
}

/// As without pins, and then the key.
fn pinned(
    roots: &Arc<RootCertStore>,
    pins: Vec<[u8; 32]>,
) -> Result<Arc<dyn ServerCertVerifier>, FetchError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let web = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider)
        .build()
        .map_err(|_| FetchError::UnknownCa)?;
    Ok(server_verifier(move |chain, name, now| {
        let (leaf, intermediates) = chain.split_first().ok_or(CertificateError::BadEncoding)?;
        web.verify_server_cert(leaf, intermediates, name, &[], now)?;
        let (_, certificate) =
            X509Certificate::from_der(leaf).map_err(|_| CertificateError::BadEncoding)?;
        let key: [u8; 32] = Sha256::digest(certificate.public_key().raw).into();
        match pins.contains(&key) {
            true => Ok(()),
            false => Err(CertificateError::Other(OtherError(Arc::new(NotPinned))).into()),
        }
    }))
}

/// The time of a fetch, which advances while it lasts: an endpoint with ACME may get its certificate
/// only when it is asked, and the certificate is not valid before.
#[derive(Clone, Copy, Debug)]
struct Moment {
    began: DateTime<Utc>,
    at: Instant,
}

impl Moment {
    fn now(&self) -> DateTime<Utc> {
        let passed = TimeDelta::from_std(self.at.elapsed()).unwrap_or_default();
        self.began.checked_add_signed(passed).unwrap_or(self.began)
    }
}

impl TimeProvider for Moment {
    fn current_time(&self) -> Option<UnixTime> {
        Some(svid::unix_time(self.now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spiffe::testing::noon;

    #[tokio::test(start_paused = true)]
    async fn a_certificate_made_while_it_is_asked_for_is_judged_as_of_then() {
        let moment = Moment { began: noon(), at: Instant::now() };
        tokio::time::advance(std::time::Duration::from_secs(3)).await;
        assert_eq!(moment.now(), noon() + TimeDelta::seconds(3));
    }
}

//! How an endpoint proves who it is: the two profiles as TLS configurations.

use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, TimeDelta, Utc};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, RootCertStore,
    SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{
        WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls12_signature, verify_tls13_signature,
    },
    pki_types::{CertificateDer, ServerName, UnixTime},
    time_provider::TimeProvider,
};

use tokio::time::Instant;

use super::FetchError;
use crate::spiffe::{
    bundle::Bundle,
    id::{SpiffeId, TrustDomain},
    svid::{self, SvidWarning},
};

/// This machine trusts nobody.
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

/// What was odd about the certificates of a fetch that was done all the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Warnings(Arc<Mutex<Vec<SvidWarning>>>);

impl Warnings {
    fn add(&self, warning: SvidWarning) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Where a redirect leads may be as odd.
        if !all.contains(&warning) {
            all.push(warning);
        }
    }

    pub(super) fn take(&self) -> Vec<SvidWarning> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The profile of an endpoint.
#[derive(Clone, Debug)]
pub enum Trust {
    /// https_web: one of these CAs vouches for the URL's host.
    Web(Arc<RootCertStore>),
    /// https_spiffe: the server has an SVID for this ID.
    Spiffe {
        /// Whose.
        id: SpiffeId,
        /// Of the ID's own trust domain.
        bundle: Arc<Bundle>,
    },
}

impl Trust {
    /// How the next fetch trusts, after this bundle of this trust domain was fetched: an endpoint
    /// that lives in the trust domain it serves is verified with its latest bundle.
    pub fn after(self, trust_domain: &TrustDomain, latest: Arc<Bundle>) -> Self {
        match self {
            Self::Spiffe { id, .. } if id.trust_domain() == trust_domain => {
                Self::Spiffe { id, bundle: latest }
            }
            other => other,
        }
    }

    /// No certificate of our own: bundles are public.
    pub(super) fn client_config(
        &self,
        now: DateTime<Utc>,
        warnings: &Warnings,
    ) -> Result<Arc<ClientConfig>, FetchError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let algorithms = provider.signature_verification_algorithms;
        let time = Moment { began: now, at: Instant::now() };
        let builder = ClientConfig::builder_with_details(provider, Arc::new(time))
            .with_safe_default_protocol_versions()
            .map_err(|error| FetchError::Handshake(error.to_string()))?;
        let mut config = match self {
            Self::Web(roots) => builder.with_root_certificates(roots.clone()),
            Self::Spiffe { id, bundle } => {
                let (id, bundle, warnings) = (id.clone(), bundle.clone(), warnings.clone());
                builder.dangerous().with_custom_certificate_verifier(Arc::new(Svid {
                    id,
                    bundle,
                    time,
                    algorithms,
                    warnings,
                }))
            }
        }
        .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.resumption = Resumption::disabled();
        Ok(Arc::new(config))
    }
}

/// The time of a fetch, which goes on while it lasts: an endpoint that uses ACME may get its
/// certificate only once it is asked, and that one is not valid before.
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

/// Accepts an SVID for one ID, whatever the host is called.
#[derive(Debug)]
struct Svid {
    id: SpiffeId,
    bundle: Arc<Bundle>,
    time: Moment,
    algorithms: WebPkiSupportedAlgorithms,
    warnings: Warnings,
}

impl ServerCertVerifier for Svid {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let chain: Vec<_> = std::iter::once(end_entity).chain(intermediates).cloned().collect();
        match svid::verify(&chain, &self.id, &self.bundle, self.time.now()) {
            Ok(warning) => {
                warning.into_iter().for_each(|it| self.warnings.add(it));
                Ok(ServerCertVerified::assertion())
            }
            Err(error) => Err(CertificateError::Other(OtherError(Arc::new(error))).into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
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

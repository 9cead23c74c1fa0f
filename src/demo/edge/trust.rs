//! Whom the edge trusts behind a `reencrypt` Route.

use std::sync::Arc;

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};
use tower::BoxError;

/// Trusts certificates of this authority, for the name that is asked for.
pub fn in_services(authority: &CertificateDer<'static>) -> Result<Arc<ClientConfig>, BoxError> {
    config(verifier([authority.clone()])?)
}

/// Trusts certificates of the authorities in this text, whatever their names: with a
/// destinationCACertificate the router does not ask for a name.
pub fn in_any_name(authorities: &str) -> Result<Arc<ClientConfig>, BoxError> {
    let authorities = CertificateDer::pem_slice_iter(authorities.as_bytes()).flatten();
    config(Arc::new(InAnyName(verifier(authorities)?)))
}

fn verifier(
    authorities: impl IntoIterator<Item = CertificateDer<'static>>,
) -> Result<Arc<WebPkiServerVerifier>, BoxError> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority)?;
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    Ok(WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build()?)
}

fn config(verifier: Arc<dyn ServerCertVerifier>) -> Result<Arc<ClientConfig>, BoxError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    // A session that is taken up again would bring no certificate to look at.
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

/// Verifies everything but the name.
#[derive(Debug)]
struct InAnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for InAnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // The name is looked at last, after chain and times.
        match self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
        {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

//! A TLS client's verifier that judges the server's certificates by a function.

use std::{fmt, sync::Arc};

use rustls::{
    DigitallySignedStruct, Error, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{
        WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls12_signature, verify_tls13_signature,
    },
    pki_types::{CertificateDer, ServerName, UnixTime},
};

/// `judge` gets the chain, the name that the client connects to, and the time. That the server holds
/// the key of its certificate is verified in any case.
pub fn server_verifier<F>(judge: F) -> Arc<dyn ServerCertVerifier>
where
    F: Fn(&[CertificateDer<'_>], &ServerName<'_>, UnixTime) -> Result<(), Error>,
    F: Send + Sync + 'static,
{
    let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
    Arc::new(Verifier { judge, algorithms })
}

struct Verifier<F> {
    judge: F,
    algorithms: WebPkiSupportedAlgorithms,
}

impl<F> fmt::Debug for Verifier<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier")
    }
}

impl<F> ServerCertVerifier for Verifier<F>
where
    F: Fn(&[CertificateDer<'_>], &ServerName<'_>, UnixTime) -> Result<(), Error> + Send + Sync,
{
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let chain: Vec<_> = std::iter::once(end_entity).chain(intermediates).cloned().collect();
        (self.judge)(&chain, server_name, now).map(|()| ServerCertVerified::assertion())
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

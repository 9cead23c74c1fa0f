//! Client certificates: asked for, not required, and judged by a file of CAs that is read again when it changes.
//!
//! A certificate that no CA of ours signed does not end the handshake. Its owner may have a token as well, and
//! a client that shows all certificates it has is told more by HTTP 401 than by a broken connection. A handler
//! sees certificates that count, and no others.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{
        CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls12_signature,
        verify_tls13_signature,
    },
    pki_types::{CertificateDer, UnixTime},
    server::{
        WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};

use crate::runtime::reloader::{Content, ReadError, Reloader};

/// The leaf that a client showed, in DER. Its chain leads to one of our CAs, it is good for clients, and the client
/// has its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate(pub Arc<[u8]>);

#[derive(Debug, thiserror::Error)]
pub enum RootsError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("{} holds no CA certificate in PEM", .0.display())]
    NoCertificate(PathBuf),
    #[error("{} holds a certificate that is none of a CA", .0.display())]
    Unusable(PathBuf),
}

/// A file of CA certificates, and the verifier that was last made of it.
#[derive(Debug)]
pub struct ClientRoots {
    file: Reloader<Arc<dyn ClientCertVerifier>, RootsError>,
    asking: Arc<AskForCertificate>,
}

impl ClientRoots {
    /// Fails unless the file holds the certificate of a CA.
    pub fn read(path: &Path) -> Result<Arc<Self>, RootsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let algorithms = provider.signature_verification_algorithms;
        let path = path.to_owned();
        let paths = vec![path.clone()];
        let parse = move |contents: &[Content]| verifier(contents, &path, &provider);
        let file = Reloader::read("file of client CAs", paths, parse)?;
        Ok(Arc::new(Self { file, asking: Arc::new(AskForCertificate { algorithms }) }))
    }

    pub(super) fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        self.asking.clone()
    }

    /// Judges the chain that a client showed in its handshake, by what the file says now.
    pub fn verified(&self, chain: &[CertificateDer<'_>]) -> Option<ClientCertificate> {
        let (leaf, intermediates) = chain.split_first()?;
        match self.file.current().verify_client_cert(leaf, intermediates, UnixTime::now()) {
            Ok(_) => Some(ClientCertificate(Arc::from(leaf.as_ref()))),
            Err(error) => {
                tracing::debug!(%error, "a client's certificate does not count");
                None
            }
        }
    }
}

fn verifier(
    contents: &[Content],
    path: &Path,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, RootsError> {
    let mut roots = RootCertStore::empty();
    for content in contents {
        for certificate in rustls_pemfile::certs(&mut &***content) {
            let certificate =
                certificate.map_err(|_| RootsError::NoCertificate(path.to_owned()))?;
            roots.add(certificate).map_err(|_| RootsError::Unusable(path.to_owned()))?;
        }
    }
    // It fails where there is no root.
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    verifier.build().map_err(|_| RootsError::NoCertificate(path.to_owned()))
}

/// Only that the client has the key of what it shows is verified in the handshake.
#[derive(Debug)]
struct AskForCertificate {
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for AskForCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // The file may change. Without hints, clients show what they have.
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
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
mod tests;

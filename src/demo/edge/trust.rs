//! CAs that the edge trusts for backends of `reencrypt` Routes.

use std::sync::Arc;

use rustls::{
    CertificateError, ClientConfig, Error, RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, pem::PemObject},
};
use tower::BoxError;

use crate::runtime::server_verifier::server_verifier;

/// Trusts certificates of this CA for the requested name.
pub fn in_services(authority: &CertificateDer<'static>) -> Result<Arc<ClientConfig>, BoxError> {
    config(verifier([authority.clone()])?)
}

/// Trusts certificates of the CAs in this PEM, for any name: with a destinationCACertificate the
/// router does not check the name.
pub fn in_any_name(authorities: &str) -> Result<Arc<ClientConfig>, BoxError> {
    let authorities = CertificateDer::pem_slice_iter(authorities.as_bytes()).flatten();
    let verifier = verifier(authorities)?;
    config(server_verifier(move |chain, name, now| {
        let (end_entity, intermediates) =
            chain.split_first().ok_or(Error::NoCertificatesPresented)?;
        // The name is checked last, after chain and times.
        match verifier.verify_server_cert(end_entity, intermediates, name, &[], now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(()),
            verified => verified.map(drop),
        }
    }))
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
    // A resumed session would bring no certificate to verify.
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

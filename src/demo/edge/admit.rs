//! Admission of a single Route: its offer, or the reason for refusing it. Pure.
//!
//! The rules are the router's, as [`crate::tls`] implements them.
//! `table.rs` decides which of two Routes with the same host gets it.

use std::sync::Arc;

use rustls::{
    ClientConfig,
    crypto::aws_lc_rs::sign::any_supported_type,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};

use super::{
    route::{Spec, Tls},
    trust,
};
use crate::{
    demo::certificate_summary::CertificateSummary,
    runtime::redact::PrivateKeyPem,
    tls::{self, Problem},
};

/// A certificate that can be served.
#[derive(Debug)]
pub struct Certificate {
    /// Chain and key. `Debug` of this type prints no key.
    pub certified: Arc<CertifiedKey>,
    pub summary: CertificateSummary,
}

impl Certificate {
    /// The leaf comes first.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: &PrivateKeyDer<'_>,
    ) -> Result<Self, rustls::Error> {
        let summary = CertificateSummary::of(chain.first().map_or(&[], |leaf| leaf.as_ref()));
        let certified = Arc::new(CertifiedKey::new(chain, any_supported_type(key)?));
        Ok(Self { certified, summary })
    }
}

/// How the edge serves an admitted Route.
#[derive(Debug)]
pub struct Offer {
    pub termination: Termination,
    /// None for the edge's default certificate.
    pub certificate: Option<Arc<Certificate>>,
    /// How a router would serve it differently.
    pub remark: Option<String>,
}

#[derive(Clone, Debug)]
pub enum Termination {
    /// No TLS.
    None,
    /// TLS ends at the edge.
    Edge,
    /// TLS ends at the edge, which opens another TLS connection to the backend.
    Reencrypt(Arc<ClientConfig>),
    /// TLS ends at the backend.
    Passthrough,
}

impl Termination {
    /// The value in `spec.tls.termination`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::None => "no TLS",
            Self::Edge => "edge",
            Self::Reencrypt(_) => "reencrypt",
            Self::Passthrough => "passthrough",
        }
    }
}

/// How the edge serves the Route, or why it refuses it. `services` is trusted behind `reencrypt`
/// Routes without a destinationCACertificate.
pub fn offer(spec: &Spec, services: &Arc<ClientConfig>) -> Result<Offer, String> {
    let Some(tls) = &spec.tls else {
        let remark = "The sandbox's edge speaks TLS only, so a Route without spec.tls can't be reached there.";
        return Ok(plain(Termination::None, Some(remark)));
    };
    let termination = match tls.termination.as_str() {
        "passthrough" => return Ok(plain(Termination::Passthrough, None)),
        "reencrypt" => Termination::Reencrypt(trusted(tls, services)?),
        _ => Termination::Edge,
    };
    let external = tls.external_certificate.as_ref().is_some_and(|it| !it.name.is_empty());
    if external {
        let remark = "The sandbox's edge does not read spec.tls.externalCertificate, and serves its default certificate.";
        return Ok(plain(termination, Some(remark)));
    }
    // A key alone is no certificate: the router admits it and serves its default one.
    if tls.certificate.is_empty() {
        return Ok(plain(termination, None));
    }
    let (certificate, remark) = match certificate(tls)? {
        Ok(certificate) => (Some(Arc::new(certificate)), None),
        Err(unusable) => (None, Some(unusable)),
    };
    Ok(Offer { termination, certificate, remark })
}

fn plain(termination: Termination, remark: Option<&str>) -> Offer {
    Offer { termination, certificate: None, remark: remark.map(str::to_owned) }
}

/// The inner error means that rustls refuses a pair which the router would accept.
fn certificate(tls: &Tls) -> Result<Result<Certificate, String>, String> {
    let key = tls.key.as_ref().map_or("", PrivateKeyPem::expose);
    let pair = tls::judge(tls.certificate.as_bytes(), key.as_bytes()).map_err(refusal)?;
    let problems = tls::ca_problems(pair.certificate(), &tls.ca_certificate, chrono::Utc::now());
    if !problems.is_empty() {
        return Err(refusal(problems));
    }
    // HAProxy gets both texts in one file, so clients see both in the chain.
    let texts = [tls.certificate.as_bytes(), tls.ca_certificate.as_bytes()];
    let chain = texts.into_iter().flat_map(CertificateDer::pem_slice_iter).flatten().collect();
    let loaded = PrivateKeyDer::from_pem_slice(key.as_bytes())
        .map_err(|_| "its key can't be read".to_owned())
        .and_then(|key| Certificate::new(chain, &key).map_err(|error| error.to_string()));
    Ok(loaded.map_err(|why| {
        format!(
            "HAProxy could serve this pair, but rustls, which the sandbox's edge is built on, can't: \
             {why}. The edge serves its default certificate."
        )
    }))
}

fn trusted(tls: &Tls, services: &Arc<ClientConfig>) -> Result<Arc<ClientConfig>, String> {
    let text = &tls.destination_ca_certificate;
    if text.is_empty() {
        return Ok(services.clone());
    }
    let problems = tls::destination_problems(text);
    if !problems.is_empty() {
        return Err(refusal(problems));
    }
    trust::in_any_name(text).map_err(|why| format!("spec.tls.destinationCACertificate: {why}."))
}

/// Rewords problems, which are worded for a Secret, for the Route.
fn refusal(problems: Vec<Problem>) -> String {
    let words = |problem: Problem| {
        let text = problem.to_string();
        text.replace("tls.crt", "spec.tls.certificate").replace("tls.key", "spec.tls.key")
    };
    let problems: Vec<_> = problems.into_iter().map(words).collect();
    format!("{}.", problems.join("; "))
}

#[cfg(test)]
mod tests;

//! Admission of a single Route: its offer, or the reason for refusing it. Pure.
//!
//! The rules are the router's, as [`crate::tls`] has them, and they are as strict as that room is.
//! `table.rs` decides which of two Routes gets the host that both want.

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
    /// Chain and key, as rustls takes them. Its `Debug` shows no key.
    pub certified: Arc<CertifiedKey>,
    /// Its summary for clients.
    pub summary: CertificateSummary,
}

impl Certificate {
    /// With its key; the leaf comes first.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: &PrivateKeyDer<'_>,
    ) -> Result<Self, rustls::Error> {
        let summary = CertificateSummary::of(chain.first().map_or(&[], |leaf| leaf.as_ref()));
        let certified = Arc::new(CertifiedKey::new(chain, any_supported_type(key)?));
        Ok(Self { certified, summary })
    }
}

/// The service of the edge for an admitted Route.
#[derive(Debug)]
pub struct Offer {
    /// Where TLS ends.
    pub termination: Termination,
    /// The certificate; the edge's default if none.
    pub certificate: Option<Arc<Certificate>>,
    /// Differences from a router.
    pub remark: Option<String>,
}

/// Where TLS ends.
#[derive(Clone, Debug)]
pub enum Termination {
    /// The Route asks for none.
    None,
    /// It ends at the edge.
    Edge,
    /// It ends at the edge, and another one begins there.
    Reencrypt(Arc<ClientConfig>),
    /// It ends behind the edge.
    Passthrough,
}

impl Termination {
    /// As `spec.tls.termination` has it.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::None => "no TLS",
            Self::Edge => "edge",
            Self::Reencrypt(_) => "reencrypt",
            Self::Passthrough => "passthrough",
        }
    }
}

/// The offer of the edge for the Route, or why it refuses. `services` is for `reencrypt` Routes
/// that say nothing about whom to trust.
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

/// The inner error is about rustls, which is not the router.
fn certificate(tls: &Tls) -> Result<Result<Certificate, String>, String> {
    let key = tls.key.as_ref().map_or("", PrivateKeyPem::expose);
    let pair = tls::judge(tls.certificate.as_bytes(), key.as_bytes()).map_err(refusal)?;
    let problems = tls::ca_problems(pair.certificate(), &tls.ca_certificate, chrono::Utc::now());
    if !problems.is_empty() {
        return Err(refusal(problems));
    }
    // HAProxy gets the two texts in one file, so both are in the chain that clients see.
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

/// The problems in terms of the Route: their words are made for a Secret.
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

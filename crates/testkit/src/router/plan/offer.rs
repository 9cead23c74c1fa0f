//! How a single Route is served, or why it is refused: OpenShift's extended validation, with
//! OpenSSL. Like there, host names and dates are ignored.

use openssl::error::ErrorStack;
use openssl::nid::Nid;
use openssl::pkey::{Id, PKey, Private};
use openssl::stack::Stack;
use openssl::x509::store::{X509Store, X509StoreBuilder};
use openssl::x509::verify::X509VerifyFlags;
use openssl::x509::{X509, X509Ref, X509StoreContext};
use trustplane::runtime::redact::PrivateKeyPem;

use super::pem::{self, Block};
use super::route::Tls;

/// How HAProxy serves an admitted Route.
#[derive(Clone, Debug)]
pub struct Offer {
    pub termination: Termination,
    /// Chain and key in one text; None for the default certificate.
    pub pair: Option<PrivateKeyPem>,
}

/// Where TLS ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Termination {
    /// No TLS.
    None,
    /// At the router.
    Edge,
    /// At the router, which trusts these CAs for the backend; None for the stack's own CA.
    Reencrypt { authorities: Option<String> },
    /// At the backend.
    Passthrough,
}

const WEAK_SIGNATURES: [Nid; 7] = [
    Nid::SHA1WITHRSAENCRYPTION,
    Nid::SHA1WITHRSA,
    Nid::ECDSA_WITH_SHA1,
    Nid::DSAWITHSHA1,
    Nid::MD5WITHRSAENCRYPTION,
    Nid::MD5WITHRSA,
    Nid::MD2WITHRSAENCRYPTION,
];

/// How the Route is served, or why it is refused.
pub fn offer(tls: Option<&Tls>) -> Result<Offer, String> {
    let Some(tls) = tls else {
        return Ok(Offer { termination: Termination::None, pair: None });
    };
    let termination = match tls.termination.as_str() {
        "passthrough" => Termination::Passthrough,
        "reencrypt" => Termination::Reencrypt { authorities: destination(tls)? },
        _ => Termination::Edge,
    };
    let field_with_text = [
        ("certificate", !tls.certificate.is_empty()),
        ("key", !tls.key().is_empty()),
        ("caCertificate", !tls.ca_certificate.is_empty()),
        ("destinationCACertificate", !tls.destination_ca_certificate.is_empty()),
    ];
    for (field, _) in field_with_text.into_iter().filter(|(_, has_text)| *has_text) {
        if termination == Termination::Passthrough {
            return Err(format!("spec.tls.{field}: passthrough termination has no certificates"));
        }
        if termination == Termination::Edge && field == "destinationCACertificate" {
            return Err(format!("spec.tls.{field}: edge termination has no TLS to the backend"));
        }
    }
    // A key alone is admitted, and the default certificate served.
    let pair = if tls.certificate.is_empty() { None } else { Some(pair(tls)?) };
    Ok(Offer { termination, pair })
}

fn destination(tls: &Tls) -> Result<Option<String>, String> {
    let text = &tls.destination_ca_certificate;
    if text.is_empty() {
        return Ok(None);
    }
    let authorities = certificates("destinationCACertificate", text)?;
    let texts: Result<Vec<String>, String> = authorities.iter().map(text_of).collect();
    Ok(Some(texts?.concat()))
}

fn pair(tls: &Tls) -> Result<PrivateKeyPem, String> {
    let chain = certificates("certificate", &tls.certificate)?;
    let (key_text, key) = private_key(tls.key())?;
    let leaf = chain.first().ok_or("spec.tls.certificate: no certificate")?;
    let matches = leaf.public_key().is_ok_and(|public| public.public_eq(&key));
    if !matches {
        return Err("spec.tls.key: does not match the certificate".to_owned());
    }
    let mut authorities = Vec::new();
    if !tls.ca_certificate.is_empty() {
        authorities = certificates("caCertificate", &tls.ca_certificate)?;
        if !verifies(leaf, &authorities).unwrap_or(false) {
            return Err(
                "spec.tls.caCertificate: the certificate does not verify with it".to_owned()
            );
        }
    }
    let texts: Result<Vec<String>, String> =
        chain.iter().chain(&authorities).map(text_of).collect();
    Ok(PrivateKeyPem::new(texts?.concat() + &key_text))
}

/// The certificates of a field: at least one, none with a weak signature.
fn certificates(field: &str, text: &str) -> Result<Vec<X509>, String> {
    let blocks = pem::blocks(field, text)?;
    let blocks = blocks.iter().filter(|block| block.label == pem::CERTIFICATE);
    let parsed: Result<Vec<X509>, ErrorStack> =
        blocks.map(|block| X509::from_pem(block.text.as_bytes())).collect();
    let parsed = parsed.map_err(|_| format!("spec.tls.{field}: a certificate cannot be parsed"))?;
    if parsed.is_empty() {
        return Err(format!("spec.tls.{field}: no certificate"));
    }
    match parsed.iter().find(|one| has_weak_signature(one) && !is_self_signed(one)) {
        Some(weak) => {
            let name = weak.signature_algorithm().object().to_string();
            Err(format!("spec.tls.{field}: a certificate is signed with {name}"))
        }
        None => Ok(parsed),
    }
}

/// The key as text and parsed. Errors never quote the key.
fn private_key(text: &str) -> Result<(String, PKey<Private>), String> {
    if text.is_empty() {
        return Err("spec.tls.key: no key specified".to_owned());
    }
    let blocks = pem::blocks("key", text)?;
    let block = blocks.into_iter().find(Block::is_key).ok_or("spec.tls.key: no private key")?;
    // OpenSSL does not support this label of some tools.
    let text = block.text.replace("ECDSA PRIVATE KEY", "EC PRIVATE KEY");
    let key = PKey::private_key_from_pem(text.as_bytes())
        .map_err(|_| "spec.tls.key: the key cannot be parsed")?;
    match key.id() {
        Id::RSA | Id::EC => Ok((text, key)),
        _ => Err("spec.tls.key: neither an RSA nor an ECDSA key".to_owned()),
    }
}

fn has_weak_signature(certificate: &X509Ref) -> bool {
    WEAK_SIGNATURES.contains(&certificate.signature_algorithm().object().nid())
}

fn is_self_signed(certificate: &X509Ref) -> bool {
    let same_name = certificate
        .issuer_name()
        .try_cmp(certificate.subject_name())
        .is_ok_and(|order| order.is_eq());
    let of_subject = certificate.subject_key_id().map(|id| id.as_slice());
    let same_key =
        certificate.authority_key_id().is_none_or(|id| Some(id.as_slice()) == of_subject);
    same_name && same_key
}

/// Whether the leaf verifies with these alone. Each of them is a trust anchor.
fn verifies(leaf: &X509Ref, authorities: &[X509]) -> Result<bool, ErrorStack> {
    let store = store_of(authorities)?;
    let nothing_between = Stack::new()?;
    X509StoreContext::new()?.init(&store, leaf, &nothing_between, |context| context.verify_cert())
}

fn store_of(authorities: &[X509]) -> Result<X509Store, ErrorStack> {
    let mut store = X509StoreBuilder::new()?;
    for authority in authorities {
        store.add_cert(authority.clone())?;
    }
    store.set_flags(X509VerifyFlags::NO_CHECK_TIME | X509VerifyFlags::PARTIAL_CHAIN)?;
    Ok(store.build())
}

fn text_of(certificate: &X509) -> Result<String, String> {
    let pem = certificate.to_pem().map_err(|_| "a certificate cannot be written".to_owned())?;
    String::from_utf8(pem).map_err(|_| "a certificate cannot be written".to_owned())
}

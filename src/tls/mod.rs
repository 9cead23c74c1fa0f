//! Certificates and keys as the router sees them: would it serve this pair? Pure: no clock (the
//! time is an argument), no I/O, no log. Total: every input has an answer, none panics.
//!
//! The model is the OpenShift router's own check of a Route, which rests on Go's `encoding/pem`,
//! `crypto/x509` and `crypto/tls`, and after it what makes HAProxy refuse its configuration. What
//! passes here must pass there. Where the two could differ, the stricter reading is taken: a pair
//! that is refused here leaves one Route on the default certificate, one that is refused there
//! takes the Route down, or the router with all its Routes.
//!
//! Stricter than the router, on purpose:
//! - a private key in `tls.crt`: the router would use it; we don't help to publish keys;
//! - more than one private key: the router takes the first, which may not be the one meant;
//! - damaged PEM blocks: the router skips them, and serves a chain with a gap;
//! - RSA keys under 2048 and over 8192 bits, curves other than P-256, P-384 and P-521;
//! - private keys whose numbers don't fit each other, or of more than two primes;
//! - chains of more than 100 KiB or 100 certificates, which OpenSSL's clients refuse.

mod authority;
mod certificate;
mod chain;
mod der;
mod pem;
mod private_key;
mod problem;
mod public_key;
mod shape;
mod signature;
#[cfg(test)]
mod tests;
mod uri;
mod warning;

use std::fmt;

use chrono::{DateTime, Utc};
use sha2::{Digest as _, Sha256};

use crate::runtime::redact::PrivateKeyPem;

/// The number of the rules that [`judge`] follows. A pair that was accepted by other rules is read
/// again, so raise it with every change of what is refused.
pub const RULES: u32 = 2;

/// KiB of `tls.crt` and of `tls.key`: room for any comment, and no more work than that.
const LONGEST_CERTIFICATE: usize = 256;
const LONGEST_KEY: usize = 32;
/// KiB of certificates that OpenSSL's clients accept in a handshake (`SSL_CTX_set_max_cert_list`), and
/// how long a chain they follow.
const LONGEST_CHAIN: usize = 100;
const MOST_CERTIFICATES: usize = 100;

pub use authority::{ca_problems, destination_problems};
pub use chain::ChainOrder;
pub use problem::{Damage, Field, Part, Problem};
pub use warning::{Warning, Wildcard, age_warnings, lasting_warnings, next_change, warnings};

use certificate::Certificate;
use pem::{Block, Kind};
use problem::Findings;
use public_key::PublicKey;

/// Identifies a pair: a SHA-256 over certificate and key, each with its length.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Of a pair's two texts, byte for byte.
    pub fn of(certificate: &str, key: &str) -> Self {
        let mut hash = Sha256::new();
        for text in [certificate, key] {
            // With the lengths, no two pairs are the same sequence of bytes.
            hash.update((text.len() as u64).to_be_bytes());
            hash.update(text.as_bytes());
        }
        Self(hash.finalize().into())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// A description of a certificate chain: neither key nor certificate is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFacts {
    /// The serial number, and then each name in a line of its own: one piece of memory, however
    /// many names a leaf has.
    serial_and_names: Box<str>,
    pub validity: Validity,
    pub chain: ChainOrder,
}

impl CertificateFacts {
    fn of(leaf: &Certificate<'_>, chain: &[Certificate<'_>]) -> Self {
        Self {
            serial_and_names: leaf.serial_and_host_names(),
            validity: Validity {
                not_before: leaf.not_before,
                not_after: leaf.not_after,
                intermediates_until: chain::intermediates_until(chain),
            },
            chain: chain::order(chain),
        }
    }

    /// The serial number of the leaf in hexadecimal digits.
    pub fn serial(&self) -> &str {
        self.serial_and_names.split('\n').next().unwrap_or_default()
    }

    /// The hosts of the leaf: DNS names in lower case, and IP addresses as text.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.serial_and_names.split('\n').skip(1)
    }

    #[cfg(test)]
    pub(crate) fn pretended(names: &[&str], validity: Validity) -> Self {
        let serial_and_names = [&["0a1b"][..], names].concat().join("\n").into();
        Self { serial_and_names, validity, chain: ChainOrder::InOrder }
    }
}

/// When a certificate and its intermediates are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    pub not_before: DateTime<Utc>,
    /// The last second of the leaf.
    pub not_after: DateTime<Utc>,
    /// The last second in which all intermediates are valid; none where there are none.
    pub intermediates_until: Option<DateTime<Utc>>,
}

/// Describes a text like `tls.crt`; none if its leaf can't be read. Of a chain that is too long to be
/// accepted, only the leaf is read: a Route may hold any number of certificates.
pub fn describe(certificate: &str) -> Option<CertificateFacts> {
    let mut findings = Findings::new(Field::Certificate);
    let blocks = pem::blocks(Field::Certificate, certificate, &mut findings);
    let most = if is_too_long(&blocks) { 1 } else { MOST_CERTIFICATES };
    let ders = blocks.iter().filter(|block| block.kind == Kind::Certificate).take(most);
    let mut chain = ders.map(|block| Certificate::read(&block.der).ok());
    let leaf = chain.next()??;
    let chain: Vec<_> = std::iter::once(leaf).chain(chain.flatten()).collect();
    let facts = CertificateFacts::of(chain.first()?, &chain);
    // One certificate of many says nothing about their order.
    let order = if most == 1 { ChainOrder::InOrder } else { facts.chain };
    Some(CertificateFacts { chain: order, ..facts })
}

/// Whether Go reads the certificate, and its key is on no curve that only few know.
pub(crate) fn is_read_by_go(der: &[u8]) -> bool {
    Certificate::read(der).is_ok_and(|it| !matches!(it.key, PublicKey::OtherCurve(_)))
}

/// Whether these bytes are a request for a certificate tag by tag, in DER and not merely in BER.
pub(crate) fn is_strict_request(der: &[u8]) -> bool {
    der::is_strict(der, der::Inside::Everything) && shape::is_request(der)
}

/// Whether Go reads a public key as a certificate or a request has it.
pub(crate) fn is_key_read_by_go(info: &[u8]) -> bool {
    PublicKey::of_info(info).is_ok()
}

/// Whether [`describe`] takes next to no time: most chains are two or three certificates.
pub fn is_short(certificate: &str) -> bool {
    const LONGEST: usize = 32 << 10;
    const MOST: usize = 10;
    certificate.len() <= LONGEST && certificate.matches("-----BEGIN ").count() <= MOST
}

/// The first certificate of a text like `tls.crt`.
fn leaf(certificate: &str) -> Option<Block> {
    let mut findings = Findings::new(Field::Certificate);
    let blocks = pem::blocks(Field::Certificate, certificate, &mut findings);
    blocks.into_iter().find(|block| block.kind == Kind::Certificate)
}

/// A pair that the router would serve, its texts verbatim.
#[derive(Clone)]
pub struct Pair {
    certificate: String,
    key: PrivateKeyPem,
    fingerprint: Fingerprint,
    facts: CertificateFacts,
}

impl Pair {
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    pub fn facts(&self) -> &CertificateFacts {
        &self.facts
    }

    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    pub fn key(&self) -> &PrivateKeyPem {
        &self.key
    }
}

/// Shows the facts, and of the key what [`PrivateKeyPem`] shows.
impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair")
            .field("fingerprint", &self.fingerprint)
            .field("facts", &self.facts)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// Whether the router would serve the bytes of `tls.crt` and `tls.key`: the pair, or every problem
/// that was found. An absent field is given as no bytes.
pub fn judge(certificate: &[u8], key: &[u8]) -> Result<Pair, Vec<Problem>> {
    let mut of_certificate = Findings::new(Field::Certificate);
    let mut of_key = Findings::new(Field::Key);

    let certificate = text(certificate, &mut of_certificate, Field::Certificate);
    let key = text(key, &mut of_key, Field::Key);
    let blocks = certificate_blocks(certificate, &mut of_certificate);
    let chain = certificates(Field::Certificate, &blocks, &mut of_certificate);
    // Places are told only where all of them are known: a damaged leaf must not make the
    // intermediate after it look like the leaf.
    let chain = if of_certificate.is_empty() { chain } else { Vec::new() };
    let public = private_key(key, &mut of_key);

    check_chain(&chain, &mut of_certificate);
    if let Some(public) = public {
        check_match(&chain, &public, &mut of_key);
    }

    match (certificate, key, chain.first()) {
        (Some(certificate), Some(key), Some(leaf))
            if of_certificate.is_empty() && of_key.is_empty() =>
        {
            Ok(Pair {
                certificate: certificate.to_owned(),
                key: PrivateKeyPem::new(key),
                fingerprint: Fingerprint::of(certificate, key),
                facts: CertificateFacts::of(leaf, &chain),
            })
        }
        _ => {
            let mut problems = of_certificate.into_problems();
            problems.extend(of_key.into_problems());
            Err(problems)
        }
    }
}

/// A Route holds strings, so other bytes could not be injected verbatim.
fn text<'a>(bytes: &'a [u8], findings: &mut Findings, field: Field) -> Option<&'a str> {
    if bytes.is_empty() {
        findings.add(Problem::Missing { field });
        return None;
    }
    let kib = if field == Field::Key { LONGEST_KEY } else { LONGEST_CERTIFICATE };
    if bytes.len() > kib << 10 {
        findings.add(Problem::TooLong { field, kib });
        return None;
    }
    let text = std::str::from_utf8(bytes).ok();
    if text.is_none() {
        findings.add(Problem::NotText { field });
    }
    text
}

fn certificate_blocks(text: Option<&str>, findings: &mut Findings) -> Vec<Block> {
    let field = Field::Certificate;
    let blocks = text.map_or_else(Vec::new, |text| pem::blocks(field, text, findings));
    // The router would take this key and prefer it to tls.key. But certificates are shown to more
    // people than keys are, and a pair with two keys is a mistake that should be seen.
    refuse_private_keys(field, &blocks, findings);
    if is_too_long(&blocks) {
        findings.add(Problem::ChainTooLong { kib: LONGEST_CHAIN, most: MOST_CERTIFICATES });
        // To read thousands of certificates takes long, and would tell nothing more.
        return Vec::new();
    }
    blocks
}

/// Private keys in a text that is for certificates.
fn refuse_private_keys(field: Field, blocks: &[Block], findings: &mut Findings) {
    for block in blocks.iter().filter(|block| block.kind == Kind::PrivateKey) {
        findings.add(Problem::KeyOutsideItsField { field, line: block.line });
    }
}

fn is_too_long(blocks: &[Block]) -> bool {
    let chain = || blocks.iter().filter(|block| block.kind == Kind::Certificate);
    let bytes: usize = chain().map(|block| block.der.len()).sum();
    chain().count() > MOST_CERTIFICATES || bytes > LONGEST_CHAIN << 10
}

/// The certificates among the blocks. Blocks that can't be read are added to the findings.
fn certificates<'a>(
    field: Field,
    blocks: &'a [Block],
    findings: &mut Findings,
) -> Vec<Certificate<'a>> {
    let mut chain = Vec::new();
    let mut number = 0;
    for block in blocks {
        match block.kind {
            Kind::Certificate => {
                number += 1;
                let part = Part::Certificate { field, number };
                match Certificate::read(&block.der) {
                    Ok(certificate) => chain.push(certificate),
                    Err(why) => findings.add(Problem::UnreadableCertificate { part, why }),
                }
            }
            // Since OpenShift 4.21 the router refuses it beside the certificate that it serves, but
            // not beside those that it trusts.
            Kind::PublicKey if field == Field::Certificate => {
                findings.add(Problem::PublicKey { field, line: block.line });
            }
            Kind::PublicKey => check_public_key(field, block, findings),
            Kind::PrivateKey | Kind::EcParameters => {}
        }
    }
    // Not reported for a damaged text: the damage may be where the certificate was.
    if number == 0 && findings.is_empty() {
        findings.add(Problem::NoCertificate { field });
    }
    chain
}

/// A public key is of no use here, but the router reads it and refuses the Route if it can't.
fn check_public_key(field: Field, block: &Block, findings: &mut Findings) {
    if !matches!(PublicKey::of_info(&block.der), Ok(PublicKey::Rsa { .. } | PublicKey::Ec { .. })) {
        findings.add(Problem::UnreadablePublicKey { field, line: block.line });
    }
}

/// The public half of the one private key in `tls.key`.
fn private_key(text: Option<&str>, findings: &mut Findings) -> Option<PublicKey> {
    let field = Field::Key;
    let blocks = pem::blocks(field, text?, findings);
    for block in &blocks {
        match block.kind {
            Kind::Certificate => findings.add(Problem::CertificateInKey { line: block.line }),
            Kind::PublicKey => findings.add(Problem::PublicKey { field, line: block.line }),
            Kind::PrivateKey | Kind::EcParameters => {}
        }
    }
    let keys: Vec<_> = blocks.iter().filter(|block| block.kind == Kind::PrivateKey).collect();
    let public = match keys.as_slice() {
        [key] => private_key::public_half(&key.der),
        [] if findings.is_empty() => Err(Problem::NoKey),
        [] => return None,
        several => Err(Problem::SeveralKeys { count: several.len() }),
    };
    public.map_err(|problem| findings.add(problem)).ok()
}

/// HAProxy gets a caCertificate as part of the chain, so the same rules hold for both texts.
fn check_certificates(field: Field, chain: &[Certificate<'_>], findings: &mut Findings) {
    for (index, certificate) in chain.iter().enumerate() {
        certificate.chain_problems(Part::Certificate { field, number: index + 1 }, findings);
    }
}

fn check_chain(chain: &[Certificate<'_>], findings: &mut Findings) {
    check_certificates(Field::Certificate, chain, findings);
    if let Some(leaf) = chain.first() {
        let part = Part::Certificate { field: Field::Certificate, number: 1 };
        // Problems of the key in any chain were reported above.
        if leaf.key.chain_problem(part).is_none()
            && let Some(problem) = leaf.key.leaf_problem(part)
        {
            findings.add(problem);
        }
    }
}

fn check_match(chain: &[Certificate<'_>], public: &PublicKey, findings: &mut Findings) {
    match chain.iter().position(|certificate| certificate.key == *public) {
        Some(0) => {}
        Some(index) => findings.add(Problem::LeafNotFirst { number: index + 1 }),
        None if chain.is_empty() => {}
        None => findings.add(Problem::KeyMismatch),
    }
}

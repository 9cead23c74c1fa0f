//! The Route's own caCertificate: would the router's verification of the leaf with it fail?
//!
//! The router verifies the leaf with the certificates of that text as the only roots and refuses
//! the Route if it can't, but does not mind validity. A caCertificate that was left over from an
//! earlier pair therefore takes a Route down when a renewed pair from another issuer comes in.

use std::net::IpAddr;

use chrono::{DateTime, Utc};
use x509_parser::extensions::{ExtendedKeyUsage, GeneralName, NameConstraints, ParsedExtension};

use super::certificate::{Certificate, address};
use super::pem::{self, Block};
use super::problem::{Field, Findings, Problem};
use super::signature::Verification;
use super::{certificates, check_certificates, refuse_private_keys, uri};

const FIELD: Field = Field::CaCertificate;
/// Go gives up after 100 signatures, and with it the router. It may check each candidate twice.
const MOST_CANDIDATES: usize = 50;

/// Why the router would refuse these certificates in a Route with this caCertificate. Without one
/// there is nothing to verify.
///
/// Like the router, this ignores whether the caCertificate is in force. The time only says which of
/// several certificates of one issuer the router goes by.
pub fn ca_problems(certificate: &str, ca_certificate: &str, now: DateTime<Utc>) -> Vec<Problem> {
    if ca_certificate.is_empty() {
        return Vec::new();
    }
    let mut findings = Findings::new(FIELD);
    let blocks = pem::blocks(FIELD, ca_certificate, &mut findings);
    let pool = pool(FIELD, &blocks, &mut findings);
    let leaf = super::leaf(certificate);
    if let Some(Ok(leaf)) = leaf.as_ref().map(|leaf| Certificate::read(&leaf.der))
        && findings.is_empty()
        && let Some(why) = mismatch(&leaf, &pool, now)
    {
        findings.add(Problem::CaMismatch { why });
    }
    findings.into_problems()
}

/// Why the router would refuse a Route with this destinationCACertificate.
pub fn destination_problems(destination_ca_certificate: &str) -> Vec<Problem> {
    if destination_ca_certificate.is_empty() {
        return Vec::new();
    }
    let field = Field::DestinationCaCertificate;
    let mut findings = Findings::new(field);
    let blocks = pem::blocks(field, destination_ca_certificate, &mut findings);
    pool(field, &blocks, &mut findings);
    findings.into_problems()
}

/// The certificates of a text that is for certificates only.
fn pool<'a>(field: Field, blocks: &'a [Block], findings: &mut Findings) -> Vec<Certificate<'a>> {
    refuse_private_keys(field, blocks, findings);
    let pool = certificates(field, blocks, findings);
    check_certificates(field, &pool, findings);
    pool
}

/// Why none of the pool verifies the leaf: the reason of the candidate that came furthest.
fn mismatch(
    leaf: &Certificate<'_>,
    pool: &[Certificate<'_>],
    now: DateTime<Utc>,
) -> Option<&'static str> {
    if has_unknown_critical(leaf) {
        return Some(
            "the first certificate of tls.crt has a critical extension that Go does not know",
        );
    }
    if !serves(leaf) {
        return Some(
            "the first certificate of tls.crt may not be used by a TLS server (extended key usage)",
        );
    }
    // A leaf that stands in the pool is its own root.
    if pool.iter().any(|root| root.der == leaf.der) {
        return None;
    }
    let candidates = || pool.iter().filter(|root| root.subject() == leaf.issuer());
    if candidates().count() > MOST_CANDIDATES {
        return Some("more than 50 certificates in it have the name of the issuer");
    }
    let mut why = "no certificate in it has the name of the issuer";
    let (mut signed, mut path) = (false, None);
    for root in candidates().filter(|root| !is_same_entity(root, leaf)) {
        match signer_fault(leaf, root) {
            None => match path_fault(leaf, root) {
                // Go looks for one that is valid now and leads there.
                None if (root.not_before..=root.not_after).contains(&now) => return None,
                None => signed = true,
                // Where none is valid now, which of them Go complains about is a matter of order. So
                // each of them must do.
                fault => path = fault,
            },
            Some(fault) => why = fault,
        }
    }
    path.or((!signed).then_some(why))
}

/// Go does not let a certificate verify its own older or newer self.
fn is_same_entity(one: &Certificate<'_>, other: &Certificate<'_>) -> bool {
    one.subject() == other.subject()
        && one.x509.public_key().raw == other.x509.public_key().raw
        && one.alternative_names() == other.alternative_names()
}

/// Why the root can't have signed the leaf.
fn signer_fault(leaf: &Certificate<'_>, root: &Certificate<'_>) -> Option<&'static str> {
    if !may_sign(root) {
        return Some("the certificate with the issuer's name is not a certificate authority's");
    }
    match leaf.verify_signature(root) {
        Verification::Valid => None,
        Verification::Invalid => {
            Some("the certificate with the issuer's name has another key than the one that signed")
        }
        Verification::Unsupported => {
            Some("the signature is of a kind that the router can't verify")
        }
    }
}

/// Why the router would not follow the leaf to a root that signed it.
fn path_fault(leaf: &Certificate<'_>, root: &Certificate<'_>) -> Option<&'static str> {
    if has_unknown_critical(root) {
        return Some("the issuer has a critical extension that Go does not know");
    }
    if !serves(root) {
        return Some("the issuer may not issue certificates for TLS servers (extended key usage)");
    }
    // A leaf has no use for it, and what Go makes of it would be much to follow.
    let wants_policy = leaf.extension(|extension| match extension {
        ParsedExtension::PolicyConstraints(limits) => limits.require_explicit_policy,
        _ => None,
    });
    if wants_policy.is_some() {
        return Some("the first certificate of tls.crt requires explicit policies");
    }
    let constraints = root.extension(|extension| match extension {
        ParsedExtension::NameConstraints(constraints) => Some(constraints.clone()),
        _ => None,
    });
    match constraints.is_none_or(|constraints| meets(leaf, &constraints)) {
        true => None,
        false => Some("the issuer may not issue certificates for these names (name constraints)"),
    }
}

/// A certificate of version 1 or 2 has no extensions to say so and may sign.
fn may_sign(root: &Certificate<'_>) -> bool {
    let is_ca = root.extension(|extension| match extension {
        ParsedExtension::BasicConstraints(constraints) => Some(constraints.ca),
        _ => None,
    });
    let signs = root.extension(|extension| match extension {
        // No bit at all counts as no restriction, as in Go.
        ParsedExtension::KeyUsage(usage) => Some(usage.flags == 0 || usage.key_cert_sign()),
        _ => None,
    });
    is_ca.unwrap_or(root.x509.version().0 < 2) && signs.unwrap_or(true)
}

fn serves(certificate: &Certificate<'_>) -> bool {
    let allowed = |usage: &ExtendedKeyUsage<'_>| usage.any || usage.server_auth;
    let usage = certificate.extension(|extension| match extension {
        ParsedExtension::ExtendedKeyUsage(usage) => Some(allowed(usage)),
        _ => None,
    });
    usage.unwrap_or(true)
}

/// The extensions of RFC 5280 that Go handles; any other that is critical fails its verification.
fn has_unknown_critical(certificate: &Certificate<'_>) -> bool {
    let mut critical = certificate.x509.extensions().iter().filter(|extension| extension.critical);
    critical.any(|extension| match extension.parsed_extension() {
        ParsedExtension::SubjectAlternativeName(names) => {
            !names.general_names.iter().any(is_handled)
        }
        ParsedExtension::NameConstraints(constraints) => {
            !subtrees(constraints).all(|(_, name)| is_handled(name))
        }
        _ => {
            !matches!(extension.oid.as_bytes(), [0x55, 0x1d, 15 | 19 | 31 | 32 | 33 | 36 | 37 | 54])
        }
    })
}

fn is_handled(name: &GeneralName<'_>) -> bool {
    matches!(
        name,
        GeneralName::DNSName(_)
            | GeneralName::IPAddress(_)
            | GeneralName::RFC822Name(_)
            | GeneralName::URI(_)
    )
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Tree {
    Permitted,
    Excluded,
}

fn subtrees<'a>(
    constraints: &'a NameConstraints<'a>,
) -> impl Iterator<Item = (Tree, &'a GeneralName<'a>)> {
    let permitted = constraints.permitted_subtrees.iter().flatten();
    let excluded = constraints.excluded_subtrees.iter().flatten();
    permitted
        .map(|subtree| (Tree::Permitted, &subtree.base))
        .chain(excluded.map(|subtree| (Tree::Excluded, &subtree.base)))
}

fn meets(leaf: &Certificate<'_>, constraints: &NameConstraints<'_>) -> bool {
    leaf.alternative_names().iter().all(|name| {
        let mut permitted = None;
        for (tree, base) in subtrees(constraints) {
            let Some(within) = is_within(name, base, tree) else { continue };
            match tree {
                Tree::Excluded if within => return false,
                Tree::Excluded => {}
                Tree::Permitted => permitted = Some(permitted.unwrap_or(false) || within),
            }
        }
        can_be_compared(name) && permitted.unwrap_or(true)
    })
}

/// Where there are constraints at all, Go refuses names that none could be compared with.
fn can_be_compared(name: &GeneralName<'_>) -> bool {
    match name {
        GeneralName::DNSName(name) => uri::is_domain(name.as_bytes()),
        GeneralName::RFC822Name(text) => uri::is_mailbox(text),
        GeneralName::URI(uri) => uri::host(uri).is_some_and(|host| {
            // Without a port; what has more colons is an address, or can't be read.
            let host = String::from_utf8_lossy(&host).into_owned();
            let name = host.split_once(':').map_or(&*host, |(name, _)| name);
            !name.is_empty()
                && !name.starts_with('[')
                && name.parse::<IpAddr>().is_err()
                && host.matches(':').count() <= 1
        }),
        _ => true,
    }
}

/// Whether a name lies within a subtree; `None` if they are of different forms.
fn is_within(name: &GeneralName<'_>, base: &GeneralName<'_>, tree: Tree) -> Option<bool> {
    match (name, base) {
        (GeneralName::DNSName(name), GeneralName::DNSName(base)) => {
            Some(is_dns_within(&name.to_ascii_lowercase(), &base.to_ascii_lowercase(), tree))
        }
        (GeneralName::IPAddress(bytes), GeneralName::IPAddress(range)) => {
            // Go may overlook a range that does not begin at its own beginning.
            let sound = tree == Tree::Excluded || is_masked(range);
            Some(sound && is_address_within(bytes, range))
        }
        // Mail addresses and URIs beside a server's names are rare, and rarer still are limits on
        // them. Rather than follow Go's rules for them, the pair is refused.
        (GeneralName::RFC822Name(_), GeneralName::RFC822Name(_))
        | (GeneralName::URI(_), GeneralName::URI(_)) => Some(tree == Tree::Excluded),
        _ => None,
    }
}

fn is_dns_within(name: &str, base: &str, tree: Tree) -> bool {
    let below = |name: &str, base: &str| {
        name.strip_suffix(base).is_some_and(|rest| rest.ends_with('.') && rest.len() > 1)
    };
    let within = match base.strip_prefix('.') {
        Some(base) => below(name, base),
        None => base.is_empty() || name == base || below(name, base),
    };
    // A wildcard covers a name that is excluded if both are one label above the same domain.
    let covers = || {
        let above = |name: &str| name.split_once('.').map(|(_, above)| above.to_owned());
        tree == Tree::Excluded && name.starts_with('*') && above(name) == above(base)
    };
    within || covers()
}

fn is_address_within(bytes: &[u8], range: &[u8]) -> bool {
    let (base, mask) = range.split_at(range.len() / 2);
    address(bytes).is_some()
        && base.len() == bytes.len()
        && mask.len() == bytes.len()
        && bytes.iter().zip(base).zip(mask).all(|((byte, base), mask)| byte & mask == base & mask)
}

fn is_masked(range: &[u8]) -> bool {
    let (base, mask) = range.split_at(range.len() / 2);
    base.iter().zip(mask).all(|(base, mask)| base & !mask == 0)
}

//! Whether the certificates of a text form a chain that clients can follow.

use chrono::{DateTime, Utc};
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry::OID_PKIX_ACCESS_DESCRIPTOR_CA_ISSUERS;

use super::certificate::Certificate;
use super::signature::Verification;

/// Warnings about a chain. The router serves all of them; some clients fail.
///
/// The chain is followed from the first certificate: each must have issued the one before it.
/// - Where that breaks, it is `OutOfOrder` if the issuer stands elsewhere in the text, and
///   `Incomplete` if it stands nowhere in it though other certificates follow.
/// - What follows a self-issued certificate is ignored: alternative paths are put there.
/// - A chain that just ends is complete, because its last certificate may well be issued by a root
///   that clients have. The one exception is a text with a leaf alone that says under which
///   `http` address its issuer can be fetched: public certificate authorities write that into
///   every leaf and issue none from a root, so an intermediate is missing. Private authorities
///   that issue from their root don't write it, or write an `ldap` address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChainOrder {
    InOrder,
    OutOfOrder,
    Incomplete,
}

pub(super) fn order(chain: &[Certificate<'_>]) -> ChainOrder {
    let mut place = 0;
    while let [current, following @ ..] = &chain[place..] {
        match following.first() {
            _ if current.is_self_issued() => return ChainOrder::InOrder,
            None if place == 0 && names_fetchable_issuer(current) => return ChainOrder::Incomplete,
            None => return ChainOrder::InOrder,
            Some(next) if is_issued_by(current, next) => place += 1,
            // Asked once only, for the first break, so that the whole stays linear.
            Some(_) => {
                let elsewhere = chain.iter().any(|other| is_issued_by(current, other));
                return match elsewhere {
                    true => ChainOrder::OutOfOrder,
                    false => ChainOrder::Incomplete,
                };
            }
        }
    }
    ChainOrder::InOrder
}

/// When the first intermediate expires. A self-issued certificate ends the chain, as in [`order`]:
/// clients look at their own copy of a root.
pub(super) fn intermediates_until(chain: &[Certificate<'_>]) -> Option<DateTime<Utc>> {
    let issuers = chain.iter().take_while(|one| !one.is_self_issued()).skip(1);
    issuers.map(|one| one.not_after).min()
}

/// By name, key id and signature; a signature that can't be checked does not speak against it.
fn is_issued_by(child: &Certificate<'_>, parent: &Certificate<'_>) -> bool {
    let key_ids_differ = matches!(
        (child.authority_key_id(), parent.subject_key_id()),
        (Some(authority), Some(subject)) if authority != subject
    );
    child.issuer() == parent.subject()
        && !key_ids_differ
        && child.verify_signature(parent) != Verification::Invalid
}

fn names_fetchable_issuer(certificate: &Certificate<'_>) -> bool {
    let fetchable = |name: &GeneralName<'_>| match name {
        GeneralName::URI(uri) => uri.starts_with("http://") || uri.starts_with("https://"),
        _ => false,
    };
    let named = certificate.extension(|extension| match extension {
        ParsedExtension::AuthorityInfoAccess(access) => {
            Some(access.accessdescs.iter().any(|access| {
                access.access_method == OID_PKIX_ACCESS_DESCRIPTOR_CA_ISSUERS
                    && fetchable(&access.access_location)
            }))
        }
        _ => None,
    });
    named == Some(true)
}

//! Private keys: PKCS#8, PKCS#1 and SEC 1, by content and not by label, as the router reads them.
//!
//! A public key that stands beside the private one is never trusted: it is computed again and
//! compared. Nothing of a key leaves this file but its public half.

use aws_lc_rs::agreement::{self, ECDH_P256, ECDH_P384, ECDH_P521};
use aws_lc_rs::rsa;
use zeroize::Zeroizing;

use super::der::{self, BIT_STRING, INTEGER, Inside, OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE};
use super::problem::{Part, Problem};
use super::public_key::{Curve, KeyKind, PublicKey, curve_name};

const UNREADABLE: Problem = Problem::UnreadableKey {
    why: "it is neither a PKCS#8, a PKCS#1 nor a SEC 1 key, or it was cut off",
};
const INCONSISTENT: Problem =
    Problem::UnreadableKey { why: "its numbers don't match each other, so it is damaged" };
/// `[0]` and `[1]` of SEC 1: the curve and the public key, both optional.
const CURVE: u8 = 0xa0;
const POINT: u8 = 0xa1;

/// `[0]` and `[1]` of PKCS#8.
const ATTRIBUTES: u8 = 0xa0;
const PUBLIC_KEY: u8 = 0x81;
/// The parameters of an RSA key.
const NULL: &[u8] = &[5, 0];

/// The public half of a private key that can be served, or why it can't.
pub(super) fn public_half(key: &[u8]) -> Result<PublicKey, Problem> {
    if !der::is_strict(key, Inside::Everything) {
        return Err(UNREADABLE);
    }
    let mut fields = der::only(key, SEQUENCE).ok_or(UNREADABLE)?;
    let version = der::next(&mut fields, INTEGER).ok_or(UNREADABLE)?;
    match der::read(fields).map(|(element, _)| element.tag) {
        Some(SEQUENCE) => of_pkcs8(fields),
        Some(INTEGER) => of_rsa(key),
        Some(OCTET_STRING) if version == [1] => of_sec1(fields, None),
        _ => Err(UNREADABLE),
    }
}

fn of_pkcs8(mut fields: &[u8]) -> Result<PublicKey, Problem> {
    let mut algorithm = der::next(&mut fields, SEQUENCE).ok_or(UNREADABLE)?;
    let kind = der::next(&mut algorithm, OBJECT_IDENTIFIER).ok_or(UNREADABLE)?;
    let key = der::next(&mut fields, OCTET_STRING).ok_or(UNREADABLE)?;
    // Attributes and a public key may follow; the router ignores them, HAProxy only if well formed.
    der::next(&mut fields, ATTRIBUTES);
    der::next(&mut fields, PUBLIC_KEY);
    let nothing_else = fields.is_empty();
    match KeyKind::of(kind) {
        KeyKind::Other(kind) => Err(Problem::KeyType { part: Part::Key, kind }),
        _ if !nothing_else || !der::is_strict(key, Inside::Everything) => Err(UNREADABLE),
        KeyKind::Rsa if !matches!(algorithm, [] | NULL) => Err(UNREADABLE),
        KeyKind::Rsa => of_rsa(key),
        KeyKind::Ec => {
            let curve = named_curve(algorithm)?;
            let mut fields = der::only(key, SEQUENCE).ok_or(UNREADABLE)?;
            match der::next(&mut fields, INTEGER) {
                Some([1]) => of_sec1(fields, Some(curve)),
                _ => Err(UNREADABLE),
            }
        }
    }
}

fn of_rsa(key: &[u8]) -> Result<PublicKey, Problem> {
    let mut fields = der::only(key, SEQUENCE).ok_or(UNREADABLE)?;
    let mut integer = || der::next(&mut fields, INTEGER).ok_or(UNREADABLE);
    let (version, modulus, exponent) = (integer()?, integer()?, integer()?);
    if version != [0] {
        return Err(Problem::UnreadableKey { why: "it is an RSA key of more than two primes" });
    }
    let public = PublicKey::rsa(modulus, exponent).ok_or(INCONSISTENT)?;
    // Before the load, which knows these sizes too but can't say which of them it met.
    if let Some(problem) = public.leaf_problem(Part::Key) {
        return Err(problem);
    }
    // Checks that all numbers belong together.
    rsa::KeyPair::from_der(key).map_err(|_| INCONSISTENT)?;
    Ok(public)
}

/// The fields of SEC 1 after the version. The curve stands here, around it in PKCS#8, or in both.
fn of_sec1(mut fields: &[u8], outer: Option<Curve>) -> Result<PublicKey, Problem> {
    let scalar = der::next(&mut fields, OCTET_STRING).ok_or(UNREADABLE)?;
    let inner = der::next(&mut fields, CURVE).map(named_curve).transpose()?;
    let stated = der::next(&mut fields, POINT).map(|point| der::only(point, BIT_STRING));
    let curve = match (outer, inner) {
        (Some(outer), Some(inner)) if outer != inner => return Err(INCONSISTENT),
        (Some(curve), _) | (None, Some(curve)) => curve,
        (None, None) => {
            let why = "it is an ECDSA key that does not name its curve";
            return Err(Problem::UnreadableKey { why });
        }
    };
    let point = point_of(curve, scalar).ok_or(INCONSISTENT)?;
    let fits = stated.is_none_or(|stated| is_same_point(stated, &point));
    if fits && fields.is_empty() { Ok(PublicKey::Ec { curve, point }) } else { Err(INCONSISTENT) }
}

fn named_curve(parameters: &[u8]) -> Result<Curve, Problem> {
    let identifier = der::only(parameters, OBJECT_IDENTIFIER).ok_or(Problem::UnreadableKey {
        why: "it is an ECDSA key with explicit curve parameters instead of a named curve",
    })?;
    Curve::of(identifier).ok_or(Problem::Curve { part: Part::Key, curve: curve_name(identifier) })
}

fn point_of(curve: Curve, scalar: &[u8]) -> Option<Vec<u8>> {
    let scalar = der::without_leading_zeros(scalar);
    let zeros = curve.bytes().checked_sub(scalar.len())?;
    let mut fixed = Zeroizing::new(vec![0; zeros]);
    fixed.extend_from_slice(scalar);
    let algorithm = match curve {
        Curve::P256 => &ECDH_P256,
        Curve::P384 => &ECDH_P384,
        Curve::P521 => &ECDH_P521,
    };
    let key = agreement::PrivateKey::from_private_key(algorithm, &fixed).ok()?;
    Some(key.compute_public_key().ok()?.as_ref().to_vec())
}

/// The stated point may be compressed: then its first half and its sign are compared.
fn is_same_point(stated: Option<&[u8]>, point: &[u8]) -> bool {
    match stated {
        Some([0, 4, ..]) => stated.is_some_and(|stated| &stated[1..] == point),
        Some([0, sign @ (2 | 3), x @ ..]) => {
            let half = (point.len() - 1) / 2;
            point.get(1..=half) == Some(x) && point.last().is_some_and(|y| y & 1 == sign & 1)
        }
        _ => false,
    }
}

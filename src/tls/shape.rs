//! The shape of a certificate, tag by tag, as Go's parser demands it.
//!
//! `x509-parser` looks at tag numbers only and takes, say, a constructed string for a plain one.
//! Go and OpenSSL don't. What passes here and in [`der::is_strict`] has one reading for all three.

use std::collections::HashSet;

use super::der::{self, BIT_STRING, INTEGER, OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE};

const BOOLEAN: u8 = 0x01;
const SET: u8 = 0x31;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The types of string that Go takes in names.
const STRINGS: [u8; 6] = [0x0c, 0x12, 0x13, 0x14, 0x16, 0x1e];

/// Whether the tags are those of a certificate.
pub(super) fn is_certificate(der: &[u8]) -> bool {
    certificate(der).is_some()
}

/// Whether the tags are those of a request for a certificate.
pub(super) fn is_request(der: &[u8]) -> bool {
    request(der).is_some()
}

/// Whether the tags are those of the extension `id-ce number`; true for those that Go skips.
pub(super) fn is_extension(number: u8, value: &[u8]) -> bool {
    extension(number, value).is_some()
}

/// Whether the tags are those of authority information: methods and where to find them.
pub(super) fn is_authority_access(value: &[u8]) -> bool {
    let access = |access: &mut &[u8]| {
        let mut fields = der::next(access, SEQUENCE)?;
        der::next(&mut fields, OBJECT_IDENTIFIER)?;
        general_name(&mut fields)?;
        end(fields)
    };
    der::only(value, SEQUENCE).is_some_and(|value| each(value, access).is_some())
}

fn certificate(der: &[u8]) -> Option<()> {
    let mut fields = der::only(der, SEQUENCE)?;
    let tbs = der::next(&mut fields, SEQUENCE)?;
    let algorithm = der::next(&mut fields, SEQUENCE)?;
    der::next(&mut fields, BIT_STRING)?;
    to_be_signed(tbs, algorithm)?;
    end(fields)
}

fn to_be_signed(mut fields: &[u8], outer_algorithm: &[u8]) -> Option<()> {
    let version = match optional(&mut fields, 0xa0) {
        Some(version) => match der::only(version, INTEGER)? {
            [version @ 0..=2] => *version,
            _ => return None,
        },
        None => 0,
    };
    der::next(&mut fields, INTEGER)?;
    let inner_algorithm = der::next(&mut fields, SEQUENCE)?;
    algorithm(inner_algorithm)?;
    name(der::next(&mut fields, SEQUENCE)?)?;
    validity(der::next(&mut fields, SEQUENCE)?)?;
    name(der::next(&mut fields, SEQUENCE)?)?;
    public_key(der::next(&mut fields, SEQUENCE)?)?;
    // Unique ids came with version 2, extensions with version 3.
    if version >= 1 {
        optional(&mut fields, 0x81);
        optional(&mut fields, 0x82);
    }
    if version == 2
        && let Some(extensions) = optional(&mut fields, 0xa3)
    {
        each(der::only(extensions, SEQUENCE)?, one_extension)?;
    }
    (inner_algorithm == outer_algorithm).then_some(())?;
    end(fields)
}

fn request(der: &[u8]) -> Option<()> {
    let mut fields = der::only(der, SEQUENCE)?;
    let mut content = der::next(&mut fields, SEQUENCE)?;
    // Neither is signed, so readers that differ here would differ about a signature that is valid.
    let mut signed_by = der::next(&mut fields, SEQUENCE)?;
    der::next(&mut signed_by, OBJECT_IDENTIFIER)?;
    matches!(signed_by, [] | [0x05, 0x00]).then_some(())?;
    matches!(der::next(&mut fields, BIT_STRING)?, [0, ..]).then_some(())?;
    end(fields)?;
    der::next(&mut content, INTEGER)?;
    name(der::next(&mut content, SEQUENCE)?)?;
    public_key(der::next(&mut content, SEQUENCE)?)?;
    if let Some(attributes) = optional(&mut content, 0xa0) {
        each(attributes, |attributes| {
            let mut fields = der::next(attributes, SEQUENCE)?;
            der::next(&mut fields, OBJECT_IDENTIFIER)?;
            der::next(&mut fields, SET)?;
            end(fields)
        })?;
    }
    end(content)
}

fn algorithm(mut fields: &[u8]) -> Option<()> {
    der::next(&mut fields, OBJECT_IDENTIFIER)?;
    if fields.is_empty() {
        return Some(());
    }
    let (_, rest) = der::read(fields)?;
    end(rest)
}

fn name(body: &[u8]) -> Option<()> {
    let attribute = |attributes: &mut &[u8]| {
        let mut fields = der::next(attributes, SEQUENCE)?;
        der::next(&mut fields, OBJECT_IDENTIFIER)?;
        let (value, rest) = der::read(fields)?;
        STRINGS.contains(&value.tag).then_some(())?;
        end(rest)
    };
    each(body, |sets| each(der::next(sets, SET)?, attribute))
}

fn validity(mut fields: &[u8]) -> Option<()> {
    for _ in 0..2 {
        let (time, rest) = der::read(fields)?;
        matches!(time.tag, UTC_TIME | GENERALIZED_TIME).then_some(())?;
        fields = rest;
    }
    end(fields)
}

fn public_key(mut fields: &[u8]) -> Option<()> {
    algorithm(der::next(&mut fields, SEQUENCE)?)?;
    der::next(&mut fields, BIT_STRING)?;
    end(fields)
}

fn one_extension(extensions: &mut &[u8]) -> Option<()> {
    let mut fields = der::next(extensions, SEQUENCE)?;
    der::next(&mut fields, OBJECT_IDENTIFIER)?;
    optional(&mut fields, BOOLEAN);
    der::next(&mut fields, OCTET_STRING)?;
    end(fields)
}

fn extension(number: u8, value: &[u8]) -> Option<()> {
    let sequence = || der::only(value, SEQUENCE);
    match number {
        14 => der::only(value, OCTET_STRING).map(drop),
        15 => der::only(value, BIT_STRING).map(drop),
        17 => each(sequence()?, general_name),
        19 => in_order(sequence()?, &[BOOLEAN, INTEGER]),
        30 => name_constraints(sequence()?),
        31 => each(sequence()?, distribution_point),
        32 => policies(sequence()?),
        33 => each(sequence()?, |mappings| {
            let mut fields = der::next(mappings, SEQUENCE)?;
            der::next(&mut fields, OBJECT_IDENTIFIER)?;
            der::next(&mut fields, OBJECT_IDENTIFIER)?;
            end(fields)
        }),
        35 => in_order(sequence()?, &[0x80, 0xa1, 0x82]),
        36 => {
            let mut fields = sequence()?;
            for tag in [0x80, 0x81] {
                let number = optional(&mut fields, tag);
                number.is_none_or(der::is_shortest_integer).then_some(())?;
            }
            end(fields)
        }
        37 => each(sequence()?, |usages| der::next(usages, OBJECT_IDENTIFIER).map(drop)),
        54 => der::only(value, INTEGER).map(drop),
        _ => Some(()),
    }
}

/// Go reads the number of each policy, refuses one that stands there twice, and skips the rest.
fn policies(mut body: &[u8]) -> Option<()> {
    let mut seen = HashSet::new();
    while !body.is_empty() {
        let mut fields = der::next(&mut body, SEQUENCE)?;
        let number = der::next(&mut fields, OBJECT_IDENTIFIER)?;
        (der::is_long_identifier(number) && seen.insert(number)).then_some(())?;
    }
    Some(())
}

fn general_name(names: &mut &[u8]) -> Option<()> {
    let (name, rest) = der::read(names)?;
    *names = rest;
    let tags = [0xa0, 0x81, 0x82, 0xa3, 0xa4, 0xa5, 0x86, 0x87, 0x88];
    tags.contains(&name.tag).then_some(())
}

fn name_constraints(mut fields: &[u8]) -> Option<()> {
    let subtree = |subtrees: &mut &[u8]| {
        let mut fields = der::next(subtrees, SEQUENCE)?;
        general_name(&mut fields)?;
        end(fields)
    };
    for tag in [0xa0, 0xa1] {
        if let Some(subtrees) = optional(&mut fields, tag) {
            each(subtrees, subtree)?;
        }
    }
    end(fields)
}

fn distribution_point(points: &mut &[u8]) -> Option<()> {
    let mut fields = der::next(points, SEQUENCE)?;
    if let Some(mut name) = optional(&mut fields, 0xa0) {
        // Go refuses points that are named relative to their issuer.
        each(der::next(&mut name, 0xa0)?, general_name)?;
        end(name)?;
    }
    in_order(fields, &[0x81, 0xa2])
}

/// Elements of these tags, each at most once and in this order, and nothing else.
fn in_order(mut fields: &[u8], tags: &[u8]) -> Option<()> {
    for tag in tags {
        optional(&mut fields, *tag);
    }
    end(fields)
}

fn optional<'a>(fields: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    der::next(fields, tag)
}

fn each(mut body: &[u8], element: impl Fn(&mut &[u8]) -> Option<()>) -> Option<()> {
    while !body.is_empty() {
        element(&mut body)?;
    }
    Some(())
}

fn end(rest: &[u8]) -> Option<()> {
    rest.is_empty().then_some(())
}

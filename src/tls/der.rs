//! The encoding rules below certificates and keys, as strictly as Go's parser holds them.
//!
//! `x509-parser` reads some encodings that Go refuses (lengths and integers with needless bytes,
//! letters that a string type does not have). A certificate that only one of the two can read
//! must not reach the router, so it is checked here first.

#[derive(Clone, Copy)]
pub(super) struct Element<'a> {
    pub(super) tag: u8,
    pub(super) body: &'a [u8],
}

pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const OBJECT_IDENTIFIER: u8 = 0x06;
pub(super) const SEQUENCE: u8 = 0x30;
const CONSTRUCTED: u8 = 0x20;
const CONTEXT: u8 = 0x80;

/// Deeper than any certificate, shallow enough for every stack.
const DEEPEST: usize = 32;

/// The first element of the input and what follows it.
pub(super) fn read(input: &[u8]) -> Option<(Element<'_>, &[u8])> {
    let (&tag, rest) = input.split_first()?;
    // Tag numbers over 30 take more bytes; neither certificates nor keys have them.
    if tag & 0x1f == 0x1f {
        return None;
    }
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => long_length(rest, usize::from(first & 0x7f))?,
        _ => return None,
    };
    let (body, rest) = rest.split_at_checked(length)?;
    Some((Element { tag, body }, rest))
}

fn long_length(input: &[u8], bytes: usize) -> Option<(usize, &[u8])> {
    let (digits, rest) = input.split_at_checked(bytes)?;
    let length = digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit));
    let needs_all_bytes = digits.first() != Some(&0) && length > 0x7f;
    needs_all_bytes.then_some((length, rest))
}

/// The input as one element of this tag, with nothing after it.
pub(super) fn only(input: &[u8], tag: u8) -> Option<&[u8]> {
    let (element, rest) = read(input)?;
    (element.tag == tag && rest.is_empty()).then_some(element.body)
}

/// The next element, which must have this tag; the input moves past it.
pub(super) fn next<'a>(input: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    let (element, rest) = read(input)?;
    (element.tag == tag).then(|| {
        *input = rest;
        element.body
    })
}

/// The bits of a positive integer's body without leading zeros: how sizes of keys are counted.
pub(super) fn bits(integer: &[u8]) -> usize {
    let digits = without_leading_zeros(integer);
    digits.first().map_or(0, |first| digits.len() * 8 - first.leading_zeros() as usize)
}

pub(super) fn without_leading_zeros(digits: &[u8]) -> &[u8] {
    let start = digits.iter().position(|digit| *digit != 0);
    start.map_or(&[], |start| &digits[start..])
}

/// Which elements are looked into.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Inside {
    /// A certificate: everything, and strings must be of a type that a name can have.
    Certificate,
    /// An extension or a key: everything.
    Everything,
    /// Alternative names: not the forms that Go skips (other names, directory names).
    Names,
}

/// Whether the input is a sequence of elements that Go's parser would take.
pub(super) fn is_strict(input: &[u8], inside: Inside) -> bool {
    is_strict_at(input, inside, 0)
}

fn is_strict_at(mut input: &[u8], inside: Inside, depth: usize) -> bool {
    while !input.is_empty() {
        let Some((element, rest)) = read(input) else { return false };
        let opaque = inside == Inside::Names && element.tag & CONTEXT != 0;
        let fine = if element.tag & CONSTRUCTED != 0 {
            opaque || (depth < DEEPEST && is_strict_at(element.body, inside, depth + 1))
        } else {
            is_strict_value(element, inside)
        };
        if !fine {
            return false;
        }
        input = rest;
    }
    true
}

fn is_strict_value(Element { tag, body }: Element<'_>, inside: Inside) -> bool {
    match tag {
        0x01 => matches!(body, [0x00 | 0xff]),
        INTEGER => is_shortest_integer(body),
        BIT_STRING => is_bit_string(body),
        0x05 => body.is_empty(),
        OBJECT_IDENTIFIER => is_object_identifier(body),
        0x0c => std::str::from_utf8(body).is_ok(),
        0x12 => body.iter().all(|b| b.is_ascii_digit() || *b == b' '),
        0x13 => body.iter().all(|b| is_printable(*b)),
        0x16 => body.is_ascii(),
        // RFC 5280: to the second, in UTC.
        0x17 => is_time(body, 12),
        0x18 => is_time(body, 14),
        0x1e => is_bmp_string(body),
        0x15 | 0x19..=0x1d => inside != Inside::Certificate,
        // SEQUENCE and SET without the bit that says that they have elements.
        0x10 | 0x11 => false,
        _ => true,
    }
}

pub(super) fn is_shortest_integer(body: &[u8]) -> bool {
    match body {
        [] => false,
        [_] => true,
        [0x00, next, ..] => next & 0x80 != 0,
        [0xff, next, ..] => next & 0x80 == 0,
        _ => true,
    }
}

fn is_bit_string(body: &[u8]) -> bool {
    match body {
        [0] => true,
        [unused @ 0..=7, .., last] => last.trailing_zeros() >= u32::from(*unused),
        _ => false,
    }
}

/// Go keeps each number of an identifier in 31 bits and refuses those that need more.
fn is_object_identifier(body: &[u8]) -> bool {
    let mut number = 0u64;
    is_long_identifier(body)
        && body.iter().all(|byte| {
            number = number << 7 | u64::from(byte & 0x7f);
            let fits = number <= i32::MAX as u64;
            if byte & 0x80 == 0 {
                number = 0;
            }
            fits
        })
}

/// An identifier with numbers of any size, as Go takes it where it names a policy.
pub(super) fn is_long_identifier(body: &[u8]) -> bool {
    // No number begins with needless zeros, and the last one is complete.
    let mut numbers = body.split_inclusive(|byte| byte & 0x80 == 0);
    numbers.all(|number| !number.starts_with(&[0x80]))
        && body.last().is_some_and(|last| last & 0x80 == 0)
}

fn is_printable(byte: u8) -> bool {
    // `*` and `&` are not in the standard's set, but Go and everyone else take them.
    byte.is_ascii_alphanumeric() || b" '()+,-./:=?*&".contains(&byte)
}

fn is_bmp_string(body: &[u8]) -> bool {
    body.len().is_multiple_of(2)
        && body.chunks_exact(2).all(|pair| {
            let point = u16::from_be_bytes([pair[0], pair[1]]);
            !matches!(point, 0xfffe | 0xffff | 0xfdd0..=0xfdef | 0xd800..=0xdfff)
        })
}

fn is_time(body: &[u8], digits: usize) -> bool {
    matches!(body.split_last(), Some((b'Z', rest)) if rest.len() == digits && rest.iter().all(u8::is_ascii_digit))
}

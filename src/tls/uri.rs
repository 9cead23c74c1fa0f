//! Host names and URIs inside certificates: those that Go's `crypto/x509` and `net/url` accept.
//!
//! The router refuses a Route for a certificate that Go can't parse, and Go parses every URI among
//! the alternative names. No library is used because none accepts the same URIs.

use std::net::Ipv6Addr;

/// Where a URI leads: what follows `//`, without user and password, percent-decoded. Empty if the
/// URI has none. `None` if Go refuses the URI.
pub(super) fn host(uri: &str) -> Option<Vec<u8>> {
    let (uri, fragment) = uri.split_once('#').unwrap_or((uri, ""));
    if uri.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return None;
    }
    unescape(fragment, Part::Other)?;
    let (scheme, rest) = scheme(uri)?;
    let rest = rest.split_once('?').map_or(rest, |(rest, _)| rest);
    if !rest.starts_with('/') {
        return match scheme {
            // `scheme:opaque` is not looked into.
            Some(_) => Some(Vec::new()),
            // A relative path must not look like one with a scheme.
            None if rest.split('/').next()?.contains(':') => None,
            None => unescape(rest, Part::Other).map(|_| Vec::new()),
        };
    }
    let authority =
        rest.strip_prefix("//").filter(|_| scheme.is_some() || !rest.starts_with("///"));
    let Some(authority) = authority else {
        return unescape(rest, Part::Other).map(|_| Vec::new());
    };
    let (authority, path) = match authority.find('/') {
        Some(at) => authority.split_at(at),
        None => (authority, ""),
    };
    unescape(path, Part::Other)?;
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let user_is_fine = user.bytes().all(|b| is_alphanumeric_or(b, b"-._:~!$&'()*+,;=%@"));
    unescape(user, Part::Other).filter(|_| user_is_fine)?;
    host_and_port(scheme.unwrap_or_default(), host)
}

/// The scheme before the first colon, if there is one, and what follows.
fn scheme(uri: &str) -> Option<(Option<&str>, &str)> {
    let end = uri.bytes().position(|b| !is_alphanumeric_or(b, b"+-."));
    match end {
        Some(0) if uri.starts_with(':') => None,
        Some(end) if uri.as_bytes()[end] == b':' && uri.as_bytes()[0].is_ascii_alphabetic() => {
            Some((Some(&uri[..end]), &uri[end + 1..]))
        }
        _ => Some((None, uri)),
    }
}

fn host_and_port(scheme: &str, host: &str) -> Option<Vec<u8>> {
    match host.rfind('[') {
        Some(0) => return address_and_port(host),
        Some(_) => return None,
        None => {}
    }
    // Of http and https Go takes one colon only; elsewhere lists such as `a:1,b:2` are in use.
    let web = ["http", "https"].iter().any(|known| known.eq_ignore_ascii_case(scheme));
    let colon = if web { host.find(':') } else { host.rfind(':') };
    if colon.is_some_and(|colon| !is_port(&host[colon..])) {
        return None;
    }
    unescape(host, Part::Host)
}

/// `[::1]`, with a zone after `%25` and a port after the bracket if there are any.
fn address_and_port(host: &str) -> Option<Vec<u8>> {
    let (address, port) = host.strip_prefix('[')?.rsplit_once(']')?;
    if !is_port(port) {
        return None;
    }
    let (address, zone) = match address.find("%25") {
        Some(at) => (unescape(&address[..at], Part::Host)?, unescape(&address[at..], Part::Zone)?),
        None => (unescape(address, Part::Host)?, Vec::new()),
    };
    std::str::from_utf8(&address).ok()?.parse::<Ipv6Addr>().ok()?;
    // `%` alone is no zone.
    (zone.len() != 1).then(|| [b"[", &address[..], &zone, b"]", port.as_bytes()].concat())
}

fn is_port(text: &str) -> bool {
    let digits = text.strip_prefix(':');
    text.is_empty() || digits.is_some_and(|it| it.bytes().all(|b| b.is_ascii_digit()))
}

/// The parts of a URI in which percent signs mean different things.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Only what is not ASCII may be escaped, and the percent sign itself.
    Host,
    /// Only what may stand in a host anyway may be escaped, and a space.
    Zone,
    /// Everything may be escaped.
    Other,
}

/// The text without escapes; `None` if Go refuses it.
fn unescape(text: &str, part: Part) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut plain = Vec::new();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            let fine = part == Part::Other || is_host_byte(byte);
            plain.push(fine.then_some(byte)?);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        let escaped = u8::try_from(digit()? << 4 | digit()?).ok()?;
        let fine = match part {
            Part::Host => escaped >= 0x80 || escaped == b'%',
            Part::Zone => is_host_byte(escaped) || matches!(escaped, b'%' | b' '),
            Part::Other => true,
        };
        plain.push(fine.then_some(escaped)?);
    }
    Some(plain)
}

fn is_host_byte(byte: u8) -> bool {
    is_alphanumeric_or(byte, b"-_.~!$&'()*+,;=:[]<>\"")
}

fn is_alphanumeric_or(byte: u8, others: &[u8]) -> bool {
    byte.is_ascii_alphanumeric() || others.contains(&byte)
}

/// Whether Go accepts a URI among the alternative names.
pub(super) fn is_accepted(uri: &str) -> bool {
    uri.is_ascii() && host(uri).is_some_and(|host| is_domain(&host))
}

/// Whether Go takes a text for a host name: no empty label, nothing but visible ASCII. An empty
/// text is one.
pub(super) fn is_domain(name: &[u8]) -> bool {
    let label_is_fine = |label: &[u8]| !label.is_empty() && label.iter().all(u8::is_ascii_graphic);
    name.is_empty() || name.split(|byte| *byte == b'.').all(label_is_fine)
}

/// The same in a constraint, where a leading dot stands for everything below.
pub(super) fn is_constraint(name: &[u8]) -> bool {
    let below = name.strip_prefix(b".");
    is_domain(below.unwrap_or(name)) && below.is_none_or(|below| !below.is_empty())
}

/// Narrower than Go: a mailbox without quotes and escapes.
pub(super) fn is_mailbox(text: &str) -> bool {
    let Some((local, domain)) = text.split_once('@') else { return false };
    let atom_is_fine = |atom: &str| {
        !atom.is_empty() && atom.bytes().all(|b| is_alphanumeric_or(b, b"!#$%&'*+-/=?^_`{|}~"))
    };
    local.split('.').all(atom_is_fine) && !domain.is_empty() && is_domain(domain.as_bytes())
}

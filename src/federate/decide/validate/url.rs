//! URLs of endpoints, directories and issuers.

use http::Uri;

use super::Problem;

pub fn issuer_problem(text: &str) -> Option<Problem> {
    let why = match https_url(text) {
        Err(why) => why.to_string(),
        Ok(_) if text.contains('?') => "it must have no query (?...)".to_owned(),
        Ok(_) => return None,
    };
    Some(Problem::new("spec.jwtIssuer", why))
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    #[error("it is not a URL")]
    NotAUrl,
    #[error("it must begin with https://")]
    NotHttps,
    #[error("it must not carry a user name or password")]
    UserInfo,
    /// `https:///path`, or characters that no host has.
    #[error("it names no host")]
    NoHost,
    /// SPIRE and we would convert other letters by different versions of Unicode's tables, so the ASCII form
    /// is required.
    #[error(
        "its host must be in ASCII, as DNS has it: write xn--bcher-kva.example for b\u{fc}cher.example"
    )]
    NotAscii,
    #[error("its port is not a number from 1 to 65535")]
    Port,
    #[error("it must not have a fragment (#...)")]
    Fragment,
}

pub fn https_url(text: &str) -> Result<Uri, UrlError> {
    if !text.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://")) {
        return Err(UrlError::NotHttps);
    }
    if text.contains('#') {
        return Err(UrlError::Fragment);
    }
    let authority = text[8..].split(['/', '?']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err(UrlError::UserInfo);
    }
    let (host, port) = host_and_port(authority);
    if port.is_some_and(|port| !is_port(port)) {
        return Err(UrlError::Port);
    }
    let is_address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let is_address = is_address.is_some_and(|inner| inner.parse::<std::net::Ipv6Addr>().is_ok());
    if !host.is_ascii() {
        return Err(UrlError::NotAscii);
    }
    if !is_address && !is_name(host) {
        return Err(UrlError::NoHost);
    }
    // Go, and so the SPIRE server, refuses wrong escapes.
    let mut escapes = text.split('%').skip(1).map(|rest| rest.as_bytes());
    if escapes.any(|rest| rest.len() < 2 || !rest[..2].iter().all(u8::is_ascii_hexdigit)) {
        return Err(UrlError::NotAUrl);
    }
    text.parse().map_err(|_| UrlError::NotAUrl)
}

fn host_and_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        // The colons of an IPv6 address are in brackets.
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    }
}

fn is_port(text: &str) -> bool {
    // Rust also accepts a sign.
    text.bytes().all(|c| c.is_ascii_digit()) && text.parse::<u16>().is_ok_and(|port| port > 0)
}

/// The host of a URL may end in a dot: then DNS tries no other domain.
fn is_name(text: &str) -> bool {
    text.len() <= 253 && is_host(text.strip_suffix('.').unwrap_or(text))
}

/// A DNS name, or an IPv4 address, which has the same form.
pub fn is_host(text: &str) -> bool {
    let label = |label: &str| {
        let inner = |c: u8| c.is_ascii_alphanumeric() || c == b'-';
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    !text.is_empty() && text.len() <= 253 && text.split('.').all(label)
}

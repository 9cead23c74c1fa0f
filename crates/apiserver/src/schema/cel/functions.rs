//! The functions of Kubernetes' rules that the crate `cel` lacks: URLs and durations.
//!
//! A URL is read as Go's `url.ParseRequestURI` reads it, as far as scheme, host and port go.

use std::{any::Any, cmp::Ordering};

use cel::{
    DeclarationError, Env, ExecutionError, add_member_overload, add_overload,
    common::{
        traits::Comparer,
        types::{CelBool, CelString, Type},
        value::{StaticVal, Val},
    },
};

pub(super) fn register(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_type(URL.to_owned())?;
    env.add_type(SPAN.to_owned())?;
    add_overload!(env, fn is_url: (CelString) -> CelBool, name = "isURL")?;
    add_overload!(env, fn url: (CelString) -> Result<Url>)?;
    add_member_overload!(env, fn get_scheme: (Url) -> CelString)?;
    add_member_overload!(env, fn get_host: (Url) -> CelString)?;
    add_member_overload!(env, fn get_hostname: (Url) -> CelString)?;
    add_member_overload!(env, fn get_port: (Url) -> CelString)?;
    add_overload!(env, fn duration: (CelString) -> Result<Span>)
}

static URL: Type = Type::new_unspecified_type("kubernetes.URL");
static SPAN: Type = Type::new_unspecified_type("google.protobuf.Duration");

/// The parts of a URL that rules use.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Url {
    scheme: String,
    /// With the port.
    host: String,
}

impl Url {
    fn parse(text: &str) -> Option<Self> {
        if text.is_empty() || text.bytes().any(|c| c < 0x20 || c == 0x7f) {
            return None;
        }
        let (scheme, rest) = scheme(text)?;
        if !rest.starts_with('/') {
            let opaque = !scheme.is_empty() || text == "*";
            return opaque.then(|| Self { scheme, host: String::new() });
        }
        let before_query = rest.split('?').next().unwrap_or_default();
        let authority = before_query.strip_prefix("//").filter(|_| !scheme.is_empty());
        let (authority, path) = match authority {
            Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
            None => ("", before_query),
        };
        let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        let whole =
            has_whole_escapes(path) && has_whole_escapes(user) && is_user(user) && is_host(host);
        whole.then(|| Self { scheme, host: host.to_owned() })
    }

    fn colon_before_port(&self) -> Option<usize> {
        self.host.rfind(':').filter(|&at| !self.host[at..].contains(']'))
    }
}

/// The scheme in lower case, and the rest after its colon.
fn scheme(text: &str) -> Option<(String, &str)> {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c)));
    match end.map(|end| (end, &text[end..])) {
        Some((0, rest)) if rest.starts_with(':') => None,
        Some((end, rest))
            if rest.starts_with(':') && text.starts_with(|c: char| c.is_ascii_alphabetic()) =>
        {
            Some((text[..end].to_ascii_lowercase(), &rest[1..]))
        }
        _ => Some((String::new(), text)),
    }
}

fn has_whole_escapes(text: &str) -> bool {
    let mut escapes = text.split('%').skip(1).map(str::as_bytes);
    escapes.all(|rest| rest.len() >= 2 && rest[..2].iter().all(u8::is_ascii_hexdigit))
}

fn is_user(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c))
}

fn is_host(text: &str) -> bool {
    let port = match (text.strip_prefix('['), text.rfind(':')) {
        (Some(rest), _) => match rest.rsplit_once(']') {
            Some((_, port)) => port,
            None => return false,
        },
        (None, Some(colon)) => &text[colon..],
        (None, None) => "",
    };
    let is_port = port.is_empty()
        || port.strip_prefix(':').is_some_and(|port| port.bytes().all(|c| c.is_ascii_digit()));
    let may_stand = |c: char| {
        !c.is_ascii() || c.is_ascii_alphanumeric() || "-_.~!$&'()*+,;=:[]<>\"".contains(c)
    };
    is_port && text.chars().all(may_stand)
}

fn is_url(text: &CelString<'_>) -> CelBool {
    Url::parse(text.inner()).is_some().into()
}

fn url(text: &CelString<'_>) -> Result<Url, ExecutionError> {
    Url::parse(text.inner()).ok_or_else(|| ExecutionError::function_error("url", "not a URL"))
}

fn get_scheme(url: &Url) -> CelString<'static> {
    url.scheme.clone().into()
}

fn get_host(url: &Url) -> CelString<'static> {
    url.host.clone().into()
}

fn get_hostname(url: &Url) -> CelString<'static> {
    let host = &url.host[..url.colon_before_port().unwrap_or(url.host.len())];
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    inner.unwrap_or(host).to_owned().into()
}

fn get_port(url: &Url) -> CelString<'static> {
    url.colon_before_port().map_or("", |at| &url.host[at + 1..]).to_owned().into()
}

/// A duration, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span(i64);

impl Span {
    /// As Go reads it.
    fn parse(text: &str) -> Option<Self> {
        let (negative, mut rest) = match text.strip_prefix(['+', '-']) {
            Some(rest) => (text.starts_with('-'), rest),
            None => (false, text),
        };
        if rest == "0" {
            return Some(Self(0));
        }
        let mut sum: i128 = 0;
        while !rest.is_empty() || sum == 0 && text.is_empty() {
            let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
            let (number, after) = rest.split_at(digits);
            let unit = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
            let (unit, after) = after.split_at(unit);
            sum = sum.checked_add(nanoseconds(number, unit)?)?;
            rest = after;
        }
        let sum = if negative { -sum } else { sum };
        (!text.is_empty()).then(|| i64::try_from(sum).ok().map(Self)).flatten()
    }
}

fn nanoseconds(number: &str, unit: &str) -> Option<i128> {
    let unit: i128 = match unit {
        "ns" => 1,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    format!("{whole}{fraction}").parse::<i128>().ok()?.checked_mul(unit).map(|sum| sum / scale)
}

fn duration(text: &CelString<'_>) -> Result<Span, ExecutionError> {
    let why = || ExecutionError::function_error("duration", "not a duration");
    Span::parse(text.inner()).ok_or_else(why)
}

impl Comparer for Span {
    fn compare(&self, other: &dyn Val) -> Result<Ordering, ExecutionError> {
        let other = other.downcast_ref::<Self>();
        let why = || ExecutionError::function_error("duration", "compared with something else");
        other.map(|other| self.0.cmp(&other.0)).ok_or_else(why)
    }
}

impl Val for Span {
    fn get_type(&self) -> &Type {
        &SPAN
    }
    fn cel_type() -> &'static Type {
        &SPAN
    }
    fn as_comparer(&self) -> Option<&dyn Comparer> {
        Some(self)
    }
    fn equals(&self, other: &dyn Val) -> bool {
        other.downcast_ref::<Self>() == Some(self)
    }
    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(*self)
    }
    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl StaticVal for Span {}

impl Val for Url {
    fn get_type(&self) -> &Type {
        &URL
    }
    fn cel_type() -> &'static Type {
        &URL
    }
    fn equals(&self, other: &dyn Val) -> bool {
        other.downcast_ref::<Self>() == Some(self)
    }
    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(self.clone())
    }
    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl StaticVal for Url {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_read_as_go_reads_it() {
        let read = |text: &str| {
            Url::parse(text).map(|url| {
                let text = |it: CelString<'static>| it.inner().to_owned();
                (url.scheme.clone(), text(get_hostname(&url)), text(get_port(&url)))
            })
        };
        let parts = |scheme: &str, host: &str, port: &str| {
            Some((scheme.to_owned(), host.to_owned(), port.to_owned()))
        };
        assert_eq!(read("https://b.example:8443/x?y=@#"), parts("https", "b.example", "8443"));
        assert_eq!(read("HTTPS://u:p@[2001:db8::1]:1"), parts("https", "2001:db8::1", "1"));
        assert_eq!(read("https://[2001:db8::1]"), parts("https", "2001:db8::1", ""));
        assert_eq!(read("https:///x"), parts("https", "", ""));
        assert_eq!(read("https://b:"), parts("https", "b", ""));
        assert_eq!(read("/path"), parts("", "", ""));
        assert_eq!(read("https:b"), parts("https", "", ""));
        for no_url in ["", "b.example", ":x", "https://b c", "https://b:x", "https://b/%zz", "a\nb"]
        {
            assert_eq!(read(no_url), None, "{no_url}");
        }
    }

    #[test]
    fn a_duration_is_read_as_go_reads_it() {
        let seconds = |text: &str| Span::parse(text).map(|span| span.0 as f64 / 1e9);
        assert_eq!(seconds("1h30m"), Some(5400.0));
        assert_eq!(seconds("1.5h"), Some(5400.0));
        assert_eq!(seconds("-90s"), Some(-90.0));
        assert_eq!(seconds("0"), Some(0.0));
        for no_duration in ["", "1", "1d", "h", "1h 30m", "3000000h", "."] {
            assert_eq!(seconds(no_duration), None, "{no_duration}");
        }
    }
}

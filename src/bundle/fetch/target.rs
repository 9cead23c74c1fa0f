//! The URL of an endpoint, and where a redirect from it leads.

use http::{Uri, uri::Scheme};
use rustls::pki_types::ServerName;

use super::error::{UrlError, quoted};

/// Longer paths are not shown.
const SHOWN: usize = 200;

pub(super) struct Target {
    /// Without the brackets of an IPv6 address. With a final dot: then DNS tries no other domain.
    pub(super) host: String,
    pub(super) port: u16,
    /// Sent as SNI, and verified with https_web. Without a final dot, which neither SNI nor certificates
    /// have.
    pub(super) name: ServerName<'static>,
    /// Host and port as in the URL.
    pub(super) authority: String,
    /// With the query.
    pub(super) path: String,
}

impl Target {
    pub(super) fn of(url: &Uri) -> Result<Self, UrlError> {
        if url.scheme() != Some(&Scheme::HTTPS) {
            return Err(UrlError::NotHttps);
        }
        let authority = url.authority().ok_or(UrlError::Host)?;
        if authority.as_str().contains('@') {
            return Err(UrlError::UserInfo);
        }
        let host = authority.host();
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let relative = host.strip_suffix('.').unwrap_or(host);
        let name = ServerName::try_from(relative.to_owned()).ok();
        let name = name.filter(|_| !relative.ends_with('.')).ok_or(UrlError::Host)?;
        Ok(Self {
            host: host.to_owned(),
            port: url.port_u16().unwrap_or(443),
            name,
            authority: authority.to_string(),
            path: url.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
        })
    }
}

/// Resolves a redirect's location, which may be relative.
pub(super) fn redirected(from: &Uri, location: &str) -> Option<Uri> {
    let location = location.split('#').next().filter(|location| !location.is_empty())?;
    let authority = from.authority()?;
    let is_absolute = location.split(['/', '?']).next().is_some_and(|head| head.contains(':'));
    let text = if is_absolute {
        location.to_owned()
    } else if let Some(elsewhere) = location.strip_prefix("//") {
        format!("https://{elsewhere}")
    } else if location.starts_with('/') {
        format!("https://{authority}{location}")
    } else if location.starts_with('?') {
        format!("https://{authority}{}{location}", from.path())
    } else {
        let folder = from.path().rsplit_once('/').map_or("", |(folder, _)| folder);
        format!("https://{authority}{folder}/{location}")
    };
    text.parse().ok()
}

/// For people. Without user and query, which may be secret.
pub(super) fn shown(url: &Uri) -> String {
    let place = url.authority().map(|authority| authority.as_str()).unwrap_or_default();
    let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
    let path = if url.path().len() <= SHOWN { url.path() } else { "/..." };
    format!("{}://{}{path}", url.scheme_str().unwrap_or_default(), quoted(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(url: &str) -> Result<Target, UrlError> {
        Target::of(&url.parse().unwrap())
    }

    #[test]
    fn an_endpoint_is_https_and_has_no_user() {
        let target = of("https://td-b.test/bundle?x=y").unwrap();
        assert_eq!((&*target.host, target.port, &*target.path), ("td-b.test", 443, "/bundle?x=y"));
        assert_eq!(of("https://[::1]:8443").unwrap().host, "::1");
        assert_eq!(of("http://td-b.test/").err(), Some(UrlError::NotHttps));
        assert_eq!(of("/bundle").err(), Some(UrlError::NotHttps));
        assert_eq!(of("https://me@td-b.test/").err(), Some(UrlError::UserInfo));
        assert_eq!(of("https://me:secret@td-b.test/").err(), Some(UrlError::UserInfo));
        assert_eq!(of("https://a..b/").err(), Some(UrlError::Host));
        assert_eq!(of("https://b../").err(), Some(UrlError::Host));
    }

    #[test]
    fn a_full_stop_at_the_end_of_a_host_is_for_dns_and_not_for_certificates() {
        let target = of("https://b.example.:8443/").unwrap();
        assert_eq!((&*target.host, &*target.authority), ("b.example.", "b.example.:8443"));
        assert_eq!(target.name.to_str(), "b.example");
    }

    #[test]
    fn a_redirect_leads_where_a_browser_would_go() {
        let from: Uri = "https://td-b.test:8443/a/b?q".parse().unwrap();
        for (location, target) in [
            ("https://td-c.test/x", Some("https://td-c.test/x")),
            ("http://td-c.test/x", Some("http://td-c.test/x")),
            ("//td-c.test/x", Some("https://td-c.test/x")),
            ("/x?y#z", Some("https://td-b.test:8443/x?y")),
            ("x", Some("https://td-b.test:8443/a/x")),
            ("?y", Some("https://td-b.test:8443/a/b?y")),
            ("", None),
            ("#z", None),
        ] {
            let target = target.map(|target| target.parse().unwrap());
            assert_eq!(redirected(&from, location), target, "{location}");
        }
    }

    #[test]
    fn a_url_is_shown_without_what_may_be_secret() {
        let url = "https://me:secret@td-b.test/x?token=secret".parse().unwrap();
        assert_eq!(shown(&url), "https://td-b.test/x");
    }

    #[test]
    fn a_host_that_is_too_long_to_be_one_is_not_shown_in_full() {
        for host in ["a".repeat(60_000), format!("td-b.test:{}1", "0".repeat(60_000))] {
            let url = format!("https://{host}/x").parse().unwrap();
            let shown = shown(&url);
            assert_eq!(shown, format!("https://{}.../x", &host[..253]), "{} bytes", shown.len());
        }
    }
}

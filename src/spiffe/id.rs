//! The names of SPIFFE: trust domains, and the IDs of what lives in them.
//!
//! Scheme and trust domain are read in any case and kept in lower case, so two names are the same
//! where their texts are. A trust domain may look like a DNS name or an IP address; neither has a
//! meaning here.

use std::fmt;

const SCHEME: &str = "spiffe://";
/// In bytes.
const LONGEST_DOMAIN: usize = 255;
/// In bytes. Every implementation must accept as many, and none may create more.
pub(super) const LONGEST_ID: usize = 2048;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    #[error("a SPIFFE ID begins with spiffe://")]
    Scheme,
    #[error("a trust domain is a bare name such as td.example.org, without a scheme and a path")]
    NotBare,
    #[error("the trust domain is empty")]
    NoTrustDomain,
    #[error("the trust domain has {0} bytes, and may have 255 at most")]
    LongTrustDomain(usize),
    #[error(
        "the trust domain has the character {0:?}, and may only have letters, digits, dots, dashes \
         and underscores"
    )]
    TrustDomainCharacter(char),
    #[error("a user before the trust domain (\"@\") is not allowed")]
    UserInfo,
    #[error("a port after the trust domain (\":\") is not allowed")]
    Port,
    #[error("a query (\"?\") is not allowed")]
    Query,
    #[error("a fragment (\"#\") is not allowed")]
    Fragment,
    #[error("a slash at the end is not allowed")]
    TrailingSlash,
    #[error("the path has an empty segment (\"//\")")]
    EmptySegment,
    #[error("the path has a segment \".\" or \"..\"")]
    DotSegment,
    #[error(
        "the path has the character {0:?}, and may only have letters, digits, dots, dashes and \
         underscores between its slashes"
    )]
    PathCharacter(char),
    #[error("the SPIFFE ID has {0} bytes, and may have 2048 at most")]
    LongId(usize),
}

/// In lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrustDomain(String);

impl TrustDomain {
    /// Parses a bare name, such as `td-a.test`.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        if text.contains('/') {
            return Err(IdError::NotBare);
        }
        if text.is_empty() {
            return Err(IdError::NoTrustDomain);
        }
        if text.contains('@') {
            return Err(IdError::UserInfo);
        }
        if text.contains(':') {
            return Err(IdError::Port);
        }
        if let Some(stranger) = text.chars().find(|&character| !is_plain(character)) {
            return Err(IdError::TrustDomainCharacter(stranger));
        }
        if text.len() > LONGEST_DOMAIN {
            return Err(IdError::LongTrustDomain(text.len()));
        }
        Ok(Self(text.to_ascii_lowercase()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TrustDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The ID of a workload, or of a trust domain itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SpiffeId {
    trust_domain: TrustDomain,
    path: String,
}

impl SpiffeId {
    /// Parses an ID, such as `spiffe://td-a.test/spire/server`.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let rest = match text.get(..SCHEME.len()) {
            Some(scheme) if scheme.eq_ignore_ascii_case(SCHEME) => &text[SCHEME.len()..],
            _ => return Err(IdError::Scheme),
        };
        if text.len() > LONGEST_ID {
            return Err(IdError::LongId(text.len()));
        }
        if rest.contains('#') {
            return Err(IdError::Fragment);
        }
        if rest.contains('?') {
            return Err(IdError::Query);
        }
        let (domain, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let trust_domain = TrustDomain::parse(domain)?;
        check_path(path)?;
        Ok(Self { trust_domain, path: path.to_owned() })
    }

    pub fn trust_domain(&self) -> &TrustDomain {
        &self.trust_domain
    }

    /// With its leading slash; empty for the trust domain itself.
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl fmt::Display for SpiffeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}{}", self.trust_domain, self.path)
    }
}

fn check_path(path: &str) -> Result<(), IdError> {
    let Some(segments) = path.strip_prefix('/') else {
        return Ok(());
    };
    if path.ends_with('/') {
        return Err(IdError::TrailingSlash);
    }
    for segment in segments.split('/') {
        match segment {
            "" => return Err(IdError::EmptySegment),
            "." | ".." => return Err(IdError::DotSegment),
            _ => {}
        }
        if let Some(stranger) = segment.chars().find(|&character| !is_plain(character)) {
            return Err(IdError::PathCharacter(stranger));
        }
    }
    Ok(())
}

fn is_plain(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '.' | '-' | '_')
}

#[cfg(test)]
mod tests;

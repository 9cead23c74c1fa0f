//! Patterns of SPIFFE IDs: which SVIDs may use something.
//!
//! The trust domain is literal. In the path, `*` stands for any text within a segment, also none, and `**`
//! as the last segment for one or more whole segments.

use std::fmt;

use super::id::{IdError, LONGEST_ID, SpiffeId, TrustDomain};

const REST: &str = "**";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error(transparent)]
    Id(#[from] IdError),
    #[error("the trust domain can't have a *: name each trust domain that you trust")]
    TrustDomain,
    #[error("** stands for whole segments, and only as the last one of the path")]
    Rest,
    #[error(
        "the path is missing: an SVID has one. For every SVID of the trust domain end with /**"
    )]
    NoPath,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdPattern {
    trust_domain: TrustDomain,
    segments: Vec<String>,
    /// Whether the path may go on.
    is_open: bool,
}

impl IdPattern {
    /// Parses a pattern, such as `spiffe://td.test/ci/*/deploy`.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        if text.len() > LONGEST_ID {
            return Err(IdError::LongId(text.len()).into());
        }
        let after_scheme = text.find("//").map_or(0, |at| at + 2);
        let domain_end = text[after_scheme..].find('/').map_or(text.len(), |at| after_scheme + at);
        if text[..domain_end].contains('*') {
            return Err(PatternError::TrustDomain);
        }
        // What is left when each star is a letter must be an ID.
        let id = SpiffeId::parse(&text.replace('*', "x"))?;
        let path = text[domain_end..].strip_prefix('/').ok_or(PatternError::NoPath)?;
        let mut segments: Vec<_> = path.split('/').map(str::to_owned).collect();
        let is_open = segments.last().is_some_and(|it| it == REST);
        if is_open {
            segments.pop();
        }
        if segments.iter().any(|it| it.contains(REST)) {
            return Err(PatternError::Rest);
        }
        Ok(Self { trust_domain: id.trust_domain().clone(), segments, is_open })
    }

    pub fn trust_domain(&self) -> &TrustDomain {
        &self.trust_domain
    }

    pub fn matches(&self, id: &SpiffeId) -> bool {
        let Some(path) = id.path().strip_prefix('/') else { return false };
        let found: Vec<_> = path.split('/').collect();
        let is_long_enough = match self.is_open {
            true => found.len() > self.segments.len(),
            false => found.len() == self.segments.len(),
        };
        *id.trust_domain() == self.trust_domain
            && is_long_enough
            && self.segments.iter().zip(found).all(|(pattern, segment)| glob(pattern, segment))
    }
}

impl fmt::Display for IdPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "spiffe://{}", self.trust_domain)?;
        self.segments.iter().try_for_each(|segment| write!(f, "/{segment}"))?;
        match self.is_open {
            true => write!(f, "/{REST}"),
            false => Ok(()),
        }
    }
}

/// Each part between two stars is taken where it comes first, which leaves most for those after it.
fn glob(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(first) else { return false };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    let Some(mut text) = text.strip_suffix(last) else { return false };
    for part in middle.split('*') {
        match text.split_once(part) {
            Some((_, after)) => text = after,
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests;

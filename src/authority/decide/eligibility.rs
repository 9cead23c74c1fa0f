//! Whether a SPIFFEFederation counts for its trust domain.

use crate::{
    api::spiffe_federation::SpiffeFederation, authority::decide::problem::Problem,
    spiffe::id::TrustDomain,
};

/// The trust domain that a federation speaks for. Of several for the same trust domain, the oldest counts,
/// so that nobody takes a trust domain over by naming it a second time.
pub fn trust_domain<'a>(
    federation: &SpiffeFederation,
    all: impl Iterator<Item = &'a SpiffeFederation>,
    own: &TrustDomain,
) -> Result<TrustDomain, Problem> {
    let trust_domain =
        TrustDomain::parse(federation.trust_domain()).map_err(Problem::TrustDomain)?;
    if trust_domain == *own {
        return Err(Problem::OwnTrustDomain);
    }
    let same =
        |it: &&SpiffeFederation| it.trust_domain().eq_ignore_ascii_case(trust_domain.as_str());
    let oldest = all.filter(same).min_by_key(|it| age(it));
    match oldest {
        Some(oldest) if age(oldest) < age(federation) => {
            Err(Problem::Duplicate { of: oldest.name().to_owned() })
        }
        _ => Ok(trust_domain),
    }
}

/// Two of the same second are ordered by name.
fn age(federation: &SpiffeFederation) -> (i64, &str) {
    let created = federation.metadata.creation_timestamp.as_ref();
    (created.map_or(i64::MAX, |it| it.0.as_second()), federation.name())
}

#[cfg(test)]
mod tests;

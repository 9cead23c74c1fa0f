//! A trust domain in memory: its authorities, its bundle, and the SVIDs that the current authority
//! signs.

use base64::{
    Engine,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD},
};
use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use x509_parser::{certificate::X509Certificate, prelude::FromDer};

use crate::{
    demo::authority::{Authority, Issued},
    spiffe::id::{self, IdError, SpiffeId},
};

#[derive(Debug, thiserror::Error)]
pub enum TrustDomainError {
    #[error("not the name of a trust domain or workload")]
    Name(#[from] IdError),
    #[error("cannot make a certificate")]
    Certificate(#[from] rcgen::Error),
}

/// Has no `Debug`, so its keys can't be printed.
pub struct TrustDomain {
    name: String,
    /// All in the bundle, oldest first; at least one.
    authorities: Vec<Authority>,
    /// Index of the one that signs.
    signing: usize,
    /// Whether the authorities were removed from the bundle.
    is_revoked: bool,
    sequence: u64,
    refresh_hint: u64,
}

impl TrustDomain {
    /// Creates a trust domain with one authority. `refresh_hint` is in seconds.
    pub fn new(
        name: &str,
        refresh_hint: u64,
        now: DateTime<Utc>,
    ) -> Result<Self, TrustDomainError> {
        let name = id::TrustDomain::parse(name)?.to_string();
        let authorities = vec![authority(&name, 1, now)?];
        Ok(Self { name, authorities, signing: 0, is_revoked: false, sequence: 1, refresh_hint })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The SPIFFE ID with this path, which starts with a slash.
    pub fn id(&self, path: &str) -> Result<SpiffeId, TrustDomainError> {
        Ok(SpiffeId::parse(&format!("spiffe://{}{path}", self.name))?)
    }

    /// First half of a rotation: adds an authority to the bundle that does not sign yet.
    pub fn prepare_authority(&mut self, now: DateTime<Utc>) -> Result<(), TrustDomainError> {
        self.sequence += 1;
        self.authorities.push(authority(&self.name, self.sequence, now)?);
        Ok(())
    }

    /// Second half: the newest authority signs, and the others leave the bundle.
    pub fn activate_authority(&mut self) {
        self.sequence += 1;
        self.authorities.drain(..self.authorities.len() - 1);
        self.signing = 0;
    }

    /// Removes all authorities from the bundle. The current one goes on signing, as a thief of its
    /// key could.
    pub fn revoke_authorities(&mut self) {
        self.sequence += 1;
        self.is_revoked = true;
    }

    fn published(&self) -> &[Authority] {
        if self.is_revoked { &[] } else { &self.authorities }
    }

    /// An X509-SVID signed by the current authority.
    pub fn svid(&self, path: &str, now: DateTime<Utc>) -> Result<Issued, TrustDomainError> {
        Ok(self.authorities[self.signing].issue_svid(&self.id(path)?, now)?)
    }

    /// The SPIFFE bundle document.
    pub fn document(&self) -> String {
        json!({
            "keys": self.published().iter().map(jwk).collect::<Vec<_>>(),
            "spiffe_sequence": self.sequence,
            "spiffe_refresh_hint": self.refresh_hint,
        })
        .to_string()
    }

    /// The bundle's authorities in PEM.
    pub fn pem(&self) -> String {
        self.published().iter().map(Authority::pem).collect()
    }
}

fn authority(name: &str, number: u64, now: DateTime<Utc>) -> Result<Authority, TrustDomainError> {
    let id = SpiffeId::parse(&format!("spiffe://{name}"))?;
    Ok(Authority::of_trust_domain(&id, &format!("{name} authority {number}"), now)?)
}

/// The same fields as SPIRE writes, including the public key.
fn jwk(authority: &Authority) -> Value {
    let der = authority.der();
    let mut jwk = json!({
        "use": "x509-svid", "kty": "EC", "crv": "P-256", "x5c": [BASE64_STANDARD.encode(der)],
    });
    // An uncompressed P-256 point, as rcgen makes it: a format byte and two coordinates.
    if let Ok((_, read)) = X509Certificate::from_der(der)
        && let [_, point @ ..] = &*read.public_key().subject_public_key.data
    {
        let (x, y) = point.split_at(point.len() / 2);
        jwk["x"] = BASE64_URL_SAFE_NO_PAD.encode(x).into();
        jwk["y"] = BASE64_URL_SAFE_NO_PAD.encode(y).into();
    }
    jwk
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spiffe::{bundle::Bundle, svid};

    fn bundle(domain: &TrustDomain) -> Bundle {
        Bundle::parse(domain.document().as_bytes()).expect("it can be read")
    }

    fn trusts(bundle: &Bundle, domain: &TrustDomain, svid: &Issued) -> bool {
        let id = domain.id("/shop").unwrap();
        svid::verify(std::slice::from_ref(&svid.der), &id, bundle, Utc::now()).is_ok()
    }

    #[test]
    fn an_svid_is_verified_with_the_bundle_before_during_and_after_a_rotation() {
        let mut domain = TrustDomain::new("td-a.test", 60, Utc::now()).unwrap();
        let (old, first) = (domain.svid("/shop", Utc::now()).unwrap(), bundle(&domain));
        assert!(trusts(&first, &domain, &old));

        domain.prepare_authority(Utc::now()).unwrap();
        let both = bundle(&domain);
        assert!(trusts(&first, &domain, &domain.svid("/shop", Utc::now()).unwrap()));
        assert_eq!((both.x509.len(), both.sequence), (2, Some(2)));

        domain.activate_authority();
        let (new, last) = (domain.svid("/shop", Utc::now()).unwrap(), bundle(&domain));
        assert!(!trusts(&first, &domain, &new), "the old bundle knows the new authority");
        assert!(trusts(&both, &domain, &new) && trusts(&both, &domain, &old));
        assert!(trusts(&last, &domain, &new) && !trusts(&last, &domain, &old));
        assert_eq!((last.x509.len(), last.sequence), (1, Some(3)));
        assert!(Bundle::from_pem(&domain.pem()).unwrap().same_keys(&last));
    }

    #[test]
    fn without_its_authorities_a_bundle_verifies_no_svid_and_its_sequence_has_grown() {
        let mut domain = TrustDomain::new("td-a.test", 60, Utc::now()).unwrap();
        domain.revoke_authorities();
        let (svid, empty) = (domain.svid("/shop", Utc::now()).unwrap(), bundle(&domain));
        assert_eq!((empty.x509.len(), empty.sequence), (0, Some(2)));
        assert!(!trusts(&empty, &domain, &svid));
    }

    #[test]
    fn an_invalid_name_makes_no_trust_domain_and_no_svid() {
        assert!(TrustDomain::new("td/a", 60, Utc::now()).is_err());
        let domain = TrustDomain::new("td-a.test", 60, Utc::now()).unwrap();
        assert!(domain.svid("/no/../path", Utc::now()).is_err());
    }
}

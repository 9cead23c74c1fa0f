//! Certificates that were handed out: for the right key and ID, of a CA that signed then, no longer than
//! they may be, and good until they end.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use rustls::pki_types::CertificateDer;
use trustplane::{
    authority::{
        decide::ca::{AuthorityState, Ca, Phase},
        join::{
            messages::{Certs, Role},
            view::LONGEST_SILENCE,
        },
    },
    spiffe::{bundle::Bundle, id::SpiffeId, svid},
};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{A_MOMENT, HOUR, Joins};
use crate::authority::{clients::Attempt, ops::BOT, world::OWN};

impl Joins<'_> {
    pub(super) fn wrong_certificate(
        &self,
        attempt: &Attempt,
        certs: &Certs,
        documents: &[Option<Arc<str>>; 2],
    ) -> Vec<String> {
        let now = self.clock(attempt.replica, attempt.ended);
        let chain: Vec<_> = certs.x509_svid.iter().map(|it| CertificateDer::from(&**it)).collect();
        let (_, leaf) = X509Certificate::from_der(&chain[0]).expect("an SVID");
        let ends = DateTime::from_timestamp(leaf.validity().not_after.timestamp(), 0);
        let ends = ends.expect("a time");
        let mut found = Vec::new();
        if *leaf.public_key().subject_public_key.data != *attempt.join.workload().new_key.bytes() {
            found.push("its certificate is for another key".to_owned());
        }
        let is_name_right = match attempt.join.role() {
            Role::Bot => certs.spiffe_id == format!("spiffe://{OWN}/bot/{BOT}"),
            _ => certs.spiffe_id.starts_with(&format!("spiffe://{OWN}/agent/")),
        };
        if !is_name_right || certs.expires != ends.timestamp() {
            found.push(format!("it was told {} until {}", certs.spiffe_id, certs.expires));
        }
        if ends > now + HOUR.min(self.world.svid_ttl()) {
            found.push(format!("its certificate lives for {}", ends - now));
        }
        let id = SpiffeId::parse(&certs.spiffe_id).expect("a SPIFFE ID");
        let bundles = documents.iter().flatten().map(|it| Bundle::parse(it.as_bytes()));
        let bundles: Vec<_> = bundles.map(|it| it.expect("we serve bundles")).collect();
        // A rotation may come between.
        let is_known = |bundle: &Bundle| svid::verify(&chain, &id, bundle, now).is_ok();
        if !bundles.iter().any(is_known) {
            found.push("its certificate is not verified with the bundle of its server".to_owned());
        }
        found.extend(self.wrong_ca(attempt, &leaf.issuer().to_string(), ends));
        found
    }

    fn wrong_ca(&self, attempt: &Attempt, issuer: &str, ends: DateTime<Utc>) -> Option<String> {
        let of = |state: &AuthorityState| {
            state.cas.iter().find(|ca| issuer.contains(&ca.id[..16])).cloned()
        };
        let Some(ca) = self.past.states.all().flatten().find_map(of) else {
            return Some("its certificate is of no CA of ours".to_owned());
        };
        if ends > ca.not_after {
            return Some("its certificate outlives its CA".to_owned());
        }
        let is_active = |state: &Option<AuthorityState>| {
            state
                .iter()
                .flat_map(|it| &it.cas)
                .any(|it| it.id == ca.id && it.phase == Phase::Active)
        };
        let ended = attempt.ended;
        let since = ended.checked_sub(LONGEST_SILENCE + A_MOMENT).unwrap_or(self.past.start);
        if !self.past.states.during(since, ended).any(is_active) {
            return Some(format!("CA {} signed for it and was not active", ca.id));
        }
        self.is_gone_early(attempt, &ca, ends)
            .then(|| format!("CA {} went before its certificate ended", ca.id))
    }

    /// Nobody asked for it.
    fn is_gone_early(&self, attempt: &Attempt, ca: &Ca, ends: DateTime<Utc>) -> bool {
        let lasts = (ends - TimeDelta::seconds(2) - self.world.time(attempt.ended)).to_std();
        let until = attempt.ended + lasts.unwrap_or_default();
        let is_there = |state: &Option<AuthorityState>| {
            state.iter().flat_map(|it| &it.cas).any(|it| it.id == ca.id)
        };
        let was_revoked = self.past.revoked_at.is_some_and(|at| at <= until);
        !was_revoked && !self.past.states.during(attempt.ended, until).all(is_there)
    }
}

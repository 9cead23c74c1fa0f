use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair, PublicKeyData as _};
use rustls::pki_types::CertificateDer;

use super::*;
use crate::{
    api::join_token::{AllowRule, JoinMethod, JoinTokenSpec, SpiffeRules},
    spiffe::testing::{Ca, bundle, id, noon, svid_params},
};

const WORKLOAD: &str = "spiffe://partner.test/ci/deploy";
const NONCE: [u8; 32] = [7; 32];

/// A join that holds, to be changed by a test.
struct Case {
    ca: Ca,
    params: CertificateParams,
    token: Option<JoinToken>,
    bundle: Option<Bundle>,
    role: Role,
    expires: i64,
    is_request_valid: bool,
    /// What the client took for the server's trust domain.
    signed_for: &'static str,
    signed_nonce: [u8; 32],
    now: DateTime<Utc>,
}

impl Case {
    fn new() -> Self {
        let ca = Ca::new("partner.test");
        Self {
            bundle: Some(bundle(&[&ca])),
            ca,
            params: svid_params(&[WORKLOAD]),
            token: Some(token()),
            role: Role::Bot,
            expires: 0,
            is_request_valid: true,
            signed_for: "ours.test",
            signed_nonce: NONCE,
            now: noon(),
        }
    }

    fn token(mut self, change: impl FnOnce(&mut JoinToken)) -> Self {
        self.token.as_mut().map(change);
        self
    }

    fn judge(&self) -> Result<Grant, Refusal> {
        let key = KeyPair::generate().unwrap();
        let der = self.params.clone().signed_by(&key, &self.ca.0).unwrap().der().clone();
        let chain: [CertificateDer<'_>; 1] = [der];
        let svid = PresentedSvid::read(&chain).unwrap();
        let csr = CertificateParams::default().serialize_request(&key).unwrap();
        let signed = Signed {
            chain: &chain[0],
            csr: csr.der(),
            token: "ci",
            role: 1,
            expires: self.expires,
        };
        let message = challenge::message(self.signed_for, &self.signed_nonce, &signed);
        let signature = rcgen::SigningKey::sign(&key, &message).unwrap();
        let svid_key = svid.key().unwrap();
        assert_eq!(svid_key.bytes(), key.der_bytes());
        let new_key = PublicKey::of_request(csr.der()).unwrap();
        judge(&Facts {
            trust_domain: &TrustDomain::parse("ours.test").unwrap(),
            nonce: &NONCE,
            signature: &signature,
            signed,
            svid: &svid,
            svid_key: &svid_key,
            new_key: Some(&new_key).filter(|_| self.is_request_valid),
            role: self.role,
            token: self.token.as_ref(),
            bundle: self.bundle.as_ref(),
            now: self.now,
        })
    }
}

fn token() -> JoinToken {
    let rule = AllowRule { spiffe_id: "spiffe://partner.test/ci/*".to_owned() };
    let spec = JoinTokenSpec {
        roles: vec![Role::Bot, Role::Agent],
        bot_name: Some("deployer".to_owned()),
        join_method: JoinMethod::Spiffe,
        spiffe: SpiffeRules { allow: vec![rule] },
        expires: None,
        max_uses: None,
    };
    JoinToken { metadata: Default::default(), spec, status: JoinTokenStatus::default() }
}

fn used_by(spiffe_id: &str) -> Use {
    Use { spiffe_id: spiffe_id.to_owned(), first_joined_at: noon() }
}

#[test]
fn an_svid_of_a_federated_trust_domain_joins_under_the_name_of_the_token() {
    let grant = Case::new().judge().unwrap();
    assert_eq!(grant.id, id("spiffe://ours.test/bot/deployer"));
    assert_eq!(grant.not_after, noon() + LONGEST_LIFE);
    assert_eq!(grant.new_use.unwrap().used_by, [used_by(WORKLOAD)]);
}

#[test]
fn an_agent_keeps_its_name_over_renewals() {
    let agent = || Case { role: Role::Agent, ..Case::new() };
    let grant = agent().judge().unwrap();
    assert!(grant.id.path().starts_with("/agent/"), "{}", grant.id);
    assert_eq!(grant.id.path().len(), "/agent/".len() + 36);
    assert_eq!(agent().judge().unwrap().id, grant.id);
    let other = Case { params: svid_params(&["spiffe://partner.test/ci/other"]), ..agent() };
    assert_ne!(other.judge().unwrap().id, grant.id);
}

#[test]
fn a_signature_counts_for_this_server_and_this_nonce_alone() {
    let relayed = Case { signed_for: "evil.test", ..Case::new() };
    assert_eq!(relayed.judge(), Err(Refusal::Signature));
    let replayed = Case { signed_nonce: [8; 32], ..Case::new() };
    assert_eq!(replayed.judge(), Err(Refusal::Signature));
}

#[test]
fn a_request_that_its_key_did_not_sign_is_refused() {
    let case = Case { is_request_valid: false, ..Case::new() };
    assert_eq!(case.judge(), Err(Refusal::Request));
}

#[test]
fn an_svid_counts_within_its_validity() {
    let late = Case { now: noon() + TimeDelta::days(365 * 80), ..Case::new() };
    assert_eq!(late.judge(), Err(Refusal::Svid(SvidError::Expired)));
    let early = Case { now: noon() - TimeDelta::days(365 * 80), ..Case::new() };
    assert_eq!(early.judge(), Err(Refusal::Svid(SvidError::NotYetValid)));
}

#[test]
fn a_token_must_be_there_and_in_time_and_for_the_role() {
    assert_eq!(Case { token: None, ..Case::new() }.judge(), Err(Refusal::NoToken));
    let expired = Case::new().token(|it| it.spec.expires = Some(noon()));
    assert_eq!(expired.judge(), Err(Refusal::TokenExpired));
    let in_time = Case::new().token(|it| it.spec.expires = Some(noon() + TimeDelta::seconds(1)));
    assert!(in_time.judge().is_ok());
    let agents = Case::new().token(|it| it.spec.roles = vec![Role::Agent]);
    assert_eq!(agents.judge(), Err(Refusal::Role));
    let deleted = Case::new().token(|it| {
        it.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Default::default()));
    });
    assert_eq!(deleted.judge(), Err(Refusal::NoToken));
}

#[test]
fn a_spent_token_serves_renewals_alone() {
    let used = |by: &str| {
        let by = used_by(by);
        Case::new().token(|it| {
            it.spec.max_uses = Some(1);
            it.status.used_by = vec![by];
        })
    };
    assert_eq!(used("spiffe://partner.test/ci/other").judge(), Err(Refusal::TokenSpent));
    assert_eq!(used(WORKLOAD).judge().unwrap().new_use, None);
}

#[test]
fn of_a_token_without_end_the_newest_uses_are_noted() {
    let many = (0..MOST_NOTED).map(|number| used_by(&format!("spiffe://partner.test/ci/{number}")));
    let case = Case::new().token(|it| it.status.used_by = many.collect());
    let noted = case.judge().unwrap().new_use.unwrap().used_by;
    assert_eq!(noted.len(), MOST_NOTED);
    assert_eq!(noted[0].spiffe_id, "spiffe://partner.test/ci/1");
    assert_eq!(noted[MOST_NOTED - 1].spiffe_id, WORKLOAD);
}

#[test]
fn a_long_id_is_noted_by_its_digest_and_known_again() {
    let long = format!("spiffe://partner.test/ci/{}", "x".repeat(LONGEST_NOTED));
    let case = |status: JoinTokenStatus| {
        let case = Case { params: svid_params(&[&long]), ..Case::new() };
        case.token(|it| {
            it.spec.max_uses = Some(1);
            it.status = status;
        })
    };
    let status = case(JoinTokenStatus::default()).judge().unwrap().new_use.unwrap();
    assert!(status.used_by[0].spiffe_id.starts_with("sha256:"), "{status:?}");
    assert_eq!(case(status).judge().unwrap().new_use, None);
}

#[test]
fn without_a_federation_or_with_an_empty_bundle_nobody_joins() {
    assert_eq!(Case { bundle: None, ..Case::new() }.judge(), Err(Refusal::NoFederation));
    let empty = Case { bundle: Some(bundle(&[])), ..Case::new() }.judge();
    assert!(matches!(empty, Err(Refusal::Chain(SvidError::NoAuthority(_)))), "{empty:?}");
}

#[test]
fn a_ca_of_another_trust_domain_proves_nothing() {
    let other = Ca::new("partner.test");
    let case = Case { bundle: Some(bundle(&[&other])), ..Case::new() };
    let refused = case.judge();
    assert!(matches!(refused, Err(Refusal::Chain(SvidError::UnknownAuthority(_)))), "{refused:?}");
}

#[test]
fn an_svid_for_servers_alone_is_no_clients() {
    let mut params = svid_params(&[WORKLOAD]);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let case = Case { params, ..Case::new() };
    assert_eq!(case.judge(), Err(Refusal::Chain(SvidError::ExtendedKeyUsage)));
}

#[test]
fn one_rule_must_allow_the_id() {
    for uri in [
        "spiffe://partner.test/ci/a/b",
        "spiffe://partner.test/CI/deploy",
        "spiffe://partner.test/ci",
    ] {
        let case = Case { params: svid_params(&[uri]), ..Case::new() };
        assert_eq!(case.judge(), Err(Refusal::NotAllowed), "{uri}");
    }
    let unreadable = Case::new().token(|it| it.spec.spiffe.allow[0].spiffe_id = "**".to_owned());
    assert_eq!(unreadable.judge(), Err(Refusal::NotAllowed));
}

#[test]
fn an_svid_without_one_spiffe_id_is_refused() {
    for uris in [&[][..], &[WORKLOAD, "spiffe://partner.test/ci/b"], &["spiffe://partner.test"]] {
        let refused = Case { params: svid_params(uris), ..Case::new() }.judge();
        assert!(matches!(refused, Err(Refusal::Svid(_))), "{uris:?}: {refused:?}");
    }
}

#[test]
fn the_client_can_only_shorten_the_life_of_its_certificate() {
    let until = |expires: DateTime<Utc>| {
        let case = Case { expires: expires.timestamp(), ..Case::new() };
        case.judge().map(|it| it.not_after)
    };
    let minute = TimeDelta::minutes(1);
    assert_eq!(until(noon() + minute), Ok(noon() + minute));
    assert_eq!(until(noon() + TimeDelta::days(2)), Ok(noon() + LONGEST_LIFE));
    assert_eq!(until(noon()), Err(Refusal::Ended));
    assert_eq!(Case { expires: i64::MAX, ..Case::new() }.judge(), Err(Refusal::Ended));
    assert_eq!(Case { expires: -1, ..Case::new() }.judge(), Err(Refusal::Ended));
}

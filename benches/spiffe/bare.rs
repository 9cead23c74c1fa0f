//! The bare work of a join: the code of the product without anything around it.

use std::time::Duration;

use anyhow::{Context, ensure};
use chrono::{TimeDelta, Utc};
use rcgen::{CertificateParams, KeyPair};
use testkit::process::Process;
use trustplane::{
    authority::{
        act::signer::Signer as _,
        decide::challenge::{self, NONCE_LENGTH, Signed},
    },
    spiffe::{bundle::Bundle, chain, key::PublicKey, svid::PresentedSvid},
};

use crate::{cluster::OWN, partner::Partner};

/// Processor time to verify a signature, a chain and a request, and to sign a certificate, over and over.
pub async fn seconds(partner: &Partner, each: Duration) -> anyhow::Result<f64> {
    let now = Utc::now();
    let (id, bundle) = (partner.id(0)?, Bundle::parse(partner.document()?.as_bytes())?);
    let svid = partner.svid(0)?.read(now).await?;
    let sent = svid.chain();
    let csr = CertificateParams::default().serialize_request(&KeyPair::generate()?)?;
    let signed = Signed { chain: &sent, csr: csr.der(), token: "bench", role: 2, expires: 0 };
    let message = challenge::message(OWN, &[7; NONCE_LENGTH], &signed);
    let signature = svid.sign(&message)?;
    let once = || {
        let chain = chain::split(&sent).context("a chain")?;
        let svid = PresentedSvid::read(&chain)?;
        ensure!(svid.key()?.has_signed(&message, &signature), "a signature");
        svid.verify(&bundle, now)?;
        let key = PublicKey::of_request(csr.der())?;
        partner.signer.sign_for(&key, &id, TimeDelta::hours(1), now)?;
        Ok(())
    };
    // Nothing else works in this process meanwhile.
    let (before, deadline) = (Process::this().busy()?, std::time::Instant::now() + each);
    let mut times = 0_u32;
    while std::time::Instant::now() < deadline {
        once()?;
        times += 1;
    }
    Ok(Process::this().busy()?.saturating_sub(before).as_secs_f64() / f64::from(times))
}

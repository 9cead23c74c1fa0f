//! Another trust domain, and clients with SVIDs of it.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use chrono::{TimeDelta, Utc};
use testkit::suite;
use trustplane::{
    authority::{
        act::signer::{LocalSigner, Signer, make_ca},
        decide::ca::{self, AuthorityState},
        join::{client::Client, messages::Role, own_svid::SvidSource},
    },
    runtime::clock::Clock,
    spiffe::id::{SpiffeId, TrustDomain},
};

use crate::cluster::OWN;

pub struct Partner {
    trust_domain: &'static str,
    state: AuthorityState,
    pub signer: LocalSigner,
}

impl Partner {
    pub fn new(trust_domain: &'static str) -> anyhow::Result<Self> {
        let now = Utc::now();
        let policy = crate::policy(300)?;
        let made = make_ca(trust_domain, policy.ca_ttl, now)?;
        suite::register_der_key(suite::KeyOf::Ca, &made.key);
        let state = ca::first(trust_domain, made.ca, ca::Before::default(), &policy, now);
        let signer = LocalSigner::new(trust_domain, &state.cas[0], &made.key)?;
        Ok(Self { trust_domain, state, signer })
    }

    pub fn document(&self) -> anyhow::Result<String> {
        Ok(self.state.document()?)
    }

    pub fn id(&self, number: usize) -> anyhow::Result<SpiffeId> {
        Ok(SpiffeId::parse(&format!("spiffe://{}/workload/{number}", self.trust_domain))?)
    }

    /// So many clients of a server, each with an SVID of its own, in files.
    pub fn clients(&self, server: &str, number: usize) -> anyhow::Result<Vec<Client>> {
        (0..number).map(|number| self.client(server, number)).collect()
    }

    fn client(&self, server: &str, number: usize) -> anyhow::Result<Client> {
        Ok(Client {
            server: server.parse().map_err(anyhow::Error::msg)?,
            trust_domain: TrustDomain::parse(OWN)?,
            token: "bench".to_owned(),
            role: Role::Agent,
            node_name: format!("node-{number}"),
            ttl: None,
            source: self.svid(number)?,
            clock: Clock::system(),
        })
    }

    pub fn svid(&self, number: usize) -> anyhow::Result<SvidSource> {
        let issued = self.signer.sign(&self.id(number)?, TimeDelta::hours(12), Utc::now())?;
        let pem = |label: &str, der: &[u8]| {
            let text = STANDARD.encode(der);
            format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
        };
        let folder = suite::subfolder(&format!("svids/{}/{number}", self.trust_domain));
        let (svid, key) = (folder.join("svid.pem"), folder.join("svid_key.pem"));
        let chain: String = issued.chain.iter().map(|it| pem("CERTIFICATE", it)).collect();
        suite::write_private(&svid, &chain);
        suite::write_private(&key, &pem("PRIVATE KEY", issued.key.secret_der()));
        Ok(SvidSource::Files { svid, key })
    }
}

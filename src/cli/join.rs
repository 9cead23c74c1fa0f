//! `trustplane join`, and the flags that it shares with `trustplane agent`.

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, anyhow};
use chrono::SecondsFormat;
use clap::{Args, ValueEnum};
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use serde_json::json;

use crate::{
    authority::{
        join::{
            client::{Client, JoinError, Joined, ServerAddress, ServerTrust},
            messages,
            output_dir::OutputDir,
            own_svid::SvidSource,
        },
        run::Authority,
    },
    cli::{
        cluster::block_on,
        output::{Output, print},
    },
    runtime::{
        clock::Clock,
        controller::Unable,
        flags::at_least_a_second,
        log::{self, LogFormat, Verbosity},
        printable,
    },
    spiffe::{bundle::Bundle, id::TrustDomain},
};

/// Gets an SVID of a trust domain with an SVID of another one that it federates with.
///
/// No secret is shared: the server challenges this command to sign with the key of the SVID. What it gets
/// goes into a folder: svid.pem, svid_key.pem, and bundle.NAME.json for each trust domain that is trusted
/// there. The folder is replaced as a whole; readers that need a matching pair resolve its link ..data once.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Join as the bot of the token \"ci\", with an SVID from files:
    trustplane join --server join.example.org:443 --server-ca ca.pem --trust-domain example.org --token ci --role bot --svid-file svid.pem --svid-key-file svid_key.pem --out identity

  With an SVID from a Workload API, and the server known by its trust domain's bundle:
    trustplane join --server join.example.org:443 --server-bundle bundle.json --trust-domain example.org --token ci --role bot --workload-api unix:///run/spire/agent.sock --out identity

Exit codes: 0 joined, 1 the server refused or something went wrong, 2 nobody was asked: the command line is
wrong, or our own SVID can't be used.")]
pub struct Join {
    #[command(flatten)]
    join: JoinArgs,

    /// What to join as
    #[arg(long, env = "TRUSTPLANE_ROLE", value_enum, value_name = "ROLE")]
    role: Role,

    /// The folder for what we get; it is made if it is not there
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// The output format
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value = "text")]
    output: Output,
}

/// `--role`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Role {
    /// A program with the name that the token gives it
    Bot,
    /// An agent on a machine
    Agent,
}

impl From<Role> for messages::Role {
    fn from(role: Role) -> Self {
        match role {
            Role::Bot => Self::Bot,
            Role::Agent => Self::Agent,
        }
    }
}

/// Whom to join, and with what.
#[derive(Debug, Args)]
pub(super) struct JoinArgs {
    /// The address where trustplane authority listens for joins
    #[arg(long, env = "TRUSTPLANE_JOIN_SERVER", value_name = "HOST:PORT")]
    server: ServerAddress,

    /// The trust domain to join
    #[arg(long, env = "TRUSTPLANE_TRUST_DOMAIN", value_parser = trust_domain, value_name = "NAME")]
    trust_domain: TrustDomain,

    /// The name of a JoinToken there; it is no secret
    #[arg(long, env = "TRUSTPLANE_JOIN_TOKEN", value_name = "NAME")]
    token: String,

    /// The server is known by a certificate that one of the CAs in this file signed (PEM)
    #[arg(
        long,
        env = "TRUSTPLANE_SERVER_CA",
        required_unless_present = "server_bundle",
        conflicts_with = "server_bundle",
        value_name = "PATH"
    )]
    server_ca: Option<PathBuf>,

    /// The server is known by an SVID of the trust domain whose bundle is in this file (JSON or PEM)
    #[arg(long, env = "TRUSTPLANE_SERVER_BUNDLE", value_name = "PATH")]
    server_bundle: Option<PathBuf>,

    /// The SVID that we have, and after it its intermediates (PEM)
    #[arg(
        long,
        env = "TRUSTPLANE_SVID_FILE",
        requires = "svid_key_file",
        required_unless_present = "workload_api",
        value_name = "PATH"
    )]
    svid_file: Option<PathBuf>,

    /// The private key of that SVID (PEM)
    #[arg(long, env = "TRUSTPLANE_SVID_KEY_FILE", requires = "svid_file", value_name = "PATH")]
    svid_key_file: Option<PathBuf>,

    /// Without --svid-file: the Workload API that has our SVID; its key is never on a disk then
    #[arg(long, env = "SPIFFE_ENDPOINT_SOCKET", value_parser = socket, value_name = "unix:///PATH")]
    workload_api: Option<PathBuf>,

    /// The name of this machine in the server's audit log [default: the host name]
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    node_name: Option<String>,

    /// How long the new SVID is valid at most, if the server's own limit is longer
    #[arg(long, env = "TRUSTPLANE_TTL", value_parser = at_least_a_second, value_name = "DURATION")]
    ttl: Option<Duration>,
}

fn trust_domain(text: &str) -> Result<TrustDomain, String> {
    TrustDomain::parse(text).map_err(|error| error.to_string())
}

fn socket(text: &str) -> Result<PathBuf, String> {
    let path = text.strip_prefix("unix://").or_else(|| text.strip_prefix("unix:"));
    match path {
        Some(path) if path.starts_with('/') => Ok(path.into()),
        _ => Err("write it as unix:///PATH, for example unix:///run/spire/agent.sock".to_owned()),
    }
}

impl JoinArgs {
    /// Fails without asking anybody if a file can't be used.
    pub(super) fn client(self, role: Role) -> anyhow::Result<(Client, ServerTrust)> {
        let trust = self.trust().map_err(Unable)?;
        let source = match (self.svid_file, self.svid_key_file, self.workload_api) {
            (Some(svid), Some(key), _) => SvidSource::Files { svid, key },
            (_, _, Some(socket)) => SvidSource::WorkloadApi(socket),
            _ => return Err(Unable(anyhow!("--svid-file or --workload-api is needed")).into()),
        };
        let host = || fs::read_to_string("/proc/sys/kernel/hostname").ok();
        let node_name = self.node_name.filter(|name| !name.is_empty()).or_else(host);
        let client = Client {
            server: self.server,
            trust_domain: self.trust_domain,
            token: self.token,
            role: role.into(),
            node_name: node_name.unwrap_or_default().trim().to_owned(),
            ttl: self.ttl,
            source,
            clock: Clock::system(),
        };
        Ok((client, trust))
    }

    fn trust(&self) -> anyhow::Result<ServerTrust> {
        if let Some(path) = &self.server_bundle {
            let text = fs::read_to_string(path);
            let text = text.with_context(|| format!("cannot read {}", path.display()))?;
            let bundle = match text.trim_start().starts_with('{') {
                true => Bundle::parse(text.as_bytes()),
                false => Bundle::from_pem(&text),
            };
            let bundle = bundle.with_context(|| path.display().to_string())?;
            let id = Authority::endpoint_id(&self.trust_domain);
            let id = id.context("the trust domain's name is too long")?;
            return Ok(ServerTrust::Spiffe { id, bundle: Arc::new(bundle) });
        }
        let path = self.server_ca.as_ref().context("--server-ca or --server-bundle is needed")?;
        let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut roots = RootCertStore::empty();
        for der in CertificateDer::pem_slice_iter(&text) {
            let der = der.map_err(|_| anyhow!("{} is damaged PEM", path.display()))?;
            let added = roots.add(der);
            added.with_context(|| {
                format!("{} holds a certificate that is no CA's", path.display())
            })?;
        }
        match roots.is_empty() {
            true => Err(anyhow!("{} holds no certificate in PEM", path.display())),
            false => Ok(ServerTrust::Web(Arc::new(roots))),
        }
    }
}

impl Join {
    pub fn run(self) -> anyhow::Result<()> {
        log::init(LogFormat::Text, Verbosity::Quiet);
        let (client, trust) = self.join.client(self.role)?;
        let folder = OutputDir::open(&self.out).map_err(|error| Unable(error.into()))?;
        block_on(async {
            let joined = client.join(&trust).await.map_err(|error| match error {
                JoinError::Own(_) => Unable(error.into()).into(),
                error => anyhow!(error),
            })?;
            let files = folder.write(&joined.svid, &joined.bundles)?;
            print(&report(&joined, &files, self.output))
        })
    }
}

fn report(joined: &Joined, files: &[PathBuf], output: Output) -> String {
    let until = joined.svid.not_after.to_rfc3339_opts(SecondsFormat::Secs, true);
    let id = &joined.svid.id;
    let bundles: Vec<_> = joined.bundles.iter().map(|(name, _)| name.to_string()).collect();
    let unusable = &joined.bundles.unusable;
    if output == Output::Json {
        let document = json!({
            "spiffeID": id.to_string(), "expiresAt": until, "trustDomains": bundles,
            "unusableBundles": unusable, "files": files,
        });
        return printable::json(&format!("{document}\n"));
    }
    let mut text = format!("Joined as {id}, until {until}.\nTrusted: {}.\n", bundles.join(", "));
    for (name, why) in unusable {
        text.push_str(&printable::printable(&format!("Not trusted: {name}: {why}")));
        text.push('\n');
    }
    for file in files {
        text.push_str(&format!("  {}\n", printable::printable(&file.display().to_string())));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_api_is_a_unix_socket() {
        assert_eq!(socket("unix:///run/a.sock"), Ok("/run/a.sock".into()));
        assert_eq!(socket("unix:/run/a.sock"), Ok("/run/a.sock".into()));
        for text in ["/run/a.sock", "tcp://127.0.0.1:1", "unix://run/a.sock", "unix:a", ""] {
            assert!(socket(text).is_err(), "{text}");
        }
    }
}

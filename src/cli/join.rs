//! `trustplane join`, and the flags that it shares with `trustplane agent`.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use chrono::SecondsFormat;
use clap::{ArgGroup, Args, ValueEnum};
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
/// there. All of them change at once, and other files in the folder stay; readers that need a matching pair
/// resolve its link ..data once.
/// The SVID is valid for an hour at most. To renew it, run this again; trustplane agent does so by itself.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Join as the bot of the token \"ci\", with an SVID from files:
    trustplane join --server join.example.org:443 --server-bundle bundle.json --trust-domain example.org --token ci --role bot --svid-file svid.pem --svid-key-file svid_key.pem --out identity

  With an SVID from a Workload API, and a server with a certificate of the web:
    trustplane join --server join.example.org:443 --server-ca ca.pem --trust-domain example.org --token ci --role bot --workload-api unix:///run/spire/agent.sock --out identity

Exit codes: 0 joined, 1 the server refused or something went wrong, 2 nobody was asked: the command line is
wrong, or our own SVID can't be used.")]
pub struct Join {
    #[command(flatten)]
    server: ServerArgs,

    /// What to join as
    #[arg(long, env = "TRUSTPLANE_ROLE", value_enum, value_name = "ROLE")]
    role: Role,

    #[command(flatten)]
    svid: SvidArgs,

    /// The folder for what we get; it is made if it is not there
    #[arg(long, env = "TRUSTPLANE_OUT", value_name = "DIR")]
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

/// Whom to join.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("server_identity").required(true).args(["server_bundle", "server_ca"])))]
pub(super) struct ServerArgs {
    /// The address where trustplane authority listens for joins
    #[arg(long, env = "TRUSTPLANE_JOIN_SERVER", value_name = "HOST:PORT")]
    server: ServerAddress,

    /// The server is known by an SVID of the trust domain whose bundle is in this file (JSON or PEM)
    #[arg(long, env = "TRUSTPLANE_SERVER_BUNDLE", value_name = "PATH")]
    server_bundle: Option<PathBuf>,

    /// In place of --server-bundle: the server is known by a certificate that one of the CAs in this file
    /// signed (PEM)
    #[arg(
        long,
        env = "TRUSTPLANE_SERVER_CA",
        conflicts_with = "server_bundle",
        value_name = "PATH"
    )]
    server_ca: Option<PathBuf>,

    /// The trust domain to join
    #[arg(long, env = "TRUSTPLANE_TRUST_DOMAIN", value_parser = trust_domain, value_name = "NAME")]
    trust_domain: TrustDomain,

    /// The name of a JoinToken there; it is no secret
    #[arg(long, env = "TRUSTPLANE_JOIN_TOKEN", value_name = "NAME")]
    token: String,
}

/// What to join with.
#[derive(Debug, Args)]
// Where both are there, for example one as a variable, the files count.
#[command(group(ArgGroup::new("own_svid").required(true).multiple(true).args(["workload_api", "svid_file"])))]
pub(super) struct SvidArgs {
    /// The Workload API that has our own SVID; its key is never on a disk then
    #[arg(
        long,
        env = "SPIFFE_ENDPOINT_SOCKET",
        value_parser = socket,
        value_name = "unix:///PATH"
    )]
    workload_api: Option<PathBuf>,

    /// In place of --workload-api: our own SVID, and after it its intermediates (PEM)
    #[arg(long, env = "TRUSTPLANE_SVID_FILE", requires = "svid_key_file", value_name = "PATH")]
    svid_file: Option<PathBuf>,

    /// The private key of that SVID (PEM)
    #[arg(long, env = "TRUSTPLANE_SVID_KEY_FILE", requires = "svid_file", value_name = "PATH")]
    svid_key_file: Option<PathBuf>,

    /// A shorter life of the new SVID than the server gives it [default: the server's, an hour at most]
    #[arg(long, env = "TRUSTPLANE_TTL", value_parser = at_least_a_second, value_name = "DURATION")]
    ttl: Option<Duration>,

    /// The name of this machine in the server's audit log [default: the host name]
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    node_name: Option<String>,
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

impl ServerArgs {
    /// Fails without asking anybody if a file can't be used.
    pub(super) fn client(
        self,
        role: Role,
        svid: SvidArgs,
    ) -> anyhow::Result<(Client, ServerTrust)> {
        let trust = self.trust().map_err(Unable)?;
        let source = match (svid.svid_file, svid.svid_key_file, svid.workload_api) {
            (Some(svid), Some(key), _) => SvidSource::Files { svid, key },
            (_, _, Some(socket)) => SvidSource::WorkloadApi(socket),
            _ => return Err(Unable(anyhow!("--svid-file or --workload-api is needed")).into()),
        };
        let host = || fs::read_to_string("/proc/sys/kernel/hostname").ok();
        let node_name = svid.node_name.filter(|name| !name.is_empty()).or_else(host);
        let client = Client {
            server: self.server,
            trust_domain: self.trust_domain,
            token: self.token,
            role: role.into(),
            node_name: node_name.unwrap_or_default().trim().to_owned(),
            ttl: svid.ttl,
            source,
            clock: Clock::system(),
        };
        Ok((client, trust))
    }

    fn trust(&self) -> anyhow::Result<ServerTrust> {
        match (&self.server_bundle, &self.server_ca) {
            (Some(path), _) => self.bundle(path).with_context(|| {
                let (path, name) = (path.display(), &self.trust_domain);
                format!("--server-bundle {path} can't be used as the bundle of {name}")
            }),
            (None, Some(path)) => roots(path)
                .map(|roots| ServerTrust::Web(Arc::new(roots)))
                .with_context(|| format!("--server-ca {} can't be used", path.display())),
            (None, None) => Err(anyhow!("--server-bundle or --server-ca is needed")),
        }
    }

    fn bundle(&self, path: &Path) -> anyhow::Result<ServerTrust> {
        let text = fs::read_to_string(path)?;
        let bundle = match text.trim_start().starts_with('{') {
            true => Bundle::parse(text.as_bytes()),
            false => Bundle::from_pem(&text),
        }?;
        let id = Authority::endpoint_id(&self.trust_domain);
        let id = id.context("the trust domain's name is too long")?;
        Ok(ServerTrust::Spiffe { id, bundle: Arc::new(bundle) })
    }
}

fn roots(path: &Path) -> anyhow::Result<RootCertStore> {
    let text = fs::read(path)?;
    let mut roots = RootCertStore::empty();
    for der in CertificateDer::pem_slice_iter(&text) {
        let der = der.map_err(|_| anyhow!("it is damaged PEM"))?;
        roots.add(der).context("it holds a certificate that is no CA's")?;
    }
    match roots.is_empty() {
        true => Err(anyhow!("it holds no certificate in PEM")),
        false => Ok(roots),
    }
}

impl Join {
    pub fn run(self) -> anyhow::Result<()> {
        log::init(LogFormat::Text, Verbosity::Quiet);
        let (client, trust) = self.server.client(self.role, self.svid)?;
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
    use clap::CommandFactory;

    use super::*;
    use crate::cli::{Cli, help};

    #[test]
    fn a_workload_api_is_a_unix_socket() {
        assert_eq!(socket("unix:///run/a.sock"), Ok("/run/a.sock".into()));
        assert_eq!(socket("unix:/run/a.sock"), Ok("/run/a.sock".into()));
        for text in ["/run/a.sock", "tcp://127.0.0.1:1", "unix://run/a.sock", "unix:a", ""] {
            assert!(socket(text).is_err(), "{text}");
        }
    }

    /// What is wrong with a command line.
    fn refused(more: &str) -> String {
        let line = format!(
            "trustplane join --server a:1 --trust-domain td --token t --role bot --out o {more}"
        );
        let command = help::finish(Cli::command(), 100);
        let refused = command.try_get_matches_from(line.split_whitespace());
        refused.err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn how_the_server_is_known_and_what_to_join_with_are_asked_for_and_said_once() {
        let neither = refused("");
        assert!(neither.contains("<--server-bundle <PATH>|--server-ca <PATH>>"), "{neither}");
        let source = "<--workload-api <unix:///PATH>|--svid-file <PATH>>";
        assert!(neither.contains(source), "{neither}");
        let both = refused("--server-bundle b --server-ca c --workload-api unix:///s");
        assert!(both.contains("cannot be used with"), "{both}");
        let keyless = refused("--server-bundle b --svid-file s");
        assert!(keyless.contains("--svid-key-file <PATH>"), "{keyless}");
        assert_eq!(refused("--server-ca c --workload-api unix:///s"), "");
        // A variable names a socket, and files were meant.
        let files = "--svid-file s --svid-key-file k";
        assert_eq!(refused(&format!("--server-ca c --workload-api unix:///s {files}")), "");
    }
}

//! `trustplane spiffe`.

mod import;
mod lag;
mod status;

use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use chrono::{SecondsFormat, Utc};
use clap::{Args, Subcommand};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;

use crate::{
    api::{config_map::ConfigMap, spiffe_federation::SpiffeFederation},
    authority::{
        act::apply::{BUNDLE, VIEW},
        decide::ca::{AuthorityState, Phase},
    },
    cli::{
        cluster::{self, block_on, namespace_name},
        confirm::confirm,
        output::{Output, print},
    },
    k8s::api_error::{self, ApiError},
    names::{
        ACCEPT_ANNOTATION, BUNDLE_CONFIG_MAP, FIELD_MANAGER, REFRESH_ANNOTATION,
        REQUESTS_CONFIG_MAP, REVOKE_ANNOTATION, ROTATE_ANNOTATION,
    },
    runtime::{
        controller::Unable,
        log::{self, LogFormat, Verbosity},
        printable::printable,
    },
};

/// How long a command waits for the authority to carry a request out.
const PATIENCE: Duration = Duration::from_secs(60);
const EVERY: Duration = Duration::from_millis(500);

/// Shows and steers a SPIFFE trust domain and its federations.
///
/// trustplane authority does the work; these commands ask it through the cluster that kubectl uses.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  See our own CAs, every trust domain that we federate with, and who may join:
    trustplane spiffe status

  Fetch a bundle now:
    trustplane spiffe refresh partner.example

  Replace our CA in good order; or at once, because its key was stolen:
    trustplane spiffe rotate
    trustplane spiffe rotate --revoke 5b0c...

  Take Teleport's federations and tokens over:
    trustplane spiffe import federations.yaml --apply

Exit codes: 0 done, 1 something went wrong or is not as it should be, 2 nothing was changed: the command
line is wrong, the cluster could not be read, or the file has faults.")]
pub struct Spiffe {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Status(status::Status),
    Refresh(Refresh),
    Accept(Accept),
    Rotate(Rotate),
    Import(import::Import),
}

/// Fetches the bundle of a SPIFFEFederation now, and waits for the result.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Fetch a bundle now, whatever its refresh hint says:
    trustplane spiffe refresh partner.example

Exit codes: 0 fetched, 1 it could not be fetched, 2 nothing was asked for: there is no such
SPIFFEFederation, or the cluster could not be read.")]
struct Refresh {
    /// The name of the SPIFFEFederation
    #[arg(value_name = "NAME")]
    name: String,
}

/// Accepts one bundle whose sequence is lower than the last one.
///
/// A lower sequence is an old copy, or a server that was restored from a backup. Ask the administrators of
/// the trust domain for the fingerprint of their bundle before you accept it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Show the fingerprint, ask, and accept:
    trustplane spiffe accept partner.example

  In a script, with a fingerprint that was compared before:
    trustplane spiffe accept partner.example --fingerprint 2c90:81e4:...

Exit codes: 0 accepted, 1 something went wrong, 2 nothing was changed: nothing is refused, the
fingerprint is a different one, or the cluster could not be read.")]
struct Accept {
    /// The name of the SPIFFEFederation
    #[arg(value_name = "NAME")]
    name: String,

    /// The fingerprint that the refused bundle must have; without it a person is asked
    #[arg(long, value_name = "FINGERPRINT")]
    fingerprint: Option<String>,
}

/// Replaces our CA: the next one is published, and signs as soon as everybody can know it.
///
/// With --revoke a CA whose key was stolen leaves the bundle at once. With the active one all others leave,
/// because their keys lay beside it, and a new CA signs: whoever has not fetched the new bundle yet refuses
/// our SVIDs until then.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Replace our CA in good order:
    trustplane spiffe rotate

  At once and without a question, because its key was stolen:
    trustplane spiffe rotate --revoke 5b0c... --yes

Exit codes: 0 under way, 1 something went wrong, 2 nothing was changed.")]
struct Rotate {
    /// The ID of the CA whose key was stolen, as trustplane spiffe status shows it
    #[arg(long, value_name = "ID")]
    revoke: Option<String>,

    /// Do not ask before a CA is revoked
    #[arg(long, short)]
    yes: bool,

    #[command(flatten)]
    place: NamespaceArgs,
}

#[derive(Debug, Args)]
struct NamespaceArgs {
    /// The namespace of trustplane authority
    #[arg(long, short, env = "POD_NAMESPACE", value_parser = namespace_name, default_value = "trustplane", value_name = "NAME")]
    namespace: String,
}

impl Spiffe {
    pub fn run(self) -> anyhow::Result<()> {
        log::init(LogFormat::Text, Verbosity::Quiet);
        block_on(async {
            match self.command {
                Command::Status(command) => command.run().await,
                Command::Refresh(command) => command.run().await,
                Command::Accept(command) => command.run().await,
                Command::Rotate(command) => command.run().await,
                Command::Import(command) => command.run().await,
            }
        })
    }
}

async fn client() -> anyhow::Result<Client> {
    cluster::connect(cluster::config().await?)
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(format!("{FIELD_MANAGER}-cli")), ..PatchParams::default() }
}

/// Any text that was not there before.
fn now() -> String {
    Utc::now().to_rfc3339_opts(SecondsFormat::Micros, true)
}

async fn federation(api: &Api<SpiffeFederation>, name: &str) -> anyhow::Result<SpiffeFederation> {
    match api_error::with_timeout(api.get_opt(name)).await {
        Ok(Some(federation)) => Ok(federation),
        Ok(None) => bail!(
            "there is no SPIFFEFederation {}. See which there are: kubectl get spiffefederations",
            printable(name)
        ),
        Err(error) => Err(anyhow!(error)
            .context(format!("SPIFFEFederation {} could not be read", printable(name)))),
    }
}

async fn annotate(
    api: &Api<SpiffeFederation>,
    name: &str,
    annotation: &str,
    value: &str,
) -> anyhow::Result<()> {
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { annotation: value } } }));
    let patched = api_error::with_timeout(api.patch(name, &params(), &patch)).await;
    patched.with_context(|| format!("SPIFFEFederation {name} could not be changed"))?;
    Ok(())
}

/// Waits until the authority has handled a request, and says how it went.
async fn outcome(
    api: &Api<SpiffeFederation>,
    name: &str,
    is_handled: impl Fn(&SpiffeFederation) -> bool,
) -> anyhow::Result<()> {
    let end = tokio::time::Instant::now() + PATIENCE;
    while tokio::time::Instant::now() < end {
        let found = federation(api, name).await?;
        if is_handled(&found) {
            print(&status::lines(&found, Utc::now()))?;
            let synced = found.condition("Synced").is_some_and(|it| it.status == "True");
            return if synced { Ok(()) } else { bail!(super::Exit::Reported) };
        }
        tokio::time::sleep(EVERY).await;
    }
    print(&status::lines(&federation(api, name).await?, Utc::now()))?;
    bail!(
        "trustplane authority did not do it within {PATIENCE:?}. Is there a reason above? If not, does it run? See: kubectl -n trustplane get deployment trustplane-authority"
    )
}

impl Refresh {
    async fn run(self) -> anyhow::Result<()> {
        let api: Api<SpiffeFederation> = Api::all(client().await?);
        federation(&api, &self.name).await.map_err(Unable)?;
        let request = now();
        annotate(&api, &self.name, REFRESH_ANNOTATION, &request).await?;
        outcome(&api, &self.name, |it| it.status.observed_refresh.as_deref() == Some(&*request))
            .await
    }
}

impl Accept {
    async fn run(self) -> anyhow::Result<()> {
        let api: Api<SpiffeFederation> = Api::all(client().await?);
        let found = federation(&api, &self.name).await.map_err(Unable)?;
        let Some(refused) = found.status.refused_fingerprint.clone() else {
            bail!(Unable(anyhow!(
                "no bundle of {} is refused, so there is nothing to accept",
                self.name
            )));
        };
        match &self.fingerprint {
            Some(given) if *given != refused => bail!(Unable(anyhow!(
                "the refused bundle has the fingerprint {refused}, not {given}. Nothing was changed"
            ))),
            Some(_) => {}
            None => {
                print(&format!(
                    "The refused bundle of {} has the fingerprint\n  {refused}\n",
                    found.trust_domain()
                ))?;
                let question = "Do the administrators of that trust domain see the same?";
                let instead = format!("Add --fingerprint {refused} if they do");
                confirm(question, Output::Text, &instead)?;
            }
        }
        let value = format!("{refused} {}", now());
        annotate(&api, &self.name, ACCEPT_ANNOTATION, &value).await?;
        outcome(&api, &self.name, |it| it.status.observed_accept.as_deref() == Some(&*value)).await
    }
}

/// What the authority publishes of itself.
struct Published {
    state: AuthorityState,
    /// The bundle; none where somebody removed it.
    document: Option<String>,
}

async fn published(client: &Client, namespace: &str) -> anyhow::Result<Option<Published>> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let found = match api_error::with_timeout(api.get_opt(BUNDLE_CONFIG_MAP)).await {
        Ok(found) => found,
        Err(error) => {
            let what = format!("ConfigMap {namespace}/{BUNDLE_CONFIG_MAP} could not be read");
            return Err(anyhow!(error).context(what));
        }
    };
    let mut data = found.and_then(|it| it.data).unwrap_or_default();
    let Some(view) = data.remove(VIEW) else { return Ok(None) };
    let state = serde_json::from_str(&view).with_context(|| format!("ConfigMap {namespace}/{BUNDLE_CONFIG_MAP} is damaged; trustplane authority writes it again"))?;
    Ok(Some(Published { state, document: data.remove(BUNDLE) }))
}

/// Why a rotation could not be asked for, and who can change that.
fn not_asked(error: ApiError, namespace: &str) -> anyhow::Error {
    let why = match error {
        ApiError::Forbidden => format!(
            "you may not change ConfigMap {namespace}/{REQUESTS_CONFIG_MAP}, which is how a rotation is asked for. \
             Role trustplane-spiffe-rotator allows it"
        ),
        ApiError::NotFound => format!(
            "there is no ConfigMap {namespace}/{REQUESTS_CONFIG_MAP}, which is how a rotation is asked for. \
             trustplane authority makes it: does it run, and is it as new as this program?"
        ),
        _ => "the rotation could not be asked for".to_owned(),
    };
    anyhow!(error).context(why)
}

impl Rotate {
    async fn run(self) -> anyhow::Result<()> {
        let client = client().await?;
        let namespace = &self.place.namespace;
        let published = published(&client, namespace).await.map_err(Unable)?;
        let Some(Published { state, .. }) = published else {
            bail!(Unable(anyhow!(
                "there is no authority in namespace {namespace}. Choose another with --namespace"
            )));
        };
        let (annotation, value) = match &self.revoke {
            None => (ROTATE_ANNOTATION, now()),
            Some(id) => {
                let Some(ca) = state.cas.iter().find(|ca| ca.id == *id) else {
                    bail!(Unable(anyhow!(
                        "there is no CA {}. See: trustplane spiffe status",
                        printable(id)
                    )));
                };
                if !self.yes {
                    let whose = match ca.phase {
                        Phase::Active => "of our trust domain",
                        Phase::Prepared | Phase::Retiring => "that this CA signed",
                    };
                    let question =
                        format!("Every SVID {whose} becomes invalid at once. Revoke CA {id}?");
                    confirm(&question, Output::Text, "Add --yes to do it")?;
                }
                (REVOKE_ANNOTATION, id.clone())
            }
        };
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { annotation: value } } }));
        let patched =
            api_error::with_timeout(api.patch(REQUESTS_CONFIG_MAP, &params(), &patch)).await;
        patched.map_err(|error| not_asked(error, namespace))?;
        self.handled(&client, &value).await
    }

    async fn handled(&self, client: &Client, value: &str) -> anyhow::Result<()> {
        let end = tokio::time::Instant::now() + PATIENCE;
        while tokio::time::Instant::now() < end {
            if let Some(Published { state, .. }) = published(client, &self.place.namespace).await? {
                let handled = match self.revoke {
                    Some(_) => &state.handled.revoke,
                    None => &state.handled.rotate,
                };
                if handled.as_deref() == Some(value) {
                    return print(&status::own_lines(&state, Utc::now()));
                }
            }
            tokio::time::sleep(EVERY).await;
        }
        bail!(
            "trustplane authority did not do it within {PATIENCE:?}. Does it run? Its log and the Events of ConfigMap {BUNDLE_CONFIG_MAP} say more"
        )
    }
}

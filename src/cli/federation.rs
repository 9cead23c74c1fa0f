//! `trustplane federation`.

mod exchange;

use anyhow::{Context, anyhow, bail};
use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use crate::{
    cli::{
        cluster::{SILENCE, block_on, namespace_name},
        confirm,
        output::{self, Output, print},
    },
    federate::{
        act::bootstrap::Cluster,
        decide::{
            bootstrap::{ImportPlan, Listing, Offer},
            exchange::digits,
        },
    },
    k8s::{client, gate::Gate},
    runtime::{
        clock::Clock,
        controller::{Unable, explain_kubeconfig},
        log::{self, LogFormat, Verbosity},
        printable::{self, printable},
    },
};

/// Brings the first trust bundle of one cluster to another, after a person has compared its
/// fingerprint.
///
/// From then on the two SPIRE servers keep each other's bundles current by themselves. bootstrap is for
/// somebody who can reach both clusters; export and import are for two who send each other a file.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Make cluster b trust the workloads of cluster a, then the other way round:
    trustplane federation bootstrap a b
    trustplane federation bootstrap b a

  Show the fingerprint of cluster a's bundle, to compare it:
    trustplane federation fingerprint a

  The same between two organisations, by a file:
    trustplane federation export --out a.json
    trustplane federation import a.json --fingerprint 2c90:81e4:...

Exit codes: 0 done, or nothing to do; 1 something went wrong; 2 nothing was changed: the command line
is wrong or incomplete, a cluster could not be reached, the fingerprint is a different one, the other
trust domain is not listed in the SpireServer, or the file is not to be trusted.")]
pub struct Federation {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Bootstrap(Bootstrap),
    Export(exchange::Export),
    Fingerprint(Fingerprint),
    Import(exchange::Import),
}

/// Writes the bundle of one cluster into another, as a ClusterFederatedTrustDomain.
///
/// The bundle is read from FROM with the rights that you have there, so that nobody in between can
/// replace it. Its fingerprint is shown; compare it with what the administrators of
/// FROM see, and type yes. The SpireServer of TO should list the trust domain under federatesWith.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Compare the fingerprint, and confirm:
    trustplane federation bootstrap a b

  In a script, with a fingerprint that was compared before:
    trustplane federation bootstrap a b --yes --fingerprint 2c90:81e4:...

Exit codes: 0 done, or nothing to do; 1 something went wrong; 2 nothing was changed: the command line
is wrong or incomplete, a cluster could not be reached, the fingerprint is a different one, or the
SpireServer of TO does not list the trust domain.")]
struct Bootstrap {
    /// The context of the kubeconfig to read the bundle from
    #[arg(value_name = "FROM")]
    from: String,

    /// The context to write it to
    #[arg(value_name = "TO")]
    to: String,

    #[command(flatten)]
    source: Source,

    /// The fingerprint that the bundle must have
    #[arg(long, value_name = "FINGERPRINT")]
    fingerprint: Option<String>,

    /// Do not ask for confirmation; needs --fingerprint
    #[arg(long, short, requires_if("true", "fingerprint"))]
    yes: bool,

    /// Also with --yes, where the SpireServer of TO does not list the trust domain
    #[arg(long)]
    unlisted: bool,

    /// Show what would be written, and write nothing
    #[arg(long)]
    dry_run: bool,
}

/// Shows the fingerprint of a cluster's bundle: 16 groups of four digits.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  For people, and for scripts:
    trustplane federation fingerprint a
    trustplane federation fingerprint a -o json

Exit codes: 0 shown, 1 something went wrong, 2 the command line is wrong, or the bundle could not be
read.")]
struct Fingerprint {
    /// The context of the kubeconfig
    #[arg(value_name = "CLUSTER")]
    cluster: String,

    #[command(flatten)]
    source: Source,
}

#[derive(Debug, Args)]
struct Source {
    /// The namespace of the SPIRE server whose bundle is read
    #[arg(long, short, env = "TRUSTPLANE_SPIRE_NAMESPACE", value_parser = namespace_name, default_value = "spire", value_name = "NAME")]
    namespace: String,

    /// The address of its bundle endpoint [default: the one in its SpireServer]
    #[arg(long, value_name = "URL")]
    url: Option<String>,

    /// The output format
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value = "text")]
    output: Output,
}

impl Federation {
    pub fn run(self) -> anyhow::Result<()> {
        log::init(LogFormat::Text, Verbosity::Quiet);
        block_on(async {
            match self.command {
                Command::Bootstrap(command) => command.run().await,
                Command::Export(command) => command.run().await,
                Command::Fingerprint(command) => command.run().await,
                Command::Import(command) => command.run().await,
            }
        })
    }
}

impl Bootstrap {
    async fn run(self) -> anyhow::Result<()> {
        let (from, to) = (cluster(Some(&self.from)).await?, cluster(Some(&self.to)).await?);
        let offer = self.source.offer(&from).await?;
        let facts = to.facts().await.map_err(|error| Unable(error.into()))?;
        let listing = Listing::of(&facts.server, &offer);
        print(&self.source.shown(&offer, Some(&listing)))?;
        let fingerprint = offer.bundle.fingerprint();
        if let Some(wanted) = &self.fingerprint
            && digits(wanted) != digits(&fingerprint)
        {
            bail!(Unable(anyhow!(
                "nothing was changed: the fingerprint of the bundle is not {wanted}. Ask the administrators of {} which is right",
                self.from
            )));
        }
        let plan = facts.plan(&offer).map_err(|error| Unable(error.into()))?;
        if !is_to_write(&plan, &listing, &self.to, &offer.trust_domain, self.dry_run) {
            return Ok(());
        }
        self.confirm(&offer, &listing)?;
        to.apply(&plan).await?;
        output::say(&done(&self.to, &offer.trust_domain, &listing));
        Ok(())
    }

    fn confirm(&self, offer: &Offer, listing: &Listing) -> anyhow::Result<()> {
        let is_unlisted = *listing == Listing::Unlisted && !self.unlisted;
        let trust_domain = printable(&offer.trust_domain);
        if self.yes && is_unlisted {
            bail!(Unable(anyhow!(
                "nothing was changed: the SpireServer in {} does not list {trust_domain}. List it there first, or add --unlisted",
                self.to
            )));
        }
        if self.yes {
            return Ok(());
        }
        let question = format!(
            "Compare the fingerprint with what the administrators of {} see. Make {} trust {trust_domain}{}?",
            self.from,
            self.to,
            if is_unlisted { ", which its SpireServer does not list" } else { "" },
        );
        let instead = format!(
            "Compare the fingerprint, then add --yes --fingerprint {}{}",
            digits(&offer.bundle.fingerprint()),
            if is_unlisted { " --unlisted" } else { "" },
        );
        confirm::confirm(&question, self.source.output, &instead)
    }
}

/// Prints the warnings about the planned write. Answers whether it is to be done, and says why not.
fn is_to_write(
    plan: &ImportPlan,
    listing: &Listing,
    to: &str,
    trust_domain: &str,
    dry_run: bool,
) -> bool {
    for remark in remarks(plan, listing, to, trust_domain) {
        output::say(&remark);
    }
    let why_not = match verb(plan) {
        None => format!("{to} has this bundle already. Nothing was changed."),
        Some(what) if dry_run => {
            format!("It would {what} the ClusterFederatedTrustDomain in {to}. Nothing was changed.")
        }
        Some(_) => return true,
    };
    output::say(&why_not);
    false
}

/// The verb for the planned write, if there is one.
fn verb(plan: &ImportPlan) -> Option<&'static str> {
    match plan {
        ImportPlan::Nothing => None,
        ImportPlan::Create { .. } => Some("create"),
        ImportPlan::Change { .. } => Some("change"),
    }
}

/// Warnings before a bundle is written to a cluster.
fn remarks(plan: &ImportPlan, listing: &Listing, to: &str, trust_domain: &str) -> Vec<String> {
    let trust_domain = printable(trust_domain);
    let mut remarks = match listing {
        Listing::Listed => Vec::new(),
        Listing::Unlisted => vec![format!(
            "The SpireServer in {to} does not list {trust_domain} under spec.federation.federatesWith. With this bundle its SPIRE server trusts {trust_domain} all the same, and nothing in the SpireServer's status tells how that peer is."
        )],
        Listing::Differently(differences) => {
            let remark = |it: &crate::federate::decide::bootstrap::Difference| {
                format!(
                    "The SpireServer in {to} lists {trust_domain} with the {} {}, and this is {}. SPIRE goes by the SpireServer.",
                    it.field,
                    printable(&it.listed),
                    printable(&it.offered),
                )
            };
            differences.iter().map(remark).collect()
        }
    };
    if let ImportPlan::Create { others, .. } = plan {
        remarks.extend(others.iter().map(|other| {
            format!(
                "ClusterFederatedTrustDomain {} in {to} is left as it is: its className {} belongs to another controller manager. If it was meant for this one, delete it.",
                printable(other.metadata.name.as_deref().unwrap_or_default()),
                printable(other.spec.class_name.as_deref().unwrap_or_default()),
            )
        }));
    }
    remarks
}

/// The last line, after a bundle was written.
fn done(to: &str, trust_domain: &str, listing: &Listing) -> String {
    let trust_domain = printable(trust_domain);
    match listing {
        Listing::Unlisted => format!(
            "The SPIRE server of {to} is told to trust {trust_domain}, although its SpireServer does not list it."
        ),
        Listing::Listed | Listing::Differently(_) => format!("{to} trusts {trust_domain} now."),
    }
}

impl Fingerprint {
    async fn run(self) -> anyhow::Result<()> {
        let offer = self.source.offer(&cluster(Some(&self.cluster)).await?).await?;
        print(&self.source.shown(&offer, None))
    }
}

impl Source {
    async fn offer(&self, cluster: &Cluster) -> anyhow::Result<Offer> {
        let now = Clock::system().now();
        let offer = cluster.offer(&self.namespace, self.url.as_deref(), now).await;
        offer.map_err(|error| Unable(error.into()).into())
    }

    fn shown(&self, offer: &Offer, listing: Option<&Listing>) -> String {
        let listed = listing.map(|it| ("listed", json!(*it != Listing::Unlisted)));
        shown(self.output, offer, &offer.bundle.fingerprint(), None, listed.as_slice())
    }
}

/// An offer, for people or programs, with the time at which a file of it was made.
fn shown(
    output: Output,
    offer: &Offer,
    fingerprint: &str,
    made_at: Option<DateTime<Utc>>,
    more: &[(&str, Value)],
) -> String {
    let Offer { trust_domain, url, bundle, .. } = offer;
    let (expiry, profile) = (bundle.earliest_expiry(), offer.profile.as_str());
    match output {
        Output::Json => {
            let mut page = json!({
                "trustDomain": trust_domain,
                "bundleEndpointUrl": url,
                "fingerprint": digits(fingerprint),
                "x509Authorities": bundle.x509.len(),
                "jwtAuthorities": bundle.jwt.len(),
                "sequence": bundle.sequence,
                "earliestExpiry": expiry,
            });
            if let Some(made_at) = made_at {
                page["bundleEndpointProfile"] = json!(profile);
                page["endpointSpiffeId"] = json!(offer.endpoint_id);
                page["madeAt"] = json!(made_at);
            }
            for (name, value) in more {
                page[*name] = value.clone();
            }
            printable::json(&format!("{page:#}\n"))
        }
        Output::Text => {
            let expiry = expiry.map_or_else(|| "never".to_owned(), |it| it.to_rfc3339());
            let profile = made_at.map_or_else(String::new, |_| format!(" ({profile})"));
            let made_at = made_at
                .map_or_else(String::new, |it| format!("made at       {}\n", it.to_rfc3339()));
            format!(
                "trust domain  {}\nendpoint      {}{profile}\nauthorities   {} for X.509, the first expires {expiry}; {} for JWT\n{made_at}fingerprint   {fingerprint}\n",
                printable(trust_domain),
                printable(url),
                bundle.x509.len(),
                bundle.jwt.len(),
            )
        }
    }
}

/// The cluster of a context, or of the current one.
async fn cluster(context: Option<&str>) -> anyhow::Result<Cluster> {
    let read = Kubeconfig::read().map_err(|error| {
        Unable(anyhow!("no usable kubeconfig: {}. Set KUBECONFIG", explain_kubeconfig(&error)))
    })?;
    let known = || read.contexts.iter().map(|it| it.name.as_str()).collect::<Vec<_>>().join(", ");
    let Some(context) = context.map(str::to_owned).or_else(|| read.current_context.clone()) else {
        bail!(Unable(anyhow!("the kubeconfig has no current context. Name one of: {}", known())));
    };
    if !read.contexts.iter().any(|it| it.name == context) {
        bail!(Unable(anyhow!("the kubeconfig has no context {context}, only: {}", known())));
    }
    let options = KubeConfigOptions { context: Some(context.clone()), ..Default::default() };
    let config = kube::Config::from_custom_kubeconfig(read, &options).await;
    let config = config.with_context(|| format!("context {context}")).map_err(Unable)?;
    let client = client::connect(config, Gate::open(), SILENCE);
    let client = client.with_context(|| format!("context {context}")).map_err(Unable)?;
    Ok(Cluster { context, client })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::spire_server::Profile,
        runtime::printable::{HOSTILE, is_harmless},
        spiffe::bundle::Bundle,
    };

    #[test]
    fn a_kubeconfig_that_can_not_be_read_is_named_without_quotes() {
        let error = Kubeconfig::read_from("/nonexistent/config").unwrap_err();
        let said = explain_kubeconfig(&error);
        assert!(said.starts_with("kubeconfig /nonexistent/config can't be read: "), "{said}");
    }

    #[test]
    fn whatever_a_cluster_says_of_itself_what_is_shown_is_harmless() {
        let offer = Offer {
            trust_domain: HOSTILE.into(),
            url: format!("https://{HOSTILE}"),
            profile: Profile::HttpsWeb,
            endpoint_id: None,
            bundle: Bundle { x509: vec![], jwt: vec![], sequence: None, refresh_hint: None },
            document: String::new(),
        };
        for output in [Output::Text, Output::Json] {
            let source = Source { namespace: "spire".into(), url: None, output };
            let shown = source.shown(&offer, None);
            assert!(is_harmless(&shown) && shown.contains("[31mred"), "{shown:?}");
        }
    }
}

//! `trustplane federation export` and `trustplane federation import`.

use std::{fs::File, io::Read, path::PathBuf, time::Duration};

use anyhow::{Context, anyhow};
use chrono::{DateTime, Utc};
use clap::Args;
use serde_json::json;

use super::{Source, cluster, done, remarks, verb};
use crate::{
    cli::{
        confirm,
        output::{self, Output, print},
    },
    federate::decide::{
        bootstrap::{Listing, Offer},
        exchange::{self, FileImportPlan, ImportError, ImportRules, LONGEST, digits},
    },
    runtime::{
        clock::Clock,
        controller::Unable,
        flags::at_least_a_second,
        printable::{self, printable},
    },
};

/// Writes the bundle of a cluster into a file, for another organisation to import.
///
/// Send the file however you like: bundles are public. Tell its fingerprint over another channel, such as the
/// phone, to somebody whose voice you know: it covers the trust domain, the endpoint, the bundle and the time.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Of the cluster that kubectl uses:
    trustplane federation export --out cluster-a.json

  Of another context, to the standard output; the fingerprint is told beside it:
    trustplane federation export a

Exit codes: 0 done, 2 nothing was written.")]
pub(super) struct Export {
    /// The context of the kubeconfig [default: the current one]
    #[arg(value_name = "CONTEXT")]
    context: Option<String>,

    /// The file to write [default: the standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    #[command(flatten)]
    source: Source,
}

/// Makes this cluster trust another by a file that the administrators of the other one exported.
///
/// Have them tell you the fingerprint over another channel than the one that the file came by. A file that
/// was changed, cut or swapped is refused, as is one that is old, or of a trust domain that the SpireServer
/// does not list under federatesWith.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  See what it would do, then do it:
    trustplane federation import cluster-a.json --fingerprint 2c90:81e4:... --dry-run
    trustplane federation import cluster-a.json --fingerprint 2c90:81e4:...

  In a script:
    trustplane federation import cluster-a.json --fingerprint 2c90:81e4:... --yes -o json

Exit codes: 0 done, or nothing to do; 1 something went wrong; 2 nothing was changed: the file is
refused, the command line is incomplete, or the cluster could not be reached.")]
pub(super) struct Import {
    /// The file
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// The fingerprint that export printed
    #[arg(long, value_name = "FINGERPRINT")]
    fingerprint: String,

    /// The context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "CONTEXT")]
    context: Option<String>,

    /// Refuse a file that was made longer ago
    #[arg(long, value_parser = at_least_a_second, default_value = "7d", value_name = "DURATION")]
    max_age: Duration,

    /// Also if the SpireServer does not list the trust domain
    #[arg(long)]
    unlisted: bool,

    /// Also if the file is older than --max-age, or than what this cluster knows of the trust domain
    #[arg(long)]
    older: bool,

    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,

    /// Show what would be written, and write nothing
    #[arg(long)]
    dry_run: bool,

    /// The output format
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value = "text")]
    output: Output,
}

impl Export {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let from = cluster(self.context.as_deref()).await?;
        let offer = self.source.offer(&from).await?;
        let export = exchange::Export::new(offer, Clock::system().now());
        let fingerprint = export.fingerprint();
        let tell = "Tell this fingerprint to those who import the file, over another channel than the one that the file goes by:";
        let Some(out) = &self.out else {
            print(&export.text())?;
            output::say(&format!("{tell} {fingerprint}"));
            return Ok(());
        };
        let written = std::fs::write(out, export.text());
        let written = written.with_context(|| format!("{} could not be written", out.display()));
        written.map_err(Unable)?;
        let text = shown(self.source.output, &export.offer, export.made_at, &fingerprint, None);
        print(&text)?;
        output::say(&format!("Written to {}. {tell} {fingerprint}", out.display()));
        Ok(())
    }
}

impl Import {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let export =
            exchange::Export::read(&self.content()?, &self.fingerprint).map_err(refused)?;
        let here = cluster(self.context.as_deref()).await?;
        let facts = here.facts().await.map_err(|error| Unable(error.into()))?;
        let Self { max_age, unlisted, older, .. } = self;
        let rules = ImportRules { max_age, unlisted, older };
        let plan =
            exchange::plan(&export, &facts, rules, Clock::system().now()).map_err(refused)?;
        let (to, trust_domain) = (&here.context, &export.offer.trust_domain);
        let fingerprint = export.fingerprint();
        print(&shown(self.output, &export.offer, export.made_at, &fingerprint, Some(&plan)))?;
        for remark in remarks(&plan.write, &plan.listing, to, trust_domain) {
            output::say(&remark);
        }
        let Some(what) = verb(&plan.write) else {
            output::say(&format!("{to} has this bundle already. Nothing was changed."));
            return Ok(());
        };
        if self.dry_run {
            output::say(&format!(
                "It would {what} the ClusterFederatedTrustDomain in {to}. Nothing was changed."
            ));
            return Ok(());
        }
        if !self.yes {
            let question = format!(
                "The file has the fingerprint that you were told. Make {to} trust {}?",
                printable(trust_domain)
            );
            confirm::confirm(&question, self.output, "Add --yes")?;
        }
        here.apply(&plan.write).await?;
        output::say(&done(to, trust_domain, &plan.listing));
        Ok(())
    }

    fn content(&self) -> anyhow::Result<Vec<u8>> {
        let read = || {
            let mut content = Vec::new();
            // One byte more shows that it is too long.
            File::open(&self.file)?.take(LONGEST as u64 + 1).read_to_end(&mut content)?;
            std::io::Result::Ok(content)
        };
        let read = read().with_context(|| format!("{} can't be read", self.file.display()));
        Ok(read.map_err(Unable)?)
    }
}

fn refused(error: ImportError) -> Unable {
    Unable(anyhow!("nothing was changed: {error}"))
}

/// A file, for people or programs.
fn shown(
    output: Output,
    offer: &Offer,
    made_at: DateTime<Utc>,
    fingerprint: &str,
    plan: Option<&FileImportPlan>,
) -> String {
    let Offer { trust_domain, url, bundle, .. } = offer;
    let expiry = bundle.earliest_expiry();
    match output {
        Output::Json => {
            let mut page = json!({
                "trustDomain": trust_domain,
                "bundleEndpointUrl": url,
                "bundleEndpointProfile": offer.profile.as_str(),
                "endpointSpiffeId": offer.endpoint_id,
                "madeAt": made_at,
                "fingerprint": digits(fingerprint),
                "x509Authorities": bundle.x509.len(),
                "jwtAuthorities": bundle.jwt.len(),
                "sequence": bundle.sequence,
                "earliestExpiry": expiry,
            });
            if let Some(plan) = plan {
                page["listed"] = json!(plan.listing != Listing::Unlisted);
                page["action"] = json!(verb(&plan.write).unwrap_or("none"));
            }
            printable::json(&format!("{page:#}\n"))
        }
        Output::Text => {
            let expiry = expiry.map_or_else(|| "never".to_owned(), |it| it.to_rfc3339());
            format!(
                "trust domain  {}\nendpoint      {} ({})\nauthorities   {} for X.509, the first expires {expiry}; {} for JWT\nmade at       {}\nfingerprint   {fingerprint}\n",
                printable(trust_domain),
                printable(url),
                offer.profile.as_str(),
                bundle.x509.len(),
                bundle.jwt.len(),
                made_at.to_rfc3339(),
            )
        }
    }
}

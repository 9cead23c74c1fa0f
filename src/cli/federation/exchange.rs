//! `trustplane federation export` and `trustplane federation import`.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

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
    /// The file; - for the standard input
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
        let written = write(out, &export.text());
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
        let read =
            read(&self.file).with_context(|| format!("{} can't be read", self.file.display()));
        Ok(read.map_err(Unable)?)
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let source: Box<dyn Read> = match path == Path::new("-") {
        true => Box::new(io::stdin()),
        // Nobody may ever write to a pipe, and a device may never end.
        false if !fs::metadata(path)?.is_file() => return Err(not_a_file()),
        false => Box::new(File::open(path)?),
    };
    let mut content = Vec::new();
    // One more tells that it is too long.
    source.take(LONGEST as u64 + 1).read_to_end(&mut content)?;
    Ok(content)
}

/// Writes the whole file or none, and to no other place than this one: whatever a link leads to stays as it is.
fn write(path: &Path, text: &str) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(standing) if !standing.is_file() => return Err(not_a_file()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let name = path.file_name().ok_or_else(not_a_file)?;
    let temporary = format!(".{}.{:016x}", name.display(), fastrand::u64(..));
    let temporary = path.with_file_name(temporary);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| fs::rename(&temporary, path));
    written.inspect_err(|_| drop(fs::remove_file(&temporary)))
}

fn not_a_file() -> io::Error {
    io::Error::other("it is not a regular file")
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn an_export_replaces_a_file_as_a_whole_and_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        fs::write(&path, "before").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        write(&path, "after").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "after");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        write(&folder.path().join("missing").join("a.json"), "after").unwrap_err();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn an_export_goes_through_no_link_and_an_import_waits_for_no_pipe() {
        let folder = tempfile::tempdir().unwrap();
        let [victim, link, pipe] = ["victim", "link", "pipe"].map(|name| folder.path().join(name));
        fs::write(&victim, "before").unwrap();
        symlink(&victim, &link).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        for path in [&link, &pipe, folder.path()] {
            assert_eq!(write(path, "after").unwrap_err().to_string(), "it is not a regular file");
        }
        assert_eq!(fs::read_to_string(&victim).unwrap(), "before");
        assert_eq!(read(&link).unwrap(), b"before", "to read through a link is harmless");
        for path in [&pipe, folder.path(), Path::new("/dev/zero")] {
            assert_eq!(read(path).unwrap_err().to_string(), "it is not a regular file");
        }
    }
}

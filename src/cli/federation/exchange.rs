//! `trustplane federation export` and `trustplane federation import`.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, anyhow};
use clap::Args;
use serde::de::IgnoredAny;
use serde_json::json;

use super::{Source, cluster, done, is_to_write, shown, verb};
use crate::{
    cli::{
        confirm,
        output::{self, Output, print},
    },
    federate::decide::{
        bootstrap::Listing,
        exchange::{self, ImportError, ImportRules, LONGEST},
    },
    runtime::{clock::Clock, controller::Unable, flags::at_least_a_second, printable::printable},
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
        let made_at = Some(export.made_at);
        print(&shown(self.source.output, &export.offer, &fingerprint, made_at, &[]))?;
        output::say(&format!("Written to {}. {tell} {fingerprint}", out.display()));
        Ok(())
    }
}

impl Import {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let content = content(&self.file)?;
        let export = exchange::Export::read(&content, &self.fingerprint).map_err(refused)?;
        let here = cluster(self.context.as_deref()).await?;
        let facts = here.facts().await.map_err(|error| Unable(error.into()))?;
        let Self { max_age, unlisted, older, .. } = self;
        let rules = ImportRules { max_age, unlisted, older };
        let plan =
            exchange::plan(&export, &facts, rules, Clock::system().now()).map_err(refused)?;
        let (to, trust_domain) = (&here.context, &export.offer.trust_domain);
        let more = [
            ("listed", json!(plan.listing != Listing::Unlisted)),
            ("action", json!(verb(&plan.write).unwrap_or("none"))),
        ];
        let (fingerprint, made_at) = (export.fingerprint(), Some(export.made_at));
        print(&shown(self.output, &export.offer, &fingerprint, made_at, &more))?;
        if !is_to_write(&plan.write, &plan.listing, to, trust_domain, self.dry_run) {
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
}

/// The content of an exported file: JSON, or the beginning of it if it was cut.
fn content(path: &Path) -> Result<Vec<u8>, Unable> {
    const NAME: &str = "Name the file that trustplane federation export wrote";
    let shown = match path == Path::new("-") {
        true => "the standard input".into(),
        false => path.display().to_string(),
    };
    if path.is_dir() {
        return Err(Unable(anyhow!("{shown} is a folder. {NAME}")));
    }
    let content = read(path).with_context(|| format!("{shown} can't be read")).map_err(Unable)?;
    let parsed = serde_json::from_slice::<IgnoredAny>(&content);
    match parsed.map_or_else(|error| error.is_eof(), |_| true) {
        _ if content.is_empty() => Err(Unable(anyhow!("{shown} is empty. Have it sent again"))),
        false => Err(Unable(anyhow!("{shown} is not JSON. {NAME}, or have it sent again"))),
        true => Ok(content),
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
    fn a_file_that_is_no_export_is_named_with_what_is_wrong_and_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let [empty, text, cut, none] =
            ["empty", "text", "cut", "none"].map(|name| folder.path().join(name));
        fs::write(&empty, "").unwrap();
        fs::write(&text, "hello").unwrap();
        fs::write(&cut, "{ \"kind\": ").unwrap();
        for (path, why) in [
            (&*empty, "is empty. Have it sent again"),
            (&*text, "is not JSON. Name the file that trustplane federation export wrote, or"),
            (folder.path(), "is a folder. Name the file that trustplane federation export wrote"),
            (&*none, "can't be read"),
        ] {
            let said = content(path).unwrap_err().0.to_string();
            assert!(said.starts_with(&format!("{} {why}", path.display())), "{said}");
        }
        assert!(content(&cut).is_ok(), "the fingerprint tells that it was cut");
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

//! `trustplane check`.

use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;

use super::{
    Cut, Unable, ask,
    inject::namespace_name,
    sandbox::{Output, block_on, print},
    serving::no_cluster,
};
use crate::{
    check::{
        gather::gather,
        lines::{Expect, is_installed, lines},
        paper,
    },
    kit::{
        client::{self, Gate},
        log::{self, LogFormat, Loudness},
    },
    names::NAMESPACE,
};

/// A connection may be silent for this long; each call has a shorter limit of its own.
pub(super) const SILENCE: Duration = Duration::from_secs(30);

/// Looks whether a cluster is ready for trustplane, and whether what is installed is in order.
///
/// For administrators, before and after installing. One line for each thing that must be in order,
/// and what to do where it is not. Nothing is changed. The cluster is found as kubectl finds it.
///
/// trustplane counts as installed where its Deployment is there. Before that, what comes with the
/// installation is "not yet" and no failure.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Before installing, and after:
    trustplane check

  From a script that has just installed it, and wants to know what is missing:
    trustplane check --installed -o json

Exit codes: 0 in order, warnings included; 1 a line failed; 2 the command line is wrong, or no API
server answered. No call takes longer than 10 seconds. NO_COLOR takes the colours out.")]
pub struct Check {
    /// The namespace that trustplane is installed in, or is to be
    #[arg(
        long,
        short,
        visible_alias = "install-namespace",
        value_parser = installed_in,
        default_value = NAMESPACE,
        value_name = "NAME"
    )]
    namespace: String,

    /// Fail where something of the installation is missing, in place of "not yet"
    #[arg(long)]
    installed: bool,

    /// How to print
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value = "text")]
    output: Output,
}

impl Check {
    /// Looks, and shows what was found.
    pub fn run(self) -> anyhow::Result<()> {
        log::init(LogFormat::Text, Loudness::Quiet);
        block_on(self.look())
    }

    async fn look(self) -> anyhow::Result<()> {
        let config = client::config().await.map_err(|error| Unable(no_cluster(error)))?;
        let url = config.cluster_url.to_string();
        let client = client::connect(config, Gate::open(), SILENCE)
            .context("cannot use the cluster's configuration")
            .map_err(Unable)?;
        let facts = gather(&client, &url, &self.namespace)
            .await
            .with_context(|| format!("nothing could be checked at {url}"))
            .map_err(Unable)?;
        let expect = if self.installed { Expect::Installed } else { Expect::Whatever };
        let lines = lines(&facts, expect);
        print(&match self.output {
            Output::Json => paper::document(&lines, &self.namespace, is_installed(&facts, expect)),
            Output::Text => paper::table(&lines, ask::width()),
        })?;
        if !paper::holds(&lines) {
            bail!(Cut::Told);
        }
        Ok(())
    }
}

/// A single namespace name.
pub(super) fn installed_in(text: &str) -> Result<String, String> {
    namespace_name(text).map_err(|_| "not a valid namespace name".to_owned())
}

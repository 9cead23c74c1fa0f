//! `trustplane check`.

use anyhow::{Context, bail};
use clap::Args;
use kube::Client;

use crate::{
    check::{
        checks::{Expect, evaluate, is_installed},
        gather::gather,
        printer::{self, Target},
        probe::{Enforcement, Probe, ProbeError},
    },
    cli::{
        Exit,
        cluster::{self, block_on, connect, namespace_name},
        confirm,
        output::{self, Output, print},
    },
    names::NAMESPACE,
    runtime::{
        controller::Unable,
        log::{self, LogFormat, Verbosity},
        shutdown,
    },
};

/// Checks whether a cluster is ready for trustplane, and whether an installation works.
///
/// For administrators, before and after installing. It prints one line for each thing that must be
/// in order, and what to do if it is not. Nothing is changed without --probe-policy. The cluster is
/// found as kubectl finds it.
///
/// trustplane counts as installed if its Deployment exists. Before that, what belongs to the
/// installation is "not yet", which is no failure.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Before installing, and after:
    trustplane check

  From a script, right after installing:
    trustplane check --installed -o json

  Test whether the API server enforces the admission policy:
    trustplane check --probe-policy

Exit codes: 0 in order, possibly with warnings; 1 a line failed; 2 the command line is wrong, or no API
server answered; 130 the test of the policy was stopped. No call takes longer than 10 seconds. NO_COLOR
switches colours off.")]
pub struct Check {
    /// The namespace that trustplane is installed in, or will be
    #[arg(
        long,
        short,
        visible_alias = "install-namespace",
        value_parser = namespace_name,
        default_value = NAMESPACE,
        value_name = "NAME"
    )]
    namespace: String,

    /// Fail if a part of the installation is missing, instead of saying "not yet"
    #[arg(long)]
    installed: bool,

    /// Test whether the admission policy is enforced: create a namespace with a Role and a RoleBinding,
    /// try to create Routes there as a user with a random name, without storing them, and delete it all
    #[arg(long)]
    probe_policy: bool,

    /// Do not ask for confirmation before --probe-policy
    #[arg(long, short)]
    yes: bool,

    /// The output format
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value = "text")]
    output: Output,
}

impl Check {
    pub fn run(self) -> anyhow::Result<()> {
        log::init(LogFormat::Text, Verbosity::Quiet);
        block_on(self.check())
    }

    async fn check(self) -> anyhow::Result<()> {
        let config = cluster::config().await?;
        let url = config.cluster_url.to_string();
        let client = connect(config.clone())?;
        let mut facts = gather(&client, &url, &self.namespace)
            .await
            .with_context(|| format!("nothing could be checked at {url}"))
            .map_err(Unable)?;
        if self.probe_policy {
            facts.enforcement = match facts.has_policy() {
                true => self.probe(config, &client).await?,
                false => Enforcement::NothingToTest,
            };
        }
        let expect = if self.installed { Expect::Installed } else { Expect::Whatever };
        let lines = evaluate(&facts, expect);
        let target = if facts.sandbox.is_some() { Target::Sandbox } else { Target::Cluster };
        print(&match self.output {
            Output::Json => {
                printer::document(&lines, target, &self.namespace, is_installed(&facts, expect))
            }
            Output::Text => printer::table(&lines, target, output::width()),
        })?;
        if !printer::holds(&lines) {
            bail!(Exit::Reported);
        }
        Ok(())
    }

    async fn probe(
        &self,
        mut config: kube::Config,
        client: &Client,
    ) -> anyhow::Result<Enforcement> {
        if !self.yes {
            confirm::confirm(QUESTION, self.output, "Add --yes")?;
        }
        let stop = shutdown::on_signal().context("cannot handle signals")?;
        let probe = Probe::default();
        config.auth_info.impersonate = Some(probe.user().to_owned());
        config.auth_info.impersonate_groups = None;
        let tested = probe.run(client, &connect(config)?, &stop).await;
        if tested == Enforcement::Unknown(ProbeError::Stopped) {
            bail!(Exit::Stopped);
        }
        Ok(tested)
    }
}

const QUESTION: &str = "\
--probe-policy creates a namespace trustplane-probe-... with a Role and a RoleBinding in it, tries to \
create Routes there as a user with a random name, without storing them, and deletes the namespace. Go on?";

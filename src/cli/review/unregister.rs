//! `trustplane review unregister`.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;

use super::{
    cluster_name,
    store_args::{OpenStore, Steps, StoreArgs},
};
use crate::{
    cli::{
        confirm,
        output::{self, Output, print},
    },
    review::{
        decide::register::removal,
        register::{RegisterError, gather_removal, kubeconfig, remote::RemoteCluster, remove},
    },
    runtime::{controller::Unable, terminal::paragraph},
};

/// Takes a cluster out of the configuration, so that its tokens are not reviewed any more.
///
/// It removes the entry and the Secret with its token. With --kubeconfig it also deletes what register made in that
/// cluster, as far as it carries our label: the account, its rights and its namespace. The token is worth nothing
/// from then on.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  See what it would remove, then remove it, here and there:
    trustplane review unregister cluster-b --kubeconfig b.kubeconfig --dry-run
    trustplane review unregister cluster-b --kubeconfig b.kubeconfig

  In a script, of a cluster that is gone:
    trustplane review unregister cluster-b --yes -o json

Exit codes: 0 done, or nothing to do; 1 something went wrong on the way, and running it again goes on; 2 nothing
was changed: nobody confirmed it, the command line or the configuration is wrong, or a cluster could not be reached.")]
pub(super) struct Unregister {
    /// The name of the cluster in the configuration
    #[arg(value_name = "CLUSTER", value_parser = cluster_name)]
    cluster: String,

    /// Delete the account and its rights there, too, with this kubeconfig of an administrator
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The context in that kubeconfig [default: its current one]
    #[arg(long, requires = "kubeconfig", value_name = "NAME")]
    context: Option<String>,

    #[command(flatten)]
    store: StoreArgs,

    /// Show what would be removed, and change nothing
    #[arg(long)]
    dry_run: bool,

    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,

    /// The output format
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value = "text")]
    output: Output,
}

impl Unregister {
    pub async fn run(self) -> anyhow::Result<()> {
        let remote = self.remote().await?;
        let OpenStore { store, .. } = self.store.open().await?;
        let unable = |error: RegisterError| Unable(unchanged(anyhow!(error)));
        let leaving = gather_removal(&self.cluster, remote.as_ref(), &store);
        let leaving = leaving.await.map_err(unable)?;
        let plan = removal::plan(&self.cluster, &leaving.facts);
        let plan = plan.map_err(|error| Unable(unchanged(anyhow!(error))))?;
        let mut steps = Steps::new(&self.cluster, self.dry_run, self.output);
        if self.dry_run || plan.is_nothing() {
            for step in plan.steps(&store.places(&self.cluster)) {
                steps.show(step)?;
            }
            return self.finish(&steps, "Nothing was changed.");
        }
        if !self.yes {
            confirm::confirm(&self.question(), self.output, "Add --yes")?;
        }
        let mut shown = Ok(());
        let report = |step| {
            if shown.is_ok() {
                shown = steps.show(step);
            }
        };
        let both = (remote.as_ref(), &store);
        let removed = remove(&plan, &self.cluster, &leaving, both, report).await;
        removed.map_err(|error| {
            anyhow!(error).context("not everything was removed; running it again goes on from here")
        })?;
        shown?;
        self.finish(&steps, &self.end())
    }

    async fn remote(&self) -> anyhow::Result<Option<RemoteCluster>> {
        let Some(path) = &self.kubeconfig else { return Ok(None) };
        let config = kubeconfig::config(path, self.context.as_deref()).await;
        let config = config.map_err(|error| Unable(unchanged(anyhow!(error))))?;
        let remote = RemoteCluster::connect(config);
        Ok(Some(remote.map_err(|error| Unable(unchanged(anyhow!(error))))?))
    }

    fn question(&self) -> String {
        let there = match self.kubeconfig {
            Some(_) => {
                " The account there is deleted with its rights and its namespace: whatever else asks that cluster \
                 with it can't any more."
            }
            None => "",
        };
        format!("Tokens of {} are refused from then on.{there} Go on?", self.cluster)
    }

    fn end(&self) -> String {
        match self.kubeconfig {
            Some(_) => format!("{} is not asked any more, and we may not ask it.", self.cluster),
            None => format!(
                "{} is not asked any more. Its account for us is still there: add --kubeconfig to delete it, too.",
                self.cluster
            ),
        }
    }

    fn finish(&self, steps: &Steps<'_>, end: &str) -> anyhow::Result<()> {
        match self.output {
            Output::Json => print(&steps.document(&[])),
            Output::Text => print(&format!("\n{}", paragraph(end, output::width()))),
        }
    }
}

fn unchanged(error: anyhow::Error) -> anyhow::Error {
    error.context("nothing was changed")
}

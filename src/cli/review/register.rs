//! `trustplane review register`.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use serde_json::{Value, json};

use super::{
    cluster_name,
    store_args::{OpenStore, Steps, StoreArgs},
};
use crate::{
    cli::output::{self, Output, print},
    names::REVIEW_DEPLOYMENT,
    review::{
        decide::{
            config::is_api_server,
            register::{Registration, mount, plan},
        },
        register::{Registered, execute, gather, kubeconfig::target, remote::RemoteCluster},
    },
    runtime::{
        clock::Clock,
        controller::Unable,
        printable::printable,
        terminal::{command, paragraph},
    },
};

/// Registers a cluster, so that its tokens are reviewed.
///
/// There it makes an account that may review tokens and renew its own, and nothing else, and a first token. Here it
/// puts that token and the CA of the kubeconfig into a Secret, and an entry with address and issuer into the
/// configuration; the rest of the configuration stays as it is, byte for byte. trustplane review renews the token
/// from then on. Run it again whenever something is amiss: what is right is left alone.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  See what it would do, then do it:
    trustplane review register cluster-b --kubeconfig b.kubeconfig --dry-run
    trustplane review register cluster-b --kubeconfig b.kubeconfig

  A context of a kubeconfig, for a cluster that Pods reach by another address:
    trustplane review register b --kubeconfig c --context b --api-server https://10.0.0.1:6443

  Files instead of a ConfigMap and Secrets:
    trustplane review register cluster-b --kubeconfig b.kubeconfig --out /etc/review

Exit codes: 0 done, or nothing to do; 1 something went wrong on the way, and running it again goes on; 2 nothing
was changed: the command line, the kubeconfig or the configuration is wrong, or a cluster could not be reached.")]
pub(super) struct Register {
    /// The name that the cluster gets
    #[arg(value_name = "CLUSTER", value_parser = cluster_name)]
    cluster: String,

    /// The kubeconfig of an administrator of that cluster
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,

    /// The context in that kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// The address by which trustplane review reaches its API server [default: that of the kubeconfig]
    #[arg(long, value_name = "URL", value_parser = api_server)]
    api_server: Option<String>,

    /// Another issuer whose tokens are its own, such as the one before a change; repeat the flag for several
    /// [default: the one that its tokens name, alone]
    #[arg(long = "issuer", value_name = "ISSUER")]
    issuers: Vec<String>,

    #[command(flatten)]
    store: StoreArgs,

    /// Show what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,

    /// The output format
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value = "text")]
    output: Output,
}

fn api_server(text: &str) -> Result<String, String> {
    match is_api_server(text) {
        true => Ok(text.trim_end_matches('/').to_owned()),
        false => Err("write it like https://HOST:PORT, without a path".to_owned()),
    }
}

impl Register {
    pub async fn run(self) -> anyhow::Result<()> {
        let (context, address) = (self.context.as_deref(), self.api_server.as_deref());
        let target = target(&self.kubeconfig, context, address).await;
        let target = target.map_err(|error| Unable(unchanged(anyhow!(error))))?;
        let OpenStore { store, here } = self.store.open().await?;
        let remote = RemoteCluster::connect(target.config).map_err(|it| Unable(anyhow!(it)))?;
        let [ca_cert, token_path] = store.files(&self.cluster);
        let wanted = Registration {
            cluster: self.cluster.clone(),
            api_server: target.api_server,
            ca: target.ca,
            issuers: self.issuers.clone(),
            ca_cert,
            token_path,
        };
        let now = Clock::system().now();
        let gathered = gather(&wanted, &remote, &store, here.as_ref(), now).await;
        let gathered = gathered.map_err(|error| Unable(unchanged(anyhow!(error))))?;
        let decided = plan(&wanted, &gathered.facts);
        let decided = decided.map_err(|error| Unable(unchanged(anyhow!(error))))?;
        let mut steps = Steps::new(&self.cluster, self.dry_run, self.output);
        let deployment = store.deployment().await;
        let patch = deployment.and_then(|it| mount::patch(&it, &self.cluster));
        if self.dry_run {
            let places = store.places(&self.cluster);
            for step in decided.steps(&wanted, &gathered.facts, &places) {
                steps.show(step)?;
            }
            return self.finish(&steps, None, patch.as_ref());
        }
        let mut shown = Ok(());
        let report = |step| {
            if shown.is_ok() {
                shown = steps.show(step);
            }
        };
        let registered = execute(decided, &wanted, &gathered, (&remote, &store), report).await;
        let registered = registered.map_err(|error| {
            anyhow!(error).context("not everything was done; running it again goes on from here")
        })?;
        shown?;
        self.finish(&steps, Some(&registered), patch.as_ref())
    }

    fn finish(
        &self,
        steps: &Steps<'_>,
        registered: Option<&Registered>,
        patch: Option<&Value>,
    ) -> anyhow::Result<()> {
        let next = patch.map(|patch| {
            let namespace = self.store.namespace();
            format!(
                "kubectl -n {namespace} patch deployment {REVIEW_DEPLOYMENT} --type=json -p '{patch}'"
            )
        });
        if self.output == Output::Json {
            let mut more = vec![("next", json!(next))];
            if let Some(registered) = registered {
                more.push(("issuer", json!(registered.issuer)));
                more.push(("tokenExpires", json!(registered.expires)));
            }
            return print(&steps.document(&more));
        }
        let width = output::width();
        let end = match registered {
            None => "Nothing was changed.".to_owned(),
            Some(registered) => format!(
                "Tokens of {} with the issuer {} are reviewed as soon as trustplane review has read this.",
                self.cluster,
                printable(&registered.issuer)
            ),
        };
        print(&format!("\n{}", paragraph(&end, width)))?;
        let Some(next) = next else { return Ok(()) };
        let why = "The Pods do not see the Secret yet, and refuse a configuration whose files they do not see. Add it to your overlay of deploy/review, and right away:";
        print(&format!("{}{}\n", paragraph(why, width), command(&next, width).join("\n")))
    }
}

fn unchanged(error: anyhow::Error) -> anyhow::Error {
    error.context("nothing was changed")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use crate::cli::{Cli, help};

    fn refused(more: &str) -> String {
        let line = format!("trustplane review register {more}");
        let command = help::finish(Cli::command(), 100);
        let refused = command.try_get_matches_from(line.split_whitespace());
        refused.err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_command_line_that_is_wrong_is_answered_with_what_would_be_right() {
        assert_eq!(refused("b --kubeconfig f"), "");
        assert_eq!(refused("b --kubeconfig f --issuer a --issuer b --out o --config c"), "");
        for (line, words) in [
            ("b", "--kubeconfig <FILE>"),
            ("B --kubeconfig f", "lower-case letters"),
            ("b --kubeconfig f --api-server http://b", "https://HOST:PORT"),
            ("b --kubeconfig f --api-server https://b/path", "without a path"),
            ("b --kubeconfig f --config c", "--out <FOLDER>"),
        ] {
            let said = refused(line);
            assert!(said.contains(words), "{line}: {said}");
        }
    }
}

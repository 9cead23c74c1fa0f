//! Flags of `register` and `unregister`: which cluster, where its entry goes, and how steps are shown.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use serde_json::{Value, json};

use crate::{
    cli::{
        cluster::{self, namespace_name},
        output::{Output, print},
    },
    names::NAMESPACE,
    review::{
        decide::register::{Action, Side, Step},
        register::store::Store,
    },
    runtime::{controller::Unable, printable::printable},
};

#[derive(Debug, Args)]
pub(super) struct StoreArgs {
    /// The namespace of trustplane review, in the cluster that kubectl uses
    #[arg(long, short, env = "POD_NAMESPACE", value_parser = namespace_name, default_value = NAMESPACE, value_name = "NAME")]
    namespace: String,

    /// Use files in this folder instead of a ConfigMap and Secrets: clusters.yaml, and clusters/NAME/ca.crt and token
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,

    /// The configuration file, with --out [default: clusters.yaml in that folder]
    #[arg(long, requires = "out", value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Where trustplane review finds its configuration.
pub(super) struct OpenStore {
    pub store: Store,
    /// The cluster that it runs in, if that is known.
    pub here: Option<kube::Client>,
}

impl StoreArgs {
    pub async fn open(&self) -> anyhow::Result<OpenStore> {
        let Some(out) = &self.out else {
            let client = cluster::connect(cluster::config().await?)?;
            let namespace = self.namespace.clone();
            let store = Store::Cluster { client: client.clone(), namespace };
            return Ok(OpenStore { store, here: Some(client) });
        };
        // The configuration names the files, and is read wherever trustplane review is started.
        let absolute = |path: &Path| {
            std::path::absolute(path)
                .with_context(|| format!("{} can't be used", path.display()))
                .map_err(Unable)
        };
        let folder = absolute(out)?;
        let config = match &self.config {
            Some(config) => absolute(config)?,
            None => folder.join("clusters.yaml"),
        };
        Ok(OpenStore { store: Store::Folder { folder, config }, here: None })
    }

    pub fn namespace(&self) -> &str {
        &self.namespace
    }
}

/// What is shown of steps.
pub(super) struct Steps<'a> {
    pub cluster: &'a str,
    pub dry_run: bool,
    pub output: Output,
    done: Vec<Step>,
}

impl<'a> Steps<'a> {
    pub fn new(cluster: &'a str, dry_run: bool, output: Output) -> Self {
        Self { cluster, dry_run, output, done: Vec::new() }
    }

    /// Shows a step at once to people. Programs get all of them at the end.
    pub fn show(&mut self, step: Step) -> anyhow::Result<()> {
        let shown = match self.output {
            Output::Text => print(&line(&step, self.cluster, self.dry_run)),
            Output::Json => Ok(()),
        };
        self.done.push(step);
        shown
    }

    /// One object, with what else there is to say.
    pub fn document(&self, more: &[(&str, Value)]) -> String {
        let mut page = json!({
            "cluster": self.cluster, "dryRun": self.dry_run, "steps": self.done,
        });
        for (name, value) in more {
            page[*name] = value.clone();
        }
        crate::runtime::printable::json(&format!("{page:#}\n"))
    }
}

fn line(step: &Step, cluster: &str, dry_run: bool) -> String {
    let action = match (step.action, dry_run) {
        (Action::Nothing, _) => "unchanged",
        (Action::Create, false) => "created",
        (Action::Change, false) => "changed",
        (Action::Remove, false) => "removed",
        (Action::Create, true) => "to create",
        (Action::Change, true) => "to change",
        (Action::Remove, true) => "to remove",
    };
    let place = match step.side {
        Side::Remote => format!(" in {cluster}"),
        Side::Here => String::new(),
    };
    let note = step.note.as_ref().map_or_else(String::new, |it| format!(": {it}"));
    printable(&format!("{action:<10} {}{place}{note}", step.object)).into_owned() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_shown_with_what_was_done_and_where() {
        let step = Step::new(Side::Remote, Action::Create, "token").note("there is none");
        assert_eq!(line(&step, "b", true), "to create  token in b: there is none\n");
        let step = Step::new(Side::Here, Action::Nothing, "Secret s");
        assert_eq!(line(&step, "b", false), "unchanged  Secret s\n");
        let hostile = Step::new(Side::Here, Action::Change, "a\u{1b}[31m\nb");
        assert_eq!(line(&hostile, "b", false), "changed    a\\u{1b}[31m\\nb\n");
    }
}

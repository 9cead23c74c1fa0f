//! `trustplane spiffe import`.

use std::{io::Read as _, path::PathBuf};

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::Value;

use super::client;
use crate::{
    api::spiffe_federation::{GROUP, VERSION},
    authority::decide::import,
    cli::output::{Output, print, say},
    k8s::api_error::{self, ApiError},
    names::FIELD_MANAGER,
    runtime::{controller::Unable, printable::printable},
};

/// Makes SPIFFEFederations and JoinTokens of Teleport's resources.
///
/// Taken are spiffe_federation v1, and token v2 with the join method spiffe.
///
/// They are printed, for kubectl apply or a Git repository; with --apply they are applied.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Show what becomes of Teleport's federations, then apply it:
    tctl get spiffe_federation > federations.yaml
    trustplane spiffe import federations.yaml
    trustplane spiffe import federations.yaml --apply

  The same for a token, without a file:
    tctl get token/spiffe-join-token | trustplane spiffe import -

Exit codes: 0 done, 1 something went wrong, 2 the file can't be read or has faults, and nothing was
changed.")]
pub(super) struct Import {
    /// The file with the resources; - is the standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Apply them to the cluster that kubectl uses
    #[arg(long)]
    apply: bool,

    /// The output format
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value = "text")]
    output: Output,
}

impl Import {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let text = self.read().map_err(Unable)?;
        let objects = match import::objects(&text) {
            Ok(objects) => objects,
            Err(faults) => {
                for fault in &faults {
                    say(&printable(&format!("{}: {fault}", self.file.display())));
                }
                bail!(Unable(anyhow!(
                    "{} of the resources can't be imported; nothing was changed",
                    faults.len()
                )));
            }
        };
        match self.apply {
            true => apply(&objects).await,
            false => print(&shown(&objects, self.output)),
        }
    }

    fn read(&self) -> anyhow::Result<String> {
        if self.file.as_os_str() == "-" {
            let mut text = String::new();
            std::io::stdin()
                .read_to_string(&mut text)
                .context("the standard input can't be read")?;
            return Ok(text);
        }
        std::fs::read_to_string(&self.file)
            .with_context(|| format!("{} can't be read", self.file.display()))
    }
}

/// JSON is YAML, too.
fn shown(objects: &[Value], output: Output) -> String {
    match output {
        Output::Json => format!(
            "{:#}\n",
            serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": objects })
        ),
        Output::Text => {
            let yaml = |object: &Value| {
                serde_saphyr::to_string(object).unwrap_or_else(|_| format!("{object:#}\n"))
            };
            objects.iter().map(|object| format!("---\n{}", yaml(object))).collect()
        }
    }
}

async fn apply(objects: &[Value]) -> anyhow::Result<()> {
    let client = client().await?;
    let params = PatchParams::apply(&format!("{FIELD_MANAGER}-import"));
    for object in objects {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let kind = object["kind"].as_str().unwrap_or_default();
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, VERSION, kind));
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let applied =
            api_error::with_timeout(api.patch(name, &params, &Patch::Apply(object))).await;
        if let Err(ApiError::Server { code: 415 }) = applied {
            bail!(
                "{kind} {name} could not be applied: this API server has no server-side apply, as in the sandbox. \
                 Leave --apply out, and pipe the output into kubectl apply -f -"
            );
        }
        applied.with_context(|| format!("{kind} {name} could not be applied"))?;
        print(&format!("{}.{GROUP}/{name} applied\n", kind.to_lowercase()))?;
    }
    Ok(())
}

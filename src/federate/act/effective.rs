//! Which spec applies: that of the SpireServer, or the last valid one while it is invalid.

use kube::{Api, Client, api::DynamicObject};
use serde_json::json;

use crate::{
    api::spire_server::SpireServer,
    federate::{
        act::apply,
        decide::{
            last_valid,
            render::{Component, SERVER},
            trust::{self, Federated, Unlisted},
            validate::{self, Problem},
        },
    },
    k8s::api_error::{self, ApiError},
};

#[derive(Clone, Debug)]
pub struct Effective {
    /// With the spec that applies.
    pub server: SpireServer,
    /// Problems of the spec that it really has.
    pub problems: Vec<Problem>,
    /// Trust domains that SPIRE federates with and that spec does not list.
    pub unlisted: Vec<Unlisted>,
    /// False if the spec is invalid and no valid one is known.
    pub can_render: bool,
}

/// Reads the last valid spec from the API server only if the spec is invalid.
pub async fn effective(
    client: &Client,
    namespace: &str,
    server: SpireServer,
    federated: &Federated,
    max_peers: usize,
) -> Result<Effective, ApiError> {
    let mut problems = validate::problems(&server.spec);
    problems.extend(trust::over_limit(&server.spec, federated, max_peers));
    let unlisted = trust::unlisted(&server.spec, federated);
    if problems.is_empty() {
        return Ok(Effective { server, problems, unlisted, can_render: true });
    }
    let resource = apply::resource(Component::ServerConfigMap);
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let config_map = api_error::with_timeout(api.get_opt(SERVER)).await?;
    let last = config_map.and_then(|it| last_valid::read(&json!(it), &server));
    Ok(match last {
        Some(last) => {
            let spec = last_valid::less_removed_peers(last, &server.spec);
            Effective {
                server: SpireServer { spec, ..server },
                problems,
                unlisted,
                can_render: true,
            }
        }
        None => Effective { server, problems, unlisted, can_render: false },
    })
}

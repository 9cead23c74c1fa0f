//! Every Route there is, read once: for commands that look at a cluster and are through.

use std::collections::HashSet;

use kube::{
    Api, Client, Resource,
    api::ListParams,
    core::{NamespaceResourceScope, ObjectList},
};

use crate::{
    api::{
        route::Route,
        secret::{Secret, TLS_TYPE},
    },
    inject::facts::{ObjectRef, RouteFacts},
    kit::{
        call::{self, CallError},
        decode::Guarded,
    },
};

/// Objects in one answer of the API server.
const PAGE: u32 = 500;

/// The Routes of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// All that can be read.
    pub routes: Vec<RouteFacts>,
    /// Those that can't be decoded.
    pub undecodable: Vec<ObjectRef>,
}

/// Reads the Routes of these namespaces, or of all where none is named.
pub async fn routes(client: &Client, namespaces: &[String]) -> Result<Survey, CallError> {
    let mut survey = Survey::default();
    for api in apis::<Guarded<Route>>(client, namespaces) {
        every(
            ListParams::default(),
            async |page| call::bounded(api.list(page)).await,
            |route| match &route {
                Guarded::Decoded(route) => survey.routes.push(RouteFacts::read(route)),
                Guarded::Undecodable(meta) => survey.undecodable.push(ObjectRef::of(meta)),
            },
        )
        .await?;
    }
    Ok(survey)
}

/// Reads which TLS Secrets these namespaces have: their names, and nothing of their content.
pub async fn tls_secrets(
    client: &Client,
    namespaces: &[String],
) -> Result<HashSet<ObjectRef>, CallError> {
    let mut found = HashSet::new();
    let tls = ListParams::default().fields(&format!("type={TLS_TYPE}"));
    for api in apis::<Secret>(client, namespaces) {
        every(
            tls.clone(),
            async |page| call::bounded(api.list_metadata(page)).await,
            |secret| {
                found.insert(ObjectRef::new(
                    secret.metadata.namespace.unwrap_or_default(),
                    secret.metadata.name.unwrap_or_default(),
                ));
            },
        )
        .await?;
    }
    Ok(found)
}

fn apis<K>(client: &Client, namespaces: &[String]) -> Vec<Api<K>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    match namespaces {
        [] => vec![Api::all(client.clone())],
        some => some.iter().map(|name| Api::namespaced(client.clone(), name)).collect(),
    }
}

/// Page by page, so that no answer is too large to arrive in time.
async fn every<K: Clone>(
    params: ListParams,
    list: impl AsyncFn(&ListParams) -> Result<ObjectList<K>, CallError>,
    mut take: impl FnMut(K),
) -> Result<(), CallError> {
    let mut page = params.limit(PAGE);
    loop {
        let answer = list(&page).await?;
        answer.items.into_iter().for_each(&mut take);
        match answer.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => page = page.continue_token(&next),
            None => return Ok(()),
        }
    }
}

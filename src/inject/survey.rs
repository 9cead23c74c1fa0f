//! Every Route there is, read once: for commands that look at a cluster and are through.

use std::collections::HashSet;

use kube::{Api, Client, Resource, core::NamespaceResourceScope};
use serde::de::DeserializeOwned;

use crate::{
    api::{
        route::Route,
        secret::{SecretMetadata, TLS_TYPE},
    },
    inject::facts::{ObjectRef, RouteFacts},
    kit::{
        call::{self, CallError},
        decode::Guarded,
        pages::{Pages, Progress},
    },
};

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
        every(&api, None, |route| match &route {
            Guarded::Decoded(route) => survey.routes.push(RouteFacts::read(route)),
            Guarded::Undecodable(meta) => survey.undecodable.push(ObjectRef::of(meta)),
        })
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
    let tls = format!("type={TLS_TYPE}");
    for api in apis::<Guarded<SecretMetadata>>(client, namespaces) {
        every(&api, Some(&tls), |secret| {
            found.insert(ObjectRef::of(secret.meta()));
        })
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
async fn every<K>(
    api: &Api<Guarded<K>>,
    fields: Option<&str>,
    mut take: impl FnMut(Guarded<K>),
) -> Result<(), CallError>
where
    K: Resource + Clone + DeserializeOwned,
{
    let mut pages = Pages::new(api, fields);
    while call::bounded(pages.next(&mut take)).await? == Progress::More {}
    Ok(())
}

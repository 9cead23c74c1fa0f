//! Every Route there is, read once, for commands.

use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use crate::{
    api::route::Route,
    inject::decide::facts::RouteFacts,
    k8s::{
        api_error::{self, ApiError},
        decode::MaybeDecoded,
        object_ref::ObjectRef,
        pages::{Pages, Progress},
    },
};

#[derive(Clone, Debug, Default)]
pub struct Inventory {
    pub routes: Vec<RouteFacts>,
    pub undecodable: Vec<ObjectRef>,
}

/// Reads the Routes of these namespaces, or of all where none is named.
pub async fn routes(client: &Client, namespaces: &[String]) -> Result<Inventory, ApiError> {
    let mut inventory = Inventory::default();
    every(client, namespaces, None, |route: MaybeDecoded<Route>| match &route {
        MaybeDecoded::Decoded(route) => inventory.routes.push(RouteFacts::read(route)),
        MaybeDecoded::Undecodable(meta) => inventory.undecodable.push(ObjectRef::of(meta)),
    })
    .await?;
    Ok(inventory)
}

/// Page by page, so that no answer is too large to arrive in time.
pub(crate) async fn every<K>(
    client: &Client,
    namespaces: &[String],
    fields: Option<&str>,
    mut take: impl FnMut(MaybeDecoded<K>),
) -> Result<(), ApiError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned,
{
    let apis: Vec<Api<MaybeDecoded<K>>> = match namespaces {
        [] => vec![Api::all(client.clone())],
        some => some.iter().map(|name| Api::namespaced(client.clone(), name)).collect(),
    };
    for api in apis {
        let mut pages = Pages::new(&api, fields);
        while api_error::with_timeout(pages.next(&mut take)).await? == Progress::More {}
    }
    Ok(())
}

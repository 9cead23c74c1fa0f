//! Every Route there is, read once: for commands that look at a cluster and are through.

use kube::{Api, Client};

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

/// The Routes of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    /// All that can be read.
    pub routes: Vec<RouteFacts>,
    /// Those that can't be decoded.
    pub undecodable: Vec<ObjectRef>,
}

/// Reads the Routes of these namespaces, or of all where none is named.
pub async fn routes(client: &Client, namespaces: &[String]) -> Result<Inventory, ApiError> {
    let mut inventory = Inventory::default();
    for api in apis(client, namespaces) {
        // Page by page, so that no answer is too large to arrive in time.
        let mut pages: Pages<Route> = Pages::new(&api, None);
        let mut take = |route: MaybeDecoded<Route>| match &route {
            MaybeDecoded::Decoded(route) => inventory.routes.push(RouteFacts::read(route)),
            MaybeDecoded::Undecodable(meta) => inventory.undecodable.push(ObjectRef::of(meta)),
        };
        while api_error::with_timeout(pages.next(&mut take)).await? == Progress::More {}
    }
    Ok(inventory)
}

fn apis(client: &Client, namespaces: &[String]) -> Vec<Api<MaybeDecoded<Route>>> {
    match namespaces {
        [] => vec![Api::all(client.clone())],
        some => some.iter().map(|name| Api::namespaced(client.clone(), name)).collect(),
    }
}

//! Lists objects page by page, each page bounded in bytes.
//!
//! A page is requested by a number of objects, and the objects belong to tenants: five server-side
//! appliers make 1.3 MB of `managedFields` on one object, so a page of 100 is 130 MB and a
//! controller with a limit of 128 MiB is killed at every start. Here a page is read up to
//! `PAGE_BOUND`. An answer that is larger is dropped and the same page is requested with a smaller
//! `limit`; after light pages the limit grows again (`next_limit`). One page is held at a time, as
//! text, and its objects are decoded and passed on one by one.

use std::{io, marker::PhantomData, pin::pin};

use futures::{AsyncBufRead, AsyncBufReadExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::{
    Api, Client, Resource,
    api::ListParams,
    core::{Request, request},
};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::value::RawValue;

use crate::k8s::decode::MaybeDecoded;

/// Bytes of a page that is kept.
pub const PAGE_BOUND: usize = 8 << 20;
/// Bytes of a page with a limit of one object, which can't be made smaller. etcd accepts 1.5 MiB
/// per object unless told otherwise, and JSON escapes make at most six bytes of one: 9 MiB.
pub const OBJECT_BOUND: usize = 16 << 20;
/// Bytes that are reserved for a page. glibc gives a block of 32 MiB or less back to its heap, which
/// keeps some MB of it, and a larger one to the kernel at once. Only what is written of it is
/// resident.
const RESERVED: usize = 33 << 20;
/// Bytes that the limit aims at.
const PAGE_TARGET: usize = 1 << 20;
/// However heavy objects are, so many are requested at once: thousands of them, one by one, would
/// outlive the `continue` of their list.
const LEAST_LIMIT: u32 = 4;
const FIRST_LIMIT: u32 = 50;
const LARGEST_LIMIT: u32 = 500;

/// One object alone is over `OBJECT_BOUND`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an object is larger than {OBJECT_BOUND} bytes")]
pub struct TooLarge;

/// A list in progress, or about to begin.
///
/// The limit that was found is kept from one list to the next.
pub struct Pages<K> {
    client: Client,
    request: Request,
    /// With `continue` of the next page; without one the next page is the first of a new list.
    params: ListParams,
    limit: u32,
    kind: PhantomData<fn() -> K>,
}

/// What follows after a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// The list goes on: with the next page, or with a smaller one in place of this.
    More,
    /// The list is complete, at this resourceVersion.
    Complete(Option<String>),
}

#[derive(Clone, Copy, Debug)]
enum Weight {
    OverBound,
    Read { bytes: usize, objects: usize },
}

impl<K: Resource + Clone + DeserializeOwned> Pages<K> {
    /// The objects of this API that match the field selector.
    pub fn new(api: &Api<MaybeDecoded<K>>, fields: Option<&str>) -> Self {
        Self {
            client: api.clone().into_client(),
            request: Request::new(api.resource_url()),
            params: ListParams { field_selector: fields.map(str::to_owned), ..Default::default() },
            limit: FIRST_LIMIT,
            kind: PhantomData,
        }
    }

    /// Requests one page and passes its objects on. After an error the next call begins a new list.
    pub async fn next(&mut self, each: impl FnMut(MaybeDecoded<K>)) -> kube::Result<Progress> {
        let request = self.request().map_err(kube::Error::BuildRequest)?;
        let token = self.params.continue_token.take();
        let body = self.client.request_stream(request).await?;
        let bound = if self.limit == 1 { OBJECT_BOUND } else { PAGE_BOUND };
        let (weight, rest) = match read(body, bound).await.map_err(of_body)? {
            Some(text) => decode(&text, each)?,
            None if self.limit == 1 => return Err(kube::Error::Service(TooLarge.into())),
            None => (Weight::OverBound, ListMeta { continue_: token, ..ListMeta::default() }),
        };
        self.limit = next_limit(self.limit, weight);
        self.params.continue_token = rest.continue_.filter(|token| !token.is_empty());
        Ok(match (weight, &self.params.continue_token) {
            (Weight::OverBound, _) | (_, Some(_)) => Progress::More,
            _ => Progress::Complete(rest.resource_version.filter(|version| !version.is_empty())),
        })
    }

    /// `Api::list` sends the same request, but reads the answer without a bound.
    fn request(&self) -> Result<http::Request<Vec<u8>>, request::Error> {
        let params = ListParams { limit: Some(self.limit), ..self.params.clone() };
        let mut request = if K::metadata_api() {
            self.request.list_metadata(&params)?
        } else {
            self.request.list(&params)?
        };
        request.extensions_mut().insert("list");
        Ok(request)
    }
}

/// The limit of the next page: as many objects as make `PAGE_TARGET`, at most twice as many as
/// before, because the next objects may be heavier.
fn next_limit(limit: u32, weight: Weight) -> u32 {
    match weight {
        Weight::OverBound => (limit / 4).max(1),
        Weight::Read { bytes, objects } => {
            let fitting = PAGE_TARGET.saturating_mul(objects.max(1)) / bytes.max(1);
            let fitting = u32::try_from(fitting).unwrap_or(LARGEST_LIMIT);
            let most = limit.saturating_mul(2).clamp(1, LARGEST_LIMIT);
            fitting.clamp(LEAST_LIMIT.min(most), most)
        }
    }
}

/// The whole body, or none where it is larger than the bound.
async fn read(body: impl AsyncBufRead, bound: usize) -> io::Result<Option<Vec<u8>>> {
    let mut body = pin!(body);
    let mut text = Vec::with_capacity(RESERVED);
    loop {
        let chunk = body.fill_buf().await?;
        let length = chunk.len();
        if length == 0 {
            return Ok(Some(text));
        }
        if text.len() + length > bound {
            return Ok(None);
        }
        text.extend_from_slice(chunk);
        body.consume_unpin(length);
    }
}

/// A page, with its objects still as text.
#[derive(Deserialize)]
struct Page<'a> {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(borrow, deserialize_with = "null_as_empty")]
    items: Vec<&'a RawValue>,
}

/// Go writes an empty list as null, too. An answer without `items` is not a list: to take it for an
/// empty one would forget every object.
fn null_as_empty<'de, D: Deserializer<'de>>(items: D) -> Result<Vec<&'de RawValue>, D::Error> {
    Ok(Option::deserialize(items)?.unwrap_or_default())
}

fn decode<K: DeserializeOwned>(
    text: &[u8],
    mut each: impl FnMut(MaybeDecoded<K>),
) -> kube::Result<(Weight, ListMeta)> {
    let page: Page<'_> = serde_json::from_slice(text).map_err(kube::Error::SerdeError)?;
    let weight = Weight::Read { bytes: text.len(), objects: page.items.len() };
    page.items.into_iter().for_each(|item| each(MaybeDecoded::from_json(item.get())));
    Ok((weight, page.metadata))
}

/// The client's own error, which it wraps to read a body as a stream.
fn of_body(error: io::Error) -> kube::Error {
    match error.downcast::<kube::Error>() {
        Ok(error) => error,
        Err(error) => kube::Error::ReadEvents(error),
    }
}

#[cfg(test)]
mod tests;

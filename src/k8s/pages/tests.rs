//! Pages of an API server whose objects have chosen sizes.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::Response;
use http_body_util::StreamBody;
use hyper::body::Frame;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use tower::{BoxError, service_fn};

use super::*;
use crate::k8s::api_error::ApiError;

const CHUNK: usize = 64 << 10;
const MB: usize = 1_000_000;

/// A list request, as the server saw it.
#[derive(Clone, Debug)]
struct PageRequest {
    limit: usize,
    from: usize,
    /// Bytes of the answer that were fetched.
    fetched: Arc<AtomicUsize>,
}

type Log = Arc<Mutex<Vec<PageRequest>>>;

/// The objects from this one on, numbered, each about as heavy as its size says.
fn page(sizes: &[usize], from: usize, limit: usize) -> Bytes {
    let until = (from + limit).min(sizes.len());
    let object = |number: usize| {
        let padding = "x".repeat(sizes[number]);
        format!(r#"{{"metadata":{{"name":"{number}"}},"data":{{"k":"{padding}"}}}}"#)
    };
    let items: Vec<String> = (from..until).map(object).collect();
    let token = if until < sizes.len() { until.to_string() } else { String::new() };
    let metadata = format!(r#"{{"resourceVersion":"7","continue":"{token}"}}"#);
    format!(r#"{{"kind":"L","metadata":{metadata},"items":[{}]}}"#, items.join(",")).into()
}

/// The pages of a server that has objects of these sizes.
fn pages(sizes: Vec<usize>) -> (Pages<ConfigMap>, Log) {
    let log = Log::default();
    let seen = log.clone();
    let service = service_fn(move |request: http::Request<Body>| {
        let query = request.uri().query().unwrap_or_default();
        let number = |key: &str| {
            let mut pairs = form_urlencoded::parse(query.as_bytes());
            pairs.find(|(name, _)| name == key).map_or(0, |(_, value)| value.parse().unwrap())
        };
        let asked = PageRequest {
            limit: number("limit"),
            from: number("continue"),
            fetched: Arc::default(),
        };
        let mut text = page(&sizes, asked.from, asked.limit);
        let fetched = asked.fetched.clone();
        seen.lock().unwrap().push(asked);
        let chunks = std::iter::from_fn(move || {
            let chunk = text.split_to(text.len().min(CHUNK));
            (!chunk.is_empty()).then_some(chunk)
        });
        let frames = stream::iter(chunks).map(move |chunk| {
            fetched.fetch_add(chunk.len(), Ordering::SeqCst);
            Ok::<_, BoxError>(Frame::data(chunk))
        });
        async move { Ok::<_, BoxError>(Response::new(StreamBody::new(frames))) }
    });
    let api = Api::all(Client::new(service, "web"));
    (Pages::new(&api, None), log)
}

/// The names of a whole list, in the order in which they came.
async fn listed(pages: &mut Pages<ConfigMap>) -> Result<Vec<usize>, ApiError> {
    let mut names = Vec::new();
    loop {
        let each = |object: MaybeDecoded<ConfigMap>| {
            names.push(object.meta().name.as_deref().unwrap().parse().unwrap());
        };
        match pages.next(each).await? {
            Progress::More => {}
            Progress::Complete(version) => {
                assert_eq!(version.as_deref(), Some("7"));
                return Ok(names);
            }
        }
    }
}

fn requests(log: &Log) -> Vec<(usize, usize)> {
    log.lock().unwrap().iter().map(|asked| (asked.from, asked.limit)).collect()
}

fn most_fetched(log: &Log) -> usize {
    let log = log.lock().unwrap();
    log.iter().map(|asked| asked.fetched.load(Ordering::SeqCst)).max().unwrap_or_default()
}

#[test]
fn the_limit_follows_the_weight_of_the_page_before() {
    let read = |limit, bytes, objects| next_limit(limit, Weight::Read { bytes, objects });
    assert_eq!(read(50, 50 << 10, 50), 100, "light: twice as many");
    assert_eq!(read(400, 400 << 10, 400), LARGEST_LIMIT);
    assert_eq!(read(50, 0, 0), 100);
    assert_eq!(read(100, 1 << 20, 100), 100, "on target");
    assert_eq!(read(100, 4 << 20, 100), 25, "heavy: as many as fit");
    assert_eq!(read(50, 1 << 20, 5), 5, "the last page of a list has fewer than the limit");
    assert_eq!(read(50, 8 << 20, 50), 6);
    assert_eq!(read(4, 8 << 20, 4), 4, "and never so few that the list takes for ever");
    assert_eq!(read(1, OBJECT_BOUND, 1), 2);
    assert_eq!(read(1, 100, 1), 2);
    assert_eq!(
        [500, 50, 12, 3, 1].map(|limit| next_limit(limit, Weight::OverBound)),
        [125, 12, 3, 1, 1]
    );
}

#[tokio::test]
async fn a_page_that_is_too_heavy_is_requested_again_smaller() {
    let (mut pages, log) = pages(vec![13 * MB / 10; 20]);
    assert_eq!(listed(&mut pages).await.unwrap(), Vec::from_iter(0..20), "each once, in order");
    assert_eq!(requests(&log)[..5], [(0, 50), (0, 12), (0, 3), (3, 4), (7, 4)]);
    let most = most_fetched(&log);
    assert!(most <= PAGE_BOUND + CHUNK, "{most} bytes of an answer were fetched");

    log.lock().unwrap().clear();
    assert_eq!(listed(&mut pages).await.unwrap().len(), 20);
    assert_eq!(requests(&log)[0], (0, 4), "the next list remembers the limit");
}

#[tokio::test]
async fn an_object_heavier_than_a_page_still_arrives() {
    let (mut pages, log) = pages(vec![100, 9 * MB, 100, 100, 100]);
    assert_eq!(listed(&mut pages).await.unwrap(), [0, 1, 2, 3, 4]);
    assert!(requests(&log).contains(&(1, 1)), "{:?}", requests(&log));
}

#[tokio::test]
async fn an_object_over_every_bound_is_an_error_of_its_own_and_is_not_held() {
    let (mut pages, log) = pages(vec![40 * MB]);
    assert_eq!(listed(&mut pages).await, Err(ApiError::TooLarge));
    assert!(most_fetched(&log) <= OBJECT_BOUND + CHUNK);
}

#[tokio::test]
async fn after_light_pages_the_limit_grows_again() {
    let mut sizes = vec![MB; 10];
    sizes.extend([100; 1_500]);
    let (mut pages, log) = pages(sizes);
    assert_eq!(listed(&mut pages).await.unwrap(), Vec::from_iter(0..1_510));
    let limits: Vec<usize> = requests(&log).iter().map(|(_, limit)| *limit).collect();
    assert_eq!(limits[..2], [50, 12]);
    assert!(limits.ends_with(&[128, 256, 500, 500]), "{limits:?}");
}

/// What the client makes of this answer to a list, read by pages and by kube itself.
async fn both(code: u16, body: &'static [&'static str], breaks: bool) -> [ApiError; 2] {
    let service = service_fn(move |_: http::Request<Body>| async move {
        let broken = breaks.then(|| Err(io::Error::from(io::ErrorKind::ConnectionReset)));
        let frames = body.iter().map(|text| Ok(Frame::data(Bytes::from(*text)))).chain(broken);
        let body = StreamBody::new(stream::iter(frames));
        Ok::<_, BoxError>(Response::builder().status(code).body(body)?)
    });
    let api = Api::<MaybeDecoded<ConfigMap>>::all(Client::new(service, "web"));
    let by_kube = api.list(&ListParams::default()).await.map(drop).unwrap_err();
    let by_pages = Pages::new(&api, None).next(drop).await.unwrap_err();
    [by_pages.into(), by_kube.into()]
}

#[tokio::test]
async fn failures_are_the_same_as_those_of_an_unbounded_list() {
    const SLOW_DOWN: &str =
        r#"{"kind":"Status","status":"Failure","code":429,"details":{"retryAfterSeconds":7}}"#;
    for code in [400, 401, 403, 404, 410, 422, 429, 500, 503] {
        for body in [&["not json"][..], &[r#"{"kind":"Status","status":"Failure"}"#], &[]] {
            let [pages, kube] = both(code, body, false).await;
            assert_eq!(pages, kube, "{code} {body:?}");
        }
    }
    let [slow, kube] = both(429, &[SLOW_DOWN], false).await;
    let retry_after = std::time::Duration::from_secs(7);
    assert_eq!([&slow, &kube], [&ApiError::TooManyRequests { retry_after }; 2]);
    const NO_LIST: &str = r#"{"kind":"Status","metadata":{"resourceVersion":"7"}}"#;
    for text in [&[r#"{"items":["#][..], &[NO_LIST], &["{}"], &[]] {
        let [pages, kube] = both(200, text, false).await;
        assert_eq!([&pages, &kube], [&ApiError::Undecodable; 2], "{text:?}");
    }
    let [broken, kube] = both(200, &[r#"{"items":["#], true).await;
    assert_eq!(broken, kube);
    assert!(matches!(broken, ApiError::Unreachable { .. }), "{broken:?}");
}

#[tokio::test]
async fn a_list_of_null_is_empty() {
    let service = service_fn(|_: http::Request<Body>| async {
        let list = br#"{"metadata":{"resourceVersion":"7"},"items":null}"#.to_vec();
        Ok::<_, BoxError>(Response::new(Body::from(list)))
    });
    let api = Api::<MaybeDecoded<ConfigMap>>::all(Client::new(service, "web"));
    let progress = Pages::new(&api, None).next(|object| panic!("{object:?}")).await.unwrap();
    assert_eq!(progress, Progress::Complete(Some("7".to_owned())));
}

//! A server that is wrong in one way, to see that the comparison notices.

use std::convert::Infallible;

use futures::TryStreamExt;
use http::{Request, Response, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use hyper::body::Frame;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tower::service_fn;

use crate::side::Side;

type Told = UnsyncBoxBody<bytes::Bytes, kube::Error>;

/// One way to be wrong.
#[derive(Clone, Copy)]
pub struct Lie {
    pub name: &'static str,
    /// What becomes of the request on its way.
    ask: fn(String) -> String,
    /// What becomes of the answer.
    tell: fn(&mut Response<Value>),
    /// Events of a watch with this in them are left out.
    omit: Option<&'static str>,
}

const TRUTH: Lie = Lie { name: "", ask: |uri| uri, tell: |_| {}, omit: None };

pub const LIES: &[Lie] = &[
    Lie {
        name: "a conflict is called a bad request",
        tell: |answer| recode(answer, 409, 400),
        ..TRUTH
    },
    Lie {
        name: "a created object is answered with 200",
        tell: |answer| recode(answer, 201, 200),
        ..TRUTH
    },
    Lie {
        name: "warnings are swallowed",
        tell: |answer| {
            answer.headers_mut().remove("warning");
        },
        ..TRUTH
    },
    Lie {
        name: "the reason is another",
        tell: |answer| replace(answer, "/reason", "NotFound", json!("Gone")),
        ..TRUTH
    },
    Lie {
        name: "a cause names another field",
        tell: |answer| set(answer, "/details/causes/0/field", json!("spec")),
        ..TRUTH
    },
    Lie {
        name: "the details lack the kind",
        tell: |answer| set(answer, "/details/kind", Value::Null),
        ..TRUTH
    },
    Lie {
        name: "a message is worded otherwise",
        tell: |answer| replace(answer, "/status", "Failure", json!("failure")),
        ..TRUTH
    },
    Lie {
        name: "a write does not change the resourceVersion",
        tell: |answer| set(answer, "/metadata/resourceVersion", json!("7")),
        ..TRUTH
    },
    Lie { name: "the uid is another at each reading", tell: another_uid, ..TRUTH },
    Lie {
        name: "the generation is never counted",
        tell: |answer| set(answer, "/metadata/generation", json!(1)),
        ..TRUTH
    },
    Lie { name: "a list lacks its last item", tell: shorten, ..TRUTH },
    Lie {
        name: "label selectors are ignored",
        ask: |uri| uri.replace("labelSelector", "ignored"),
        ..TRUTH
    },
    Lie { name: "a dry run is not dry", ask: |uri| uri.replace("dryRun=All", ""), ..TRUTH },
    Lie { name: "watches say nothing of changes", omit: Some("\"MODIFIED\""), ..TRUTH },
    Lie { name: "watches say nothing of deletions", omit: Some("\"DELETED\""), ..TRUTH },
];

fn recode(answer: &mut Response<Value>, from: u16, to: u16) {
    if answer.status() == from {
        *answer.status_mut() = http::StatusCode::from_u16(to).expect("a status code");
    }
}

fn set(answer: &mut Response<Value>, place: &str, value: Value) {
    if let Some(found) = answer.body_mut().pointer_mut(place) {
        *found = value;
    }
}

fn replace(answer: &mut Response<Value>, place: &str, from: &str, to: Value) {
    if answer.body().pointer(place).is_some_and(|found| found == from) {
        set(answer, place, to);
    }
}

fn another_uid(answer: &mut Response<Value>) {
    let digits = fastrand::u64(..) >> 16;
    set(answer, "/metadata/uid", json!(format!("00000000-0000-4000-8000-{digits:012x}")));
}

fn shorten(answer: &mut Response<Value>) {
    if let Some(Value::Array(items)) = answer.body_mut().get_mut("items") {
        items.pop();
    }
}

/// The same server, but with a lie.
pub fn lying(side: &Side, lie: Lie) -> Side {
    let inner = side.client.clone();
    let service = service_fn(move |request: Request<Body>| {
        let inner = inner.clone();
        async move { Ok::<_, Infallible>(answer(&inner, request, lie).await) }
    });
    Side { name: "the liar", client: Client::new(service, "default") }
}

async fn answer(inner: &Client, mut request: Request<Body>, lie: Lie) -> Response<Told> {
    let uri = (lie.ask)(request.uri().to_string());
    *request.uri_mut() = uri.parse::<Uri>().expect("still a URI");
    let response = inner.send(request).await.expect("the server answers");
    if uri.contains("watch=true") && response.status() == 200 {
        return response.map(|body| omitting(body, lie.omit));
    }
    let (head, body) = response.into_parts();
    let bytes = body.collect().await.expect("the whole answer").to_bytes();
    let Ok(value) = serde_json::from_slice::<Value>(&bytes) else {
        return Response::from_parts(head, Body::from(bytes).boxed_unsync());
    };
    let mut response = Response::from_parts(head, value);
    (lie.tell)(&mut response);
    response.map(|value| Body::from(value.to_string().into_bytes()).boxed_unsync())
}

/// Every event comes in a frame of its own.
fn omitting(body: Body, omit: Option<&'static str>) -> Told {
    let told = move |frame: &Frame<bytes::Bytes>| {
        let text =
            String::from_utf8_lossy(frame.data_ref().map_or(&[][..], |data| data)).into_owned();
        !omit.is_some_and(|omitted| text.contains(omitted))
    };
    let frames = BodyStream::new(body).try_filter(move |frame| std::future::ready(told(frame)));
    StreamBody::new(frames).boxed_unsync()
}

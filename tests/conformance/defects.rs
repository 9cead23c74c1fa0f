//! A server with one defect, to check that the comparison finds it.

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

use crate::side::{Server, Side};

type AnswerBody = UnsyncBoxBody<bytes::Bytes, kube::Error>;

/// A wrong behaviour.
#[derive(Clone, Copy)]
pub struct Defect {
    pub name: &'static str,
    /// Changes the URI of a request.
    request: fn(String) -> String,
    /// Changes the answer.
    answer: fn(&mut Response<Value>),
    /// Drops watch events that contain this.
    omit: Option<&'static str>,
}

const NONE: Defect = Defect { name: "", request: |uri| uri, answer: |_| {}, omit: None };

pub const DEFECTS: &[Defect] = &[
    Defect {
        name: "a conflict is called a bad request",
        answer: |answer| recode(answer, 409, 400),
        ..NONE
    },
    Defect {
        name: "a created object is answered with 200",
        answer: |answer| recode(answer, 201, 200),
        ..NONE
    },
    Defect {
        name: "warnings are swallowed",
        answer: |answer| {
            answer.headers_mut().remove("warning");
        },
        ..NONE
    },
    Defect {
        name: "the reason is another",
        answer: |answer| replace(answer, "/reason", "NotFound", json!("Gone")),
        ..NONE
    },
    Defect {
        name: "a cause names another field",
        answer: |answer| set(answer, "/details/causes/0/field", json!("spec")),
        ..NONE
    },
    Defect {
        name: "the details lack the kind",
        answer: |answer| set(answer, "/details/kind", Value::Null),
        ..NONE
    },
    Defect {
        name: "a message is worded otherwise",
        answer: |answer| replace(answer, "/status", "Failure", json!("failure")),
        ..NONE
    },
    Defect {
        name: "a write does not change the resourceVersion",
        answer: |answer| set(answer, "/metadata/resourceVersion", json!("7")),
        ..NONE
    },
    Defect { name: "the uid is another at each reading", answer: another_uid, ..NONE },
    Defect {
        name: "the generation is never counted",
        answer: |answer| set(answer, "/metadata/generation", json!(1)),
        ..NONE
    },
    Defect { name: "a list lacks its last item", answer: shorten, ..NONE },
    Defect {
        name: "label selectors are ignored",
        request: |uri| uri.replace("labelSelector", "ignored"),
        ..NONE
    },
    Defect { name: "a dry run is not dry", request: |uri| uri.replace("dryRun=All", ""), ..NONE },
    Defect { name: "watches say nothing of changes", omit: Some("\"MODIFIED\""), ..NONE },
    Defect { name: "watches say nothing of deletions", omit: Some("\"DELETED\""), ..NONE },
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

/// The same server with a defect.
pub fn with_defect(side: &Side, defect: Defect) -> Side {
    let inner = side.client.clone();
    let service = service_fn(move |request: Request<Body>| {
        let inner = inner.clone();
        async move { Ok::<_, Infallible>(answer(&inner, request, defect).await) }
    });
    let client = Client::new(service, "default");
    Side { name: "the defective server", client, server: Server::Defective }
}

async fn answer(
    inner: &Client,
    mut request: Request<Body>,
    defect: Defect,
) -> Response<AnswerBody> {
    let uri = (defect.request)(request.uri().to_string());
    *request.uri_mut() = uri.parse::<Uri>().expect("still a URI");
    let response = inner.send(request).await.expect("the server answers");
    if uri.contains("watch=true") && response.status() == 200 {
        return response.map(|body| without_events(body, defect.omit));
    }
    let (head, body) = response.into_parts();
    let bytes = body.collect().await.expect("the whole answer").to_bytes();
    let Ok(value) = serde_json::from_slice::<Value>(&bytes) else {
        return Response::from_parts(head, Body::from(bytes).boxed_unsync());
    };
    let mut response = Response::from_parts(head, value);
    (defect.answer)(&mut response);
    response.map(|value| Body::from(value.to_string().into_bytes()).boxed_unsync())
}

/// Every event is one frame.
fn without_events(body: Body, omit: Option<&'static str>) -> AnswerBody {
    let is_kept = move |frame: &Frame<bytes::Bytes>| {
        let text =
            String::from_utf8_lossy(frame.data_ref().map_or(&[][..], |data| data)).into_owned();
        !omit.is_some_and(|part| text.contains(part))
    };
    let frames = BodyStream::new(body).try_filter(move |frame| std::future::ready(is_kept(frame)));
    StreamBody::new(frames).boxed_unsync()
}

//! What clients are sent, as the body of a response. All followers are sent the same bundles, which may have many
//! megabytes: they are encoded once, and those that read slowly or not at all hold no copy of their own.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures::{StreamExt as _, stream::BoxStream};
use http::HeaderMap;
use http_body::{Body, Frame};
use tonic::Status;

use crate::authority::join::{
    messages::{Response, ResponsePayload, framed},
    view::Trusted,
};

pub(super) type Answers = BoxStream<'static, Result<Answer, Status>>;

pub(super) enum Answer {
    One(Response),
    /// The same for all followers.
    Bundles(Arc<Trusted>),
}

impl Answer {
    pub(super) fn into_response(self) -> Response {
        match self {
            Self::One(response) => response,
            Self::Bundles(trusted) => {
                Response { payload: Some(ResponsePayload::TrustBundles(trusted.message())) }
            }
        }
    }

    fn framed(self) -> Bytes {
        match self {
            Self::One(response) => framed(&response),
            Self::Bundles(trusted) => trusted.framed(),
        }
    }
}

/// Messages, and the status in the end.
pub(super) struct AnswerBody {
    answers: Answers,
    has_ended: bool,
}

impl AnswerBody {
    pub(super) fn new(answers: Answers) -> Self {
        Self { answers, has_ended: false }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let status = match ready!(self.answers.poll_next_unpin(context)) {
            Some(Ok(answer)) => return Poll::Ready(Some(Ok(Frame::data(answer.framed())))),
            Some(Err(status)) => status,
            None => Status::ok(""),
        };
        self.has_ended = true;
        let mut trailers = HeaderMap::new();
        Poll::Ready(Some(status.add_header(&mut trailers).map(|()| Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended
    }
}

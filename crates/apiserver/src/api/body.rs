//! Bodies of answers: bytes, or the stream of a watch.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{Stream, stream::BoxStream};
use http_body::{Body as HttpBody, Frame, SizeHint};

pub struct Body(Content);

enum Content {
    Whole(Option<Bytes>),
    Stream(BoxStream<'static, Bytes>),
}

impl Body {
    pub(super) fn stream(stream: BoxStream<'static, Bytes>) -> Self {
        Self(Content::Stream(stream))
    }

    /// The bytes, unless it is the stream of a watch.
    pub fn bytes(&self) -> Option<&Bytes> {
        match &self.0 {
            Content::Whole(bytes) => bytes.as_ref(),
            Content::Stream(_) => None,
        }
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Content::Whole(Some(bytes.into())))
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = match &mut self.0 {
            Content::Whole(bytes) => Poll::Ready(bytes.take()),
            Content::Stream(stream) => Pin::new(stream).poll_next(context),
        };
        next.map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.0, Content::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Content::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Content::Stream(_) => SizeHint::default(),
        }
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Body")
    }
}

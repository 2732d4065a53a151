//! Response bodies: whole, or made while they are read.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;

use crate::handlers::list::ListBody;
use crate::handlers::watch::WatchBody;

/// The body of a response.
pub enum Body {
    /// All of it.
    Full(Bytes),
    /// Items are copied into chunks as the client reads.
    List(ListBody),
    /// Events as they happen.
    Watch(Box<WatchBody>),
    /// What someone else says.
    Streamed(UnsyncBoxBody<Bytes, BodyError>),
}

/// A body that could not be read to its end.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BodyError(pub String);

/// What is asked of a body again and again until it is at its end.
pub type NextFrame = Poll<Option<Result<Frame<Bytes>, BodyError>>>;

impl Body {
    /// A body that is made elsewhere while it is read.
    pub fn streamed(body: impl http_body::Body<Data = Bytes, Error = BodyError> + Send + 'static) -> Body {
        Body::Streamed(body.boxed_unsync())
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> NextFrame {
        let data = match &mut *self {
            Body::Full(bytes) if bytes.is_empty() => None,
            Body::Full(bytes) => Some(std::mem::take(bytes)),
            Body::List(list) => list.next_chunk(),
            Body::Watch(watch) => match watch.poll_chunk(cx) {
                Poll::Ready(data) => data,
                Poll::Pending => return Poll::Pending,
            },
            Body::Streamed(body) => return Pin::new(body).poll_frame(cx),
        };
        Poll::Ready(data.map(|d| Ok(Frame::data(d))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Body::Full(bytes) => bytes.is_empty(),
            Body::Streamed(body) => body.is_end_stream(),
            _ => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Body::Streamed(body) => body.size_hint(),
            _ => SizeHint::default(),
        }
    }
}

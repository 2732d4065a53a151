//! Response bodies: whole, or made while they are read.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

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
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let data = match &mut *self {
            Body::Full(bytes) if bytes.is_empty() => None,
            Body::Full(bytes) => Some(std::mem::take(bytes)),
            Body::List(list) => list.next_chunk(),
            Body::Watch(watch) => match watch.poll_chunk(cx) {
                Poll::Ready(data) => data,
                Poll::Pending => return Poll::Pending,
            },
        };
        Poll::Ready(data.map(|d| Ok(Frame::data(d))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Body::Full(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            _ => SizeHint::default(),
        }
    }
}

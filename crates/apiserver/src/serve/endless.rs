//! Bodies without an end of their own, which end when the server stops.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::Response;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::watch;

/// An extension of a response whose body has no end, such as a watch. It is ended in good order when the server stops;
/// other bodies are given time to finish.
#[derive(Clone, Copy, Debug)]
pub struct Endless;

/// A body that may be ended from outside.
pub(super) struct Ending<B> {
    body: B,
    /// Set for endless bodies.
    stop: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl<B> Ending<B> {
    /// Lets an endless body end when the sender of `draining` is dropped.
    pub(super) fn wrap(response: Response<B>, draining: &watch::Receiver<()>) -> Response<Ending<B>> {
        let is_endless = response.extensions().get::<Endless>().is_some();
        let stop = is_endless.then(|| {
            let mut draining = draining.clone();
            Box::pin(async move { while draining.changed().await.is_ok() {} }) as Pin<Box<_>>
        });
        response.map(|body| Ending { body, stop })
    }
}

impl<B: Body + Unpin> Body for Ending<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        match &mut self.stop {
            Some(stop) => stop.as_mut().poll(cx).map(|()| None),
            None => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

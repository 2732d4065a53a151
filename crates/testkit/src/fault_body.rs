//! Bodies that break, dawdle or stutter.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep};

use crate::faults::{BoxError, Effect, FaultBody, status_object};

/// A body with one kind of damage.
pub(crate) struct Damaged {
    inner: FaultBody,
    effect: Effect,
    /// Pieces that are made and not given out.
    ready: VecDeque<Result<Bytes, BoxError>>,
    /// Bytes or lines that went through.
    passed: usize,
    over: bool,
    stalled: bool,
    /// Until the next piece may go.
    pause: Option<Pin<Box<Sleep>>>,
}

/// A body that breaks when everybody is disconnected.
pub(crate) struct Breakable {
    inner: FaultBody,
    broken: Pin<Box<dyn Future<Output = ()> + Send>>,
    over: bool,
}

impl Breakable {
    pub fn new(inner: FaultBody, disconnected: oneshot::Receiver<()>) -> Breakable {
        let broken = Box::pin(async move {
            // Without a layer nobody can be disconnected any more.
            if disconnected.await.is_err() {
                std::future::pending::<()>().await;
            }
        });
        Breakable { inner, broken, over: false }
    }
}

impl Body for Breakable {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.over {
            return Poll::Ready(None);
        }
        if self.broken.as_mut().poll(cx).is_ready() {
            self.over = true;
            return Poll::Ready(Some(Err("the connection was cut".into())));
        }
        Pin::new(&mut self.inner).poll_frame(cx)
    }
}

impl Damaged {
    pub fn new(inner: FaultBody, effect: Effect) -> Damaged {
        Damaged { inner, effect, ready: VecDeque::new(), passed: 0, over: false, stalled: false, pause: None }
    }

    fn damage(&mut self, mut chunk: Bytes) {
        match self.effect {
            Effect::CutAfter(limit) | Effect::EndAfter(limit) => {
                if self.passed + chunk.len() >= limit {
                    chunk.truncate(limit - self.passed);
                    self.over = true;
                }
                self.passed += chunk.len();
                self.ready.push_back(Ok(chunk));
                if self.over && matches!(self.effect, Effect::CutAfter(_)) {
                    self.ready.push_back(Err("the connection was cut".into()));
                }
            }
            Effect::StallAfter(limit) => {
                chunk.truncate(limit - self.passed.min(limit));
                self.passed += chunk.len();
                self.stalled = self.passed >= limit;
                self.ready.push_back(Ok(chunk));
            }
            Effect::Pieces(size) | Effect::Drip { bytes: size, .. } => {
                while !chunk.is_empty() {
                    let piece = chunk.split_to(size.max(1).min(chunk.len()));
                    self.ready.push_back(Ok(piece));
                }
            }
            Effect::DoubleLines => {
                let twice = lines(&chunk).iter().flat_map(|line| [*line, *line]).collect();
                self.ready.push_back(Ok(join(twice)));
            }
            Effect::ReverseLines => {
                let reversed = lines(&chunk).into_iter().rev().collect();
                self.ready.push_back(Ok(join(reversed)));
            }
            Effect::ErrorEvent { after, code } => {
                let mut lines = lines(&chunk);
                let event =
                    format!("{}\n", json!({"type": "ERROR", "object": status_object(code, "Expired", None)}));
                if self.passed + lines.len() >= after {
                    lines.truncate(after - self.passed);
                    lines.push(event.as_bytes());
                    self.over = true;
                }
                self.passed += lines.len();
                self.ready.push_back(Ok(join(lines)));
            }
            _ => self.ready.push_back(Ok(chunk)),
        }
    }
}

fn lines(chunk: &[u8]) -> Vec<&[u8]> {
    chunk.split_inclusive(|byte| *byte == b'\n').collect()
}

fn join(lines: Vec<&[u8]>) -> Bytes {
    let mut whole = BytesMut::new();
    for line in lines {
        whole.extend_from_slice(line);
    }
    whole.freeze()
}

impl Body for Damaged {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        loop {
            if let (Effect::Drip { pause, .. }, false) = (&this.effect, this.ready.is_empty()) {
                let waiting = this.pause.get_or_insert_with(|| Box::pin(sleep(*pause)));
                if waiting.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                this.pause = None;
            }
            if let Some(piece) = this.ready.pop_front() {
                return Poll::Ready(Some(piece.map(Frame::data)));
            }
            if this.over {
                return Poll::Ready(None);
            }
            if this.stalled {
                return Poll::Pending;
            }
            match Pin::new(&mut this.inner).poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(chunk) => this.damage(chunk),
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
            }
        }
    }
}

//! Lines off a response body, without copying.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use kube::client::Body;

use super::fault::Fault;

/// The lines of a body. A line within one chunk is a slice of it; one that spans chunks is joined once, at its end.
pub struct Frames {
    body: Body,
    /// Chunks since the last newline.
    begun: Vec<Bytes>,
    begun_len: usize,
    limit: usize,
    ended: bool,
}

impl Frames {
    /// The lines of `body`, none longer than `limit` bytes.
    pub fn new(body: Body, limit: usize) -> Frames {
        Frames { body, begun: Vec::new(), begun_len: 0, limit, ended: false }
    }

    /// The lines that came since the last call; waits for at least one. Empty at the body's end: what stands there
    /// without a newline is half a line and given up. Nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Result<Vec<Bytes>, Fault> {
        while !self.ended {
            let chunk = match self.body.frame().await {
                None => {
                    self.ended = true;
                    break;
                }
                Some(Err(error)) => {
                    self.ended = true;
                    return Err(Fault::Connection(error.to_string()));
                }
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(chunk) => chunk,
                    Err(_trailers) => continue,
                },
            };
            let lines = self.cut(chunk)?;
            if !lines.is_empty() {
                return Ok(lines);
            }
        }
        Ok(Vec::new())
    }

    fn cut(&mut self, mut chunk: Bytes) -> Result<Vec<Bytes>, Fault> {
        let mut lines = Vec::new();
        while let Some(end) = memchr::memchr(b'\n', &chunk) {
            let piece = chunk.split_to(end + 1).slice(..end);
            let line = if self.begun.is_empty() { piece } else { self.join(&piece) };
            if line.len() > self.limit {
                return Err(Fault::FrameTooLarge { limit: self.limit });
            }
            if !line.is_empty() {
                lines.push(line);
            }
        }
        if !chunk.is_empty() {
            self.begun_len += chunk.len();
            self.begun.push(chunk);
        }
        if self.begun_len > self.limit {
            self.ended = true;
            return Err(Fault::FrameTooLarge { limit: self.limit });
        }
        Ok(lines)
    }

    fn join(&mut self, last: &Bytes) -> Bytes {
        let mut line = BytesMut::with_capacity(self.begun_len + last.len());
        for piece in self.begun.drain(..) {
            line.extend_from_slice(&piece);
        }
        self.begun_len = 0;
        line.extend_from_slice(last);
        line.freeze()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frames(limit: usize) -> Frames {
        Frames::new(Body::empty(), limit)
    }

    proptest! {
        #[test]
        fn lines_come_out_whole_however_the_chunks_fall(
            lines in proptest::collection::vec("[a-z]{1,20}", 1..10),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let text = Bytes::from(lines.iter().map(|line| format!("{line}\n")).collect::<String>());
            let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len())).collect();
            places.extend([0, text.len()]);
            places.sort_unstable();
            let mut frames = frames(100);
            let mut seen = Vec::new();
            for pair in places.windows(2) {
                seen.extend(frames.cut(text.slice(pair[0]..pair[1])).unwrap());
            }
            prop_assert_eq!(seen, lines.iter().map(|line| Bytes::from(line.clone())).collect::<Vec<_>>());
            prop_assert!(frames.begun.is_empty());
        }
    }

    #[test]
    fn a_line_within_a_chunk_is_not_copied() {
        let chunk = Bytes::from_static(b"one\ntwo\nthr");
        let lines = frames(10).cut(chunk.clone()).unwrap();
        assert_eq!(lines, ["one", "two"]);
        assert_eq!(lines[1].as_ptr(), chunk[4..].as_ptr());
    }

    #[test]
    fn an_endless_line_is_cut_off() {
        let mut frames = frames(10);
        assert!(frames.cut(Bytes::from_static(b"123456")).unwrap().is_empty());
        assert!(matches!(frames.cut(Bytes::from_static(b"78901")), Err(Fault::FrameTooLarge { limit: 10 })));
    }
}

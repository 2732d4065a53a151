//! The events of a watch, line by line.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Method, StatusCode};

use super::client::{H2, Target, send};

/// An open watch.
pub struct Lines {
    // Who drops it closes the stream.
    _connection: H2,
    body: Incoming,
    unread: BytesMut,
}

impl Lines {
    /// Opens a watch on a connection of its own.
    pub async fn open(target: &Target, path: &str) -> Result<Lines> {
        let mut connection = target.h2().await?;
        let response = send(&mut connection, target.request(Method::GET, path, Bytes::new())?).await?;
        if response.status() != StatusCode::OK {
            bail!("GET {path}: {}", response.status());
        }
        Ok(Lines { _connection: connection, body: response.into_body(), unread: BytesMut::new() })
    }

    /// The lines that have come since, at least one. Without any for so long, it is an error.
    pub async fn more(&mut self, patience: Duration) -> Result<Vec<BytesMut>> {
        loop {
            let mut lines = Vec::new();
            while let Some(end) = memchr::memchr(b'\n', &self.unread) {
                lines.push(self.unread.split_to(end + 1));
            }
            if !lines.is_empty() {
                return Ok(lines);
            }
            let frame = tokio::time::timeout(patience, self.body.frame()).await;
            let frame = frame.with_context(|| format!("nothing has happened for {patience:?}"))?;
            let frame = frame.context("the watch has ended")??;
            self.unread.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
        }
    }
}

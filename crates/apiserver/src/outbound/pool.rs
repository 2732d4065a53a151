//! Connections to programs outside that wait for the next request.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::SendRequest;
use parking_lot::Mutex;
use rustls::ClientConfig;
use tokio::time::Instant;

use crate::backend::{Backend, Trust, client_config};

/// Connections that were idle for longer are closed.
const IDLE: Duration = Duration::from_secs(90);
/// More of one kind are not kept.
const IDLE_EACH: usize = 16;
/// More bundles of certificates are not kept.
const BUNDLES: usize = 256;

/// Whom a connection leads to, and by whose word.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Where to connect.
    pub backend: Backend,
    /// Whom to expect there.
    pub host: String,
    /// Authorities to trust, as base64.
    pub bundle: String,
}

/// A connection that takes requests.
pub type Sender = SendRequest<Full<Bytes>>;

/// Idle connections, and what their like is made with.
#[derive(Default)]
pub struct Pool {
    idle: Mutex<HashMap<Key, Vec<(Sender, Instant)>>>,
    tls: Mutex<HashMap<String, Arc<ClientConfig>>>,
}

impl Pool {
    /// A connection that nobody uses.
    pub fn take(&self, key: &Key) -> Option<Sender> {
        let mut idle = self.idle.lock();
        let waiting = idle.get_mut(key)?;
        let now = Instant::now();
        while let Some((sender, since)) = waiting.pop() {
            if now.duration_since(since) < IDLE && !sender.is_closed() {
                return Some(sender);
            }
        }
        idle.remove(key);
        None
    }

    /// Gives a connection back after its answer has been read.
    pub fn put(&self, key: Key, sender: Sender) {
        let mut idle = self.idle.lock();
        let now = Instant::now();
        idle.retain(|_, waiting| {
            waiting.retain(|(sender, since)| now.duration_since(*since) < IDLE && !sender.is_closed());
            !waiting.is_empty()
        });
        let waiting = idle.entry(key).or_default();
        if waiting.len() < IDLE_EACH {
            waiting.push((sender, now));
        }
    }

    /// Trust in the authorities of a bundle, and in nobody else.
    pub fn tls(&self, bundle: &str) -> Result<Arc<ClientConfig>, String> {
        if let Some(known) = self.tls.lock().get(bundle) {
            return Ok(known.clone());
        }
        let config = client_config(Trust::Bundle(bundle), None)?;
        let mut known = self.tls.lock();
        if known.len() >= BUNDLES {
            known.clear();
        }
        known.insert(bundle.to_owned(), config.clone());
        Ok(config)
    }
}

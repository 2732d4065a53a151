//! The TLS side of the server.

use std::sync::Arc;

use rustls::crypto::ring;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use crate::access::pki::Pki;

/// Why TLS cannot be set up with these keys.
#[derive(Debug, thiserror::Error)]
#[error("cannot set up TLS: {0}; delete the directory with the keys to start with new ones")]
pub struct TlsError(String);

/// TLS with the server's certificate. Clients may show a certificate; if they do, it must be of our authority.
pub fn server_config(pki: &Pki) -> Result<Arc<ServerConfig>, TlsError> {
    let failed = |e: &dyn std::fmt::Display| TlsError(e.to_string());
    let trust = pki.for_tls().map_err(|e| failed(&e))?;
    let provider = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(trust.ca).map_err(|e| failed(&e))?;
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .allow_unauthenticated()
        .build()
        .map_err(|e| failed(&e))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| failed(&e))?
        .with_client_cert_verifier(clients)
        .with_single_cert(vec![trust.server], trust.key)
        .map_err(|e| failed(&e))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // Sessions are resumed from tickets that clients keep: no memory here, and no handshake signature.
    config.ticketer = ring::Ticketer::new().map_err(|e| failed(&e))?;
    config.send_tls13_tickets = 1;
    Ok(Arc::new(config))
}

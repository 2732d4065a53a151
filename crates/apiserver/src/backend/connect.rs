//! A connection with TLS to a back end.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Backend;

/// Connects to the first address that answers; `host` is the name that its certificate must have.
pub async fn connect(
    backend: &Backend,
    host: &str,
    tls: Arc<ClientConfig>,
) -> Result<TlsStream<TcpStream>, String> {
    let stream = dial(backend).await?;
    let name = ServerName::try_from(host.to_owned()).map_err(|e| format!("tls: {e}"))?;
    TlsConnector::from(tls).connect(name, stream).await.map_err(|e| format!("tls: {e}"))
}

async fn dial(backend: &Backend) -> Result<TcpStream, String> {
    let addresses: Vec<SocketAddr> = match backend {
        Backend::Addresses(addresses) => addresses.clone(),
        Backend::Host(host, port) => {
            let found = tokio::net::lookup_host((host.as_str(), *port)).await;
            found.map_err(|e| format!("dial tcp: lookup {host}: {e}"))?.collect()
        }
    };
    let mut last = "dial tcp: no address".to_owned();
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                // Without this, small answers wait for acknowledgements; failing to set it changes nothing else.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(e) => last = format!("dial tcp {address}: {e}"),
        }
    }
    Err(last)
}

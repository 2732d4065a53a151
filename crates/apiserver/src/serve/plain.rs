//! What does not speak TLS, on a port that does.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const TLS_HANDSHAKE: u8 = 0x16;
/// The answer of Go's HTTP server, which clients of Kubernetes recognise.
const ANSWER: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// Waits for the first byte. True: the client speaks TLS (nothing has been read). False: it has been dealt with.
pub(super) async fn speaks_tls(stream: &mut TcpStream) -> io::Result<bool> {
    let mut first = [0];
    if stream.peek(&mut first).await? == 0 {
        return Ok(false);
    }
    if first[0] == TLS_HANDSHAKE {
        return Ok(true);
    }
    if first[0].is_ascii_uppercase() {
        stream.write_all(ANSWER).await?;
        stream.shutdown().await?;
        // Closing with unread bytes resets the connection, and the client might never see the answer.
        let mut rest = [0; 4096];
        let drain = async { while matches!(stream.read(&mut rest).await, Ok(1..)) {} };
        let _ = tokio::time::timeout(Duration::from_secs(1), drain).await;
    }
    Ok(false)
}

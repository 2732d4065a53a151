//! The cluster's name server: names of Services and their programs; everything else is asked of the host's name servers.
//!
//! An ordinary user cannot listen on port 53, so it listens on another one; the supervisors of pods lead connections to
//! [`SERVER`] there. Names stand in the pods' `/etc/hosts`, too, for resolvers that do not connect their sockets.

mod message;
mod resolv_conf;
mod zone;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;

use message::{A, ANY, GOOD, NO_SUCH_NAME, Record, SERVER_FAILURE, SRV, packet_limit, parse, reply};
pub use resolv_conf::resolv_conf;
pub use zone::{Cluster, DOMAIN};
use zone::{Found, find};

/// By this address pods know it.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);
/// Its port there.
pub const PORT: u16 = 53;

/// Questions that are answered at once.
const AT_ONCE: usize = 256;
/// How long each of the host's name servers is waited for.
const PATIENCE: Duration = Duration::from_secs(3);
/// Ports are tried until one is free for both protocols.
const TRIES: u32 = 20;

/// Begins to listen; gives the address and the work.
pub async fn serve(
    cluster: Arc<dyn Cluster + Send + Sync>,
) -> std::io::Result<(SocketAddr, impl Future<Output = ()> + Send + use<>)> {
    let (udp, tcp) = listen().await?;
    let address = udp.local_addr()?;
    let work = async move {
        let (udp, permits) = (Arc::new(udp), Arc::new(Semaphore::new(AT_ONCE)));
        tokio::join!(serve_packets(udp, &cluster, &permits), serve_streams(tcp, &cluster, &permits));
    };
    Ok((address, work))
}

async fn listen() -> std::io::Result<(UdpSocket, TcpListener)> {
    let mut last = std::io::Error::other("no port is free");
    for _ in 0..TRIES {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        match UdpSocket::bind(tcp.local_addr()?).await {
            Ok(udp) => return Ok((udp, tcp)),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn serve_packets(
    udp: Arc<UdpSocket>,
    cluster: &Arc<dyn Cluster + Send + Sync>,
    permits: &Arc<Semaphore>,
) {
    let mut buffer = vec![0; 4096];
    loop {
        let Ok((count, client)) = udp.recv_from(&mut buffer).await else { continue };
        let Ok(permit) = permits.clone().acquire_owned().await else { return };
        let (query, udp, cluster) = (buffer[..count].to_vec(), udp.clone(), cluster.clone());
        tokio::spawn(async move {
            if let Some(answer) = answer(&query, packet_limit(&query), &*cluster, false).await {
                let _ = udp.send_to(&answer, client).await;
            }
            drop(permit);
        });
    }
}

async fn serve_streams(tcp: TcpListener, cluster: &Arc<dyn Cluster + Send + Sync>, permits: &Arc<Semaphore>) {
    loop {
        let Ok((mut stream, _)) = tcp.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let Ok(permit) = permits.clone().acquire_owned().await else { return };
        let cluster = cluster.clone();
        tokio::spawn(async move {
            let conversation = async {
                while let Some(query) = read_message(&mut stream).await {
                    let answer = answer(&query, usize::from(u16::MAX), &*cluster, true).await;
                    if write_message(&mut stream, &answer.unwrap_or_default()).await.is_err() {
                        return;
                    }
                }
            };
            let _ = tokio::time::timeout(Duration::from_secs(30), conversation).await;
            drop(permit);
        });
    }
}

async fn read_message(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let length = stream.read_u16().await.ok()?;
    let mut message = vec![0; usize::from(length)];
    stream.read_exact(&mut message).await.ok()?;
    Some(message)
}

async fn write_message(stream: &mut TcpStream, message: &[u8]) -> std::io::Result<()> {
    let mut out = u16::try_from(message.len()).unwrap_or(0).to_be_bytes().to_vec();
    out.extend_from_slice(message);
    stream.write_all(&out).await
}

async fn answer(
    query: &[u8],
    limit: usize,
    cluster: &(dyn Cluster + Send + Sync),
    stream: bool,
) -> Option<Vec<u8>> {
    let question = parse(query)?;
    match find(&question.name, cluster) {
        Found::Missing => Some(reply(query, &question, NO_SUCH_NAME, &[], limit)),
        Found::Records(all) => {
            let fits = |record: &Record| match record {
                Record::Address(_) => matches!(question.kind, A | ANY),
                Record::Service(..) => matches!(question.kind, SRV | ANY),
            };
            let fitting: Vec<Record> = all.into_iter().filter(fits).collect();
            Some(reply(query, &question, GOOD, &fitting, limit))
        }
        Found::Foreign => {
            let host = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
            for server in resolv_conf::servers(&host).iter().filter_map(|server| server.parse().ok()) {
                let asked = tokio::time::timeout(PATIENCE, ask(server, query, stream)).await;
                if let Ok(Ok(answer)) = asked {
                    return Some(answer);
                }
            }
            Some(reply(query, &question, SERVER_FAILURE, &[], limit))
        }
    }
}

/// Asks one of the host's name servers, in the way we were asked.
async fn ask(server: IpAddr, query: &[u8], stream: bool) -> std::io::Result<Vec<u8>> {
    let gone = || std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
    if stream {
        let mut connection = TcpStream::connect((server, PORT)).await?;
        write_message(&mut connection, query).await?;
        return read_message(&mut connection).await.ok_or_else(gone);
    }
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { std::net::Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect((server, PORT)).await?;
    socket.send(query).await?;
    let mut buffer = vec![0; 4096];
    loop {
        let count = socket.recv(&mut buffer).await?;
        if buffer.get(..2) == query.get(..2) {
            buffer.truncate(count);
            return Ok(buffer);
        }
    }
}

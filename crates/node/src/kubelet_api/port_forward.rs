//! `/portForward`: connections to a pod's ports, as SPDY streams, inside a WebSocket or alone.
//!
//! For every connection the client opens two streams with one `requestID`: `error`, on which the node tells what went
//! wrong, and `data`.

use std::collections::HashMap;
use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::answer::Answer;
use super::link::{Link, Sender as Out, accept};
use super::spdy::{Decoder, Encoder, Frame, data, pong};
use crate::pod::worker::View;

const PROTOCOL: &str = "SPDY/3.1+portforward.k8s.io";
const SPDY_PROTOCOL: &str = "portforward.k8s.io";
/// Pieces that may wait for a slow connection, and connections at once.
const BACKLOG: usize = 64;
const CONNECTIONS: usize = 256;

pub fn answer(view: &Arc<View>, request: Request<Incoming>) -> Response<Answer> {
    let ip = view.local_ip.clone();
    accept(request, &[PROTOCOL], &[SPDY_PROTOCOL], move |link| async move {
        let out = link.sender();
        if let Err(error) = forward(link, &ip).await {
            tracing::debug!(error, "port-forwarding ended");
        }
        let _ = out.close().await;
    })
}

async fn forward(mut link: Link, ip: &str) -> Result<(), String> {
    let out = link.sender();
    let (mut decoder, mut encoder) = (Decoder::new(), Encoder::new());
    let mut errors: HashMap<String, u32> = HashMap::new();
    let mut inputs: HashMap<u32, mpsc::Sender<Vec<u8>>> = HashMap::new();
    let mut connections = JoinSet::new();
    while let Some(message) = link.read().await.map_err(|e| e.to_string())? {
        decoder.push(&message);
        while let Some(frame) = decoder.next()? {
            match frame {
                Frame::Open(stream, headers, _) => {
                    while connections.try_join_next().is_some() {}
                    let get = |name: &str| {
                        let found = headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
                        found.map(|(_, value)| value.clone()).unwrap_or_default()
                    };
                    send(&out, &encoder.reply(stream)?).await?;
                    let request = get("requestid");
                    match (get("streamtype").as_str(), get("port").parse::<u16>()) {
                        ("error", _) if errors.len() < CONNECTIONS => {
                            errors.insert(request, stream);
                        }
                        ("data", Ok(port)) if connections.len() < CONNECTIONS => {
                            let (sender, input) = mpsc::channel(BACKLOG);
                            inputs.insert(stream, sender);
                            let error = errors.remove(&request);
                            let (out, ip) = (out.clone(), ip.to_owned());
                            connections.spawn(connect(ip, port, stream, error, input, out));
                        }
                        _ => return Err("a stream is not as port-forwarding has it".to_owned()),
                    }
                }
                Frame::Data(stream, bytes, fin) => {
                    if let Some(input) = inputs.get(&stream) {
                        // Waiting here keeps the client from sending more than the pod takes.
                        let taken = bytes.is_empty() || input.send(bytes).await.is_ok();
                        if fin || !taken {
                            inputs.remove(&stream);
                        }
                    }
                }
                Frame::Reset(stream) => {
                    inputs.remove(&stream);
                }
                Frame::Ping(payload) => send(&out, &pong(&payload)).await?,
                Frame::Leave => return Ok(()),
                Frame::Other => {}
            }
        }
    }
    Ok(())
}

async fn send(out: &Out, bytes: &[u8]) -> Result<(), String> {
    out.send(bytes).await.map_err(|e| e.to_string())
}

/// One connection to the pod; both streams are closed at its end.
async fn connect(
    ip: String,
    port: u16,
    stream: u32,
    error: Option<u32>,
    mut input: mpsc::Receiver<Vec<u8>>,
    out: Out,
) {
    let copied: Result<(), String> = async {
        let connected = TcpStream::connect((ip.as_str(), port)).await;
        let refused = |e| format!("failed to connect to localhost:{port} inside the pod ({ip}): {e}");
        let (mut reader, mut writer) = connected.map_err(refused)?.into_split();
        let upwards = async {
            while let Some(bytes) = input.recv().await {
                if writer.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            let _ = writer.shutdown().await;
        };
        let downwards = async {
            let mut buffer = vec![0; 32 * 1024];
            while let Ok(count) = reader.read(&mut buffer).await {
                if count == 0 || out.send(&data(stream, &buffer[..count], false)).await.is_err() {
                    return;
                }
            }
        };
        // The pod's side decides when it is over.
        let mut upwards = std::pin::pin!(upwards);
        let mut downwards = std::pin::pin!(downwards);
        tokio::select! { () = &mut downwards => {}, () = &mut upwards => downwards.await }
        Ok(())
    }
    .await;
    if let Some(error) = error {
        let text = copied.err().unwrap_or_default();
        let _ = out.send(&data(error, text.as_bytes(), true)).await;
    }
    let _ = out.send(&data(stream, b"", true)).await;
}

//! exec and attach over SPDY: a stream for each channel, as real API servers and older clients open them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::channels::{self, ERROR, RESIZE, STDERR, STDIN, STDOUT};
use super::link::{Link, Sender};
use super::spdy::{Decoder, Encoder, Frame, data, pong};

/// How long a client may take to open its streams.
const OPENING: Duration = Duration::from_secs(30);
/// How many frames may come before all streams are open.
const EARLY: usize = 16;

/// The streams that go to the client, by channel.
pub struct Streams {
    sender: Sender,
    ids: HashMap<u8, u32>,
}

impl Streams {
    /// Sends something on a channel; one that the client has not opened is not wanted.
    pub async fn send(&self, channel: u8, bytes: &[u8]) -> std::io::Result<()> {
        match self.ids.get(&channel) {
            Some(id) if !bytes.is_empty() => self.sender.send(&data(*id, bytes, false)).await,
            _ => Ok(()),
        }
    }

    /// Says that nothing more comes.
    pub async fn close(&self) -> std::io::Result<()> {
        for channel in [STDOUT, STDERR, ERROR] {
            if let Some(id) = self.ids.get(&channel) {
                self.sender.send(&data(*id, b"", true)).await?;
            }
        }
        self.sender.close().await
    }
}

fn channel_of(stream_type: &str) -> Option<u8> {
    Some(match stream_type {
        "stdin" => STDIN,
        "stdout" => STDOUT,
        "stderr" => STDERR,
        "error" => ERROR,
        "resize" => RESIZE,
        _ => return None,
    })
}

/// Waits until the client has opened `wanted` channels; gives where to send, and what the client says as messages of
/// channels.
pub async fn open(mut link: Link, wanted: &[u8]) -> Result<(Arc<Streams>, mpsc::Receiver<Bytes>), String> {
    let sender = link.sender();
    let (mut decoder, mut encoder) = (Decoder::new(), Encoder::new());
    let mut ids: HashMap<u8, u32> = HashMap::new();
    let mut early = Vec::new();
    let opening = async {
        loop {
            while let Some(frame) = decoder.next()? {
                match frame {
                    Frame::Open(stream, headers, _) => {
                        let found = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("streamtype"));
                        let channel = found.and_then(|(_, value)| channel_of(value));
                        ids.insert(channel.ok_or("a stream is of no known type")?, stream);
                        let reply = encoder.reply(stream)?;
                        sender.send(&reply).await.map_err(|e| e.to_string())?;
                    }
                    Frame::Ping(payload) => {
                        sender.send(&pong(&payload)).await.map_err(|e| e.to_string())?;
                    }
                    // Input may come before the last stream is open.
                    other if early.len() < EARLY => early.push(other),
                    _ => return Err("too much was said before all streams were open".to_owned()),
                }
            }
            if wanted.iter().all(|channel| ids.contains_key(channel)) {
                return Ok::<(), String>(());
            }
            let piece = link.read().await.map_err(|e| e.to_string())?;
            decoder.push(&piece.ok_or("the client has gone")?);
        }
    };
    let opened = tokio::time::timeout(OPENING, opening).await;
    opened.map_err(|_| "the client did not open its streams in time".to_owned())??;
    let streams = Arc::new(Streams { sender: sender.clone(), ids });
    let (tell, messages) = mpsc::channel(16);
    let channels: HashMap<u32, u8> = streams.ids.iter().map(|(channel, id)| (*id, *channel)).collect();
    tokio::spawn(async move {
        for frame in early {
            if !pass(frame, &channels, &tell, &sender).await {
                return;
            }
        }
        loop {
            match decoder.next() {
                Ok(Some(frame)) => {
                    if !pass(frame, &channels, &tell, &sender).await {
                        return;
                    }
                }
                Ok(None) => match link.read().await {
                    Ok(Some(piece)) => decoder.push(&piece),
                    _ => return,
                },
                Err(_) => return,
            }
        }
    });
    Ok((streams, messages))
}

/// Tells what a frame says; false when the conversation is over.
async fn pass(
    frame: Frame,
    channels: &HashMap<u32, u8>,
    tell: &mpsc::Sender<Bytes>,
    sender: &Sender,
) -> bool {
    match frame {
        Frame::Data(stream, bytes, fin) => {
            let Some(channel) = channels.get(&stream).copied() else { return true };
            let said = bytes.is_empty() || tell.send(channels::message(channel, &bytes).into()).await.is_ok();
            let end = || Bytes::copy_from_slice(&channels::end(channel));
            said && (!fin || tell.send(end()).await.is_ok())
        }
        Frame::Ping(payload) => sender.send(&pong(&payload)).await.is_ok(),
        Frame::Leave => false,
        Frame::Open(..) | Frame::Reset(_) | Frame::Other => true,
    }
}

//! `/exec` and `/attach`.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{mpsc, watch};

use super::answer::{Answer, Query, text};
use super::channels::{self, PROTOCOLS, SPDY_PROTOCOLS, STDERR, STDOUT, Said, said};
use super::link::{Link, Sender, accept};
use super::spdy_channels;
use crate::logs::{Progress, Stream};
use crate::pod::container::Run;
use crate::pod::worker::View;
use crate::process::Streams;
use crate::terminal::Terminal;

/// How long a terminal's last output may take after the command has ended.
const LAST_OUTPUT: std::time::Duration = std::time::Duration::from_millis(200);

/// Which streams a client wants.
#[derive(Clone, Copy)]
struct Wanted {
    input: bool,
    output: bool,
    errors: bool,
    tty: bool,
}

pub fn answer(
    view: &Arc<View>,
    is_exec: bool,
    container: &str,
    query: &Query,
    request: Request<Incoming>,
) -> Response<Answer> {
    let Some(run) = view.runs.lock().get(container).cloned() else {
        return text(StatusCode::NOT_FOUND, &format!("container not found ({container:?})"));
    };
    let wanted = Wanted {
        input: query.is_set(&["input", "stdin"]),
        output: query.is_set(&["output", "stdout"]),
        errors: query.is_set(&["error", "stderr"]),
        tty: query.is_set(&["tty"]),
    };
    let command = query.all("command");
    if is_exec && command.is_empty() {
        return text(StatusCode::BAD_REQUEST, "you must specify at least 1 command");
    }
    accept(request, &PROTOCOLS, &SPDY_PROTOCOLS, move |link| async move {
        let (out, messages) = match begin(link, wanted).await {
            Ok(begun) => begun,
            Err(error) => {
                tracing::debug!(error, "a conversation did not begin");
                return;
            }
        };
        // How a conversation is cut off does not matter any more.
        let _ = match is_exec {
            true => exec(&out, messages, &run, command, wanted).await,
            false => {
                let attached = attach(&out, messages, &run, wanted).await;
                if wanted.input && run.stdin_once {
                    let _ = run.feed(None).await;
                }
                attached
            }
        };
        let _ = out.close().await;
    })
}

/// Where a client's channels are: in one WebSocket, or each in a stream of SPDY.
#[derive(Clone)]
enum Out {
    Messages(Sender),
    Streams(Arc<spdy_channels::Streams>),
}

impl Out {
    async fn send(&self, channel: u8, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Out::Messages(sender) => sender.send(&channels::message(channel, bytes)).await,
            Out::Streams(streams) => streams.send(channel, bytes).await,
        }
    }

    async fn close(&self) -> std::io::Result<()> {
        match self {
            Out::Messages(sender) => sender.close().await,
            Out::Streams(streams) => streams.close().await,
        }
    }
}

/// Where to send, and what the client says.
async fn begin(link: Link, wanted: Wanted) -> Result<(Out, mpsc::Receiver<Bytes>), String> {
    if matches!(link, Link::WebSocket(_)) {
        let out = Out::Messages(link.sender());
        return Ok((out, incoming(link)));
    }
    let streams = [
        (channels::ERROR, true),
        (channels::STDIN, wanted.input),
        (STDOUT, wanted.output),
        (STDERR, wanted.errors && !wanted.tty),
        (channels::RESIZE, wanted.tty),
    ];
    let streams: Vec<u8> = streams.into_iter().filter(|(_, is)| *is).map(|(channel, _)| channel).collect();
    let (streams, messages) = spdy_channels::open(link, &streams).await?;
    Ok((Out::Streams(streams), messages))
}

/// Messages of the client, read by a task of its own: reading must not be cut off half-way.
fn incoming(mut link: Link) -> mpsc::Receiver<Bytes> {
    let (sender, receiver) = mpsc::channel(16);
    tokio::spawn(async move {
        while let Ok(Some(message)) = link.read().await {
            if sender.send(message).await.is_err() {
                return;
            }
        }
    });
    receiver
}

async fn exec(
    out: &Out,
    mut messages: mpsc::Receiver<Bytes>,
    run: &Run,
    command: Vec<String>,
    wanted: Wanted,
) -> std::io::Result<()> {
    let streams = match wanted.tty {
        true => Streams::Terminal(Terminal::open()?),
        false => Streams::Pipes(wanted.input),
    };
    // Tells that the connection is there before the command prints something.
    out.send(STDOUT, b"").await?;
    // Whoever asked may go away: then the command ends with this value.
    let mut joined = match run.exec(command, streams).await {
        Ok(joined) => joined,
        Err(error) => return finish(out, &channels::failure(&error.to_string())).await,
    };
    let (child, terminal) = (&mut joined.child, joined.terminal.clone());
    let mut pumps = tokio::task::JoinSet::new();
    match &terminal {
        Some(terminal) => {
            pumps.spawn(pump_terminal(terminal.clone(), out.clone()));
        }
        None => {
            if let Some(output) = child.stdout.take() {
                pumps.spawn(pump(output, STDOUT, wanted.output, out.clone()));
            }
            if let Some(output) = child.stderr.take() {
                pumps.spawn(pump(output, STDERR, wanted.errors, out.clone()));
            }
        }
    }
    let mut input = child.stdin.take();
    let status = loop {
        tokio::select! {
            biased;
            status = child.wait() => break status?,
            message = messages.recv() => {
                let Some(message) = message else { return Ok(()) };
                match said(&message) {
                    Said::Input(bytes) => match (&terminal, &mut input) {
                        (Some(terminal), _) => terminal.write(bytes).await?,
                        (None, Some(pipe)) => {
                            if pipe.write_all(bytes).await.is_err() || pipe.flush().await.is_err() {
                                input = None;
                            }
                        }
                        (None, None) => {}
                    },
                    Said::EndOfInput => input = None,
                    Said::Size(width, height) => {
                        if let Some(terminal) = &terminal {
                            terminal.resize(width, height)?;
                        }
                    }
                    Said::Nothing => {}
                }
            }
        }
    };
    let drained = async { while pumps.join_next().await.is_some() {} };
    if terminal.is_some() {
        // A terminal does not always tell that its last user has gone.
        let _ = tokio::time::timeout(LAST_OUTPUT, drained).await;
    } else {
        drained.await;
    }
    finish(out, &channels::status(crate::sandbox::exit_code(status))).await
}

async fn finish(out: &Out, status: &serde_json::Value) -> std::io::Result<()> {
    out.send(channels::ERROR, status.to_string().as_bytes()).await
}

async fn pump(mut from: impl AsyncRead + Unpin, channel: u8, wanted: bool, out: Out) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(count) = from.read(&mut buffer).await {
        if count == 0 || (wanted && out.send(channel, &buffer[..count]).await.is_err()) {
            return;
        }
    }
}

async fn pump_terminal(terminal: Terminal, out: Out) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(count) = terminal.read(&mut buffer).await {
        if count == 0 || out.send(STDOUT, &buffer[..count]).await.is_err() {
            return;
        }
    }
}

/// Waits until a log is complete.
async fn closed(progress: &mut watch::Receiver<Progress>) {
    let _ = progress.wait_for(Progress::is_closed).await;
}

async fn attach(
    out: &Out,
    mut messages: mpsc::Receiver<Bytes>,
    run: &Run,
    wanted: Wanted,
) -> std::io::Result<()> {
    let mut output = run.log.watch_output();
    let mut progress = run.log.progress();
    out.send(STDOUT, b"").await?;
    let mut over = false;
    loop {
        tokio::select! {
            biased;
            piece = output.recv() => match piece {
                Ok((Stream::Stdout, bytes)) if wanted.output => out.send(STDOUT, &bytes).await?,
                Ok((Stream::Stderr, bytes)) if wanted.errors => out.send(STDERR, &bytes).await?,
                // Who is too slow misses something; the log has it.
                Ok(_) | Err(tokio::sync::broadcast::error::RecvError::Lagged(_)) => {}
                Err(_) => return finish(out, &channels::status(0)).await,
            },
            () = closed(&mut progress), if !over => {
                over = true;
                if output.is_empty() {
                    return finish(out, &channels::status(0)).await;
                }
            }
            message = messages.recv() => {
                let Some(message) = message else { return Ok(()) };
                match said(&message) {
                    Said::Input(bytes) if wanted.input => run.feed(Some(bytes)).await?,
                    // Others may be attached later, unless the container wants only one.
                    Said::EndOfInput if run.stdin_once => run.feed(None).await?,
                    Said::Size(width, height) => {
                        if let Some(terminal) = &run.terminal {
                            terminal.resize(width, height)?;
                        }
                    }
                    _ => {}
                }
            }
        }
        if over && output.is_empty() {
            return finish(out, &channels::status(0)).await;
        }
    }
}

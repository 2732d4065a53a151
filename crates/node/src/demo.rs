//! Images that need nothing installed: an HTTP echo server, which can also burn CPU (`/burn?ms=200`), and a sleeper.

use std::convert::Infallible;
use std::ffi::OsString;
use std::io::Write as _;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// More than this of a request is not repeated.
const BODY_LIMIT: usize = 1024 * 1024;
/// No request keeps a processor busy for longer.
const LONGEST_BURN: Duration = Duration::from_secs(60);

/// Runs a demo image: `echo [--listen ADDRESS] [--text TEXT]` or `sleeper`.
pub fn main(arguments: &[OsString]) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return ExitCode::FAILURE };
    let arguments: Vec<String> = arguments.iter().map(|a| a.to_string_lossy().into_owned()).collect();
    let result = match arguments.split_first() {
        Some((name, rest)) if name == "echo" => runtime.block_on(echo(rest)),
        Some((name, _)) if name == "sleeper" => runtime.block_on(terminated()),
        _ => Err(std::io::Error::other("there are the images echo and sleeper")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn terminated() -> std::io::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
    Ok(())
}

async fn echo(arguments: &[String]) -> std::io::Result<()> {
    // `--name=value` and `-name=value`, as http-echo has them.
    let option = |name: &str| {
        let found = arguments.iter().enumerate().find_map(|(at, argument)| {
            let rest = argument.trim_start_matches('-').strip_prefix(name)?;
            if rest.is_empty() { arguments.get(at + 1).map(String::as_str) } else { rest.strip_prefix('=') }
        });
        found.map(str::to_owned)
    };
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let port = variable("PORT").unwrap_or_else(|| "8080".to_owned());
    let listen = option("listen").unwrap_or_else(|| format!(":{port}"));
    let ip = variable("POD_IP").unwrap_or_else(|| "0.0.0.0".to_owned());
    let listen = if listen.starts_with(':') { format!("{ip}{listen}") } else { listen };
    let text = option("text");
    let listener = TcpListener::bind(&listen)
        .await
        .map_err(|e| std::io::Error::other(format!("cannot listen on {listen}: {e}")))?;
    let _ = writeln!(std::io::stdout(), "listening on {}", listener.local_addr()?);
    let serve = async {
        loop {
            let Ok((stream, peer)) = listener.accept().await else { continue };
            let text = text.clone();
            tokio::spawn(async move {
                let service = service_fn(move |request| answer(request, peer, text.clone()));
                let _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    };
    tokio::select! { ended = terminated() => ended, () = serve => Ok(()) }
}

/// Keeps a processor busy, as `/burn?ms=200` asks for.
async fn burn(uri: &http::Uri) -> Option<String> {
    if uri.path() != "/burn" {
        return None;
    }
    let wanted = uri.query().into_iter().flat_map(|query| query.split('&'));
    let wanted = wanted.filter_map(|pair| pair.strip_prefix("ms=")).find_map(|ms| ms.parse().ok());
    let time = Duration::from_millis(wanted.unwrap_or(100)).min(LONGEST_BURN);
    let busy = tokio::task::spawn_blocking(move || {
        let begin = std::time::Instant::now();
        let mut number = 1_u64;
        while begin.elapsed() < time {
            number = std::hint::black_box(number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    });
    busy.await.ok().map(|()| format!("burned {} ms\n", time.as_millis()))
}

async fn answer(
    request: Request<Incoming>,
    peer: SocketAddr,
    text: Option<String>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let _ = writeln!(std::io::stdout(), "{peer} {} {}", parts.method, parts.uri);
    if let Some(text) = burn(&parts.uri).await {
        return Ok(Response::new(Full::new(Bytes::from(text))));
    }
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut out = match text {
        Some(text) => text + "\n",
        None => {
            let mut out = format!("Hostname: {host}\n\n{} {}\n", parts.method, parts.uri);
            for (name, value) in &parts.headers {
                out.push_str(&format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes())));
            }
            out
        }
    };
    if let Ok(body) = Limited::new(body, BODY_LIMIT).collect().await
        && parts.method != http::Method::GET
    {
        out.push('\n');
        out.push_str(&String::from_utf8_lossy(&body.to_bytes()));
    }
    Ok(Response::new(Full::new(Bytes::from(out))))
}

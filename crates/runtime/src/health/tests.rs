use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::answer::{Caller, answer};
use super::*;
use crate::config::{LogFormat, Logging};
use crate::logging;
use crate::manager::Stop;

async fn ask(health: &Health, caller: Caller, method: &str, path: &str, body: &str) -> (u16, String) {
    let request =
        Request::builder().method(method).uri(path).body(Bytes::copy_from_slice(body.as_bytes())).unwrap();
    let response: Response<Full<Bytes>> = answer(health, caller, request).await;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

async fn get(health: &Health, path: &str) -> (u16, String) {
    ask(health, Caller::Local, "GET", path, "").await
}

#[tokio::test]
async fn ready_says_ok_or_what_is_missing() {
    let health = Health::default();
    let synced = Arc::new(AtomicBool::new(false));
    let asked = synced.clone();
    health.ready(move || {
        let problem = (!asked.load(Ordering::Relaxed)).then(|| "not synced".to_owned());
        vec![Check::new("informers", problem), Check::new("queue", None)]
    });
    assert_eq!(
        get(&health, "/readyz").await,
        (503, "[-]informers failed: not synced\ncheck failed\n".to_owned())
    );
    synced.store(true, Ordering::Relaxed);
    assert_eq!(get(&health, "/readyz").await, (200, "ok".to_owned()));
    assert_eq!(
        get(&health, "/readyz?verbose").await,
        (200, "[+]informers ok\n[+]queue ok\ncheck passed\n".to_owned())
    );
    assert_eq!(get(&health, "/healthz").await, (200, "ok".to_owned()));
}

#[tokio::test]
async fn metrics_are_text_on_their_path_or_not_served() {
    let health = Health::default();
    assert_eq!(get(&health, "/metrics").await.0, 404);
    health.metrics(Some(("/own", Metrics::default())));
    assert_eq!(get(&health, "/own").await, (200, "# EOF\n".to_owned()));
    assert_eq!(get(&health, "/metrics").await.0, 404);
}

#[tokio::test]
async fn a_look_inside_shows_every_part() {
    let health = Health::default();
    health.inspect("queues", || serde_json::json!({"web": {"depth": 3}}));
    let (status, body) = get(&health, "/debug/inspect").await;
    assert_eq!(status, 200);
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["queues"]["web"]["depth"], 3);
}

#[tokio::test]
async fn debug_paths_answer_callers_on_this_machine_only() {
    let health = Health::default();
    health.profiling(true);
    for path in ["/debug/inspect", "/debug/loglevel", "/debug/pprof/profile", "/debug/pprof/heap"] {
        assert_eq!(ask(&health, Caller::Remote, "GET", path, "").await.0, 403, "{path}");
    }
    assert_eq!(ask(&health, Caller::Remote, "GET", "/healthz", "").await.0, 200);
}

#[tokio::test]
async fn the_log_level_is_read_and_set() {
    let health = Health::default();
    assert_eq!(get(&health, "/debug/loglevel").await.0, 501);
    let settings = Logging { level: "info".to_owned(), format: LogFormat::Text };
    let (subscriber, level) =
        logging::subscriber(&settings, shoal_objects::Clock::system(), std::io::sink, Vec::new()).unwrap();
    health.log_level(level);
    assert_eq!(get(&health, "/debug/loglevel").await, (200, "info\n".to_owned()));
    let put = |body: &'static str| ask(&health, Caller::Local, "PUT", "/debug/loglevel", body);
    assert_eq!(put("debug\n").await, (200, "debug\n".to_owned()));
    assert_eq!(get(&health, "/debug/loglevel").await.1, "debug\n");
    assert_eq!(put("shout").await.0, 400);
    assert_eq!(get(&health, "/debug/loglevel").await.1, "debug\n");
    drop(subscriber);
}

#[tokio::test]
async fn profiles_are_off_until_they_are_switched_on() {
    let health = Health::default();
    let (status, body) = get(&health, "/debug/pprof/profile").await;
    assert_eq!(status, 404);
    assert!(body.contains("Builder::profiling(true)"));
    health.profiling(true);
    let (status, body) = get(&health, "/debug/pprof/heap").await;
    assert_eq!(status, 501);
    assert!(body.contains("Builder::heap_profile"), "{body}");
    health.heap_profile(|| Ok(b"heap_v2".to_vec()));
    assert_eq!(get(&health, "/debug/pprof/heap").await, (200, "heap_v2".to_owned()));
    health.heap_profile(|| Err("prof is off".to_owned()));
    assert_eq!(get(&health, "/debug/pprof/heap").await, (500, "no heap profile: prof is off\n".to_owned()));
    health.profiling(false);
    assert_eq!(get(&health, "/debug/pprof/heap").await.0, 404);
    health.profiling(true);
    let (status, body) = get(&health, "/debug/pprof/profile?seconds=1").await;
    if cfg!(feature = "profiling") {
        assert_eq!(status, 200, "{body}");
    } else {
        assert_eq!(status, 501);
        assert!(body.contains("feature `profiling`"));
    }
}

#[tokio::test]
async fn other_methods_and_paths_are_refused() {
    let health = Health::default();
    assert_eq!(ask(&health, Caller::Local, "POST", "/healthz", "").await.0, 405);
    assert_eq!(get(&health, "/").await.0, 404);
    assert_eq!(get(&health, "/debug/../healthz").await.0, 404);
}

#[tokio::test]
async fn a_socket_serves_and_is_closed_on_stop() {
    let listener = bind(0).await.unwrap();
    let server = Server::new(listener, Health::default());
    let port = server.address().unwrap().port();
    let (stopper, stop) = Stop::channel();
    let running = tokio::spawn(server.run(stop));
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut bytes = [0; 12];
    stream.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"HTTP/1.1 200");
    stopper.stop();
    running.await.unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert!(tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err());
}

#[tokio::test]
async fn a_body_that_is_too_long_is_refused() {
    let server = Server::new(bind(0).await.unwrap(), Health::default());
    let port = server.address().unwrap().port();
    let (_stopper, stop) = Stop::channel();
    tokio::spawn(server.run(stop));
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let body = "x".repeat(5000);
    let request = format!("PUT /debug/loglevel HTTP/1.1\r\nhost: x\r\ncontent-length: 5000\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut bytes = [0; 12];
    stream.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"HTTP/1.1 413");
}

//! CPU profiles over HTTP, in programs that are built with them.

#![cfg(feature = "profiling")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use shoal_runtime::health::{Health, Server, bind};
use shoal_runtime::manager::Stop;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

async fn get(port: u16, path: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_thread_is_seen_in_the_profile() {
    let health = Health::default();
    health.profiling(true);
    let server = Server::new(bind(0).await.unwrap(), health);
    let port = server.address().unwrap().port();
    let (stopper, stop) = Stop::channel();
    let running = tokio::spawn(server.run(stop));

    let busy = Arc::new(AtomicBool::new(true));
    let goes_on = busy.clone();
    let spinning = std::thread::Builder::new().name("spinner".to_owned()).spawn(move || {
        let mut sum = 0u64;
        while goes_on.load(Ordering::Relaxed) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
    });
    let profile = get(port, "/debug/pprof/profile?seconds=1").await;
    busy.store(false, Ordering::Relaxed);
    spinning.unwrap().join().unwrap();

    assert!(profile.starts_with("HTTP/1.1 200"), "{profile}");
    let line = profile.lines().find(|line| line.starts_with("spinner;")).unwrap();
    let (_, samples) = line.rsplit_once(' ').unwrap();
    assert!(samples.parse::<u64>().unwrap() > 0, "{line}");
    for wrong in ["seconds=0", "seconds=61", "seconds=x"] {
        let answer = get(port, &format!("/debug/pprof/profile?{wrong}")).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    }
    stopper.stop();
    running.await.unwrap();
}

//! Clients that break the rules, over real sockets: they harm nobody but themselves.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod process;

use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use process::client::{Client, Http1, Http2, Lines, MAPS, PATIENCE, config_map, exchange, get, post, whole};
use process::{ALONE, Cluster};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const WATCH: &str = "/api/v1/namespaces/default/configmaps?watch=1";
const OPEN_WATCHES: &str = "apiserver_longrunning_requests";

fn start() -> (Cluster, Client) {
    let cluster = Cluster::start(&[&["up", "--ephemeral", "--port", "0"], &ALONE[..]].concat());
    let client = Client::of(&cluster);
    (cluster, client)
}

async fn create(sender: &mut Http1, name: &str, payload: &str) {
    let (status, body) = exchange(sender, post(MAPS, &config_map(name, payload))).await.unwrap();
    assert_eq!(status, 201, "{body:?}");
}

/// A watch over HTTP/1.1 whose connection is never read again.
async fn watch_unread(client: &Client) -> impl Sized {
    let mut stream = client.bare().await;
    let request = format!("GET {WATCH} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_drip_their_header_are_cut_while_others_are_served() {
    let (_cluster, client) = start();
    let mut drips = Vec::new();
    for _ in 0..50 {
        let mut stream = client.bare().await;
        stream.write_all(b"GET /version HTTP/1.1\r\nhost: localhost\r\n").await.unwrap();
        drips.push(tokio::spawn(async move {
            let begun = Instant::now();
            let mut byte = [0];
            // A byte now and then, until the server has had enough.
            loop {
                let wait = tokio::time::timeout(Duration::from_millis(250), stream.read(&mut byte)).await;
                if matches!(wait, Ok(Ok(0) | Err(_))) || stream.write_all(b"x").await.is_err() {
                    return begun.elapsed();
                }
                assert!(!matches!(wait, Ok(Ok(_))), "an answer to half a request");
            }
        }));
    }
    // Over HTTP/2 too: the preface is not even complete.
    let mut preface = client.bare_http2().await;
    preface.write_all(b"PRI * HT").await.unwrap();
    let mut writer = client.http1().await;
    let mut served = 0;
    while !drips.iter().all(tokio::task::JoinHandle::is_finished) {
        create(&mut writer, &format!("m{served}"), "x").await;
        served += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(served > 20, "{served}");
    for drip in drips {
        assert!(drip.await.unwrap() < Duration::from_secs(30));
    }
    let _ = tokio::time::timeout(PATIENCE, preface.read_to_end(&mut Vec::new())).await.expect("still open");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_drip_their_body_do_not_keep_others_from_writing() {
    let (_cluster, client) = start();
    let head = format!(
        "POST {MAPS} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{{"
    );
    let mut drips = Vec::new();
    for _ in 0..200 {
        let mut stream = client.bare().await;
        stream.write_all(head.as_bytes()).await.unwrap();
        drips.push(stream);
    }
    let (mut over1, mut over2) = (client.http1().await, client.http2().await);
    for i in 0..100 {
        create(&mut over1, &format!("one-{i}"), "x").await;
        over2.ready().await.unwrap();
        let answer = over2.send_request(post(MAPS, &config_map(&format!("two-{i}"), "x"))).await.unwrap();
        assert_eq!(whole(answer).await.unwrap().0, 201);
        for stream in drips.iter_mut().skip(i % 10).step_by(10) {
            stream.write_all(b" ").await.unwrap();
        }
    }
    // Vanishing in the middle of the body leaves nothing behind.
    drop(drips);
    let (_, body) = exchange(&mut over1, get(MAPS)).await.unwrap();
    let list: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_of_clients_that_vanish_are_closed() {
    let (_cluster, client) = start();
    let mut unread = Vec::new();
    for _ in 0..50 {
        unread.push(watch_unread(&client).await);
    }
    let mut over2: Http2 = client.http2().await;
    let mut watches = Vec::new();
    for _ in 0..50 {
        over2.ready().await.unwrap();
        watches.push(Lines::of(over2.send_request(get(WATCH)).await.unwrap()));
    }
    client.until("/metrics", |text| process::client::metric(text, OPEN_WATCHES) == 100.0).await;
    // The connection stays, its streams go; of the others the connections go, without a goodbye.
    drop(watches);
    drop(unread);
    client.until("/metrics", |text| process::client::metric(text, OPEN_WATCHES) == 0.0).await;
    assert_eq!(whole(over2.send_request(get("/readyz")).await.unwrap()).await.unwrap().0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_watchers_that_never_read_cost_little_and_hold_up_nobody() {
    const OBJECTS: usize = 2_000;
    let (cluster, client) = start();
    // Each on a connection of its own, and many on shared ones.
    let mut unread = Vec::new();
    for _ in 0..200 {
        unread.push(watch_unread(&client).await);
    }
    let mut streams = Vec::new();
    for _ in 0..12 {
        let mut sender = client.http2().await;
        for _ in 0..150 {
            sender.ready().await.unwrap();
            streams.push(sender.send_request(get(WATCH)).await.unwrap());
        }
    }
    client.until("/metrics", |text| process::client::metric(text, OPEN_WATCHES) == 2_000.0).await;
    let mut healthy = Lines::of(client.http1().await.send_request(get(WATCH)).await.unwrap());
    let before = cluster.resident();

    let payload = "x".repeat(1024);
    let mut writers = Vec::new();
    for writer in 0..4 {
        let (mut sender, payload) = (client.http1().await, payload.clone());
        writers.push(tokio::spawn(async move {
            for i in 0..OBJECTS / 4 {
                create(&mut sender, &format!("m-{writer}-{i}"), &payload).await;
            }
        }));
    }
    let seeing = async {
        for _ in 0..OBJECTS {
            let event = healthy.next().await.unwrap().unwrap();
            assert_eq!(event["type"], "ADDED");
        }
    };
    tokio::time::timeout(PATIENCE, seeing).await.expect("the healthy watcher is held up");
    for writer in writers {
        writer.await.unwrap();
    }
    let growth = cluster.resident().saturating_sub(before);
    // Were everything kept for everybody, it would be 5 GiB.
    assert!(growth < 512, "{growth} MiB more for watchers that do not read");
    println!("{before} MiB with 2,000 watchers, {growth} MiB more when they are stuck");
    drop((streams, unread));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_ends_open_watches_in_good_order() {
    let (mut cluster, client) = start();
    let stuck = watch_unread(&client).await;
    let mut over1 = Lines::of(client.http1().await.send_request(get(WATCH)).await.unwrap());
    let mut over2 = Lines::of(client.http2().await.send_request(get(WATCH)).await.unwrap());
    client.until("/metrics", |text| process::client::metric(text, OPEN_WATCHES) == 3.0).await;
    let begun = Instant::now();
    let stopped = tokio::task::spawn_blocking(move || cluster.stop());
    assert!(over1.next().await.unwrap().is_none(), "ended, not cut");
    assert!(over2.next().await.unwrap().is_none(), "ended, not cut");
    assert_eq!(stopped.await.unwrap(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    drop(stuck);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_are_no_http_are_refused_and_long_ones_too() {
    let (_cluster, client) = start();
    let long = format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "x".repeat(200_000));
    let lengths = format!(
        "POST {MAPS} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ncontent-length: 50\r\n\r\nhello"
    );
    for bytes in ["\0\0\0\0\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", &long, &lengths] {
        let mut stream = client.bare().await;
        // The server may have closed the connection before all is sent.
        let _ = stream.write_all(bytes.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("still open");
        let text = String::from_utf8_lossy(&answer);
        assert!(text.is_empty() || text.starts_with("HTTP/1.1 4"), "{text}");
    }
    let mut over2 = client.http2().await;
    let long: Request<Full<Bytes>> = get(&format!("{MAPS}?labelSelector={}", "a,".repeat(30_000)));
    assert!(over2.send_request(long).await.is_ok_and(|answer| answer.status().is_client_error()));
    assert_eq!(client.get("/readyz").await.1, "ok");
}

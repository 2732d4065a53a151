//! What was acknowledged is there after the worst end a process can have, and a disk that is full harms nothing.
//!
//! `cargo xtask soak` runs this with SHOAL_SOAK_ROUNDS=20.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod process;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hyper::StatusCode;
use process::client::{Client, Http1, Lines, MAPS, config_map, exchange, get, post, put};
use process::{ALONE, Cluster, in_shell};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::Value;

const WRITERS: usize = 16;
const WRITES: usize = 10_000;

fn start(data: &Path) -> (Cluster, Client) {
    let cluster =
        Cluster::start(&[&["up", "--port", "0", "--data-dir", data.to_str().unwrap()], &ALONE[..]].concat());
    let client = Client::of(&cluster);
    (cluster, client)
}

/// What a writer knows of its objects: payload and version of the last write that was acknowledged, and the payload of
/// the one that was under way at the end.
#[derive(Default)]
struct Ledger {
    acknowledged: BTreeMap<String, (String, u64)>,
    under_way: Option<(String, String)>,
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// Writes until the server is gone. Small objects are created; a few large ones are written over and over, which
/// makes the journal grow beyond its objects, so that snapshots are written meanwhile.
async fn write(mut sender: Http1, writer: usize, count: Arc<AtomicUsize>, large: bool) -> Ledger {
    let mut ledger = Ledger::default();
    for i in 0.. {
        if count.fetch_add(1, Ordering::Relaxed) >= WRITES {
            return ledger;
        }
        let (name, payload) = if large && i % 4 == 1 {
            (format!("large-{writer}"), format!("{i:09}-").repeat(30_000))
        } else {
            (format!("small-{writer}-{i}"), format!("{writer}-{i} ").repeat(100))
        };
        let object = config_map(&name, &payload);
        let request = match ledger.acknowledged.contains_key(&name) {
            true => put(&format!("{MAPS}/{name}"), &object),
            false => post(MAPS, &object),
        };
        ledger.under_way = Some((name.clone(), payload.clone()));
        let Ok((status, body)) = exchange(&mut sender, request).await else { return ledger };
        assert!(status.is_success(), "{status}: {body:?}");
        let stored: Value = serde_json::from_slice(&body).unwrap();
        ledger.acknowledged.insert(name, (payload, version(&stored)));
        ledger.under_way = None;
    }
    ledger
}

/// Everything in the ledgers is there as it was acknowledged, and nothing else but what was under way.
async fn compare(client: &Client, ledgers: &[Ledger]) -> u64 {
    let (status, text) = client.get(MAPS).await;
    assert_eq!(status, StatusCode::OK);
    let list: Value = serde_json::from_str(&text).unwrap();
    let mut found = BTreeMap::new();
    for item in list["items"].as_array().unwrap() {
        let name = item["metadata"]["name"].as_str().unwrap();
        assert!(version(item) <= version(&list));
        found.insert(name, (item["data"]["payload"].as_str().unwrap(), version(item)));
    }
    for ledger in ledgers {
        for (name, (payload, version)) in &ledger.acknowledged {
            let (found, at) = found.remove(name.as_str()).unwrap_or_else(|| panic!("{name} is lost"));
            let overwritten =
                ledger.under_way.as_ref().is_some_and(|(n, p)| n == name && p == found && at > *version);
            assert!(
                overwritten || (found == payload && at == *version),
                "{name} is not what was acknowledged"
            );
        }
        if let Some((name, payload)) = &ledger.under_way
            && let Some((found, _)) = found.remove(name.as_str())
        {
            assert_eq!(found, payload, "half a write");
        }
    }
    assert!(found.is_empty(), "nobody wrote {:?}", found.keys());
    version(&list)
}

async fn first_event(client: &Client, from: u64) -> Value {
    let watch = get(&format!("{MAPS}?watch=1&resourceVersion={from}"));
    let mut events = Lines::of(client.http1().await.send_request(watch).await.unwrap());
    events.next().await.unwrap().unwrap()
}

/// When the server is killed.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// When so many writes have begun.
    Write(usize),
    /// When a file of the store with this ending appears.
    File(&'static str),
}

impl Moment {
    fn has_come(self, data: &Path, writes: usize) -> bool {
        match self {
            Moment::Write(count) => writes >= count,
            Moment::File(ending) => fs::read_dir(data.join("store"))
                .unwrap()
                .any(|file| file.unwrap().file_name().to_string_lossy().ends_with(ending)),
        }
    }
}

/// One life: writes, a kill in the middle of them, a start, a look.
async fn round(data: &Path, moment: Moment) -> usize {
    let large = matches!(moment, Moment::File(_));
    let (mut cluster, client) = start(data);
    let count = Arc::new(AtomicUsize::new(0));
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        writers.push(tokio::spawn(write(client.http1().await, writer, count.clone(), large)));
    }
    while !moment.has_come(data, count.load(Ordering::Relaxed)) {
        assert!(count.load(Ordering::Relaxed) < WRITES, "all is written and {moment:?} never came");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    cluster.kill();
    let mut ledgers = Vec::new();
    for writer in writers {
        ledgers.push(writer.await.unwrap());
    }
    let acknowledged = ledgers.iter().map(|ledger| ledger.acknowledged.len()).sum();
    let newest =
        ledgers.iter().flat_map(|ledger| ledger.acknowledged.values()).map(|(_, version)| *version).max();
    let newest = newest.expect("something was acknowledged");

    let (mut cluster, client) = start(data);
    let current = compare(&client, &ledgers).await;
    assert!(current >= newest, "{current} after {newest}");
    // A client that watched goes on from the present, or is told to list anew.
    let event = first_event(&client, newest - 1).await;
    let resumes = event["type"] == "ADDED" || event["type"] == "MODIFIED";
    assert!(resumes || event["object"]["code"] == 410, "{event}");
    let mut sender = client.http1().await;
    let (status, body) = exchange(&mut sender, post(MAPS, &config_map("afterwards", ""))).await.unwrap();
    assert_eq!(status, StatusCode::CREATED);
    assert!(version(&serde_json::from_slice(&body).unwrap()) > current);
    assert_eq!(first_event(&client, current).await["object"]["metadata"]["name"], "afterwards");
    assert_eq!(cluster.stop(), Some(0));
    acknowledged
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_kill_9() {
    let rounds: usize = std::env::var("SHOAL_SOAK_ROUNDS").map_or(1, |rounds| rounds.parse().unwrap());
    for number in 0..rounds {
        let dir = tempfile::tempdir().unwrap();
        // Every second time while a snapshot is being written, or when it has just replaced the journal.
        let moment = match number % 4 {
            1 => Moment::File(".snap.tmp"),
            3 => Moment::File(".snap"),
            _ => Moment::Write((WRITES / 2 + number * 1_359) % WRITES),
        };
        let acknowledged = round(dir.path(), moment).await;
        println!("round {number}: killed at {moment:?}, all {acknowledged} objects acknowledged are there");
    }
}

async fn try_create(sender: &mut Http1, name: &str) -> (StatusCode, Bytes) {
    let payload = "x".repeat(10_000);
    exchange(sender, post(MAPS, &config_map(name, &payload))).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_writes_serves_reads_and_recovers() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().to_str().unwrap();
    // No file may grow beyond 512 KiB, as on a full disk. The signal that goes with it is ignored.
    let limited = in_shell(
        "trap '' XFSZ; ulimit -S -f 1024",
        &[&["up", "--port", "0", "--data-dir", data], &ALONE[..]].concat(),
    );
    let mut cluster = Cluster::spawn(limited);
    let client = Client::of(&cluster);
    let mut sender = client.http1().await;
    let mut stored = 0;
    let (status, refusal) = loop {
        match try_create(&mut sender, &format!("m{stored:04}")).await {
            (StatusCode::CREATED, _) => stored += 1,
            refused => break refused,
        }
        assert!(stored < 1_000, "the disk is never full");
    };
    let refusal: Value = serde_json::from_slice(&refusal).unwrap();
    assert_eq!(
        (status.as_u16(), &refusal["kind"], &refusal["code"]),
        (503, &"Status".into(), &503.into()),
        "{refusal}"
    );
    let message = refusal["message"].as_str().unwrap();
    assert!(message.contains("File too large") && message.contains("free space on the disk"), "{message}");
    let names = |text: &str| -> usize {
        serde_json::from_str::<Value>(text).unwrap()["items"].as_array().unwrap().len()
    };
    for _ in 0..3 {
        assert_eq!(names(&client.get(MAPS).await.1), stored, "reads go on, and show what was stored");
        assert_eq!(try_create(&mut sender, &format!("m{stored:04}")).await.0, 503);
    }
    assert_eq!(client.get("/livez").await.1, "ok");

    // Space is freed: no restart is needed.
    let id = i32::try_from(cluster.id()).ok().and_then(Pid::from_raw);
    prlimit(id, Resource::Fsize, Rlimit { current: None, maximum: None }).unwrap();
    assert_eq!(try_create(&mut sender, &format!("m{stored:04}")).await.0, 201);
    assert_eq!(cluster.stop(), Some(0));
    let (_cluster, client) = start(dir.path());
    assert_eq!(names(&client.get(MAPS).await.1), stored + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_start_finds_everything() {
    let dir = tempfile::tempdir().unwrap();
    let (mut cluster, client) = start(dir.path());
    let mut sender = client.http1().await;
    for i in 0..10 {
        assert_eq!(try_create(&mut sender, &format!("m{i}")).await.0, 201);
    }
    let (_, before) = client.get(MAPS).await;
    let (_, services) = client.get("/api/v1/services").await;
    assert_eq!(cluster.stop(), Some(0));
    let (_cluster, client) = start(dir.path());
    let items = |text: &str| serde_json::from_str::<Value>(text).unwrap()["items"].clone();
    assert_eq!(items(&client.get(MAPS).await.1), items(&before));
    // Where the server listens may be different each time.
    let uids = |text: &str| -> Vec<Value> {
        items(text).as_array().unwrap().iter().map(|item| item["metadata"]["uid"].clone()).collect()
    };
    let now = client.get("/api/v1/services").await.1;
    assert_eq!(uids(&now), uids(&services), "system objects are made once");
}

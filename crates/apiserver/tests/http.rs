//! What stands around every answer: compression, formats, overload, figures.

use std::io::Read as _;

use serde_json::{Value, json};
use shoal_apiserver::access::tokens;
use shoal_apiserver::{Options, Server};
use shoal_store::Store;
use shoal_testkit::Cluster;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const GZIP: [(&str, &str); 1] = [("accept-encoding", "gzip")];

#[tokio::test]
async fn large_lists_are_compressed_for_clients_that_ask_and_small_ones_are_not() {
    let http = Cluster::start().await.http();
    let small = http.send("GET", MAPS, &GZIP, "").await;
    assert!(small.headers.get("content-encoding").is_none());
    for i in 0..200 {
        let map = json!({"metadata": {"name": format!("m{i}")}, "data": {"k": "x".repeat(1000)}});
        assert_eq!(http.post(MAPS, &map).await.status, 201);
    }
    let plain = http.get(MAPS).await;
    assert!(plain.headers.get("content-encoding").is_none());
    let packed = http.send("GET", MAPS, &GZIP, "").await;
    assert_eq!(packed.headers["content-encoding"], "gzip");
    assert!(packed.body.len() * 4 < plain.body.len());
    let mut text = Vec::new();
    flate2::read::GzDecoder::new(&packed.body[..]).read_to_end(&mut text).unwrap();
    let unpacked: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(unpacked, plain.json());
}

#[tokio::test]
async fn objects_are_taken_and_given_as_yaml() {
    let http = Cluster::start().await.http();
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  on: \"true\"\n  text: |\n    one\n    two\n";
    let made = http.send("POST", MAPS, &[("content-type", "application/yaml")], yaml).await;
    assert_eq!(made.status, 201);
    assert_eq!(made.json()["data"], json!({"on": "true", "text": "one\ntwo\n"}));
    let path = format!("{MAPS}/a");
    let shown = http.send("GET", &path, &[("accept", "application/yaml")], "").await;
    assert_eq!(shown.headers["content-type"], "application/yaml");
    let again = http.send("PUT", &path, &[("content-type", "application/yaml")], shown.body).await;
    assert_eq!(again.json()["metadata"], made.json()["metadata"], "what was shown changes nothing");
}

#[tokio::test]
async fn an_overloaded_server_turns_requests_away_and_says_when_to_come_back() {
    let store = Store::memory(shoal_store::Options::default());
    let mut options = Options::new(store, tokens::new_signing_key().unwrap());
    options.max_in_flight = 0;
    let http = Cluster::of(Server::start(options).await.unwrap()).http();
    let answer = http.get(MAPS).await;
    assert_eq!(answer.status, 429);
    assert_eq!(answer.headers["retry-after"], "1");
    assert_eq!(answer.json()["reason"], "TooManyRequests");
    assert_eq!(http.get("/livez").await.status, 200, "probes are not turned away");
}

#[tokio::test]
async fn requests_and_the_store_are_counted() {
    let http = Cluster::start().await.http();
    http.post(MAPS, &json!({"metadata": {"name": "a"}})).await;
    let text = String::from_utf8(http.get("/metrics").await.body.to_vec()).unwrap();
    let create =
        text.lines().find(|l| l.starts_with("apiserver_request_total") && l.contains("configmaps")).unwrap();
    assert!(
        create.contains("verb=\"create\"") && create.contains("code=\"201\"") && create.ends_with(" 1"),
        "{create}"
    );
    for name in ["apiserver_request_duration_seconds", "shoal_store_revision", "shoal_journal_fsync_total"] {
        assert!(text.contains(name), "{name}");
    }
    assert!(!text.contains("\"a\""), "object names are never labels");
}

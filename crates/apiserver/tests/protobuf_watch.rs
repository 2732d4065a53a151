//! Watches and metadata in protobuf, as Go clients ask for them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use shoal_apiserver::{Body, protobuf};
use shoal_testkit::{Cluster, Http};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// What client-go sends.
const GO: &str = "application/vnd.kubernetes.protobuf,application/json";
const METADATA: &str =
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// Fields of a message by their number; numbers are left out.
fn fields(mut message: &[u8]) -> Vec<(u64, &[u8])> {
    fn varint(message: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let byte = message[0];
            *message = &message[1..];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    }
    let mut found = Vec::new();
    while !message.is_empty() {
        let key = varint(&mut message);
        match key & 7 {
            0 => {
                varint(&mut message);
            }
            2 => {
                let length = usize::try_from(varint(&mut message)).unwrap();
                let (bytes, rest) = message.split_at(length);
                found.push((key >> 3, bytes));
                message = rest;
            }
            other => unreachable!("wire type {other}"),
        }
    }
    found
}

fn field(message: &[u8], number: u64) -> &[u8] {
    fields(message).into_iter().find(|(n, _)| *n == number).map(|(_, bytes)| bytes).unwrap_or_default()
}

/// Kind and raw message of an object in its envelope.
fn unwrap(object: &[u8]) -> (String, &[u8]) {
    let unknown = object.strip_prefix(b"k8s\0").unwrap();
    (String::from_utf8(field(field(unknown, 1), 2).to_vec()).unwrap(), field(unknown, 2))
}

struct Frames {
    body: Body,
    unread: BytesMut,
    /// The last chunk as it came.
    chunk: Bytes,
}

impl Frames {
    async fn open(http: &Http, path: &str, accept: &str) -> Frames {
        let response = http.open("GET", path, &[("accept", accept)], "").await;
        assert_eq!(response.status(), 200);
        let content_type = response.headers()["content-type"].to_str().unwrap();
        assert_eq!(content_type, "application/vnd.kubernetes.protobuf;stream=watch");
        Frames { body: response.into_body(), unread: BytesMut::new(), chunk: Bytes::new() }
    }

    /// Type and encoded object of the next event.
    async fn raw(&mut self) -> (String, Bytes) {
        loop {
            if let Some(length) = self.unread.first_chunk::<4>().map(|l| u32::from_be_bytes(*l) as usize)
                && self.unread.len() >= 4 + length
            {
                let frame = self.unread.split_to(4 + length).freeze();
                let event = &frame[4..];
                let name = String::from_utf8(field(event, 1).to_vec()).unwrap();
                return (name, Bytes::copy_from_slice(field(field(event, 2), 1)));
            }
            self.chunk = self.body.frame().await.unwrap().unwrap().into_data().unwrap();
            self.unread.extend_from_slice(&self.chunk);
        }
    }

    /// Type and object of the next event.
    async fn next(&mut self) -> (String, Value) {
        let (name, raw) = self.raw().await;
        (name, protobuf::decode_request(&raw).unwrap())
    }
}

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"a": name}}, "data": {"k": "v"}})
}

#[tokio::test]
async fn events_bookmarks_and_errors_come_in_frames() {
    let cluster = Cluster::builder().history_events(8).start().await;
    let http = cluster.http();
    http.post(MAPS, &map("before")).await;
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = Frames::open(&http, &format!("{MAPS}?{query}"), GO).await;
    let (name, object) = watch.next().await;
    assert_eq!((name.as_str(), &object["metadata"]["name"]), ("ADDED", &json!("before")));
    assert_eq!(object, http.get(&format!("{MAPS}/before")).await.json());
    let (name, object) = watch.next().await;
    assert_eq!((name.as_str(), &object["kind"]), ("BOOKMARK", &json!("ConfigMap")));
    assert_eq!(object["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");

    http.post(MAPS, &map("a")).await;
    http.merge(&format!("{MAPS}/a"), &json!({"data": {"k": "w"}})).await;
    http.delete(&format!("{MAPS}/a")).await;
    for wanted in ["ADDED", "MODIFIED", "DELETED"] {
        let (name, object) = watch.next().await;
        assert_eq!((name.as_str(), &object["metadata"]["name"]), (wanted, &json!("a")));
    }
    for round in 0..20 {
        http.merge(&format!("{MAPS}/before"), &json!({"data": {"round": round.to_string()}})).await;
    }
    let mut late = Frames::open(&http, &format!("{MAPS}?watch=1&resourceVersion=2"), GO).await;
    let (name, status) = late.next().await;
    assert_eq!(
        (name.as_str(), &status["code"], &status["reason"]),
        ("ERROR", &json!(410), &json!("Expired"))
    );
}

#[tokio::test]
async fn an_event_is_encoded_once_for_all_watchers() {
    let http = Cluster::start().await.http();
    let path = format!("{MAPS}?watch=1");
    let mut watches = [Frames::open(&http, &path, GO).await, Frames::open(&http, &path, GO).await];
    http.post(MAPS, &map("a")).await;
    for watch in &mut watches {
        watch.next().await;
    }
    assert_eq!(watches[0].chunk.as_ptr(), watches[1].chunk.as_ptr());
    // One who selects sees another event, made anew.
    let mut selecting = Frames::open(&http, &format!("{path}&labelSelector=a=a"), GO).await;
    assert_eq!(selecting.next().await.0, "ADDED");
    http.merge(&format!("{MAPS}/a"), &json!({"metadata": {"labels": {"a": "b"}}})).await;
    let (name, gone) = selecting.next().await;
    let (other, changed) = watches[0].next().await;
    assert_eq!((name.as_str(), other.as_str()), ("DELETED", "MODIFIED"));
    assert_eq!(gone["metadata"]["labels"]["a"], "a");
    assert_eq!(gone["metadata"]["resourceVersion"], changed["metadata"]["resourceVersion"]);
}

#[tokio::test]
async fn metadata_is_shown_in_protobuf_and_custom_kinds_otherwise_in_json() {
    let http = Cluster::start().await.http();
    http.post(MAPS, &map("a")).await;
    let name_of = |message: &[u8]| String::from_utf8(field(field(message, 1), 1).to_vec()).unwrap();
    let one = http.send("GET", &format!("{MAPS}/a"), &[("accept", METADATA)], "").await;
    let (kind, raw) = unwrap(&one.body);
    assert_eq!((kind.as_str(), name_of(raw).as_str()), ("PartialObjectMetadata", "a"));
    assert_eq!(fields(raw).len(), 1, "nothing but the metadata");
    let list = METADATA.replace("Metadata;", "MetadataList;");
    let all = http.send("GET", MAPS, &[("accept", &list)], "").await;
    let (kind, raw) = unwrap(&all.body);
    assert_eq!((kind.as_str(), name_of(field(raw, 2)).as_str()), ("PartialObjectMetadataList", "a"));
    let mut watch = Frames::open(&http, &format!("{MAPS}?watch=1"), METADATA).await;
    let (_, object) = watch.raw().await;
    assert_eq!(name_of(unwrap(&object).1), "a");

    let definition = json!({"metadata": {"name": "widgets.x.test"}, "spec": {
        "group": "x.test", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
    }});
    http.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await;
    let widgets = "/apis/x.test/v1/namespaces/default/widgets";
    http.post(widgets, &json!({"apiVersion": "x.test/v1", "kind": "Widget", "metadata": {"name": "w"}}))
        .await;
    let response = http.open("GET", &format!("{widgets}?watch=1"), &[("accept", GO)], "").await;
    assert_eq!(response.headers()["content-type"], "application/json");
    let only = [("accept", "application/vnd.kubernetes.protobuf")];
    assert_eq!(http.send("GET", &format!("{widgets}?watch=1"), &only, "").await.status, 406);
    let mut watch = Frames::open(&http, &format!("{widgets}?watch=1"), METADATA).await;
    assert_eq!(name_of(unwrap(&watch.raw().await.1).1), "w");
}

//! A watch in process, one event after the other.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use serde_json::Value;
use shoal_apiserver::Body;

/// The events of an open watch.
pub struct Events {
    body: Body,
    unread: BytesMut,
}

impl Events {
    pub(crate) fn new(body: Body) -> Events {
        Events { body, unread: BytesMut::new() }
    }

    /// The next event; None when the server has ended the watch.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line = self.unread.split_to(end + 1);
                return serde_json::from_slice(&line).ok();
            }
            let data: Bytes = self.body.frame().await?.ok()?.into_data().ok()?;
            self.unread.extend_from_slice(&data);
        }
    }

    /// All events up to the end of the watch.
    pub async fn rest(&mut self) -> Vec<Value> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }
}

/// What a client knows that lists and then follows the events: objects by namespace and name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mirror {
    /// The objects, without `kind` and `apiVersion`, which items of lists do not have.
    pub objects: BTreeMap<(String, String), Value>,
    /// The newest version seen.
    pub version: u64,
}

impl Mirror {
    /// What a list says.
    pub fn of_list(list: &Value) -> Mirror {
        let mut mirror = Mirror { version: version(list), ..Mirror::default() };
        for item in list["items"].as_array().into_iter().flatten() {
            mirror.objects.insert(key(item), bare(item));
        }
        mirror
    }

    /// Takes one event in. An event that cannot follow on what is known is an error: an addition of what is there, a
    /// change or deletion of what is not, a version that goes back.
    pub fn apply(&mut self, event: &Value) -> Result<(), String> {
        let object = &event["object"];
        let (key, version) = (key(object), version(object));
        if version < self.version {
            return Err(format!("version {version} after {}: {event}", self.version));
        }
        self.version = version;
        let known = self.objects.contains_key(&key);
        match event["type"].as_str() {
            Some("BOOKMARK") => return Ok(()),
            Some("ADDED") if !known => self.objects.insert(key, bare(object)),
            Some("MODIFIED") if known => self.objects.insert(key, bare(object)),
            Some("DELETED") if known => self.objects.remove(&key),
            _ => return Err(format!("{} objects known, {known} for this one: {event}", self.objects.len())),
        };
        Ok(())
    }
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn key(object: &Value) -> (String, String) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}

fn bare(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("kind");
        fields.remove("apiVersion");
    }
    object
}

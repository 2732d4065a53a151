//! `history`: what happened to a group, from the Events on its ShardMap and from the tombstones of its replicas.

use serde::Serialize;
use serde_json::Value;
use shoal_objects::Timestamp;

use super::snapshot::{Snapshot, time};
use super::text::{age, table, tame};

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// When it last happened.
    pub time: Option<String>,
    #[serde(skip)]
    when: Option<Timestamp>,
    /// One word.
    pub what: String,
    /// How often.
    pub count: u64,
    /// Who says so.
    pub by: String,
    /// In words.
    pub message: String,
}

/// Everything that is known, oldest first.
pub fn history(snapshot: &Snapshot, events: &[Value]) -> Vec<Entry> {
    let mut entries: Vec<Entry> = events.iter().map(from_event).collect();
    for lease in snapshot.leases.iter().filter(|lease| lease.object.is_tombstone()) {
        let record = &lease.object.record;
        let Some(revoked) = &record.revoked else { continue };
        let how = if revoked.by == record.replica { "left by itself" } else { "was declared dead" };
        entries.push(Entry {
            time: lease.written.map(|when| when.to_string()),
            when: lease.written,
            what: "ReplicaEnded".to_owned(),
            count: 1,
            by: revoked.by.to_string(),
            message: format!("{} {how}", record.replica),
        });
    }
    entries.sort_by_key(|entry| entry.when);
    entries
}

fn from_event(event: &Value) -> Entry {
    let text = |path: &str| event.pointer(path).and_then(Value::as_str).filter(|text| !text.is_empty());
    let when = ["/series/lastObservedTime", "/lastTimestamp", "/eventTime", "/metadata/creationTimestamp"]
        .into_iter()
        .find_map(|path| text(path).and_then(time));
    let count = ["/series/count", "/count"]
        .into_iter()
        .find_map(|path| event.pointer(path).and_then(Value::as_u64))
        .unwrap_or(1);
    let by = ["/reportingInstance", "/reportingComponent", "/source/component"];
    Entry {
        time: when.map(|when| when.to_string()),
        when,
        what: text("/reason").unwrap_or("-").to_owned(),
        count,
        by: by.into_iter().find_map(text).unwrap_or("-").to_owned(),
        message: text("/message").or_else(|| text("/note")).unwrap_or_default().to_owned(),
    }
}

/// As plain text, the newest `limit` entries.
pub fn text(entries: &[Entry], limit: usize, now: Timestamp) -> String {
    if entries.is_empty() {
        return "no moves are on record: Events are kept for an hour by default\n".to_owned();
    }
    let ago = |when: Option<Timestamp>| {
        let micros = when.map(|when| now.0.saturating_sub(when.0).try_into().unwrap_or_default());
        micros.map_or_else(|| "-".to_owned(), |micros| age(std::time::Duration::from_micros(micros)))
    };
    let row = |entry: &Entry| {
        vec![
            ago(entry.when),
            entry.what.clone(),
            entry.count.to_string(),
            tame(&entry.by),
            tame(&entry.message),
        ]
    };
    let from = entries.len().saturating_sub(limit);
    let rows: Vec<Vec<String>> = entries[from..].iter().map(row).collect();
    let mut text = table(&[">AGE", "WHAT", ">TIMES", "BY", "MESSAGE"], &rows);
    if from > 0 {
        text += &format!("{from} older ones are not shown; --limit 0 shows all\n");
    }
    text
}

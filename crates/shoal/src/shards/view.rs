//! A group as people see it: replicas, ranges of slots, and what is wrong.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use shoal_sharding::{NodeStatus, Observed, Phase, ReplicaId, SlotRange};

use super::snapshot::{SeenLease, Snapshot};
use super::text::{age, count, table, tame};

/// What `status` shows.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct View {
    /// Name of the group.
    pub group: String,
    /// Where it lives.
    pub namespace: String,
    /// What it does.
    pub controller: String,
    /// How many slots.
    pub slots: u32,
    /// From object to key.
    pub key_function: String,
    /// From slots to replicas.
    pub algorithm: String,
    /// Of the record.
    pub version: u64,
    /// Slots that nobody has.
    pub unowned: u32,
    /// For at least how many seconds; none if there are none or nobody knows.
    pub unowned_seconds: Option<f64>,
    /// Slots on their way.
    pub moving: u32,
    /// What people should know.
    pub problems: Vec<String>,
    /// In the order of their ids.
    pub replicas: Vec<ReplicaView>,
    /// In the order of their slots.
    pub ranges: Vec<RangeView>,
}

/// One replica.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaView {
    /// Name and random part.
    pub id: String,
    /// Name without it.
    pub name: String,
    /// As far as can be told from outside.
    pub status: &'static str,
    /// How many slots it has.
    pub slots: u32,
    /// Of all slots.
    pub share: f64,
    /// Since its last renewal.
    pub renewed_seconds: Option<f64>,
    /// Template it was made from.
    pub revision: String,
    /// Where its metrics are served.
    pub address: String,
    /// Its share by configuration, 100 being one.
    pub weight: u32,
    /// Whether people have drained it.
    pub drained: bool,
    /// What its busiest slots cost.
    pub load: u64,
}

/// Neighbouring slots with one fate.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RangeView {
    /// `FIRST-LAST`
    pub slots: String,
    /// Who has them.
    pub owner: Option<String>,
    /// The fencing token.
    pub epoch: u64,
    /// Where they are on their way.
    pub phase: &'static str,
    /// Who gets them.
    pub next: Option<String>,
    #[serde(skip)]
    range: SlotRange,
}

/// More ranges are not shown unless asked for.
const SHOWN_RANGES: usize = 32;

/// What can be seen of a group.
pub fn view(snapshot: &Snapshot) -> View {
    let map = snapshot.map();
    let total = map.map_or(0, |map| map.identity.slots.get());
    let counts = map.map(|map| map.counts()).unwrap_or_default();
    let unowned = map.map_or(0, |map| map.unowned());
    let alarm = snapshot.alarms.iter().filter_map(|(_, since)| *since).min();
    let unowned_since = alarm.or(snapshot.written).filter(|_| unowned > 0);
    let mut replicas: Vec<ReplicaView> = snapshot
        .leases
        .iter()
        .filter(|lease| !lease.object.is_tombstone() || counts.contains_key(&lease.object.record.replica))
        .map(|lease| replica(snapshot, lease, &counts, total))
        .collect();
    let known = |id: &ReplicaId| snapshot.leases.iter().any(|lease| lease.object.record.replica == *id);
    let lost = counts.iter().filter(|(id, _)| !known(id));
    replicas.extend(lost.map(|(id, slots)| ReplicaView {
        id: id.to_string(),
        name: String::new(),
        status: "NoLease",
        slots: *slots,
        share: share(*slots, total),
        renewed_seconds: None,
        revision: String::new(),
        address: String::new(),
        weight: 0,
        drained: false,
        load: 0,
    }));
    replicas.sort_by(|a, b| a.id.cmp(&b.id));
    let ranges = map.iter().flat_map(|map| map.runs()).map(|run| RangeView {
        slots: run.slots.to_string(),
        owner: run.assignment.owner.as_ref().map(ReplicaId::to_string),
        epoch: run.assignment.epoch,
        phase: run.assignment.phase.name(),
        next: run.assignment.next.as_ref().map(ReplicaId::to_string),
        range: run.slots,
    });
    View {
        group: snapshot.group.clone(),
        namespace: snapshot.namespace.clone(),
        controller: map.map(|map| map.identity.controller.clone()).unwrap_or_default(),
        slots: total,
        key_function: map.map(|map| map.identity.key_function.id().to_owned()).unwrap_or_default(),
        algorithm: map.map(|map| map.identity.algorithm.clone()).unwrap_or_default(),
        version: map.map_or(0, |map| map.version),
        unowned,
        unowned_seconds: unowned_since.map(|since| snapshot.age(since).as_secs_f64()),
        moving: map.map_or(0, |map| map.count(&[Phase::Preparing, Phase::Draining])),
        problems: problems(snapshot),
        ranges: ranges.collect(),
        replicas,
    }
}

fn share(slots: u32, total: u32) -> f64 {
    f64::from(slots) / f64::from(total.max(1))
}

fn replica(
    snapshot: &Snapshot,
    lease: &SeenLease,
    counts: &BTreeMap<&ReplicaId, u32>,
    total: u32,
) -> ReplicaView {
    let record = &lease.object.record;
    let slots = counts.get(&record.replica).copied().unwrap_or_default();
    let renewed = lease.renewed.or(lease.written).map(|then| snapshot.age(then));
    ReplicaView {
        id: record.replica.to_string(),
        name: record.name.to_string(),
        status: status(snapshot, lease, renewed),
        slots,
        share: share(slots, total),
        renewed_seconds: renewed.map(|age| age.as_secs_f64()),
        revision: record.revision.to_string(),
        address: record.address.to_string(),
        weight: record.weight,
        drained: snapshot
            .spec
            .cordoned
            .iter()
            .any(|name| *name == record.replica.as_str() || *name == *record.name),
        load: record.loads.iter().map(|(_, cost)| u64::from(*cost)).sum(),
    }
}

fn status(snapshot: &Snapshot, lease: &SeenLease, renewed: Option<Duration>) -> &'static str {
    let record = &lease.object.record;
    let other = snapshot.map().is_some_and(|map| map.fingerprint() != record.fingerprint);
    match record.status {
        _ if lease.object.is_tombstone() => "Ended",
        _ if !lease.object.genuine => "Edited",
        _ if renewed.is_some_and(|age| age > record.duration) => "Silent",
        _ if other => "Refused",
        NodeStatus::Joining => "Joining",
        NodeStatus::Healthy => "Healthy",
        NodeStatus::Unhealthy => "Unhealthy",
        NodeStatus::Leaving => "Leaving",
    }
}

fn problems(snapshot: &Snapshot) -> Vec<String> {
    let mut problems: Vec<String> = snapshot.alarms.iter().map(|(alarm, _)| tame(alarm)).collect();
    if let Observed::Damaged(defect) = &snapshot.observed {
        problems.push(format!("{defect}; nobody works until the replicas have repaired it"));
    }
    if snapshot.map().is_some_and(|map| map.repaired > 0 && map.count(&[Phase::Repairing]) > 0) {
        problems.push("the record was repaired; slots wait until every replica has confirmed it".to_owned());
    }
    let live = snapshot.leases.iter().filter(|lease| !lease.object.is_tombstone());
    for lease in live {
        let record = &lease.object.record;
        let id = &record.replica;
        let renewed = lease.renewed.or(lease.written).map(|then| snapshot.age(then));
        match status(snapshot, lease, renewed) {
            "Edited" => problems.push(format!("the Lease {id} was edited by hand; its holder starts anew")),
            "Refused" => problems.push(format!(
                "{id} computes slots with other settings and gets none; give it those of the group, or drain all \
                 and run `shoal shards migrate`"
            )),
            "Silent" => problems.push(format!(
                "{id} has been silent for {}; the others take over after {}",
                age(renewed.unwrap_or_default()),
                age(record.duration)
            )),
            _ => {}
        }
    }
    problems
}

/// The tables of `status` as plain text. All ranges only on request.
pub fn tables(view: &View, all: bool) -> String {
    let mut text = format!(
        "{} in namespace {}: {} by {}, {}, record version {}\n",
        view.group,
        view.namespace,
        count(view.slots as usize, "slot"),
        view.key_function,
        view.algorithm,
        view.version
    );
    let since = view
        .unowned_seconds
        .map(|seconds| format!(" for at least {}", age(Duration::from_secs_f64(seconds))));
    text += &format!(
        "{}, {} on the move, {} unowned{}\n",
        count(view.replicas.len(), "replica"),
        view.moving,
        view.unowned,
        since.unwrap_or_default()
    );
    for problem in &view.problems {
        text += &format!("warning: {problem}\n");
    }
    text.push('\n');
    let rows: Vec<Vec<String>> = view.replicas.iter().enumerate().map(replica_row).collect();
    if rows.is_empty() {
        text += "no replicas: nobody works on these objects\n";
    } else {
        let headings = ["", "REPLICA", "STATUS", ">SLOTS", ">SHARE", ">RENEWED", ">LOAD", "REVISION"];
        text += &table(&headings, &rows);
    }
    text.push('\n');
    let shown = if all { view.ranges.len() } else { SHOWN_RANGES };
    let rows: Vec<Vec<String>> = view.ranges.iter().take(shown).map(range_row).collect();
    text += &table(&["SLOTS", ">COUNT", "OWNER", ">EPOCH", "PHASE", "NEXT"], &rows);
    if view.ranges.len() > shown {
        text += &format!("… and {} more; --all shows them\n", count(view.ranges.len() - shown, "range"));
    }
    text
}

fn replica_row((at, replica): (usize, &ReplicaView)) -> Vec<String> {
    let renewed = replica.renewed_seconds.map(|s| age(Duration::from_secs_f64(s)) + " ago");
    let drained = if replica.drained { ", drained" } else { "" };
    vec![
        super::heat::letter(at).to_string(),
        tame(&replica.id),
        format!("{}{drained}", replica.status),
        replica.slots.to_string(),
        format!("{:.1}%", replica.share * 100.0),
        renewed.unwrap_or_else(|| "-".to_owned()),
        if replica.load > 0 { replica.load.to_string() } else { "-".to_owned() },
        tame(&replica.revision),
    ]
}

fn range_row(range: &RangeView) -> Vec<String> {
    let name = |of: &Option<String>| of.as_deref().map_or_else(|| "-".to_owned(), tame);
    vec![
        range.slots.clone(),
        range.range.len().to_string(),
        name(&range.owner),
        range.epoch.to_string(),
        range.phase.to_owned(),
        name(&range.next),
    ]
}

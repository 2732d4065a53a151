//! What the cluster says about a group at one moment: its ShardMap and its Leases, read into the core's own types.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use shoal_objects::Timestamp;
use shoal_sharding::{
    Defect, LEASE_ANNOTATION, LeaseObject, Members, Moment, Observed, ReplicaId, ShardMap, ShardMapSpec,
    decode_lease, fnv1a64, read_map,
};

/// The label with which a Lease says whose it is.
pub const GROUP_LABEL: &str = "sharding.shoal.dev/group";

/// A group as it was read.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Where it lives.
    pub namespace: String,
    /// Its name.
    pub group: String,
    /// What people ask for.
    pub spec: ShardMapSpec,
    /// The record.
    pub observed: Observed,
    /// When the record was last written, by the server's clock.
    pub written: Option<Timestamp>,
    /// What the group complains about, and since when.
    pub alarms: Vec<(String, Option<Timestamp>)>,
    /// Leases in the order of their names, tombstones included.
    pub leases: Vec<SeenLease>,
    /// When it was read, by the clock on this wall.
    pub taken: Timestamp,
}

/// One Lease of the group.
#[derive(Clone, Debug)]
pub struct SeenLease {
    /// As the core sees it.
    pub object: Arc<LeaseObject>,
    /// When its holder says that it was renewed.
    pub renewed: Option<Timestamp>,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// When it was last written, by the server's clock.
    pub written: Option<Timestamp>,
}

/// The moment that stands for `taken` on the core's clock: far enough from its start for everything to lie before it.
const NOW: Moment = Moment::from_micros(1 << 50);

impl Snapshot {
    /// Reads the objects; Leases of other groups are left out.
    pub fn read(map: &Value, leases: &[Value], taken: Timestamp) -> Snapshot {
        let text = |path: &str| map.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let group = text("/metadata/name");
        let spec = map.get("spec").and_then(|spec| serde_json::from_value(spec.clone()).ok());
        let observed = read_map(map.get("status"));
        let mut snapshot = Snapshot {
            namespace: text("/metadata/namespace"),
            spec: spec.unwrap_or_default(),
            observed,
            written: written(map),
            alarms: alarms(map),
            leases: Vec::new(),
            taken,
            group,
        };
        let mut ours: Vec<SeenLease> = leases.iter().filter_map(|lease| snapshot.read_lease(lease)).collect();
        ours.sort_by(|a, b| a.object.record.replica.cmp(&b.object.record.replica));
        snapshot.leases = ours;
        snapshot
    }

    fn read_lease(&self, lease: &Value) -> Option<SeenLease> {
        let text = |path: &str| lease.pointer(path).and_then(Value::as_str);
        let name = text("/metadata/name")?;
        let within = |key: &str| lease.get("metadata")?.get(key)?.as_object();
        let annotation = within("annotations").and_then(|all| all.get(LEASE_ANNOTATION)?.as_str());
        let label = within("labels").and_then(|all| all.get(GROUP_LABEL)?.as_str());
        let (record, genuine) = decode_lease(name, annotation);
        let named = self.map().is_some_and(|map| map.names(&record.replica));
        let alike = genuine && self.map().is_some_and(|map| map.fingerprint() == record.fingerprint);
        let ours = match label {
            Some(label) => label == self.group,
            None => named || alike,
        };
        ours.then(|| SeenLease {
            object: Arc::new(LeaseObject {
                uid: fnv1a64(text("/metadata/uid").unwrap_or_default()),
                resource_version: text("/metadata/resourceVersion")
                    .and_then(|version| version.parse().ok())
                    .unwrap_or_default(),
                record,
                genuine,
            }),
            renewed: text("/spec/renewTime").and_then(time),
            created: text("/metadata/creationTimestamp").and_then(time),
            written: written(lease),
        })
    }

    /// The record, even one that was edited by hand: for showing, not for obeying.
    pub fn map(&self) -> Option<&ShardMap> {
        match &self.observed {
            Observed::Valid(map) => Some(map),
            Observed::Damaged(Defect::Edited { content, .. }) => Some(content),
            Observed::Damaged(_) => None,
        }
    }

    /// The record, if it can be relied on, or what to say if not.
    pub fn sound_map(&self) -> Result<&ShardMap, String> {
        match &self.observed {
            Observed::Valid(map) => Ok(map),
            Observed::Damaged(defect) => Err(format!(
                "the ShardMap {} cannot be used: {defect}; running replicas repair it by themselves within a \
                 minute or so, else start one",
                self.group
            )),
        }
    }

    /// The members as the core sees them, and the moment at which it does.
    ///
    /// Times of day are compared here, which the protocol itself never does: this is for showing and for dry runs.
    pub fn members(&self) -> (Members, Moment) {
        let mut members = Members::default();
        let longest = self.map().map_or(Duration::ZERO, |map| map.longest_lease);
        for lease in &self.leases {
            let before = |then: Option<Timestamp>| NOW.earlier(then.map_or(Duration::ZERO, |t| self.age(t)));
            // Seen twice: when it came, and when it was last renewed.
            let first = LeaseObject { resource_version: 0, ..LeaseObject::clone(&lease.object) };
            members.saw(&Arc::new(first), longest, before(lease.created));
            members.saw(&lease.object, longest, before(lease.renewed.or(lease.written)));
        }
        for id in self.map().iter().flat_map(|map| map.named()) {
            members.named(id, longest, NOW);
        }
        (members, NOW)
    }

    /// How long ago that was; nothing if clocks disagree.
    pub fn age(&self, then: Timestamp) -> Duration {
        Duration::from_micros(self.taken.0.saturating_sub(then.0).try_into().unwrap_or_default())
    }

    /// Ids of live replicas that go by this name or id.
    pub fn called<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a ReplicaId> {
        let live = self.leases.iter().filter(|lease| !lease.object.is_tombstone());
        live.map(|lease| &lease.object.record)
            .filter(move |record| record.replica.as_str() == name || &*record.name == name)
            .map(|record| &record.replica)
    }
}

/// When an object was last written, as its managedFields tell.
fn written(object: &Value) -> Option<Timestamp> {
    let entries = object.pointer("/metadata/managedFields")?.as_array()?;
    entries.iter().filter_map(|entry| entry.get("time")?.as_str()).filter_map(time).max()
}

/// Conditions that are bad news.
fn alarms(map: &Value) -> Vec<(String, Option<Timestamp>)> {
    let conditions = map.pointer("/status/conditions").and_then(Value::as_array);
    let text = |of: &Value, key: &str| of.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let bad = conditions.into_iter().flatten().filter(|condition| {
        let good_when_true = matches!(text(condition, "type").as_str(), "Ready" | "Available" | "Healthy");
        text(condition, "status") == if good_when_true { "False" } else { "True" }
    });
    bad.map(|condition| {
        let since = time(&text(condition, "lastTransitionTime"));
        let (kind, message) = (text(condition, "type"), text(condition, "message"));
        (if message.is_empty() { kind } else { format!("{kind}: {message}") }, since)
    })
    .collect()
}

/// A time of the Kubernetes API.
pub fn time(text: &str) -> Option<Timestamp> {
    text.parse::<jiff::Timestamp>().ok().map(|time| Timestamp(time.as_microsecond()))
}

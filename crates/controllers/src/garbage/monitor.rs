//! Which kinds are watched, and how what is seen comes into the graph.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::DynamicObject;
use kube::core::PartialObjectMeta;
use shoal_runtime::cache::{Delta, Encoded, InformerOptions};
use shoal_runtime::watch::Scope;
use shoal_runtime::{Informer, Informers, ObjectKey, Result};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::Collector;
use super::graph::KindRef;
use crate::discovery::{Discovery, Kind};

/// A kind that cannot be listed holds up the others no longer than this.
const PATIENCE: Duration = Duration::from_secs(30);

/// The kinds that are watched.
#[derive(Default)]
pub struct Monitors {
    by_kind: BTreeMap<Arc<KindRef>, Monitor>,
    /// Everything that the server has, in all versions.
    pub discovery: Discovery,
}

struct Monitor {
    informer: Informer<PartialObjectMeta<DynamicObject>>,
    /// A cache that nobody else has ends with this.
    _own: Option<Informers>,
    since: Instant,
    task: AbortHandle,
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Monitors {
    /// Whether everything that exists has been seen, as far as it can be.
    pub fn have_synced(&self) -> bool {
        !self.by_kind.is_empty()
            && self
                .by_kind
                .values()
                .all(|monitor| monitor.informer.has_synced() || monitor.since.elapsed() > PATIENCE)
    }

    /// An object as its cache has it.
    pub fn known(&self, kind: &KindRef, key: &ObjectKey) -> Option<ObjectMeta> {
        let object = self.by_kind.get(kind)?.informer.lister().meta(key)?;
        Some(ObjectMeta {
            resource_version: Some(object.resource_version().to_string()),
            ..metadata(&object)
        })
    }

    /// How many kinds.
    pub fn len(&self) -> usize {
        self.by_kind.len()
    }

    /// Ends all.
    pub fn clear(&mut self) {
        self.by_kind.clear();
    }
}

/// Asks the server what it has, watches what is new and forgets what is gone.
pub async fn follow(collector: &Arc<Collector>) -> Result<()> {
    let discovery = Discovery::ask(&collector.client).await?;
    let mut wanted = BTreeSet::new();
    for kind in discovery.preferred().filter(|kind| is_watched(kind)) {
        let name = Arc::new(KindRef {
            api_version: kind.resource.api_version.clone(),
            kind: kind.resource.kind.clone(),
        });
        wanted.insert(Arc::clone(&name));
        if !collector.monitors.read().by_kind.contains_key(&name) {
            let monitor = watch(collector, kind, &name);
            collector.monitors.write().by_kind.insert(name, monitor);
        }
    }
    let mut gone = Vec::new();
    {
        let mut monitors = collector.monitors.write();
        // A group of which nothing is known at the moment has not gone.
        let failed = |kind: &KindRef| discovery.failed.contains(&kind.api_version);
        monitors.by_kind.retain(|kind, _| {
            let stays = wanted.contains(kind) || failed(kind);
            if !stays {
                gone.push(Arc::clone(kind));
            }
            stays
        });
        monitors.discovery = discovery;
    }
    for kind in gone {
        let objects = collector.graph.lock().of_kind(&kind);
        for object in objects {
            collector.forget(&object.uid);
        }
    }
    Ok(())
}

/// Events belong to nobody, and there are many.
fn is_watched(kind: &Kind) -> bool {
    let resource = &kind.resource;
    kind.can(&["list", "watch", "delete"])
        && !(resource.kind == "Event" && matches!(resource.group.as_str(), "" | "events.k8s.io"))
}

fn watch(collector: &Arc<Collector>, kind: &Kind, name: &Arc<KindRef>) -> Monitor {
    let (informer, own) = match collector.informers.held(&kind.resource) {
        Some(informer) => (informer, None),
        None => {
            let own = Informers::new(collector.client.clone(), InformerOptions::default());
            (own.dynamic_metadata(&kind.resource, Scope::all()), Some(own))
        }
    };
    let (collector, name) = (Arc::clone(collector), Arc::clone(name));
    let mut changes = informer.subscribe();
    let task = tokio::spawn(async move {
        while let Some(delta) = changes.recv().await {
            take(&collector, &name, &delta);
        }
    });
    Monitor { informer, _own: own, since: Instant::now(), task: task.abort_handle() }
}

fn take(collector: &Collector, kind: &Arc<KindRef>, delta: &Delta) {
    let same_object = match (&delta.old, &delta.new) {
        (Some(old), Some(new)) => old.uid() == new.uid(),
        _ => false,
    };
    if let Some(old) = delta.old.as_ref().filter(|_| !same_object) {
        collector.forget(&old.uid().to_string());
    }
    let Some(new) = &delta.new else { return };
    if same_object && delta.old.as_ref().is_some_and(|old| is_alike(old, new)) {
        return;
    }
    collector.observe(kind, &metadata(new));
}

/// Whether nothing has changed that matters here. Most changes are of a status.
fn is_alike(old: &Encoded, new: &Encoded) -> bool {
    old.is_deleting() == new.is_deleting()
        && old.owner_references() == new.owner_references()
        && old.finalizers() == new.finalizers()
}

/// What the graph wants to know of an object.
fn metadata(object: &Encoded) -> ObjectMeta {
    let owner = |owner: &shoal_runtime::cache::Owner| OwnerReference {
        api_version: owner.api_version.to_string(),
        kind: owner.kind.to_string(),
        name: owner.name.to_string(),
        uid: owner.uid.to_string(),
        controller: owner.controller.then_some(true),
        block_owner_deletion: owner.block_owner_deletion.then_some(true),
    };
    let namespace = object.namespace();
    ObjectMeta {
        name: Some(object.name().to_owned()),
        namespace: (!namespace.is_empty()).then(|| namespace.to_owned()),
        uid: Some(object.uid().to_string()),
        owner_references: Some(object.owner_references().iter().map(owner).collect()),
        finalizers: Some(object.finalizers().iter().map(ToString::to_string).collect()),
        deletion_timestamp: object
            .deletion_timestamp()
            .map(|at| Time(Timestamp::from_microsecond(at.0).unwrap_or_default())),
        ..ObjectMeta::default()
    }
}

//! Watches of the Leases and of the record, told to the driver.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ApiResource;
use serde_json::Value;
use shoal_sharding::{Event, LeaseObject, Moment, ReplicaId, SlotRange};
use tokio::sync::mpsc;

use super::crd::{self, GROUP_LABEL};
use super::record::{Listed, Records, SeenMap, seen_map, version};
use crate::watch::{Change, Kind, Scope, Source, Step, WatchOptions, Watcher};

/// What the driver is told.
pub(crate) enum Message {
    /// For the core as it is.
    Event(Event),
    /// A Lease was seen.
    Lease(Arc<LeaseObject>),
    /// A Lease is gone since that version.
    LeaseGone(ReplicaId, u64),
    /// At that version these were all Leases.
    Leases(BTreeSet<ReplicaId>, u64),
    /// The record was seen.
    Map(Box<SeenMap>),
    /// There is no record since that version.
    MapGone(u64),
    /// Everything was read.
    Listed { began: Moment, listed: Box<Listed> },
    /// Nothing is in flight on these slots.
    Drained { slots: SlotRange, epoch: u64 },
}

/// The driver's letter box. Full, it makes watches wait.
pub(crate) type Inbox = mpsc::Sender<Message>;

/// Follows the Leases of the group for ever.
pub(crate) async fn leases(records: Arc<Records>, options: WatchOptions, inbox: Inbox) {
    let scope = Scope::namespace(&records.namespace).labels(&format!("{GROUP_LABEL}={}", records.group));
    let mut watcher = watcher(&records, ApiResource::erase::<Lease>(&()), scope, options);
    let mut listing: Option<BTreeSet<ReplicaId>> = None;
    loop {
        match watcher.next().await {
            Step::Begin { .. } => listing = Some(BTreeSet::new()),
            Step::Changes { changes, .. } => {
                for change in &changes {
                    let id = ReplicaId::new(&*change.record.name());
                    let message = if change.kind == Kind::Deleted {
                        let gone = version(Some(&change.record.revision().to_string()));
                        gone.map(|gone| Message::LeaseGone(id, gone))
                    } else {
                        listing.as_mut().map(|listing| listing.insert(id));
                        object_of(change)
                            .and_then(|object| {
                                serde_json::from_value::<ObjectMeta>(object.get("metadata")?.clone()).ok()
                            })
                            .and_then(|meta| records.seen_lease(&meta))
                            .map(Message::Lease)
                    };
                    tell(&inbox, message).await;
                }
            }
            Step::Complete { revision, .. } => {
                let all = listing.take().zip(version(Some(&revision.to_string())));
                tell(&inbox, all.map(|(all, revision)| Message::Leases(all, revision))).await;
            }
            Step::Progress(_) | Step::Trouble(..) => {}
        }
    }
}

/// Follows the record of the group for ever.
pub(crate) async fn map(records: Arc<Records>, options: WatchOptions, inbox: Inbox) {
    let scope = Scope::namespace(&records.namespace).fields(&format!("metadata.name={}", records.group));
    let mut watcher = watcher(&records, crd::resource(), scope, options);
    let mut listing: Option<bool> = None;
    loop {
        match watcher.next().await {
            Step::Begin { .. } => listing = Some(false),
            Step::Changes { changes, .. } => {
                for change in changes.iter().filter(|change| *change.record.name() == *records.group) {
                    let message = if change.kind == Kind::Deleted {
                        version(Some(&change.record.revision().to_string())).map(Message::MapGone)
                    } else {
                        listing = listing.map(|_| true);
                        object_of(change)
                            .and_then(|object| seen_map(&object))
                            .map(|map| Message::Map(map.into()))
                    };
                    tell(&inbox, message).await;
                }
            }
            Step::Complete { revision, .. } => {
                let gone = listing.take() == Some(false);
                let revision = version(Some(&revision.to_string()));
                tell(&inbox, revision.filter(|_| gone).map(Message::MapGone)).await;
            }
            Step::Progress(_) | Step::Trouble(..) => {}
        }
    }
}

fn watcher(records: &Records, resource: ApiResource, scope: Scope, options: WatchOptions) -> Watcher {
    Watcher::new(records.client().clone(), Source { resource, scope, metadata_only: false }, options)
}

fn object_of(change: &Change) -> Option<Value> {
    let mut bytes = Vec::new();
    change.record.write_bare(&mut bytes);
    serde_json::from_slice(&bytes).ok()
}

async fn tell(inbox: &Inbox, message: Option<Message>) {
    if let Some(message) = message {
        // A driver that has ended takes this task with it.
        let _ = inbox.send(message).await;
    }
}

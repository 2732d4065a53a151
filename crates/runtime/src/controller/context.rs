//! What a reconciler is given.

use std::sync::Arc;

use kube::{Client, ResourceExt};
use tokio_util::sync::CancellationToken;

use super::listers::{BY_OWNER, Listers};
use crate::ObjectKey;
use crate::apply::{Object, Writer};
use crate::cache::{Encoded, Lister, Objects};
use crate::events::Recorder;
use crate::gate::Shard;

/// One reconcile: the object, and everything that is needed to look after it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
/// use shoal_runtime::{Action, Context, Controller, Error, Manager, Result};
///
/// /// Every namespace gets a ConfigMap that says its name.
/// async fn reconcile(context: Context<Namespace>) -> Result<Action> {
///     // None: it was deleted, and its content goes with it.
///     let Some(space) = context.object() else { return Ok(Action::done()) };
///     let name = &*context.key().name;
///     let map = serde_json::json!({"metadata": {"name": "about", "namespace": name}, "data": {"name": name}});
///     let map: ConfigMap = serde_json::from_value(map).map_err(|error| Error::permanent("a bad map").because(error))?;
///     // What the cache has: when it is what is wanted, nothing is sent.
///     let live = context.children::<ConfigMap>().pop();
///     context.writer().apply_child(&*space, &map, live.as_deref()).await?;
///     context.recorder().normal(&*space, "Described", "has a ConfigMap that says its name");
///     Ok(Action::done())
/// }
///
/// let cluster = shoal_testkit::Cluster::start().await;
/// let mut manager = Manager::builder("about").client(cluster.client()).embedded().build().await?;
/// manager.add(Controller::of::<Namespace>("about").owns::<ConfigMap>().reconcile(reconcile));
/// let stopper = manager.stopper();
/// let running = tokio::spawn(manager.run());
///
/// let maps: kube::Api<ConfigMap> = kube::Api::default_namespaced(cluster.client());
/// let map = shoal_testkit::eventually("the map", || async { maps.get("about").await.ok() }).await;
/// assert_eq!(map.data.ok_or("no data")?["name"], "default");
/// stopper.stop();
/// running.await??;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Context<K> {
    pub(super) key: ObjectKey,
    pub(super) object: Option<Arc<K>>,
    pub(super) last: Option<Arc<Encoded>>,
    pub(super) retries: u32,
    pub(super) listers: Listers,
    pub(super) writer: Writer,
    pub(super) recorder: Recorder,
    pub(super) shard: Option<Shard>,
    pub(super) cancelled: Arc<CancellationToken>,
}

impl<K: Object> Context<K> {
    /// Namespace and name of the object.
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// The object as the cache has it; None when it was deleted.
    pub fn object(&self) -> Option<Arc<K>> {
        self.object.clone()
    }

    /// Of an object that was deleted, the last state that was seen.
    pub fn last_state(&self) -> Option<K> {
        self.last.as_ref()?.decode().ok()
    }

    /// Reads another kind from its cache. Name the kind when the controller is built, with `owns`, `watches` or
    /// `reads`: then the cache is full before the first reconcile.
    pub fn lister<T: Object>(&self) -> Lister<T> {
        self.listers.of()
    }

    /// The objects that this one owns, of a kind that was named with `owns`.
    pub fn children<T: Object>(&self) -> Vec<Arc<T>> {
        let uid = self.object.as_ref().and_then(|object| object.uid());
        uid.map(|uid| self.lister::<T>().by_index(BY_OWNER, &uid)).unwrap_or_default()
    }

    /// The metadata of the objects that this one owns, of a kind that was named with `owns`.
    pub fn children_metas<T: Object>(&self) -> Objects {
        let uid = self.object.as_ref().and_then(|object| object.uid());
        uid.map(|uid| self.lister::<T>().metas_by_index(BY_OWNER, &uid)).unwrap_or_default()
    }

    /// Writes in the name of the controller.
    pub fn writer(&self) -> &Writer {
        &self.writer
    }

    /// Tells people what happened, as Kubernetes events.
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// For requests that the writer does not know.
    pub fn client(&self) -> &Client {
        self.writer.client()
    }

    /// The slot that this work belongs to and its epoch, a fencing token for systems outside of the cluster. None where the
    /// controller is not sharded.
    pub fn shard(&self) -> Option<&Shard> {
        self.shard.as_ref()
    }

    /// How often this object failed in a row.
    pub fn retries(&self) -> u32 {
        self.retries
    }

    /// Waits until the process stops and cannot wait for this reconcile any longer. One that does not listen is
    /// dropped a little later.
    pub async fn cancelled(&self) {
        self.cancelled.cancelled().await;
    }

    /// Whether [`Context::cancelled`] has happened.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.is_cancelled()
    }
}

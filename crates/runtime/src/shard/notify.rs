//! Tells the layer above which shards came and went, one after the other, and waits for it, but not for ever.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use shoal_sharding::{Epoch, ReplicaId, SlotRange};
use tokio::sync::{mpsc, oneshot};

use super::kinds::Kinds;
use crate::ObjectKey;

/// Slots that came or went.
#[derive(Clone)]
pub struct Shards {
    /// Which.
    pub slots: SlotRange,
    /// The fencing token that they have or had.
    pub epoch: Epoch,
    kinds: Arc<Kinds>,
}

impl Shards {
    /// The objects of these slots that the caches hold now, with the names of the controllers that look after them. Looked up
    /// when asked for.
    pub fn resources(&self) -> Vec<(String, ObjectKey)> {
        self.kinds.keys(self.slots)
    }
}

/// Slots that went from one replica to another, wherever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reassigned {
    /// Which.
    pub slots: SlotRange,
    /// From whom.
    pub from: Option<ReplicaId>,
    /// To whom.
    pub to: Option<ReplicaId>,
}

/// Is told about changes. Calls come one after the other, each with a deadline; a call that takes longer is dropped.
///
/// `gained` is over before the first reconcile of the slots in that epoch, `lost` begins after the last one. When a handover is
/// called off, slots are gained again under a higher epoch.
pub trait ShardListener: Send + Sync + 'static {
    /// Slots came. Their caches may still be filling.
    fn gained(&self, shards: Shards) -> impl Future<Output = ()> + Send {
        let _ = shards;
        async {}
    }

    /// Slots went. In a planned handover the next owner waits until this is over.
    fn lost(&self, shards: Shards) -> impl Future<Output = ()> + Send {
        let _ = shards;
        async {}
    }

    /// Slots changed hands anywhere.
    fn reassigned(&self, change: Reassigned) -> impl Future<Output = ()> + Send {
        let _ = change;
        async {}
    }
}

/// A listener whose type is forgotten.
pub(crate) type Listener = Arc<dyn Fn(Notification) -> BoxFuture<'static, ()> + Send + Sync>;

pub(crate) fn erased(listener: impl ShardListener) -> Listener {
    let listener = Arc::new(listener);
    Arc::new(move |notification| {
        let listener = listener.clone();
        async move {
            match notification {
                Notification::Gained(shards) => listener.gained(shards).await,
                Notification::Lost(shards) => listener.lost(shards).await,
                Notification::Reassigned(change) => listener.reassigned(change).await,
            }
        }
        .boxed()
    })
}

/// One thing to tell.
#[derive(Clone)]
pub(crate) enum Notification {
    Gained(Shards),
    Lost(Shards),
    Reassigned(Reassigned),
}

/// Where notifications are handed in. They are told in this order.
#[derive(Clone)]
pub(crate) struct Notifier {
    orders: Option<mpsc::UnboundedSender<(Notification, oneshot::Sender<()>)>>,
    kinds: Arc<Kinds>,
}

impl Notifier {
    /// A notifier and the work that tells.
    pub(crate) fn new(
        listener: Option<Listener>,
        kinds: Arc<Kinds>,
        limit: Duration,
    ) -> (Notifier, impl Future<Output = ()> + Send + use<>) {
        let (orders, mut inbox) = mpsc::unbounded_channel::<(Notification, oneshot::Sender<()>)>();
        let orders = listener.is_some().then_some(orders);
        let tell = async move {
            let Some(listener) = listener else { return };
            while let Some((notification, done)) = inbox.recv().await {
                let called =
                    std::panic::AssertUnwindSafe(async { listener(notification).await }).catch_unwind();
                match tokio::time::timeout(limit, called).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => tracing::error!("a shard listener panicked"),
                    Err(_) => tracing::error!(?limit, "a shard listener took too long and was dropped"),
                }
                let _ = done.send(());
            }
        };
        (Notifier { orders, kinds }, tell)
    }

    pub(crate) fn gained(&self, slots: SlotRange, epoch: Epoch) -> impl Future<Output = ()> + Send + use<> {
        self.tell(Notification::Gained(Shards { slots, epoch, kinds: self.kinds.clone() }))
    }

    pub(crate) fn lost(&self, slots: SlotRange, epoch: Epoch) -> impl Future<Output = ()> + Send + use<> {
        self.tell(Notification::Lost(Shards { slots, epoch, kinds: self.kinds.clone() }))
    }

    pub(crate) fn reassigned(&self, change: Reassigned) {
        drop(self.tell(Notification::Reassigned(change)));
    }

    /// Hands it in now; the future waits until it was told.
    fn tell(&self, notification: Notification) -> impl Future<Output = ()> + Send + use<> {
        let (done, told) = oneshot::channel();
        if let Some(orders) = &self.orders {
            let _ = orders.send((notification, done));
        }
        async move {
            let _ = told.await;
        }
    }
}

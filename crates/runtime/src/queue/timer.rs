//! The one task per queue that makes waiting keys ready when their time has come.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::{BATCH, Shared};

/// Runs until the queue is shut down or dropped.
pub(super) async fn run<K>(shared: Weak<Shared<K>>, sooner: Arc<Notify>) {
    while let Some(next) = shared.upgrade().and_then(|shared| fire(&shared)) {
        match next {
            Some(at) => tokio::select! {
                biased;
                () = sooner.notified() => {}
                () = sleep_until(at) => {}
            },
            None => sooner.notified().await,
        }
    }
}

/// When to come back, if known; None when there is nothing more to do.
fn fire<K>(shared: &Shared<K>) -> Option<Option<Instant>> {
    loop {
        let now = shared.now();
        let (effects, next) = {
            let mut core = shared.core.lock();
            if core.closed {
                return None;
            }
            (core.fire(now, BATCH), core.next_timer())
        };
        shared.tell(effects);
        // The lock is given back between batches: others want to add and to take.
        if next.is_none_or(|next| next > now) {
            return Some(next.map(|due| at(shared.epoch, due)));
        }
    }
}

fn at(epoch: Instant, due: Duration) -> Instant {
    epoch.checked_add(due).unwrap_or(epoch)
}

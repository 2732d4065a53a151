//! Coordination has a thread, a runtime and a connection of its own: a flood of events, lists and reconciles in this process must not
//! hold up the renewal of its Lease.
//!
//! A process whose own runtime stands still for long must lose its slots all the same. Its runtime gives signs of life; without them no
//! renewal is sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use shoal_sharding::Moment;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::holding::Holding;
use super::{Shared, driver};
use crate::client::{self, Places};
use crate::manager::{BoxError, Stop};

/// Signs of life are given this often.
const BEAT: Duration = Duration::from_millis(100);

/// How a second client for the same cluster is made.
#[derive(Clone, Debug)]
pub(crate) struct Connect {
    pub(crate) places: Places,
    pub(crate) options: client::Options,
}

/// When the runtime of the process last gave a sign of life.
#[derive(Debug, Default)]
pub(crate) struct Pulse(AtomicU64);

impl Pulse {
    /// The runtime is alive now.
    pub(crate) fn beat(&self, now: Moment) {
        self.0.store(now.micros(), Ordering::Relaxed);
    }

    /// For how long there was none. Zero where nobody gives any.
    pub(crate) fn silence(&self, now: Moment) -> Duration {
        match self.0.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            last => now.since(Moment::from_micros(last)),
        }
    }
}

async fn keep_beating(pulse: Arc<Pulse>, holding: Arc<Holding>) {
    loop {
        pulse.beat(holding.now());
        tokio::time::sleep(BEAT).await;
    }
}

/// Takes part in the group until it is asked to stop.
pub(super) async fn run(shared: Arc<Shared>, stop: Stop) -> Result<(), BoxError> {
    let main = Handle::current();
    // Tokio's clock belongs to one runtime, and so do the connections of a client that was given to us.
    let own = shared.connect.clone().filter(|_| shared.holding.clock().is_everywhere());
    let Some(connect) = own else { return driver::run(shared, stop, main).await };
    let mut beating = JoinSet::new();
    beating.spawn(keep_beating(shared.pulse.clone(), shared.holding.clone()));
    let (told, outcome) = oneshot::channel();
    let dropped = CancellationToken::new();
    let _guard = dropped.clone().drop_guard();
    let work = move || {
        let result = on_thread(&shared, stop, main, &connect, &dropped);
        let _ = told.send(result);
    };
    std::thread::Builder::new().name("shard-coordination".to_owned()).spawn(work)?;
    outcome.await.unwrap_or_else(|_| Err("the thread of coordination has panicked".into()))
}

fn on_thread(
    shared: &Arc<Shared>,
    stop: Stop,
    main: Handle,
    connect: &Connect,
    dropped: &CancellationToken,
) -> Result<(), BoxError> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // Made here, so that its connections live on this thread.
        let client = client::infer_from(&connect.places, &connect.options).await?;
        shared.records.use_own(client);
        tokio::select! {
            biased;
            () = dropped.cancelled() => Ok(()),
            result = driver::run(shared.clone(), stop, main) => result,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_counts_from_the_last_sign_of_life() {
        let pulse = Pulse::default();
        assert_eq!(pulse.silence(Moment::from_micros(9_000_000)), Duration::ZERO, "nobody gives any");
        pulse.beat(Moment::from_micros(1_000_000));
        assert_eq!(pulse.silence(Moment::from_micros(9_000_000)), Duration::from_secs(8));
    }
}

//! Stops work when the deadline of this replica has passed, and the process when the work does not stop.
//!
//! It stands beside the runtime, on a thread of its own: reconcilers that block every thread of the runtime also block the
//! driver that would have stopped them.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::holding::Holding;

/// Ends the process; is told why.
pub type AbortHook = Arc<dyn Fn(&str) + Send + Sync>;

/// The clock is looked at this often: threads and timers stand still while the machine sleeps.
const LOOK: Duration = Duration::from_millis(50);

/// The hook of real processes.
pub(crate) fn abort_process() -> AbortHook {
    Arc::new(|why| {
        tracing::error!(why, "ending the process");
        std::process::abort();
    })
}

/// What a look says.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Fine,
    /// This much was told to end.
    Told(usize),
    Overdue(usize),
}

fn look(holding: &Holding) -> Verdict {
    let now = holding.now();
    if now < holding.deadline() || holding.in_flight() == 0 {
        return Verdict::Fine;
    }
    if now >= holding.stop_by() {
        // Looked at again: a renewal may have come between the looks at clock, deadline and work.
        let late = holding.in_flight();
        if late > 0 && holding.now() >= holding.deadline() && holding.now() >= holding.stop_by() {
            return Verdict::Overdue(late);
        }
    }
    Verdict::Told(holding.cancel_all())
}

fn step(holding: &Weak<Holding>, abort: &AbortHook) -> bool {
    let Some(holding) = holding.upgrade() else { return false };
    if let Verdict::Overdue(late) = look(&holding) {
        abort(&format!(
            "{late} reconciles did not stop before this replica's Lease ends; another replica may work on their objects"
        ));
    }
    true
}

/// Watches from a thread of its own, for clocks that can be read there.
pub(crate) fn on_thread(holding: &Arc<Holding>, abort: AbortHook) -> std::io::Result<()> {
    let holding = Arc::downgrade(holding);
    let run = move || {
        while step(&holding, &abort) {
            std::thread::sleep(LOOK);
        }
    };
    std::thread::Builder::new().name("shard-watchdog".to_owned()).spawn(run).map(drop)
}

/// Watches from a task, for tokio's clock.
pub(crate) async fn as_task(holding: Weak<Holding>, abort: AbortHook) {
    while step(&holding, &abort) {
        tokio::time::sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    use shoal_sharding::SlotCount;

    use super::*;
    use crate::monotonic::Monotonic;

    const MARGIN: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn work_is_told_to_stop_at_the_deadline_and_the_process_ends_when_it_does_not() {
        let holding = Holding::new(SlotCount::new(4).unwrap(), Monotonic::tokio());
        holding.set_deadline(holding.now() + Duration::from_secs(10), MARGIN);
        holding.open(holding.all(), 1);
        let aborted = Arc::new(AtomicUsize::new(0));
        let count = aborted.clone();
        let hook: AbortHook = Arc::new(move |_| _ = count.fetch_add(1, Ordering::SeqCst));
        let task = tokio::spawn(as_task(Arc::downgrade(&holding), hook));
        let pass = holding.enter(1).unwrap();
        tokio::time::sleep(Duration::from_millis(9_900)).await;
        assert!(!pass.lost.is_cancelled());
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(pass.lost.is_cancelled());
        assert_eq!(aborted.load(Ordering::SeqCst), 0);
        tokio::time::sleep(Duration::from_millis(4_500)).await;
        assert!(aborted.load(Ordering::SeqCst) > 0, "before the margin is over");
        drop(pass);
        drop(holding);
        task.await.unwrap();
    }

    #[test]
    fn a_blocked_runtime_does_not_block_the_watchdog() {
        // A clock that the test moves: however busy the machine is, work begins before the deadline.
        let millis = Arc::new(AtomicU64::new(1));
        let shown = millis.clone();
        let clock = Monotonic::from_fn(move || Duration::from_millis(shown.load(Ordering::Relaxed)));
        let holding = Holding::new(SlotCount::new(4).unwrap(), clock);
        holding.set_deadline(holding.now() + Duration::from_millis(50), Duration::from_millis(100));
        holding.open(holding.all(), 1);
        let (told, ended) = std::sync::mpsc::channel();
        let hook: AbortHook = Arc::new(move |why| _ = told.send(why.to_owned()));
        on_thread(&holding, hook).unwrap();
        let pass = holding.enter(1).unwrap();
        millis.store(60, Ordering::Relaxed);
        while !pass.lost.is_cancelled() {
            std::thread::sleep(LOOK);
        }
        millis.store(1_000, Ordering::Relaxed);
        let why = ended.recv_timeout(Duration::from_secs(60)).unwrap();
        assert!(why.contains("did not stop"), "{why}");
    }
}

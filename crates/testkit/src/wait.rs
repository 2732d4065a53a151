//! Waiting for something to become true.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

const PATIENCE: Duration = Duration::from_secs(60);

/// Asks `check` until it answers something, for a minute of tokio time (with paused time: at once).
///
/// # Panics
/// When the time is over; `what` says what was waited for.
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut check: impl FnMut() -> F) -> T {
    let end = Instant::now() + PATIENCE;
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(value) = check().await {
            return value;
        }
        #[allow(clippy::panic, reason = "the test has failed")]
        if Instant::now() > end {
            panic!("after {PATIENCE:?} still not: {what}");
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}

//! How many reconciles run at once, all controllers of the process together.

use std::sync::Arc;

use tokio::sync::{Semaphore, watch};

use crate::config::{Config, Source};

/// Permits, as many as the settings say.
pub(super) struct Limit {
    pub(super) permits: Arc<Semaphore>,
    /// How many there are.
    count: usize,
    settings: watch::Receiver<Arc<Config>>,
}

impl Limit {
    pub(super) fn new(source: &Source) -> Limit {
        let settings = source.subscribe();
        let count = wanted(&settings.borrow());
        Limit { permits: Arc::new(Semaphore::new(count)), count, settings }
    }

    /// Follows the settings for ever. Where fewer are wanted, reconciles that run go on, and no other begins before enough of them
    /// have ended.
    pub(super) async fn follow(mut self) {
        loop {
            let wanted = wanted(&self.settings.borrow_and_update());
            self.permits.add_permits(wanted.saturating_sub(self.count));
            self.count = self.count.max(wanted);
            tokio::select! {
                biased;
                changed = self.settings.changed() => if changed.is_err() { return },
                Ok(permit) = self.permits.acquire(), if self.count > wanted => {
                    permit.forget();
                    self.count -= 1;
                }
            }
        }
    }
}

fn wanted(config: &Config) -> usize {
    config.reconcile_config.max_concurrent.clamp(1, Semaphore::MAX_PERMITS)
}

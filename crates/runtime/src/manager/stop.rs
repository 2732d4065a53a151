//! How components are told to stop: first no new events, then drain and end, at last drop everything.

use std::future::Future;

use tokio::sync::watch;

/// How far a stop has come. Each level includes the ones before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nobody asked to stop.
    #[default]
    Run,
    /// Take no new events; work that is queued goes on.
    Quiet,
    /// Finish what is queued, then end.
    Drain,
    /// Drop everything now.
    Abort,
}

/// The side of a component: tells when and how to stop. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<Level>);

/// The side that asks to stop. When the last one is dropped, nothing more is asked.
#[derive(Clone, Debug)]
pub struct Stopper(watch::Sender<Level>);

impl Stop {
    /// A stop and the hand that asks for it.
    ///
    /// ```
    /// let (stopper, stop) = shoal_runtime::manager::Stop::channel();
    /// stopper.stop();
    /// assert!(stop.is_requested() && stop.is_quiet() && !stop.is_aborted());
    /// ```
    pub fn channel() -> (Stopper, Stop) {
        let (sender, receiver) = watch::channel(Level::Run);
        (Stopper(sender), Stop(receiver))
    }

    /// A stop that never comes.
    pub fn never() -> Stop {
        Stop::channel().1
    }

    /// How far the stop has come.
    pub fn level(&self) -> Level {
        *self.0.borrow()
    }

    /// Whether new events are to be left alone.
    pub fn is_quiet(&self) -> bool {
        self.level() >= Level::Quiet
    }

    /// Whether the component is to finish its queue and end.
    pub fn is_requested(&self) -> bool {
        self.level() >= Level::Drain
    }

    /// Whether the component is to drop everything.
    pub fn is_aborted(&self) -> bool {
        self.level() >= Level::Abort
    }

    /// Waits until no new events are to be taken.
    pub fn quiet(&self) -> impl Future<Output = ()> + Send + 'static {
        self.reached(Level::Quiet)
    }

    /// Waits until the component is asked to finish its queue and end.
    pub fn requested(&self) -> impl Future<Output = ()> + Send + 'static {
        self.reached(Level::Drain)
    }

    /// Waits until the component is asked to drop everything.
    pub fn aborted(&self) -> impl Future<Output = ()> + Send + 'static {
        self.reached(Level::Abort)
    }

    fn reached(&self, level: Level) -> impl Future<Output = ()> + Send + 'static {
        let mut receiver = self.0.clone();
        async move {
            if receiver.wait_for(|now| *now >= level).await.is_err() {
                // Nobody is left who could ask.
                std::future::pending::<()>().await;
            }
        }
    }
}

impl Stopper {
    /// Asks to finish and end.
    pub fn stop(&self) {
        self.raise(Level::Drain);
    }

    /// Asks to drop everything.
    pub fn abort(&self) {
        self.raise(Level::Abort);
    }

    /// Raises the level; it never goes back.
    pub fn raise(&self, level: Level) {
        self.0.send_if_modified(|now| {
            let higher = *now < level;
            *now = (*now).max(level);
            higher
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_level_includes_the_lower_ones_and_never_goes_back() {
        let (stopper, stop) = Stop::channel();
        assert!(!stop.is_quiet());
        stopper.raise(Level::Quiet);
        stop.quiet().await;
        assert!(!stop.is_requested());
        stopper.abort();
        stop.requested().await;
        stop.aborted().await;
        stopper.raise(Level::Quiet);
        assert!(stop.is_aborted());
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_whose_hand_is_gone_never_comes() {
        let waited =
            tokio::time::timeout(std::time::Duration::from_secs(3600), Stop::never().requested()).await;
        assert!(waited.is_err());
    }
}

//! SIGTERM and SIGINT: the first asks to stop, the second does not wait.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Stopper;

/// The signals that end a process.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// From here on the process does not die of these signals.
    pub(super) fn listen() -> std::io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    pub(super) async fn forward(mut self, stopper: Stopper) {
        let name = self.next().await;
        tracing::info!(signal = name, "stopping; a second signal stops at once");
        stopper.stop();
        let name = self.next().await;
        tracing::warn!(signal = name, "stopping at once");
        stopper.abort();
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

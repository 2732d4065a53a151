//! The event recorders of a manager's components.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use parking_lot::Mutex;
use shoal_objects::Clock;

use super::{Component, Stop};
use crate::events::Recorder;

/// How long the last events may take.
const FLUSH: Duration = Duration::from_secs(5);

/// Makes recorders, and sends what they recorded before the manager stops. Cheap to clone.
#[derive(Clone)]
pub(super) struct Recorders(Arc<Inner>);

struct Inner {
    client: Client,
    host: String,
    clock: Clock,
    made: Mutex<Vec<Recorder>>,
}

impl Recorders {
    pub(super) fn new(client: Client, host: &str, clock: Clock) -> Recorders {
        Recorders(Arc::new(Inner { client, host: host.to_owned(), clock, made: Mutex::default() }))
    }

    /// A recorder that speaks in the name of one component.
    pub(super) fn of(&self, component: &str) -> Recorder {
        let Inner { client, host, clock, made } = &*self.0;
        let (recorder, sending) = Recorder::new(client.clone(), component, host, clock.clone());
        // Ends when the last recorder is gone.
        tokio::spawn(sending);
        made.lock().push(recorder.clone());
        recorder
    }

    /// Stops after the controllers, when the last event is sent.
    pub(super) fn component(&self) -> Component {
        let recorders = self.clone();
        let run = move |stop: Stop| async move {
            stop.requested().await;
            let made = std::mem::take(&mut *recorders.0.made.lock());
            let flush = async {
                for recorder in made {
                    recorder.flush().await;
                }
            };
            // A server that is away must not hold up the stop.
            let _ = tokio::time::timeout(FLUSH, flush).await;
            Ok(())
        };
        Component::new("events", run).cache()
    }
}

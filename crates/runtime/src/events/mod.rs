//! Events: what a controller tells people about an object, seen with `kubectl describe` and `kubectl get events`.
//!
//! Recording never waits and never fails a reconcile. Repetitions are counted on one Event instead of filling the
//! cluster, and an object that is noisy is silenced for a while.

mod correlate;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource};
use serde_json::json;
use shoal_objects::clock::{Clock, Timestamp};
use tokio::sync::{mpsc, oneshot};

use correlate::{Correlator, Step};

/// Events waiting to be sent; more are dropped and counted.
const BACKLOG: usize = 1024;

/// Whether someone should worry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// Something went as it should.
    Normal,
    /// Something needs attention.
    Warning,
}

/// What is to be said.
#[derive(Clone, Debug)]
pub(crate) struct Note {
    regarding: ObjectReference,
    severity: Severity,
    reason: String,
    message: String,
    at: Timestamp,
}

enum Order {
    Send(Box<Note>),
    Flush(oneshot::Sender<()>),
}

/// Records events in the name of one component. Clones share the component's memory of what was said.
#[derive(Clone)]
pub struct Recorder {
    orders: mpsc::Sender<Order>,
    dropped: Arc<AtomicU64>,
    clock: Clock,
}

impl Recorder {
    /// A recorder, and the work that sends what it records; spawn it.
    ///
    /// `instance` is the replica that speaks, by custom the pod's name.
    pub fn new(
        client: Client,
        component: &str,
        instance: &str,
        clock: Clock,
    ) -> (Recorder, impl Future<Output = ()> + Send + use<>) {
        let (orders, inbox) = mpsc::channel(BACKLOG);
        let recorder = Recorder { orders, dropped: Arc::default(), clock };
        let sender = Sender {
            client,
            component: component.to_owned(),
            instance: instance.to_owned(),
            correlator: Correlator::default(),
            dropped: Arc::clone(&recorder.dropped),
        };
        (recorder, sender.run(inbox))
    }

    /// Something went as it should.
    pub fn normal<K: Resource<DynamicType = ()>>(&self, about: &K, reason: &str, message: impl Into<String>) {
        self.record(about.object_ref(&()), Severity::Normal, reason, message);
    }

    /// Something needs attention.
    pub fn warning<K: Resource<DynamicType = ()>>(
        &self,
        about: &K,
        reason: &str,
        message: impl Into<String>,
    ) {
        self.record(about.object_ref(&()), Severity::Warning, reason, message);
    }

    /// Records an event about any object. Never waits; when too many are waiting it is dropped and counted.
    pub fn record(
        &self,
        regarding: ObjectReference,
        severity: Severity,
        reason: &str,
        message: impl Into<String>,
    ) {
        self.record_at(self.clock.now(), regarding, severity, reason, message);
    }

    /// Records an event that happened earlier: before its effects, although it is known after them only.
    pub fn record_at(
        &self,
        at: Timestamp,
        regarding: ObjectReference,
        severity: Severity,
        reason: &str,
        message: impl Into<String>,
    ) {
        let note = Note { regarding, severity, reason: reason.to_owned(), message: message.into(), at };
        if self.orders.try_send(Order::Send(Box::new(note))).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Events that were not sent, because too many waited, an object was too noisy, or the server refused.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Waits until everything recorded so far is sent.
    pub async fn flush(&self) {
        let (done, sent) = oneshot::channel();
        if self.orders.send(Order::Flush(done)).await.is_ok() {
            let _ = sent.await;
        }
    }
}

/// Sends notes one after the other.
struct Sender {
    client: Client,
    component: String,
    instance: String,
    correlator: Correlator,
    dropped: Arc<AtomicU64>,
}

impl Sender {
    async fn run(mut self, mut inbox: mpsc::Receiver<Order>) {
        while let Some(order) = inbox.recv().await {
            match order {
                Order::Send(note) => self.send(&note).await,
                Order::Flush(done) => {
                    let _ = done.send(());
                }
            }
        }
    }

    async fn send(&mut self, note: &Note) {
        let step = self.correlator.decide(note, note.at);
        let result = match step {
            Step::Drop => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                return;
            }
            Step::Create { name, message } => self.create(note, &name, message).await,
            Step::Count { name, count, message } => match self.count(note, &name, count, &message).await {
                // Events expire; one that is gone starts again under a new name.
                Err(kube::Error::Api(status)) if status.code == 404 => {
                    self.correlator.forget(note);
                    match self.correlator.decide(note, note.at) {
                        Step::Create { name, message } => self.create(note, &name, message).await,
                        _ => return,
                    }
                }
                other => other,
            },
        };
        if let Err(error) = result {
            self.correlator.forget(note);
            self.dropped.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(reason = note.reason, %error, "an event could not be recorded");
        }
    }

    fn api(&self, note: &Note) -> Api<Event> {
        // Events about objects without a namespace live in `default`.
        let namespace = note.regarding.namespace.as_deref().filter(|namespace| !namespace.is_empty());
        Api::namespaced(self.client.clone(), namespace.unwrap_or("default"))
    }

    async fn create(&self, note: &Note, name: &str, message: String) -> Result<(), kube::Error> {
        let at = time(note.at);
        let type_ = match note.severity {
            Severity::Normal => "Normal",
            Severity::Warning => "Warning",
        };
        let event = Event {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            involved_object: note.regarding.clone(),
            type_: Some(type_.to_owned()),
            reason: Some(note.reason.clone()),
            message: Some(message),
            source: Some(EventSource { component: Some(self.component.clone()), host: None }),
            reporting_component: Some(self.component.clone()),
            reporting_instance: Some(self.instance.clone()),
            first_timestamp: Some(at.clone()),
            last_timestamp: Some(at),
            count: Some(1),
            ..Event::default()
        };
        self.api(note).create(&PostParams::default(), &event).await.map(drop)
    }

    async fn count(&self, note: &Note, name: &str, count: i32, message: &str) -> Result<(), kube::Error> {
        let patch = json!({"count": count, "lastTimestamp": time(note.at), "message": message});
        self.api(note).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
    }
}

fn time(at: Timestamp) -> Time {
    Time(jiff::Timestamp::from_second(at.seconds()).unwrap_or_default())
}

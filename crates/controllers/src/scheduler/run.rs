//! The loop: what happened, who is next, where to; then the requests.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use shoal_objects::Clock;
use shoal_runtime::cache::Delta;
use shoal_runtime::events::Severity;
use shoal_runtime::manager::{BoxError, Stop};
use shoal_runtime::{Manager, ObjectKey, Recorder};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Gauges;
use super::claims::{Promises, volumes_of};
use super::cluster::{Caches, Feeds, take_node, take_pod};
use super::cycle::Volumes;
use super::filter;
use super::kin::Kin;
use super::plan::{self, Question};
use super::preempt::{self, Preemption};
use super::queue::{Pending, Queue};
use super::reason::{Failure, Wakes};
use super::shape::Shape;
use super::snapshot::{Placed, Snapshot};
use super::write::{self, Done};
use crate::pods;
use crate::time::now;

/// Requests at one time.
const AT_ONCE: usize = 100;
/// Decisions between two looks at what happened.
const BATCH: usize = 50;

/// What the scheduler is made of.
pub(super) struct Loop {
    name: String,
    client: Client,
    clock: Clock,
    recorder: Recorder,
    caches: Caches,
    kin: Kin,
    snapshot: Snapshot,
    queue: Queue,
    requests: JoinSet<Done>,
    /// What claims of pods that are being bound get.
    promises: Promises,
    /// Pods whose requests wait for volumes, perhaps for long: they are no reason not to place others.
    patient: HashSet<ObjectKey>,
    /// Where the next search begins.
    from: usize,
    /// Shapes without a place in this generation of the snapshot, and what was told: asked once for all of their pods.
    hopeless: (u64, HashMap<u64, (Wakes, String)>),
    gauges: Arc<Gauges>,
}

impl Loop {
    pub(super) fn new(name: String, manager: &Manager, gauges: Arc<Gauges>) -> Loop {
        Loop {
            client: manager.client(),
            clock: manager.clock().clone(),
            recorder: manager.recorder_named(&name),
            caches: Caches::new(manager.informers()),
            kin: Kin::new(manager.informers()),
            snapshot: Snapshot::default(),
            queue: Queue::default(),
            requests: JoinSet::new(),
            promises: Promises::default(),
            patient: HashSet::new(),
            from: 0,
            hopeless: (0, HashMap::new()),
            gauges,
            name,
        }
    }

    pub(super) async fn run(mut self, stop: Stop) -> Result<(), BoxError> {
        tokio::select! {
            biased;
            () = stop.quiet() => return Ok(()),
            () = async { self.caches.synced().await; self.kin.begin().await } => {}
        }
        let mut feeds = self.caches.subscribe();
        self.gauges.running.store(true, Ordering::Relaxed);
        let mut quiet = Box::pin(stop.quiet());
        loop {
            self.take_all(&mut feeds);
            self.queue.tick(Instant::now());
            let mut decided = 0;
            while decided < BATCH
                && self.requests.len() < AT_ONCE + self.patient.len()
                && let Some(pod) = self.queue.pop(Instant::now())
            {
                self.decide(pod);
                decided += 1;
            }
            while let Some(done) = self.requests.try_join_next() {
                self.finish(done.unwrap_or(Done::Told));
            }
            self.show();
            if decided > 0 && !stop.is_quiet() {
                tokio::task::yield_now().await;
                continue;
            }
            let due = self.queue.next_due();
            let woken = tokio::select! {
                biased;
                () = &mut quiet => break,
                Some(done) = self.requests.join_next() => {
                    self.finish(done.unwrap_or(Done::Told));
                    continue;
                }
                Some(delta) = feeds.pods.recv() => self.pod(&delta),
                Some(delta) = feeds.nodes.recv() => self.node(&delta),
                Some(delta) = feeds.namespaces.recv() => self.namespace(&delta),
                Some(_) = feeds.claims.recv() => Wakes::VOLUME,
                Some(_) = feeds.volumes.recv() => Wakes::VOLUME,
                Some(_) = feeds.classes.recv() => Wakes::VOLUME,
                () = until(due), if due.is_some() => Wakes::NONE,
            };
            self.queue.wake(woken, Instant::now());
        }
        // What was decided is still carried out.
        tokio::select! {
            biased;
            () = stop.aborted() => {}
            () = async { while self.requests.join_next().await.is_some() {} } => {}
        }
        Ok(())
    }

    /// Takes everything that has happened so far.
    fn take_all(&mut self, feeds: &mut Feeds) {
        let mut wakes = Wakes::NONE;
        self.kin.take_all();
        while let Some(delta) = feeds.nodes.try_recv() {
            wakes = wakes.and(self.node(&delta));
        }
        while let Some(delta) = feeds.namespaces.try_recv() {
            wakes = wakes.and(self.namespace(&delta));
        }
        while let Some(delta) = feeds.pods.try_recv() {
            wakes = wakes.and(self.pod(&delta));
        }
        for feed in [&mut feeds.claims, &mut feeds.volumes, &mut feeds.classes] {
            while feed.try_recv().is_some() {
                wakes = wakes.and(Wakes::VOLUME);
            }
        }
        self.queue.wake(wakes, Instant::now());
    }

    fn pod(&mut self, delta: &Delta) -> Wakes {
        take_pod(&self.name, &mut self.snapshot, &mut self.queue, &self.caches.pods.lister(), delta)
    }

    fn node(&mut self, delta: &Delta) -> Wakes {
        take_node(&mut self.snapshot, &self.caches.nodes.lister(), delta)
    }

    fn namespace(&mut self, delta: &Delta) -> Wakes {
        let lister = self.caches.namespaces.lister();
        let namespace = delta.new.as_ref().filter(|_| !delta.is_gone()).and_then(|new| lister.decode(new));
        let name = delta.key.name.to_string();
        let labels =
            namespace.map(|namespace: Arc<Namespace>| namespace.metadata.labels.clone().unwrap_or_default());
        let before = match labels.clone() {
            Some(labels) => self.snapshot.namespaces.insert(name, labels),
            None => self.snapshot.namespaces.remove(&name),
        };
        if before == labels { Wakes::NONE } else { Wakes::ARRIVAL }
    }

    /// Gives a pod its place, or says why it has none.
    fn decide(&mut self, pod: Pending) {
        let generation = self.snapshot.generation();
        if self.hopeless.0 != generation {
            self.hopeless = (generation, HashMap::new());
        }
        if let Some((wakes, message)) = self.hopeless.1.get(&pod.shape.id).cloned() {
            return self.refuse(&pod, wakes, &message, None);
        }
        let volumes = match pod.shape.claims.is_empty() {
            true => Volumes::default(),
            false => volumes_of(&pod, &self.caches.of_claims(), &mut self.promises),
        };
        let nominated = self.snapshot.nominated().get(&pod.key).map(|(node, _)| node.clone());
        let reserved = self.reserve(&pod);
        let kin = self.kin.of(&pod.shape);
        let question = Question {
            pod: &pod.shape,
            volumes: &volumes,
            from: self.from,
            nominated: nominated.as_deref(),
            kin: kin.as_deref(),
        };
        let answer = plan::place(&self.snapshot, &question);
        for (index, shape) in reserved {
            self.snapshot.vacate(index, &shape);
        }
        match answer {
            Ok(choice) => {
                self.from = choice.next;
                let node = self.snapshot.nodes()[choice.node].name.clone();
                let place = &self.snapshot.nodes()[choice.node];
                let promised = filter::volumes::choose(&volumes, place).unwrap_or_default();
                self.promises.make(&pod.key, &node, &promised);
                if !promised.is_empty() {
                    self.patient.insert(pod.key.clone());
                }
                let placed = Placed {
                    uid: pod.uid.clone(),
                    node: node.clone(),
                    shape: pod.shape.clone(),
                    assumed: true,
                    created: pod.created,
                    leaving: false,
                };
                self.snapshot.forget_nomination(&pod.key);
                self.snapshot.place(pod.key.clone(), placed);
                let claims = self.caches.claims.lister();
                let chosen = self.clock.now();
                self.requests.spawn(write::bind(self.client.clone(), pod, node, promised, claims, chosen));
            }
            Err(failure) => self.no_place(&pod, &volumes, &failure, nominated.as_deref()),
        }
    }

    /// Counts the pods for which places are being made, as far as they are not less important than this one.
    fn reserve(&mut self, pod: &Pending) -> Vec<(usize, Arc<Shape>)> {
        let others = self
            .snapshot
            .nominated()
            .iter()
            .filter(|(key, (_, shape))| **key != pod.key && shape.priority >= pod.shape.priority);
        let reserved: Vec<_> = others
            .filter_map(|(_, (node, shape))| Some((self.snapshot.index(node)?, shape.clone())))
            .collect();
        for (index, shape) in &reserved {
            self.snapshot.occupy(*index, shape);
        }
        reserved
    }

    fn no_place(&mut self, pod: &Pending, volumes: &Volumes, failure: &Failure, nominated: Option<&str>) {
        let wakes = failure.wakes();
        if failure.nodes == 0 {
            return self.refuse(pod, wakes, &failure.to_string(), None);
        }
        let preemption = if nominated.is_some_and(|node| self.is_being_freed(pod, node)) {
            Err("preemption: not eligible due to a terminating pod on the nominated node.".to_owned())
        } else {
            let budgets = self.caches.budgets();
            preempt::plan(&mut self.snapshot, &pod.shape, volumes, failure, &budgets)
        };
        match preemption {
            Ok(preemption) => {
                self.refuse(pod, wakes, &failure.to_string(), Some(&preemption.node));
                self.preempt(pod, preemption);
            }
            Err(told) => {
                let message = format!("{failure} {told}");
                // Whatever was tried left the snapshot as it was, but for its count of changes.
                if *volumes == Volumes::default() && nominated.is_none() {
                    self.hopeless.0 = self.snapshot.generation();
                    self.hopeless.1.insert(pod.shape.id, (wakes, message.clone()));
                }
                self.refuse(pod, wakes, &message, None);
            }
        }
    }

    /// Whether pods that made way for this one have not left yet.
    fn is_being_freed(&self, pod: &Pending, node: &str) -> bool {
        let mut pods = self.snapshot.pods().values();
        pods.any(|placed| {
            placed.leaving && *placed.node == *node && placed.shape.priority < pod.shape.priority
        })
    }

    fn preempt(&mut self, pod: &Pending, preemption: Preemption) {
        let Preemption { node, victims } = preemption;
        self.snapshot.nominate(pod.key.clone(), node.clone(), pod.shape.clone());
        let mut going = Vec::new();
        for key in victims {
            let Some(placed) = self.snapshot.pods().get(&key) else { continue };
            let (uid, leaving) = (placed.uid.clone(), placed.leaving);
            if !leaving {
                let text = format!("Preempted by pod {} on node {node}", pod.uid);
                let about = write::reference(&key, &uid);
                self.recorder.record(about, Severity::Normal, "Preempted", text);
                self.snapshot.confirm(&key, true);
                going.push((key, uid));
            }
        }
        self.requests.spawn(write::evict(self.client.clone(), going, now(&self.clock)));
    }

    /// Parks a pod and says why, in its status and as an event.
    fn refuse(&mut self, pod: &Pending, wakes: Wakes, message: &str, nominated: Option<&str>) {
        self.queue.park(&pod.key, wakes, Instant::now());
        let about = write::reference(&pod.key, &pod.uid);
        self.recorder.record(about, Severity::Warning, "FailedScheduling", message);
        if !self.queue.tell(&pod.key, message) && nominated.is_none() {
            return;
        }
        let known = self.caches.pods.lister().get(&pod.key);
        let condition = known.as_ref().and_then(|known| pods::condition(known, "PodScheduled"));
        let told = condition.filter(|condition| condition.status == "False");
        if nominated.is_none() && told.is_some_and(|told| told.message.as_deref() == Some(message)) {
            return;
        }
        let since = told.and_then(|told| told.last_transition_time.as_ref());
        let since = since.map_or_else(|| now(&self.clock), |time| time.0);
        let patch = write::unschedulable(pod, message, since, nominated);
        self.requests.spawn(write::status(self.client.clone(), pod.key.clone(), patch));
    }

    fn finish(&mut self, done: Done) {
        match done {
            Done::Told => {}
            Done::Bound(pod, node, chosen) => {
                self.patient.remove(&pod.key);
                self.queue.remove(&pod.key);
                let message = format!("Successfully assigned {} to {node}", pod.key);
                let about = write::reference(&pod.key, &pod.uid);
                // The node may have started the pod before the answer was here: people read events in order.
                self.recorder.record_at(chosen, about, Severity::Normal, "Scheduled", message);
            }
            Done::Unbound(pod, error) => {
                tracing::debug!(pod = %pod.key, error, "a pod could not be bound");
                self.promises.take_back(&pod.key);
                self.patient.remove(&pod.key);
                let is_ours = |placed: &Placed| placed.assumed && placed.uid == pod.uid;
                if self.snapshot.pods().get(&pod.key).is_some_and(is_ours) {
                    self.snapshot.remove(&pod.key);
                    self.queue.wake(Wakes::DEPARTURE.and(Wakes::VOLUME), Instant::now());
                }
                // One that is gone meanwhile is not in the queue any more.
                self.queue.retry(&pod.key, Instant::now());
            }
        }
    }

    fn show(&self) {
        self.gauges.nodes.store(self.snapshot.len(), Ordering::Relaxed);
        self.gauges.pending.store(self.queue.len(), Ordering::Relaxed);
        self.gauges.parked.store(self.queue.parked(), Ordering::Relaxed);
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

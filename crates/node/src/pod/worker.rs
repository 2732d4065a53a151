//! The life of one pod on this node: a task that plans, acts and tells, until the pod is gone.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::{Value, json};
use shoal_objects::Timestamp;
use shoal_runtime::events::Severity;
use tokio::sync::{mpsc, watch};

use super::adopt::take_over;
use super::container::{self, Order, Run, log_path};
use super::plan::{Action, containers, ephemeral, plan, target};
use super::record::{Exit, Records, State, remembered};
use super::status::{Circumstances, status};
use crate::agent::Node;
use crate::env::Sources;
use crate::host_ports::{self, HostPorts};
use crate::images::Unresolved;
use crate::limits;
use crate::pod::launch::{self, Refusal};
use crate::probes::{self, Health};
use crate::volumes;

/// How long to wait before something that failed is tried again.
const RETRY: Duration = Duration::from_secs(2);
/// How often volumes are compared with the objects they show.
const REFRESH: i64 = 10;
/// Why a pod that has too much on the disk is ended.
const EVICTED: &str = "Evicted";
/// Logs of runs before the last one are removed.
const KEPT_LOGS: i32 = 2;

/// What happens to a pod's containers.
#[derive(Debug)]
pub enum Event {
    /// A command ended.
    Ended {
        /// Name of the container.
        container: String,
        /// Which run.
        id: String,
        /// Its exit code.
        code: i32,
    },
    /// A probe has a verdict.
    Probed {
        /// Name of the container.
        container: String,
        /// Which run.
        id: String,
        /// What it says.
        health: Health,
    },
    /// The pod has too much on the disk.
    Full {
        /// What, for people.
        message: String,
    },
    /// The hook before the end is done.
    Hooked {
        /// Name of the container.
        container: String,
        /// Which run.
        id: String,
    },
}

/// What others may know of a pod.
pub struct View {
    /// The pod, as last seen.
    pub pod: watch::Receiver<Arc<Pod>>,
    /// Its directory.
    pub dir: PathBuf,
    /// Its address, as others know it.
    pub ip: String,
    /// Its address, as it is on this machine.
    pub local_ip: String,
    /// Containers that run, by name.
    pub runs: parking_lot::Mutex<HashMap<String, Arc<Run>>>,
    /// Number of the latest run of each container.
    pub attempts: parking_lot::Mutex<HashMap<String, i32>>,
}

/// The task of a pod.
pub struct Worker {
    node: Arc<Node>,
    pod: Arc<Pod>,
    updates: watch::Receiver<Arc<Pod>>,
    gone: watch::Receiver<bool>,
    view: Arc<View>,
    records: Records,
    around: Circumstances,
    events: mpsc::UnboundedReceiver<Event>,
    sender: mpsc::UnboundedSender<Event>,
    places: Option<volumes::Places>,
    tokens: volumes::Tokens,
    host_ports: Option<HostPorts>,
    /// Containers of an earlier agent, whose surroundings are not there yet.
    adopted: Vec<String>,
    /// When volumes are looked at again.
    refresh_at: Option<Timestamp>,
    /// When a run is ended by force.
    kill_at: HashMap<String, Timestamp>,
    probes: HashMap<String, Vec<tokio::task::AbortHandle>>,
    storage: Option<limits::Watch>,
    told: Option<Value>,
    announced: HashMap<String, i32>,
}

impl Worker {
    /// A worker for a pod that was assigned to the node.
    pub fn new(
        node: Arc<Node>,
        updates: watch::Receiver<Arc<Pod>>,
        gone: watch::Receiver<bool>,
        view: Arc<View>,
    ) -> Worker {
        let pod = updates.borrow().clone();
        let now = node.clock.now();
        let (sender, events) = mpsc::unbounded_channel();
        let around = Circumstances {
            host_ip: node.host_ip.clone(),
            pod_ip: Some(view.ip.clone()),
            started_at: now,
            ..Circumstances::default()
        };
        let mut records = remembered(&pod, now);
        let mut adopted = Vec::new();
        if node.keep_pods {
            adopted = take_over(&node, &pod, &view, &mut records, &sender);
        }
        Worker {
            adopted,
            node,
            pod,
            updates,
            gone,
            view,
            records,
            around,
            events,
            sender,
            places: None,
            tokens: volumes::Tokens::new(),
            host_ports: None,
            refresh_at: None,
            kill_at: HashMap::new(),
            probes: HashMap::new(),
            storage: None,
            told: None,
            announced: HashMap::new(),
        }
    }

    /// Works until the pod is gone.
    pub async fn run(mut self) {
        loop {
            self.pod = self.updates.borrow_and_update().clone();
            let now = self.node.clock.now();
            self.check_deadline(now);
            let mut retry = !self.surround_adopted().await;
            let ending = self.is_ending();
            let plan = plan(&self.pod, &self.records, ending, now);
            let mut wake_at = plan.wake_at;
            let mut finished = false;
            for action in plan.actions {
                match action {
                    Action::Start(name) => retry |= !self.start(&name).await,
                    Action::Stop(name) => self.stop(&name, None, now),
                    Action::BackOff(name) => self.announce_back_off(&name),
                    Action::ImageBackOff(name) => self.announce_image_back_off(&name),
                    Action::Finish => finished = true,
                }
            }
            if finished {
                self.storage = None;
                if self.is_gone() {
                    break;
                }
            }
            if !self.tell().await {
                retry = true;
            }
            if finished && self.pod.metadata.deletion_timestamp.is_some() {
                if self.delete().await {
                    break;
                }
                retry = true;
            }
            for at in self.kill_overdue(ending) {
                wake_at = Some(wake_at.map_or(at, |known: Timestamp| known.min(at)));
            }
            if let Some(at) = self.refresh_at.filter(|_| !finished) {
                wake_at = Some(wake_at.map_or(at, |known| known.min(at)));
            }
            if let Some(at) = self.deadline() {
                wake_at = Some(wake_at.map_or(at, |known| known.min(at)));
            }
            let sleep = async {
                let until = wake_at.map(|at| {
                    let micros = at.0.saturating_sub(self.node.clock.now().0).max(1000);
                    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
                });
                match (until, retry) {
                    (Some(until), true) => tokio::time::sleep(until.min(RETRY)).await,
                    (Some(until), false) => tokio::time::sleep(until).await,
                    (None, true) => tokio::time::sleep(RETRY).await,
                    (None, false) => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(event) = self.events.recv() => self.note(event),
                changed = self.updates.changed() => if changed.is_err() { break },
                _ = self.gone.changed() => {}
                () = sleep => {}
            }
            self.refresh_volumes().await;
        }
        self.clean_up();
    }

    /// Volumes, ports and probes for containers that were taken over; false if it is to be tried again soon.
    async fn surround_adopted(&mut self) -> bool {
        if self.adopted.is_empty() || self.is_ending() {
            return true;
        }
        let Ok(sources) = self.sources().await else { return false };
        if self.places.is_none() && !self.prepare_volumes(&sources).await {
            return false;
        }
        for name in std::mem::take(&mut self.adopted) {
            let run = self.view.runs.lock().get(&name).cloned();
            let (Some(run), Some(container)) = (run, self.find(&name)) else { continue };
            let is_up = self.records.get(&name).is_some_and(|record| record.started);
            let mut tasks =
                probes::watch(&self.pod, &container, &run, &self.view.local_ip, &self.sender, is_up);
            tasks.extend(limits::memory::watch(&container, &run));
            self.probes.insert(name, tasks);
        }
        true
    }

    fn is_gone(&self) -> bool {
        *self.gone.borrow()
    }

    fn is_ending(&self) -> bool {
        self.is_gone() || self.pod.metadata.deletion_timestamp.is_some() || self.around.rejected.is_some()
    }

    fn deadline(&self) -> Option<Timestamp> {
        let seconds = self.pod.spec.as_ref()?.active_deadline_seconds?;
        let started = self.pod.status.as_ref().and_then(|status| status.start_time.as_ref());
        let started = started.map_or(self.around.started_at, |time| Timestamp(time.0.as_microsecond()));
        (self.around.rejected.is_none()).then(|| started.plus_seconds(seconds))
    }

    fn check_deadline(&mut self, now: Timestamp) {
        if self.deadline().is_some_and(|at| at <= now)
            && self.records.values().any(|record| record.exit().is_none())
        {
            let message = "Pod was active on the node longer than the specified deadline";
            self.around.rejected = Some(("DeadlineExceeded".to_owned(), message.to_owned()));
            self.event(None, Severity::Normal, "DeadlineExceeded", message);
        }
    }

    fn find(&self, name: &str) -> Option<Container> {
        let (init, main) = containers(&self.pod);
        let known = main.iter().chain(init).find(|container| container.name == name).cloned();
        known.or_else(|| ephemeral(&self.pod).into_iter().find(|container| container.name == name))
    }

    /// The field of the pod that a container is in.
    fn list_of(&self, name: &str) -> &'static str {
        let (init, main) = containers(&self.pod);
        let is_in = |list: &[Container]| list.iter().any(|container| container.name == name);
        match (is_in(main), is_in(init)) {
            (true, _) => "containers",
            (_, true) => "initContainers",
            _ => "ephemeralContainers",
        }
    }

    fn event(&self, container: Option<&str>, severity: Severity, reason: &str, message: impl Into<String>) {
        use kube::Resource as _;
        let mut about = self.pod.object_ref(&());
        if let Some(name) = container {
            about.field_path = Some(format!("spec.{}{{{name}}}", self.list_of(name)));
        }
        self.node.recorder.record(about, severity, reason, message);
    }

    /// What variables and volumes are made of, now.
    async fn sources(&self) -> Result<Sources, String> {
        let mut sources = Sources {
            pod_ip: self.view.ip.clone(),
            host_ip: self.node.host_ip.clone(),
            services: self.node.services(),
            allocatable: self.node.allocatable,
            ..Sources::default()
        };
        volumes::fetch(&self.node.client, &self.pod, &mut sources).await?;
        Ok(sources)
    }

    /// Starts a container; false if it is to be tried again soon.
    async fn start(&mut self, name: &str) -> bool {
        let Some(container) = self.find(name) else { return true };
        let now = self.node.clock.now();
        let image = container.image.clone().unwrap_or_default();
        if let Err(unresolved) = self.node.resolve_image(&image) {
            self.refuse_image(name, &image, &unresolved, now);
            return true;
        }
        let sources = match self.sources().await {
            Ok(sources) => sources,
            Err(error) => {
                tracing::debug!(pod = self.pod.metadata.name, error, "objects of a pod cannot be read");
                return false;
            }
        };
        if self.places.is_none() && !self.prepare_volumes(&sources).await {
            return false;
        }
        let Some(places) = self.places.clone() else { return false };
        let record = self.records.entry(name.to_owned()).or_default();
        let attempt = record.next_attempt();
        let id = format!("shoal://{}", self.node.entropy.uid().replace('-', ""));
        let made =
            launch::specification(&self.node, &self.pod, &container, &sources, &places, &self.view.dir);
        let (mut spec, dir) = match made {
            Ok(made) => made,
            Err(Refusal { reason, message }) => {
                let known = &self.records[name].state;
                if !matches!(known, State::Waiting(_, told) if *told == message) {
                    self.event(Some(name), Severity::Warning, "Failed", format!("Error: {message}"));
                }
                self.records.entry(name.to_owned()).or_default().refused(reason, &message, now);
                return true;
            }
        };
        let beside = target(&self.pod, name).and_then(|target| self.view.runs.lock().get(target).cloned());
        spec.beside = beside.and_then(|run| run.namespaces());
        let present = format!("Container image {image:?} already present on machine");
        self.event(Some(name), Severity::Normal, "Pulled", present);
        self.event(Some(name), Severity::Normal, "Created", format!("Created container: {name}"));
        let cgroup = limits::cgroup(&id, &container);
        spec.cgroup = cgroup.as_ref().map(|cgroup| cgroup.path().to_owned());
        let order = Order {
            id: id.clone(),
            container: name.to_owned(),
            spec,
            dir,
            log: log_path(&self.view.dir, name, attempt),
            stdin: container.stdin == Some(true),
            stdin_once: container.stdin_once == Some(true),
            tty: container.tty == Some(true),
            keep: self.node.keep_pods.then_some(attempt),
            cgroup,
        };
        let _ = std::fs::remove_file(log_path(&self.view.dir, name, attempt - KEPT_LOGS));
        let started =
            container::start(&self.node.launcher, &self.node.clock, order, self.sender.clone()).await;
        let now = self.node.clock.now();
        let has_startup = container.startup_probe.is_some();
        let record = self.records.entry(name.to_owned()).or_default();
        record.began(&id, now, has_startup, container.readiness_probe.is_some());
        self.view.attempts.lock().insert(name.to_owned(), attempt);
        match started {
            Ok(run) => {
                self.view.runs.lock().insert(name.to_owned(), run.clone());
                self.event(Some(name), Severity::Normal, "Started", format!("Started container {name}"));
                let mut tasks =
                    probes::watch(&self.pod, &container, &run, &self.view.local_ip, &self.sender, false);
                tasks.extend(limits::memory::watch(&container, &run));
                self.probes.insert(name.to_owned(), tasks);
                self.run_post_start(&container, &run);
            }
            Err(error) => {
                let message = error.to_string();
                self.event(Some(name), Severity::Warning, "Failed", format!("Error: {message}"));
                let exit = Exit {
                    code: i32::from(crate::sandbox::START_FAILED),
                    reason: "StartError".to_owned(),
                    message,
                    started_at: None,
                    finished_at: now,
                    id,
                };
                self.records.entry(name.to_owned()).or_default().ended(exit);
            }
        }
        true
    }

    async fn prepare_volumes(&mut self, sources: &Sources) -> bool {
        let dir = self.view.dir.join("volumes");
        let tokens = (&mut self.tokens, self.node.clock.now());
        let prepared = volumes::prepare(&self.node.client, &self.pod, sources, &dir, tokens).await;
        let prepared = match prepared {
            Ok(prepared) => prepared,
            Err(message) => {
                self.event(None, Severity::Warning, "FailedMount", message);
                return false;
            }
        };
        if let Err(error) = launch::write_files(&self.node, &self.pod, &self.view) {
            self.event(None, Severity::Warning, "FailedCreatePodSandBox", error);
            return false;
        }
        if self.host_ports.is_none() {
            let wanted = host_ports::wanted(&self.pod, &self.node.host_ip);
            match HostPorts::open(&wanted, &self.view.local_ip).await {
                Ok(open) => self.host_ports = Some(open),
                Err(error) => {
                    self.event(None, Severity::Warning, "FailedCreatePodSandBox", error);
                    return false;
                }
            }
        }
        self.storage = limits::storage::watch(&self.pod, &self.view.dir, &self.sender);
        self.places = Some(prepared.places);
        self.around.prepared = true;
        let now = self.node.clock.now();
        self.refresh_at = prepared.follows_objects.then(|| now.plus_seconds(REFRESH));
        true
    }

    /// Shows in volumes what became of the objects they are made of.
    async fn refresh_volumes(&mut self) {
        let now = self.node.clock.now();
        if self.refresh_at.is_none_or(|at| at > now) || self.is_ending() {
            return;
        }
        self.refresh_at = Some(now.plus_seconds(REFRESH));
        if let Ok(sources) = self.sources().await {
            let dir = self.view.dir.join("volumes");
            // What was there stays there when this fails.
            let prepared =
                volumes::prepare(&self.node.client, &self.pod, &sources, &dir, (&mut self.tokens, now));
            if let Err(error) = prepared.await {
                tracing::debug!(pod = self.pod.metadata.name, error, "volumes cannot be brought up to date");
            }
        }
    }

    fn refuse_image(&mut self, name: &str, image: &str, unresolved: &Unresolved, now: Timestamp) {
        let message = format!("Failed to pull image {image:?}: {unresolved}");
        self.event(Some(name), Severity::Warning, "Failed", message);
        self.event(Some(name), Severity::Warning, "Failed", "Error: ErrImagePull");
        let record = self.records.entry(name.to_owned()).or_default();
        record.refused("ErrImagePull", &unresolved.to_string(), now);
    }

    fn announce_image_back_off(&mut self, name: &str) {
        let Some(container) = self.find(name) else { return };
        let image = container.image.unwrap_or_default();
        let Some(record) = self.records.get_mut(name) else { return };
        if let State::Waiting(reason, message) = &mut record.state {
            *message = format!("Back-off pulling image {image:?}: ErrImagePull: {message}");
            *reason = "ImagePullBackOff".to_owned();
        }
        self.event(Some(name), Severity::Normal, "BackOff", format!("Back-off pulling image {image:?}"));
        self.event(Some(name), Severity::Warning, "Failed", "Error: ImagePullBackOff");
    }

    /// Once for every end.
    fn announce_back_off(&mut self, name: &str) {
        let Some(record) = self.records.get(name) else { return };
        let crashes = i32::try_from(record.crashes).unwrap_or(i32::MAX);
        if self.announced.insert(name.to_owned(), crashes) == Some(crashes) {
            return;
        }
        let meta = &self.pod.metadata;
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let pod = format!("{}_{}({})", text(&meta.name), text(&meta.namespace), text(&meta.uid));
        let message = format!("Back-off restarting failed container {name} in pod {pod}");
        self.event(Some(name), Severity::Warning, "BackOff", message);
    }

    fn run_post_start(&self, container: &Container, run: &Arc<Run>) {
        let hook = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.post_start.clone());
        let Some(hook) = hook else { return };
        let (run, sender, ip) = (run.clone(), self.sender.clone(), self.view.local_ip.clone());
        let (container, id) = (container.clone(), run.id.clone());
        tokio::spawn(async move {
            if let Err(why) = probes::run_hook(&hook, &container, &run, &ip).await {
                let health = Health::HookFailed(why);
                let _ = sender.send(Event::Probed { container: container.name, id, health });
            }
        });
    }

    /// Asks a container to end: first its hook, then a signal; by force when its time is over.
    fn stop(&mut self, name: &str, why: Option<String>, now: Timestamp) {
        let Some(run) = self.view.runs.lock().get(name).cloned() else { return };
        let Some(container) = self.find(name) else { return };
        if let Some(record) = self.records.get_mut(name) {
            record.stopping = true;
        }
        let grace = if self.is_gone() { 0 } else { self.grace() };
        self.kill_at.insert(name.to_owned(), now.plus_seconds(grace));
        let message = why.unwrap_or_else(|| format!("Stopping container {name}"));
        self.event(Some(name), Severity::Normal, "Killing", message);
        let hook = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.clone());
        let Some(hook) = hook.filter(|_| grace > 0) else {
            run.terminate();
            return;
        };
        let (sender, ip) = (self.sender.clone(), self.view.local_ip.clone());
        tokio::spawn(async move {
            let _ = probes::run_hook(&hook, &container, &run, &ip).await;
            let _ = sender.send(Event::Hooked { container: container.name, id: run.id.clone() });
        });
    }

    fn grace(&self) -> i64 {
        if self.around.rejected.as_ref().is_some_and(|(reason, _)| reason == EVICTED) {
            return 1;
        }
        let of_deletion = self.pod.metadata.deletion_grace_period_seconds;
        let of_spec = self.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
        of_deletion.or(of_spec).unwrap_or(30).max(0)
    }

    /// Ends by force what had its time; gives the times of the others.
    fn kill_overdue(&mut self, ending: bool) -> Vec<Timestamp> {
        let now = self.node.clock.now();
        // A later deletion may leave less time.
        let limit = match &self.pod.metadata.deletion_timestamp {
            Some(time) if ending => Timestamp(time.0.as_microsecond()).plus_seconds(1),
            _ => Timestamp(i64::MAX),
        };
        let runs = self.view.runs.lock().clone();
        let mut later = Vec::new();
        for (name, at) in &self.kill_at {
            let at = if self.is_gone() { now } else { (*at).min(limit) };
            let Some(run) = runs.get(name) else { continue };
            if at <= now {
                run.kill();
            } else {
                later.push(at);
            }
        }
        later
    }

    fn note(&mut self, event: Event) {
        match event {
            Event::Ended { container, id, code } => self.note_end(&container, id, code),
            Event::Full { message } if !self.is_ending() => {
                self.event(None, Severity::Warning, EVICTED, message.clone());
                self.around.rejected = Some((EVICTED.to_owned(), message));
            }
            Event::Full { .. } => {}
            Event::Hooked { container, id } => {
                let run = self.view.runs.lock().get(&container).cloned();
                if let Some(run) = run.filter(|run| run.id == id) {
                    run.terminate();
                }
            }
            Event::Probed { container, id, health } => {
                if self.records.get(&container).is_some_and(|record| record.is_running() && record.id == id) {
                    self.note_health(&container, health);
                }
            }
        }
    }

    fn note_end(&mut self, name: &str, id: String, code: i32) {
        let run = self.view.runs.lock().remove(name);
        self.kill_at.remove(name);
        for probe in self.probes.remove(name).into_iter().flatten() {
            probe.abort();
        }
        let message = launch::termination_message(&self.pod, &self.view, name, code);
        let Some(record) = self.records.get_mut(name) else { return };
        let started_at = match record.state {
            State::Running(since) => Some(since),
            _ => None,
        };
        let reason = match code {
            _ if run.is_some_and(|run| run.has_exceeded_memory()) => "OOMKilled",
            0 => "Completed",
            _ => "Error",
        };
        let finished_at = self.node.clock.now();
        record.ended(Exit { code, reason: reason.to_owned(), message, started_at, finished_at, id });
    }

    fn note_health(&mut self, name: &str, health: Health) {
        let Some(record) = self.records.get_mut(name) else { return };
        match health {
            Health::Started => {
                record.started = true;
                let has_readiness = self.find(name).is_some_and(|c| c.readiness_probe.is_some());
                if let Some(record) = self.records.get_mut(name) {
                    record.ready = !has_readiness;
                }
            }
            Health::Ready => record.ready = true,
            Health::Unready => record.ready = false,
            Health::Failing(what, why) => {
                self.event(Some(name), Severity::Warning, "Unhealthy", format!("{what} probe failed: {why}"));
            }
            Health::Dead(what) if !record.stopping => {
                let message = format!("Container {name} failed {what} probe, will be restarted");
                self.stop(name, Some(message), self.node.clock.now());
            }
            Health::HookFailed(why) if !record.stopping => {
                self.event(
                    Some(name),
                    Severity::Warning,
                    "FailedPostStartHook",
                    format!("PostStartHook failed: {why}"),
                );
                let message = format!("FailedPostStartHook: container {name} is restarted");
                self.stop(name, Some(message), self.node.clock.now());
            }
            Health::Dead(_) | Health::HookFailed(_) => {}
        }
    }

    fn api(&self) -> Api<Pod> {
        Api::namespaced(self.node.client.clone(), self.pod.metadata.namespace.as_deref().unwrap_or_default())
    }

    /// Writes the status if it has changed; false if that failed.
    async fn tell(&mut self) -> bool {
        let now = self.node.clock.now();
        let status = status(&self.pod, &self.records, &self.around, now);
        let Ok(status) = serde_json::to_value(&status) else { return true };
        if self.told.as_ref() == Some(&status) || self.is_gone() {
            return true;
        }
        let uid = self.pod.metadata.uid.clone();
        let patch = json!({"metadata": {"uid": uid}, "status": status});
        let name = self.pod.metadata.name.as_deref().unwrap_or_default();
        let sent = self.api().patch_status(name, &PatchParams::default(), &Patch::Strategic(patch)).await;
        match sent {
            Ok(_) => {
                self.told = Some(status);
                true
            }
            // It is gone, or another of the same name is there: the watch will say so.
            Err(kube::Error::Api(error)) if matches!(error.code, 404 | 409) => true,
            Err(error) => {
                tracing::warn!(pod = name, %error, "the status of a pod cannot be written");
                false
            }
        }
    }

    /// Removes the object, now that nothing runs; false if that failed.
    async fn delete(&self) -> bool {
        let name = self.pod.metadata.name.as_deref().unwrap_or_default();
        let preconditions = Preconditions { uid: self.pod.metadata.uid.clone(), resource_version: None };
        let options = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(preconditions),
            ..DeleteParams::default()
        };
        match self.api().delete(name, &options).await {
            Ok(_) => true,
            Err(kube::Error::Api(error)) if matches!(error.code, 404 | 409) => true,
            Err(error) => {
                tracing::warn!(pod = name, %error, "a pod cannot be removed");
                false
            }
        }
    }

    fn clean_up(&self) {
        for run in self.view.runs.lock().values() {
            run.kill();
        }
        let _ = std::fs::remove_dir_all(&self.view.dir);
    }
}

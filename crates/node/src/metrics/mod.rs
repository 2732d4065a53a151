//! The group `metrics.k8s.io`: what nodes and pods use, for `kubectl top` and autoscalers.
//!
//! ```text
//! agents: /metrics/resource ─▶ scrape ─▶ series: rates over a window ─▶ show
//! ```
//!
//! Agents are asked through the API server (`nodes/NAME/proxy`), so it does not matter in which process they are. They are
//! asked every 15 seconds, and at once when a client wants figures of a pod that is too young to have some. Nodes that are
//! simulated in this process are not asked: what their pods use is a function of the pods.

mod openapi;
mod request;
mod scrape;
mod series;
mod show;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, StreamExt as _};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Request, Response, StatusCode};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::{Mutex, RwLock};
use serde_json::{Value, json};
use shoal_objects::{Clock, Timestamp};
use shoal_runtime::{Component, Informer, Manager, ObjectKey, Stop};
use tokio::time::Instant;

use crate::simulated;
use crate::usage::Usage;
use request::{Asked, Refused, Wanted};
use series::{Figure, History, SHORTEST};
use show::Measured;

/// The group that is served.
pub const GROUP: &str = "metrics.k8s.io";
/// And its version.
pub const VERSION: &str = "v1beta1";

/// How often it is looked whether an agent should be asked.
const TICK: Duration = Duration::from_secs(1);
/// How long an agent may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a client waits for figures that are not there yet.
const HURRY: Duration = Duration::from_secs(2);
/// Agents that are asked at one time.
const AT_ONCE: usize = 16;
/// Figures of an agent that is silent are forgotten after so many times the resolution.
const FORGET: u32 = 4;
/// Lets everybody who may look at pods look at what they use.
const READERS: &str = "system:aggregated-metrics-reader";

/// Settings.
#[derive(Clone, Debug)]
pub struct Options {
    /// How often agents are asked, and so over which time CPU is measured.
    pub resolution: Duration,
    /// The nodes that are simulated in this process.
    pub simulated: Option<simulated::Options>,
}

impl Default for Options {
    fn default() -> Options {
        Options { resolution: Duration::from_secs(15), simulated: None }
    }
}

/// Answers requests to the group; to be mounted in an API server. It outlives the manager that collects the figures.
#[derive(Clone, Default)]
pub struct Handle(Arc<RwLock<Option<Arc<Server>>>>);

/// Adds the collector to a manager; `handle` answers with what it collects.
pub fn add(manager: &mut Manager, handle: &Handle, options: Options) {
    let server = Arc::new(Server {
        client: manager.client(),
        clock: manager.clock().clone(),
        pods: manager.informers().of::<Pod>(),
        nodes: manager.informers().of::<Node>(),
        options,
        agents: Mutex::default(),
    });
    *handle.0.write() = Some(server.clone());
    manager.add(Component::new("metrics", move |stop| async move {
        server.collect(stop).await;
        Ok(())
    }));
}

impl Handle {
    /// Answers a request that was authorized.
    pub async fn answer<B>(&self, request: Request<B>) -> Response<Bytes> {
        let (code, body) = match self.document(&request).await {
            Ok(body) => (StatusCode::OK, body),
            Err(Refused(code, body)) => (code, body),
        };
        let mut response = Response::new(Bytes::from(body.to_string()));
        *response.status_mut() = code;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }

    async fn document<B>(&self, request: &Request<B>) -> Result<Value, Refused> {
        let asked = request::read(request)?;
        match asked.wanted {
            Wanted::Discovery => return Ok(show::discovery()),
            Wanted::OpenApi => return Ok(openapi::document()),
            Wanted::Nodes(_) | Wanted::Pods(..) => {}
        }
        let unavailable = || {
            let message = "figures are not collected yet";
            Refused::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
        };
        let server = self.0.read().clone().ok_or_else(unavailable)?;
        let synced = async {
            server.pods.synced().await;
            server.nodes.synced().await;
        };
        tokio::time::timeout(PATIENCE, synced).await.map_err(|_| unavailable())?;
        server.answer(asked).await
    }
}

/// What is known of an agent.
#[derive(Default)]
struct Agent {
    history: History,
    /// When it was asked last, and when it answered.
    asked: Option<Instant>,
    answered: Option<Instant>,
}

impl Agent {
    fn is_due(&self, resolution: Duration) -> bool {
        let Some(asked) = self.asked else { return true };
        let soon = self.is_answering() && self.history.is_young();
        asked.elapsed() >= if soon { SHORTEST } else { resolution }
    }

    fn is_answering(&self) -> bool {
        self.answered >= self.asked && self.asked.is_some()
    }
}

/// Collects figures and shows them.
struct Server {
    client: Client,
    clock: Clock,
    pods: Informer<Pod>,
    nodes: Informer<Node>,
    options: Options,
    agents: Mutex<HashMap<String, Agent>>,
}

impl Server {
    async fn collect(&self, stop: Stop) {
        let work = async {
            self.allow_readers().await;
            self.nodes.synced().await;
            let mut ticks = tokio::time::interval(TICK);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                self.ask_all(self.due()).await;
            }
        };
        tokio::select! { () = stop.requested() => {}, () = work => {} }
    }

    /// Makes the role that metrics-server comes with.
    async fn allow_readers(&self) {
        let mut labels = BTreeMap::new();
        for role in ["admin", "edit", "view"] {
            labels.insert(format!("rbac.authorization.k8s.io/aggregate-to-{role}"), "true");
        }
        let role = json!({
            "metadata": {"name": READERS, "labels": labels},
            "rules": [{"apiGroups": [GROUP], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"]}],
        });
        let roles: Api<ClusterRole> = Api::all(self.client.clone());
        let Ok(role) = serde_json::from_value(role) else { return };
        match roles.create(&PostParams::default(), &role).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => tracing::warn!(%error, "the role of those who may read metrics cannot be made"),
        }
    }

    fn is_simulated(&self, node: &str) -> bool {
        self.options.simulated.as_ref().is_some_and(|simulated| simulated.index(node).is_some())
    }

    /// The nodes whose agents should be asked now; agents of other nodes are forgotten.
    fn due(&self) -> Vec<String> {
        let lister = self.nodes.lister();
        // By name first: there may be thousands that are simulated.
        let others = lister.metas().into_iter().filter(|node| !self.is_simulated(node.name()));
        let asked = others.filter_map(|node| lister.get(node.key())).filter(|node| has_agent(node));
        let names: HashSet<String> = asked.filter_map(|node| node.metadata.name.clone()).collect();
        let mut agents = self.agents.lock();
        agents.retain(|name, _| names.contains(name));
        let is_due =
            |name: &String| agents.get(name).is_none_or(|agent| agent.is_due(self.options.resolution));
        names.into_iter().filter(is_due).collect()
    }

    async fn ask_all(&self, nodes: Vec<String>) {
        stream::iter(nodes).for_each_concurrent(AT_ONCE, |node| self.ask(node)).await;
    }

    async fn ask(&self, node: String) {
        self.agents.lock().entry(node.clone()).or_default().asked = Some(Instant::now());
        let request = Request::get(format!("/api/v1/nodes/{node}/proxy/metrics/resource")).body(Vec::new());
        let Ok(request) = request else { return };
        let answer = tokio::time::timeout(PATIENCE, self.client.request_text(request)).await;
        let mut agents = self.agents.lock();
        let Some(agent) = agents.get_mut(&node) else { return };
        match answer {
            Ok(Ok(text)) => {
                agent.answered = Some(Instant::now());
                agent.history.add(scrape::parse(&text, self.clock.now()), self.options.resolution);
            }
            Ok(Err(error)) => tracing::debug!(node, %error, "an agent does not tell what its pods use"),
            Err(_) => tracing::debug!(node, "an agent does not answer"),
        }
        if agent.answered.is_none_or(|at| at.elapsed() > self.options.resolution * FORGET) {
            agent.history = History::default();
        }
    }

    async fn answer(&self, asked: Asked) -> Result<Value, Refused> {
        let now = self.clock.now();
        let (mut all, kind, missing) = match &asked.wanted {
            Wanted::Nodes(name) => {
                let missing = name.as_ref().map(|name| Refused::not_found("nodemetrics", name));
                (self.measure_nodes(&asked, name.as_deref(), now), "NodeMetrics", missing)
            }
            Wanted::Pods(namespace, name) => {
                let missing = name.as_ref().map(|name| {
                    let name = format!("{}/{name}", namespace.as_deref().unwrap_or_default());
                    Refused::not_found("podmetrics", &name)
                });
                let pods = self.chosen_pods(&asked, namespace.as_deref(), name.as_deref());
                self.hurry(&pods).await;
                (self.measure_pods(&pods, now), "PodMetrics", missing)
            }
            Wanted::Discovery | Wanted::OpenApi => return Ok(Value::Null),
        };
        match missing {
            Some(missing) => all.first().map(|one| show::one(one, kind, asked.form, now)).ok_or(missing),
            None => {
                all.retain(|one| one.is_selected(&asked.fields));
                all.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
                Ok(show::list(&all, kind, asked.form, now))
            }
        }
    }

    fn chosen_pods(&self, asked: &Asked, namespace: Option<&str>, name: Option<&str>) -> Vec<Arc<Pod>> {
        let lister = self.pods.lister();
        let mut pods = match (namespace, name) {
            (Some(namespace), Some(name)) => {
                lister.get(&ObjectKey::new(namespace, name)).into_iter().collect()
            }
            (Some(namespace), None) => lister.select_in(namespace, &asked.labels),
            (None, _) => lister.select(&asked.labels),
        };
        pods.retain(|pod| is_running(pod));
        pods
    }

    /// Asks the agents of pods that have no figures yet, unless they were asked just now.
    async fn hurry(&self, pods: &[Arc<Pod>]) {
        let mut nodes: HashSet<String> = HashSet::new();
        {
            let agents = self.agents.lock();
            for pod in pods {
                let Some(agent) = agents.get(node_of(pod)) else { continue };
                let rested = agent.asked.is_none_or(|asked| asked.elapsed() >= SHORTEST);
                if rested && agent.is_answering() && agent.history.pod(&ObjectKey::of(&**pod)).is_none() {
                    nodes.insert(node_of(pod).to_owned());
                }
            }
        }
        if !nodes.is_empty() {
            // Who does not answer by then has no figures.
            let _ = tokio::time::timeout(HURRY, self.ask_all(nodes.into_iter().collect())).await;
        }
    }

    fn measure_pods(&self, pods: &[Arc<Pod>], now: Timestamp) -> Vec<Measured> {
        let agents = self.agents.lock();
        let measure = |pod: &Arc<Pod>| {
            let node = node_of(pod);
            let figures = match self.simulated_figures(pod, now) {
                Some(figures) => figures,
                None => agents.get(node)?.history.pod(&ObjectKey::of(&**pod))?,
            };
            let text = |value: &Option<String>| value.clone().unwrap_or_default();
            let metadata = &pod.metadata;
            Some(Measured {
                namespace: text(&metadata.namespace),
                name: text(&metadata.name),
                labels: metadata.labels.clone().unwrap_or_default(),
                figures,
            })
        };
        pods.iter().filter_map(measure).filter(|measured| !measured.figures.is_empty()).collect()
    }

    fn simulated_figures(&self, pod: &Pod, now: Timestamp) -> Option<Vec<(String, Figure)>> {
        let options = self.options.simulated.as_ref().filter(|_| self.is_simulated(node_of(pod)))?;
        let started = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
        let age = started.map_or(0, |time| now.seconds().saturating_sub(time.0.as_second()));
        let age = Duration::from_secs(u64::try_from(age).unwrap_or(0));
        let window = age.clamp(TICK.min(self.options.resolution), self.options.resolution);
        let usages = simulated::usage::usage(pod, options).into_iter();
        Some(usages.map(|(name, usage)| (name, Figure { usage, at: now, window })).collect())
    }

    fn measure_nodes(&self, asked: &Asked, name: Option<&str>, now: Timestamp) -> Vec<Measured> {
        let lister = self.nodes.lister();
        let nodes = match name {
            Some(name) => lister.get(&ObjectKey::cluster(name)).into_iter().collect(),
            None => lister.select(&asked.labels),
        };
        let simulated = self.simulated_nodes(&nodes);
        let agents = self.agents.lock();
        let measure = |node: &Arc<Node>| {
            let name = node.metadata.name.clone().unwrap_or_default();
            let figure = match self.is_simulated(&name) {
                true => Figure {
                    usage: simulated.get(&name).copied().unwrap_or_default(),
                    at: now,
                    window: self.options.resolution,
                },
                false => agents.get(&name)?.history.node()?,
            };
            let labels = node.metadata.labels.clone().unwrap_or_default();
            Some(Measured { namespace: String::new(), name, labels, figures: vec![(String::new(), figure)] })
        };
        nodes.iter().filter_map(measure).collect()
    }

    /// What the pods of simulated nodes use together.
    fn simulated_nodes(&self, nodes: &[Arc<Node>]) -> HashMap<String, Usage> {
        let mut sums: HashMap<String, Usage> = HashMap::new();
        let Some(options) = &self.options.simulated else { return sums };
        for node in nodes {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            if self.is_simulated(name) {
                sums.insert(name.to_owned(), Usage::default());
            }
        }
        if sums.is_empty() {
            return sums;
        }
        for pod in self.pods.lister().list() {
            if let Some(sum) = sums.get_mut(node_of(&pod)).filter(|_| is_running(&pod)) {
                *sum =
                    *sum + simulated::usage::usage(&pod, options).into_iter().map(|(_, usage)| usage).sum();
            }
        }
        sums
    }
}

fn node_of(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

fn is_running(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
}

/// Whether somebody listens for the node, as far as it says.
fn has_agent(node: &Node) -> bool {
    let endpoints = node.status.as_ref().and_then(|status| status.daemon_endpoints.as_ref());
    endpoints.and_then(|endpoints| endpoints.kubelet_endpoint.as_ref()).is_some_and(|end| end.port > 0)
}

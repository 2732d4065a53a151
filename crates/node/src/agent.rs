//! The agent of a node: registers it, and keeps a worker for every pod that is assigned to it.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::Client;
use parking_lot::Mutex;
use shoal_objects::{Clock, Entropy, Timestamp};
use shoal_runtime::cache::InformerOptions;
use shoal_runtime::events::Recorder;
use shoal_runtime::watch::Scope;
use shoal_runtime::{Informers, ObjectKey, Stop};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::addresses::{Addresses, advertised};
use crate::directory::Directory;
use crate::dns;
use crate::images::{Image, ImageTable, Unresolved, find_command};
use crate::kubelet_api::{self, ServerIdentity};
use crate::pod::adopt::kept_address;
use crate::pod::kept::end_all;
use crate::pod::launch::write_files;
use crate::pod::worker::{View, Worker};
use crate::process::{Launcher, private_dir, write_private};
use crate::register::{self, Machine};

/// How long containers may take to end when the agent stops.
const LAST_GRACE: Duration = Duration::from_secs(2);

/// Settings of an agent.
pub struct Config {
    /// Name of the node.
    pub name: String,
    /// Where pods have their files; what is in it from an earlier agent is ended and removed, unless it is kept.
    pub dir: PathBuf,
    /// How this program is started as a sandbox: the program and its hidden subcommand.
    pub program: Vec<String>,
    /// What images stand for.
    pub images: ImageTable,
    /// Addresses for pods, shared with other agents of this process.
    pub addresses: Addresses,
    /// Where the API server listens, for pods that call it by its Service.
    pub api_server: Option<SocketAddr>,
    /// Whether containers outlive the agent, and the next one takes them over.
    pub keep_pods: bool,
    /// Certificates for the agent's own API; without them it has none.
    pub server: Option<ServerIdentity>,
    /// The time.
    pub clock: Clock,
    /// Uids.
    pub entropy: Entropy,
}

/// Why an agent cannot run.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The machine refused.
    #[error("the node cannot start: {0}")]
    Io(#[from] std::io::Error),
    /// The agent's certificates cannot be used.
    #[error("the node cannot serve its API: {0}")]
    Tls(String),
}

/// What all parts of an agent share.
pub struct Node {
    /// Name of the node.
    pub name: String,
    /// The API server.
    pub client: Client,
    /// The time.
    pub clock: Clock,
    /// When the agent began.
    pub since: Timestamp,
    /// Uids.
    pub entropy: Entropy,
    /// Starts processes.
    pub launcher: Launcher,
    /// Tells people.
    pub recorder: Recorder,
    /// The node's address.
    pub host_ip: String,
    /// CPU in thousandths and bytes of memory.
    pub allocatable: (i64, i64),
    /// `$PATH` of containers.
    pub path: String,
    /// `$HOME` of containers.
    pub home: String,
    /// Names of Services end with it.
    pub cluster_domain: String,
    /// Whether containers outlive the agent.
    pub keep_pods: bool,
    /// The pods, by namespace and name.
    pub pods: Mutex<HashMap<ObjectKey, Arc<View>>>,
    images: ImageTable,
    /// The Services and where they lead.
    pub directory: Arc<Directory>,
}

impl Node {
    /// What an image stands for.
    pub fn resolve_image(&self, reference: &str) -> Result<&Image, Unresolved> {
        self.images.resolve(reference, &|command| find_command(command, &self.path))
    }

    /// All Services.
    pub fn services(&self) -> Vec<Service> {
        self.directory.services()
    }
}

/// Keeps the names of Services in the pods' `/etc/hosts`.
async fn names(node: Arc<Node>) {
    loop {
        node.directory.changed().await;
        let views: Vec<Arc<View>> = node.pods.lock().values().cloned().collect();
        for view in views {
            let pod = view.pod.borrow().clone();
            if view.dir.join("hosts").exists()
                && let Err(error) = write_files(&node, &pod, &view)
            {
                tracing::debug!(error, "names of Services cannot be told");
            }
        }
    }
}

/// A pod's worker, as the agent sees it.
struct Handle {
    uid: String,
    updates: watch::Sender<Arc<Pod>>,
    gone: watch::Sender<bool>,
}

/// Runs an agent until it is stopped; then everything that it started has ended.
pub async fn run(config: Config, client: Client, stop: Stop) -> Result<(), AgentError> {
    let pods_dir = config.dir.join("pods");
    if !config.keep_pods {
        remove_left(&pods_dir, &|_| false);
    }
    private_dir(&pods_dir)?;
    let control = control_name(&config)?;
    let mut machine = Machine::measure(&config.name, &config.dir);
    let informers = Informers::new(client.clone(), InformerOptions::default());
    let directory = Arc::new(Directory::new(&informers, config.api_server, config.entropy.clone()));
    let (recorder, sending) = Recorder::new(client.clone(), "kubelet", &config.name, config.clock.clone());
    let mut tasks = JoinSet::new();
    tasks.spawn(sending);
    let variable = |name: &str, otherwise: &str| {
        std::env::var(name).ok().filter(|value| !value.is_empty()).unwrap_or_else(|| otherwise.to_owned())
    };
    let thousand = |count: usize| i64::try_from(count).unwrap_or(i64::MAX).saturating_mul(1000);
    let node = Arc::new(Node {
        name: config.name.clone(),
        client: client.clone(),
        clock: config.clock.clone(),
        since: config.clock.now(),
        entropy: config.entropy.clone(),
        launcher: Launcher::new(config.program, config.entropy, control)?,
        recorder,
        host_ip: machine.ip.clone(),
        allocatable: (thousand(machine.cpus), i64::try_from(machine.memory).unwrap_or(i64::MAX)),
        path: variable("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
        home: variable("HOME", "/"),
        cluster_domain: "cluster.local".to_owned(),
        keep_pods: config.keep_pods,
        pods: Mutex::default(),
        images: config.images,
        directory: directory.clone(),
    });
    match dns::serve(directory.clone()).await {
        Ok((address, serving)) => {
            directory.set_dns(address);
            tasks.spawn(serving);
        }
        // Names still stand in the pods' /etc/hosts.
        Err(error) => tracing::warn!(%error, "the cluster has no name server"),
    }
    let resolving = directory.clone();
    node.launcher.set_resolver(Box::new(move |address| resolving.resolve(address)));
    if let Some(identity) = &config.server {
        let (port, serving) = kubelet_api::serve(node.clone(), identity).await.map_err(AgentError::Tls)?;
        machine.port = Some(port);
        tasks.spawn(serving);
    }
    let registered = loop {
        match register::register(&client, &machine, config.clock.now()).await {
            Ok(registered) => break registered,
            Err(error) => tracing::warn!(node = machine.name, %error, "the node cannot register itself"),
        }
        tokio::select! {
            () = stop.requested() => return Ok(()),
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    };
    tasks.spawn(register::beat(client, machine, registered, config.clock));
    directory.synced().await;
    tasks.spawn(names(node.clone()));

    let mut workers = JoinSet::new();
    let follow = follow(&node, &informers, &config.addresses, &pods_dir, &mut workers);
    tokio::select! { () = stop.requested() => {}, () = follow => {} }
    end(&node, &mut workers).await;
    informers.stop();
    if !node.keep_pods {
        let _ = std::fs::remove_dir_all(&pods_dir);
    }
    Ok(())
}

/// The name of the socket on which containers reach the agent. Those that are kept must find the next one, too.
fn control_name(config: &Config) -> std::io::Result<String> {
    let path = config.dir.join("control");
    let known = std::fs::read_to_string(&path).ok().filter(|name| name.starts_with("shoal-node-"));
    if let Some(known) = known.filter(|_| config.keep_pods) {
        return Ok(known);
    }
    let name = format!("shoal-node-{:016x}{:016x}", config.entropy.bits(), config.entropy.bits());
    if config.keep_pods {
        write_private(&path, name.as_bytes())?;
    }
    Ok(name)
}

/// Ends and removes what an earlier agent has left, but for pods that are `known` by their uid.
fn remove_left(pods_dir: &std::path::Path, known: &dyn Fn(&str) -> bool) {
    for pod in std::fs::read_dir(pods_dir).into_iter().flatten().flatten() {
        if !known(&pod.file_name().to_string_lossy()) {
            end_all(&pod.path(), &|_| false);
            let _ = std::fs::remove_dir_all(pod.path());
        }
    }
}

/// Gives every pod of the node a worker, and tells it what becomes of its pod.
async fn follow(
    node: &Arc<Node>,
    informers: &Informers,
    addresses: &Addresses,
    dir: &std::path::Path,
    workers: &mut JoinSet<()>,
) {
    let pods = informers.scoped::<Pod>(Scope::all().fields(&format!("spec.nodeName={}", node.name)));
    let lister = pods.lister();
    let mut changes = pods.subscribe();
    let mut handles: HashMap<ObjectKey, Handle> = HashMap::new();
    pods.synced().await;
    let uids: HashSet<String> = lister.list().iter().filter_map(|pod| pod.metadata.uid.clone()).collect();
    remove_left(dir, &|uid| uids.contains(uid));
    while let Some(change) = changes.recv().await {
        while workers.try_join_next().is_some() {}
        let pod = change.new.as_ref().filter(|_| !change.is_gone()).and_then(|new| lister.decode(new));
        let uid = pod.as_ref().and_then(|pod| pod.metadata.uid.clone()).unwrap_or_default();
        if let Some(handle) = handles.get(&change.key) {
            match &pod {
                Some(pod) if handle.uid == uid => {
                    handle.updates.send_replace(pod.clone());
                    continue;
                }
                _ => {
                    handle.gone.send_replace(true);
                    handles.remove(&change.key);
                }
            }
        }
        let Some(pod) = pod else { continue };
        let host_network = pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true);
        let before = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref());
        let kept = kept_address(&dir.join(&uid)).map(|ip| ip.to_string());
        let taken = if host_network { None } else { addresses.take(kept.as_deref().or(before)) };
        let (updates, updated) = watch::channel(pod);
        let (gone, is_gone) = watch::channel(false);
        let view = Arc::new(View {
            pod: updated.clone(),
            dir: dir.join(&uid),
            ip: taken.map_or_else(|| node.host_ip.clone(), |ip| advertised(ip).to_string()),
            local_ip: taken.map_or_else(|| node.host_ip.clone(), |ip| ip.to_string()),
            runs: Mutex::default(),
            attempts: Mutex::default(),
        });
        if let Err(error) = private_dir(&view.dir) {
            tracing::error!(%error, "no directory can be made for a pod");
        }
        node.pods.lock().insert(change.key.clone(), view.clone());
        handles.insert(change.key.clone(), Handle { uid, updates, gone });
        let worker = Worker::new(node.clone(), updated, is_gone, view.clone());
        let (node, addresses, key) = (node.clone(), addresses.clone(), change.key.clone());
        workers.spawn(async move {
            worker.run().await;
            let mut pods = node.pods.lock();
            if pods.get(&key).is_some_and(|known| Arc::ptr_eq(known, &view)) {
                pods.remove(&key);
            }
            drop(pods);
            if let Some(ip) = taken {
                addresses.give_back(ip);
            }
        });
    }
}

/// Ends all containers: kindly first, then by force. The pods stay as they are: the next agent starts them again.
async fn end(node: &Node, workers: &mut JoinSet<()>) {
    workers.shutdown().await;
    let views: Vec<Arc<View>> = node.pods.lock().values().cloned().collect();
    let runs: Vec<_> =
        views.iter().flat_map(|view| view.runs.lock().values().cloned().collect::<Vec<_>>()).collect();
    let runs: Vec<_> = runs.into_iter().filter(|run| !run.is_kept).collect();
    for run in &runs {
        run.terminate();
    }
    let ended = async {
        for run in &runs {
            let mut progress = run.log.progress();
            let _ = progress.wait_for(|progress| progress.is_closed()).await;
        }
    };
    if tokio::time::timeout(LAST_GRACE, ended).await.is_err() {
        for run in &runs {
            run.kill();
        }
    }
}

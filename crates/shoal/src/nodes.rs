//! The nodes of `shoal up` that run pods as processes of this machine.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use shoal_apiserver::Server;
use shoal_apiserver::access::pki::Pki;
use shoal_node::addresses::Addresses;
use shoal_node::agent::{self, Config};
use shoal_node::images::ImageTable;
use shoal_node::kubelet_api::ServerIdentity;
use shoal_objects::{Clock, Entropy};
use shoal_runtime::Stop;
use shoal_runtime::manager::Stopper;
use tokio::task::JoinHandle;

use crate::in_process;

/// The hidden subcommand of containers.
pub const SANDBOX: &str = "__sandbox";
/// Who calls the agents, as their certificates say.
const CALLER: &str = "kube-apiserver-kubelet-client";
/// Between a failure and the next try.
const PAUSE: Duration = Duration::from_secs(1);

/// Settings of the nodes on the command line.
#[derive(clap::Args)]
pub struct NodeArgs {
    /// Run pods as processes on this many nodes of this machine [default: 1, or 0 with --simulated-nodes]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=100))]
    nodes: Option<u32>,

    /// More images: a YAML file that says which local commands they stand for
    #[arg(long, value_name = "FILE")]
    images: Option<PathBuf>,

    /// Let pods go on when this process ends; the next start takes them over
    #[arg(long, conflicts_with = "ephemeral")]
    keep_pods: bool,
}

impl NodeArgs {
    /// How many nodes there are to be.
    pub fn count(&self, simulated: bool) -> u32 {
        self.nodes.unwrap_or(u32::from(!simulated))
    }

    /// Whether pods outlive the process.
    pub fn keep_pods(&self) -> bool {
        self.keep_pods
    }

    /// What images stand for.
    pub fn image_table(&self) -> anyhow::Result<ImageTable> {
        let table = ImageTable::built_in();
        let Some(path) = &self.images else { return Ok(table) };
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let folder = absolute.parent().unwrap_or(Path::new("/"));
        table
            .extended(&text, folder)
            .map_err(|e| anyhow::anyhow!("{} is not an image table: {e}", path.display()))
    }
}

/// How the API server calls the agents.
pub fn kubelet_client(pki: &Pki, clock: &Clock) -> anyhow::Result<shoal_apiserver::KubeletClient> {
    let identity = pki.issue_client(CALLER, "system:masters", clock.now())?;
    shoal_apiserver::KubeletClient::new(pki.ca_pem(), &identity).map_err(anyhow::Error::msg)
}

/// Where the API server reaches pods of these nodes; other addresses are what they are.
pub fn reach(addresses: &Addresses) -> shoal_apiserver::Reach {
    let addresses = addresses.clone();
    Arc::new(move |ip| addresses.reached(ip))
}

/// The nodes that run.
#[derive(Default)]
pub struct Nodes {
    running: Vec<(Stopper, JoinHandle<()>)>,
}

impl Nodes {
    /// Starts `count` nodes, which keep files of pods in `dir`, of a server that listens on `api_server`.
    pub fn start(
        server: &Server,
        pki: &Pki,
        clock: &Clock,
        (dir, api_server): (&Path, SocketAddr),
        count: u32,
        (images, addresses, keep_pods): (&ImageTable, &Addresses, bool),
    ) -> anyhow::Result<Nodes> {
        let program = std::env::current_exe().context("where is this program")?;
        let program = vec![program.to_string_lossy().into_owned(), SANDBOX.to_owned()];
        let entropy = Entropy::system();
        let mut nodes = Nodes::default();
        for number in 0..count {
            let name = if count == 1 { "shoal".to_owned() } else { format!("shoal-{number}") };
            let names = ["127.0.0.1".to_owned(), "localhost".to_owned(), name.clone()];
            let identity = pki.issue_server(&names, clock.now())?;
            let identity = ServerIdentity {
                certificate_pem: identity.certificate_pem,
                key_pem: identity.key_pem,
                client_ca_pem: pki.ca_pem().to_owned(),
            };
            let make = {
                let (dir, program, images) = (dir.join("nodes").join(&name), program.clone(), images.clone());
                let (addresses, clock, entropy) = (addresses.clone(), clock.clone(), entropy.clone());
                move || Config {
                    name: name.clone(),
                    dir: dir.clone(),
                    program: program.clone(),
                    images: images.clone(),
                    addresses: addresses.clone(),
                    api_server: Some(api_server),
                    keep_pods,
                    server: Some(identity.clone()),
                    clock: clock.clone(),
                    entropy: entropy.clone(),
                }
            };
            let client = in_process::client(server, "kubelet");
            let (stopper, stop) = Stop::channel();
            nodes.running.push((stopper, tokio::spawn(keep_running(make, client, stop))));
        }
        Ok(nodes)
    }

    /// Ends all pods, then the nodes.
    pub async fn stop(self) {
        for (stopper, _) in &self.running {
            stopper.stop();
        }
        for (_, task) in self.running {
            let _ = task.await;
        }
    }
}

async fn keep_running(make: impl Fn() -> Config + Send, client: kube::Client, stop: Stop) {
    while !stop.is_requested() {
        match agent::run(make(), client.clone(), stop.clone()).await {
            Ok(()) => return,
            Err(error) => tracing::error!(%error, "a node failed and is started again"),
        }
        let _ = tokio::time::timeout(PAUSE, stop.requested()).await;
    }
}

//! `shoal up`: a cluster in this process, in the foreground.

use std::io::{ErrorKind, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::bail;
use shoal_apiserver::access::files::FileError;
use shoal_apiserver::audit::{AuditOptions, AuditPolicy, Level};
use shoal_apiserver::serve::{self, Limits};
use shoal_apiserver::{Options, Server};
use shoal_node::addresses::{self, Addresses};
use shoal_objects::{Clock, Entropy};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::beside::Beside;
use crate::data_dir::{self, DataDir};
use crate::kubeconfig;
use crate::metrics;
use crate::nodes::{self, Nodes};
use crate::parts::{self, Part};
use crate::simulated;

/// Start a cluster and stay in the foreground
///
/// Prints one line when the cluster is ready:
///
///     ready https://127.0.0.1:6443 kubeconfig FILE (12 ms)
///
/// Stop it with Ctrl-C or SIGTERM; a second signal stops it at once.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  shoal up                                 # data is kept; the next start continues
  shoal up --ephemeral --port 0            # in memory, on any free port
  shoal up --data-dir ./cluster --port 7443
  shoal up --simulated-nodes 100           # nodes that only play, for tests of scale
  shoal up --audit-log audit.log --audit-level request
  shoal up --audit-log audit.log --audit-policy policy.yaml
  KUBECONFIG=FILE kubectl get namespaces   # FILE as printed

Environment:
  SHOAL_HOME   the data directory, unless --data-dir is given
  SHOAL_LOG    what to log on standard error: error, warn (default), info, debug")]
pub struct Args {
    /// Keep data in this directory [default: $SHOAL_HOME, else ~/.local/share/shoal]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// Keep nothing: all data lives in memory and ends with the process
    #[arg(long, conflicts_with = "data_dir")]
    ephemeral: bool,

    /// Listen on this port; 0 takes any free one
    #[arg(long, value_name = "N", default_value_t = 6443)]
    port: u16,

    /// Listen on this address
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    address: IpAddr,

    /// Write the administrator's kubeconfig here [default: DIR/kubeconfig]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Beside the API server start only these parts
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    only: Option<Vec<Part>>,

    /// Start everything but these parts
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    without: Vec<Part>,

    /// Log every request to this file, one JSON object per line; older files get a number at the end
    #[arg(long, value_name = "FILE")]
    audit_log: Option<PathBuf>,

    /// How much of each request is logged
    #[arg(long, value_name = "LEVEL", value_enum, default_value_t = AuditLevel::Metadata, requires = "audit_log")]
    audit_level: AuditLevel,

    /// Log what this policy says instead (a Policy of audit.k8s.io/v1, in YAML or JSON)
    #[arg(long, value_name = "FILE", requires = "audit_log", conflicts_with = "audit_level")]
    audit_policy: Option<PathBuf>,

    #[command(flatten)]
    nodes: nodes::NodeArgs,

    #[command(flatten)]
    simulated: simulated::Args,

    #[command(flatten)]
    metrics: metrics::Args,
}

/// What the audit log tells.
#[derive(Clone, Copy, clap::ValueEnum)]
enum AuditLevel {
    /// Who asked for what, and the outcome
    Metadata,
    /// Also what was sent, except Secrets, ConfigMaps and tokens
    Request,
}

impl From<AuditLevel> for Level {
    fn from(level: AuditLevel) -> Level {
        match level {
            AuditLevel::Metadata => Level::Metadata,
            AuditLevel::Request => Level::Request,
        }
    }
}

fn read_audit_policy(path: &Path) -> anyhow::Result<AuditPolicy> {
    let text = std::fs::read(path).map_err(|e| FileError::new("read", path, e))?;
    let policy = AuditPolicy::parse(&text);
    policy.map_err(|e| anyhow::anyhow!("{} is not an audit policy: {e}", path.display()))
}

/// Starts everything in order, tells that it is ready, and waits for a signal.
pub async fn run(args: Args, started: Instant) -> anyhow::Result<()> {
    let wanted = |part| parts::is_wanted(part, args.only.as_deref(), &args.without);
    let images = args.nodes.image_table()?;
    let audit_policy = args.audit_policy.as_deref().map(read_audit_policy).transpose()?;
    raise_file_limit();
    let stop = stop_signal()?;
    let clock = Clock::system();

    let data = match (args.ephemeral, args.data_dir) {
        (true, _) => DataDir::ephemeral()?,
        (false, Some(path)) => DataDir::keep(path)?,
        (false, None) => DataDir::keep(data_dir::default_path()?)?,
    };
    let store = data.open_store()?;
    let pki = data.open_pki(&server_names(args.address), clock.now())?;
    let tls = serve::server_config(&pki)?;
    let listener = listen(SocketAddr::new(args.address, args.port)).await?;
    let address = listener.local_addr()?;
    let url = url(address);

    let mut options = Options::new(store.clone(), pki.service_account_key().to_vec());
    options.clock = clock.clone();
    options.front_proxy = Some(pki.front_proxy().clone());
    options.kubelet_client = Some(nodes::kubelet_client(&pki, &clock)?);
    let pod_addresses = Addresses::new(&Entropy::system());
    options.reach = nodes::reach(&pod_addresses);
    options.audit = match (args.audit_log, audit_policy) {
        (Some(path), Some(policy)) => Some(AuditOptions::by_policy(path, policy)),
        (Some(path), None) => Some(AuditOptions::new(path, args.audit_level.into())),
        (None, _) => None,
    };
    let server = Server::start(options).await?;
    if let Some(address) = addresses::of_server(reachable(address)) {
        server.advertise(address).await;
    }
    let simulated = args.simulated.options();
    let count = if wanted(Part::Node) { args.nodes.count(simulated.is_some()) } else { 0 };
    let metrics = match wanted(Part::Metrics) && (count > 0 || simulated.is_some()) {
        true => Some((metrics::mount(&server).await?, args.metrics.options(simulated.clone()))),
        false => None,
    };
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let until_then = async {
        let _ = ended.await;
    };
    let mut serving =
        tokio::spawn(serve::serve(listener, tls, server.clone(), Limits::default(), until_then));

    let kubeconfig = args.kubeconfig.unwrap_or_else(|| data.path().join("kubeconfig"));
    let kubeconfig = std::path::absolute(&kubeconfig).unwrap_or(kubeconfig);
    kubeconfig::write(&kubeconfig, &url, &pki)?;
    announce(&url, &kubeconfig.display().to_string(), started);

    let place = (data.path(), reachable(address));
    let pods = (&images, &pod_addresses, args.nodes.keep_pods());
    let nodes = Nodes::start(&server, &pki, &clock, place, count, pods)?;
    let metrics = (metrics, args.metrics.autoscaler());
    let root_ca = pki.ca_pem().to_owned();
    let beside = Beside::start(&server, &wanted, clock, root_ca, data.path(), simulated, metrics);
    tokio::select! {
        () = stop => {
            // The others still need the server to end in good order.
            beside.stop().await;
            nodes.stop().await;
            drop(end);
            serving.await?;
        }
        ended = &mut serving => {
            ended?;
            beside.stop().await;
            nodes.stop().await;
        }
    }
    store.close();
    Ok(())
}

/// The one line that others wait for, and a hint for people.
fn announce(url: &str, kubeconfig: &str, started: Instant) {
    let took = started.elapsed().as_millis();
    // Whoever started us may not listen; that is no reason to stop.
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "ready {url} kubeconfig {kubeconfig} ({took} ms)").and_then(|()| out.flush());
    let _ = writeln!(
        std::io::stderr(),
        "use it: export KUBECONFIG={kubeconfig}; kubectl get namespaces   (Ctrl-C stops)"
    );
}

/// Ends with the first SIGINT or SIGTERM; the second one ends the process on the spot.
fn stop_signal() -> anyhow::Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let (told, first) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
        let _ = told.send(());
        tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
        std::process::exit(1);
    });
    Ok(async {
        let _ = first.await;
    })
}

/// Every watcher may be a connection of its own: more than the usual 1024 files are needed.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Where it is not allowed, the server runs with what it has.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let error = match TcpListener::bind(address).await {
        Ok(listener) => return Ok(listener),
        Err(error) => error,
    };
    match error.kind() {
        ErrorKind::AddrInUse => {
            bail!(
                "{address} is in use by another process; choose another port with --port N (0: any free one)"
            )
        }
        ErrorKind::AddrNotAvailable => {
            bail!("{} is not an address of this machine; choose one with --address IP", address.ip())
        }
        ErrorKind::PermissionDenied => {
            bail!("not allowed to listen on {address}; choose a port above 1023 with --port N")
        }
        _ => bail!("cannot listen on {address}: {error}; choose others with --address IP and --port N"),
    }
}

/// Where clients on this machine reach the server.
fn url(address: SocketAddr) -> String {
    format!("https://{}", reachable(address))
}

fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// Names beyond the usual ones for the server's certificate: the address it listens on and the host.
fn server_names(address: IpAddr) -> Vec<String> {
    let mut names = Vec::new();
    if !address.is_unspecified() {
        names.push(address.to_string());
    }
    let host = rustix::system::uname().nodename().to_string_lossy().to_ascii_lowercase();
    let is_dns_name = |name: &str| {
        !name.is_empty()
            && name.len() <= 253
            && name.split('.').all(|label| {
                (1..=63).contains(&label.len())
                    && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
                    && !label.starts_with('-')
                    && !label.ends_with('-')
            })
    };
    if is_dns_name(&host) {
        names.push(host);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_sent_to_an_address_they_can_reach() {
        assert_eq!(url("0.0.0.0:7".parse().unwrap()), "https://127.0.0.1:7");
        assert_eq!(url("[::]:7".parse().unwrap()), "https://[::1]:7");
        assert_eq!(url("192.0.2.1:7".parse().unwrap()), "https://192.0.2.1:7");
    }
}

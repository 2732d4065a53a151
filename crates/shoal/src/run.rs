//! `shoal run`: controllers against any cluster.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use shoal_controllers::all::{self, Settings};
use shoal_runtime::client;
use shoal_runtime::config::Source;
use shoal_runtime::{Manager, logging};

/// Run controllers against any cluster
///
/// The cluster is the one that kubectl would use: of $KUBECONFIG, of ~/.kube/config, or the one that this pod runs in.
/// Several may run at once: one of them leads, and another takes over when it is gone.
#[derive(clap::Args)]
#[command(after_help = "Names:
  controllers   all controllers of the control plane; or some of them by name, as in `shoal run deployment replicaset`

Examples:
  shoal up --without controllers & KUBECONFIG=FILE shoal run controllers
  shoal run controllers --config config.yaml

Environment:
  KUBECONFIG    which cluster
  CONFIG_FILE   settings, unless --config is given")]
pub struct Args {
    /// What to run
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,

    /// Settings: leases, queues, metrics, logs
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Publish this certificate (PEM) to pods as the API server's [default: the one that the kubeconfig names]
    #[arg(long, value_name = "FILE")]
    root_ca_file: Option<PathBuf>,
}

/// Everything at once. Kubernetes' own manager uses the same lease, so that never two of them work.
const CONTROLLERS: &str = "controllers";
pub const LEASE: &str = "kube-controller-manager";

/// Runs until a signal.
pub async fn run(args: Args) -> anyhow::Result<()> {
    check(&args.names)?;
    let source = match &args.config {
        Some(path) => Source::file(path)?,
        None => Source::from_environment()?,
    };
    let level = logging::init(&source.current().logging, Vec::new()).map_err(anyhow::Error::msg)?;
    let root_ca = match &args.root_ca_file {
        Some(path) => Some(read(path)?),
        None => root_ca_of_kubeconfig().await,
    };
    let options = client::Options { user_agent: LEASE.to_owned(), ..client::Options::default() };
    let everything = args.names.iter().any(|name| name == CONTROLLERS);
    let lease = if everything { LEASE.to_owned() } else { format!("shoal-{}", args.names.join("-")) };
    let mut manager = Manager::builder(&lease)
        .config_source(source)
        .client_options(options)
        .log_level(level)
        .leader_election()
        .lease_namespace("kube-system")
        .build()
        .await?;
    let settings = Settings { root_ca, ..Settings::default() };
    let wanted = |name: &str| everything || args.names.iter().any(|wanted| wanted == name);
    all::register(&mut manager, &settings, wanted);
    manager.run().await?;
    Ok(())
}

fn check(names: &[String]) -> anyhow::Result<()> {
    let known = |name: &str| name == CONTROLLERS || all::names().any(|known| known == name);
    match names.iter().find(|name| !known(name)) {
        None => Ok(()),
        Some(name) => {
            let all: Vec<&str> = all::names().collect();
            bail!("there is no {name:?} to run; choose {CONTROLLERS}, or some of {}", all.join(", "))
        }
    }
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path)
        .with_context(|| format!("cannot read {}; check --root-ca-file", path.display()))
}

/// What this process trusts the server by, pods can trust it by, too.
async fn root_ca_of_kubeconfig() -> Option<String> {
    let certificates = kube::Config::infer().await.ok()?.root_cert?;
    Some(certificates.iter().map(|der| pem(der)).collect())
}

fn pem(der: &[u8]) -> String {
    let text = BASE64.encode(der);
    let lines: Vec<&str> =
        text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        let error = check(&["deployments".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("\"deployments\"") && error.contains("controllers, or some of"), "{error}");
        check(&["controllers".to_owned(), "replicaset".to_owned()]).unwrap();
    }

    #[test]
    fn certificates_are_written_in_lines_of_64() {
        let text = pem(&[0; 100]);
        assert!(text.lines().all(|line| line.len() <= 64) && text.lines().count() == 5, "{text}");
    }
}

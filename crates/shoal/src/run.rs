//! `shoal run`: controllers against any cluster.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use shoal_controllers::all::{self, Settings};
use shoal_runtime::client;
use shoal_runtime::config::Source;
use shoal_runtime::{Manager, ShardingOptions, logging};

/// Run controllers against any cluster
///
/// The cluster is the one that kubectl would use: of $KUBECONFIG, of ~/.kube/config, or the one that this pod runs in.
/// Several may run at once: one of them leads, and another takes over when it is gone; or, sharded, all of them work.
#[derive(clap::Args)]
#[command(after_help = "Names:
  controllers   all controllers of the control plane; or some of them by name, as in `shoal run deployment replicaset`
  application   the Application operator

Examples:
  shoal up --without controllers & KUBECONFIG=FILE shoal run controllers
  shoal run controllers --config config.yaml
  shoal up --without application & KUBECONFIG=FILE shoal run application --replicas sharded

Environment:
  KUBECONFIG    which cluster
  CONFIG_FILE   settings, unless --config is given
  REVISION      of a sharded replica: the template that it was made from, so that an update moves each object once")]
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

    /// How several replicas of an operator share the work
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Replicas::Elected)]
    replicas: Replicas,
}

/// How several replicas share the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Replicas {
    /// One leads, the others wait
    Elected,
    /// All work, each on its part of the objects
    Sharded,
}

/// Everything at once. Kubernetes' own manager uses the same lease, so that never two of them work.
const CONTROLLERS: &str = "controllers";
pub const LEASE: &str = "kube-controller-manager";
/// The Application operator.
const APPLICATION: &str = shoal_application::controller::NAME;

/// Each Application and its children are read once in a reconcile, and seldom again soon.
const DECODED: usize = 20;

/// Runs until a signal.
pub async fn run(args: Args) -> anyhow::Result<()> {
    check(&args)?;
    let source = match &args.config {
        Some(path) => Source::file(path)?,
        None => Source::from_environment()?,
    };
    let level = logging::init(&source.current().logging, Vec::new()).map_err(anyhow::Error::msg)?;
    if args.names == [APPLICATION] {
        return run_application(args.replicas, source, level).await;
    }
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

/// The operator, with its kind installed if this client may.
async fn run_application(replicas: Replicas, source: Source, level: logging::Level) -> anyhow::Result<()> {
    let name = shoal_application::api::OPERATOR;
    let options = client::Options { user_agent: name.to_owned(), ..client::Options::default() };
    let builder = Manager::builder(name).config_source(source).client_options(options).log_level(level);
    let builder = builder.cache_size(DECODED);
    let builder = match replicas {
        Replicas::Elected => builder.leader_election(),
        Replicas::Sharded => {
            let revision = std::env::var("REVISION").unwrap_or_default();
            builder.sharded(ShardingOptions::new().revision(&revision))
        }
    };
    let mut manager = builder.build().await?;
    shoal_application::api::install(&manager.client()).await?;
    shoal_application::register(&mut manager, shoal_application::Settings::default());
    manager.run().await?;
    Ok(())
}

fn check(args: &Args) -> anyhow::Result<()> {
    let names = &args.names;
    if names.iter().any(|name| name == APPLICATION) {
        if names.len() > 1 {
            bail!("{APPLICATION} runs by itself: start another `shoal run` for the others");
        }
        return Ok(());
    }
    let known = |name: &str| name == CONTROLLERS || all::names().any(|known| known == name);
    if let Some(name) = names.iter().find(|name| !known(name)) {
        let all: Vec<&str> = all::names().collect();
        let all = all.join(", ");
        bail!("there is no {name:?} to run; choose {APPLICATION} or {CONTROLLERS}, or some of {all}")
    }
    if args.replicas == Replicas::Sharded {
        bail!("the controllers of the control plane cannot be sharded: leave out --replicas");
    }
    Ok(())
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

    fn checked(names: &[&str], replicas: Replicas) -> Result<(), String> {
        let names = names.iter().map(|&name| name.to_owned()).collect();
        let args = Args { names, config: None, root_ca_file: None, replicas };
        check(&args).map_err(|error| error.to_string())
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        let error = checked(&["deployments"], Replicas::Elected).unwrap_err();
        assert!(error.contains("\"deployments\"") && error.contains("controllers, or some of"), "{error}");
        checked(&["controllers", "replicaset"], Replicas::Elected).unwrap();
    }

    #[test]
    fn the_operator_runs_by_itself_and_only_it_is_sharded() {
        checked(&["application"], Replicas::Sharded).unwrap();
        assert!(checked(&["application", "job"], Replicas::Elected).unwrap_err().contains("by itself"));
        assert!(checked(&["job"], Replicas::Sharded).unwrap_err().contains("cannot be sharded"));
    }

    #[test]
    fn certificates_are_written_in_lines_of_64() {
        let text = pem(&[0; 100]);
        assert!(text.lines().all(|line| line.len() <= 64) && text.lines().count() == 5, "{text}");
    }
}

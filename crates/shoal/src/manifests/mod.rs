//! `shoal manifests`: everything that runs a part of Shoal as pods of a cluster.

mod operator;
mod workload;

use std::fmt::Write as _;
use std::io::Write as _;

use clap::ValueEnum;
use serde_json::Value;
use shoal_runtime::{rbac, shard};

use operator::{Operator, Settings};

/// Print what runs an operator or the controllers as pods of a cluster
///
/// Namespace, kinds, account, exactly the rights that are used, a Deployment with probes, metrics, a NetworkPolicy and
/// a PodDisruptionBudget, as YAML.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  shoal manifests application | kubectl apply -f -
  shoal manifests application --image registry.example/shoal:0.1.0 --service-monitor > operator.yaml
  shoal up --without application          # a cluster to try it on: the image shoal is this program there")]
pub struct Args {
    /// What is to run
    name: Name,

    /// Put it into this namespace [default: operator-system, for controllers shoal-system]
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,

    /// How many replicas
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=100))]
    replicas: u32,

    /// The image of this program
    #[arg(long, value_name = "IMAGE", default_value_t = own_image())]
    image: String,

    /// Leave the definitions of custom kinds out, if they are installed by somebody else
    #[arg(long)]
    no_crds: bool,

    /// Add a ServiceMonitor, for clusters with the Prometheus operator
    #[arg(long)]
    service_monitor: bool,
}

/// What can run as pods.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Name {
    /// The operator of Applications; replicas share them
    Application,
    /// The controllers of the control plane; one replica leads
    Controllers,
}

fn own_image() -> String {
    format!("shoal:{}", env!("CARGO_PKG_VERSION"))
}

fn operator(name: Name) -> Operator {
    match name {
        Name::Application => Operator {
            run: &["run", "application", "--replicas", "sharded"],
            namespace: "operator-system",
            deployment: "operator-controller-manager",
            account: "application-operator",
            role: "application-controller-role",
            metrics: "operator-metrics",
            kinds: vec![shoal_application::crd(), shard::crd()],
            rules: shoal_application::rbac::rules(),
            group_namespace: None,
            group_rules: rbac::sharding(),
        },
        Name::Controllers => Operator {
            run: &["run", "controllers"],
            namespace: "shoal-system",
            deployment: "shoal-controllers",
            account: "shoal-controllers",
            role: "shoal-controllers",
            metrics: "shoal-controllers-metrics",
            kinds: Vec::new(),
            rules: shoal_controllers::rbac::rules(),
            // Where Kubernetes' own controllers elect their leader, so that never both work.
            group_namespace: Some("kube-system"),
            group_rules: rbac::election(crate::run::LEASE),
        },
    }
}

/// Prints YAML documents in the order in which they can be applied.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let operator = operator(args.name);
    let settings = Settings {
        namespace: args.namespace.clone().unwrap_or_else(|| operator.namespace.to_owned()),
        replicas: args.replicas,
        image: args.image.clone(),
        kinds: !args.no_crds,
        monitor: args.service_monitor,
    };
    let text = documents(&operator::objects(&operator, &settings)?)?;
    match std::io::stdout().write_all(text.as_bytes()) {
        // Who reads has seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}

fn documents(objects: &[Value]) -> anyhow::Result<String> {
    let mut text = String::new();
    for object in objects {
        write!(text, "---\n{}\n", serde_saphyr::to_string(object)?.trim_end())?;
    }
    Ok(text)
}

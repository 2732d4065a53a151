//! `shoal manifests`: what it prints is accepted by a server, fits together, and is what the repository shows.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod process;

use std::path::Path;
use std::process::Command;

use process::{SHOAL, objects, of_kind, prints};
use serde_json::{Value, json};
use shoal_runtime::config::Config;
use shoal_testkit::Cluster;

const NAMES: [&str; 2] = ["application", "controllers"];

/// The definition that the Prometheus operator installs, as far as it matters here.
fn monitors() -> Value {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "servicemonitors.monitoring.coreos.com"},
        "spec": {"group": "monitoring.coreos.com", "scope": "Namespaced",
            "names": {"plural": "servicemonitors", "singular": "servicemonitor", "kind": "ServiceMonitor"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": open}}]}})
}

#[tokio::test]
async fn the_manifests_are_accepted_and_fit_each_other() {
    for name in NAMES {
        let cluster = Cluster::start().await;
        assert_eq!(cluster.http().apply(&monitors()).await.status, 201);
        let all = objects(&prints(&["manifests", name, "--service-monitor"]));
        for object in &all {
            let answer = cluster.http().apply(object).await;
            assert_eq!(answer.status, 201, "{object}: {}", answer.json());
        }
        let deployment = of_kind(&all, "Deployment");
        let template = &deployment["spec"]["template"];
        let (labels, pod) = (&template["metadata"]["labels"], &template["spec"]);
        let container = &pod["containers"][0];
        assert_eq!(deployment["spec"]["replicas"], 3);
        for (kind, selector) in [
            ("Deployment", "/spec/selector/matchLabels"),
            ("PodDisruptionBudget", "/spec/selector/matchLabels"),
            ("NetworkPolicy", "/spec/podSelector/matchLabels"),
            ("Service", "/spec/selector"),
            ("ServiceMonitor", "/spec/selector/matchLabels"),
        ] {
            assert_eq!(of_kind(&all, kind).pointer(selector), Some(labels), "{kind}");
        }
        let (service, monitor) = (of_kind(&all, "Service"), of_kind(&all, "ServiceMonitor"));
        assert_eq!(&service["metadata"]["labels"], labels);
        assert_eq!(monitor["spec"]["endpoints"][0]["port"], service["spec"]["ports"][0]["name"]);
        assert_eq!(pod["serviceAccountName"], of_kind(&all, "ServiceAccount")["metadata"]["name"]);

        let map = of_kind(&all, "ConfigMap");
        assert_eq!(pod["volumes"][0]["configMap"]["name"], map["metadata"]["name"]);
        let config = Config::parse(map["data"]["config.yaml"].as_str().unwrap(), &|_| None).unwrap();
        let port = |name: &str| {
            let ports = container["ports"].as_array().unwrap();
            ports.iter().find(|port| port["name"] == name).unwrap()["containerPort"].clone()
        };
        assert_eq!((port("probes"), port("metrics")), (json!(8080), json!(9090)));
        assert_eq!(json!([config.metrics.probe_port, config.metrics.port]), json!([8080, 9090]));
        assert_eq!(service["spec"]["ports"][0]["port"], 9090);
        assert_eq!(monitor["spec"]["endpoints"][0]["path"], json!(config.metrics.path));
    }
}

#[test]
fn namespace_replicas_and_image_can_be_chosen() {
    let flags = ["--namespace", "here", "--replicas", "5", "--image", "registry.example/shoal:7"];
    for name in NAMES {
        let all = objects(&prints(&[&["manifests", name], &flags[..]].concat()));
        let deployment = of_kind(&all, "Deployment");
        assert_eq!(deployment["spec"]["replicas"], 5);
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["image"], "registry.example/shoal:7");
        assert_eq!(of_kind(&all, "Namespace")["metadata"]["name"], "here");
        for object in &all {
            let place = object["metadata"]["namespace"].as_str().unwrap_or("here");
            assert!(["here", "kube-system"].contains(&place), "{object}");
        }
        let subjects = &of_kind(&all, "ClusterRoleBinding")["subjects"];
        assert_eq!(subjects[0]["namespace"], "here");
    }
}

#[test]
fn an_unknown_name_is_answered_with_the_known_ones() {
    let output = Command::new(SHOAL).args(["manifests", "other"]).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && error.contains("application, controllers"), "{error}");
}

/// The folders of the usage guide hold what the program prints.
#[test]
fn the_files_of_the_repository_are_what_is_printed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (file, arguments) in [
        ("config/crd/bases/apps.example.com_applications.yaml", &["crds", "application"][..]),
        ("config/crd/bases/sharding.shoal.dev_shardmaps.yaml", &["crds", "sharding"]),
        ("config/samples/operator.yaml", &["manifests", "application", "--no-crds"]),
    ] {
        let printed = prints(arguments);
        let stored = std::fs::read_to_string(root.join(file)).unwrap_or_default();
        assert!(stored == printed, "write it anew: cargo run -- {} > {file}", arguments.join(" "));
    }
}

//! The pods of an operator, and what stands around them: settings, disruption, metrics, network.

use serde_json::{Value, json};

use super::operator::{Operator, Settings};

/// Where the kubelet asks how the program is.
const PROBES: u16 = 8080;
/// Where Prometheus asks.
const METRICS: u16 = 9090;

const CONFIG: &str = "/etc/config";

/// Settings, Deployment, PodDisruptionBudget, Service, NetworkPolicy, and a ServiceMonitor if it is wanted.
pub fn objects(operator: &Operator, settings: &Settings) -> Vec<Value> {
    let mut objects = vec![
        config(operator, settings),
        deployment(operator, settings),
        disruption(operator, settings),
        service(operator, settings),
        network(operator, settings),
    ];
    if settings.monitor {
        objects.push(monitor(operator, settings));
    }
    objects
}

fn labels(operator: &Operator) -> Value {
    json!({"app": operator.account})
}

fn metadata(name: &str, operator: &Operator, settings: &Settings) -> Value {
    json!({"name": name, "namespace": settings.namespace, "labels": labels(operator)})
}

fn config_name(operator: &Operator) -> String {
    format!("{}-config", operator.account)
}

fn config(operator: &Operator, settings: &Settings) -> Value {
    let text = format!(
        "# Changes are taken up while the program runs; settings that cannot be used change nothing.\n\
         workers: 8\n\
         metrics:\n  enabled: true\n  port: {METRICS}\n  path: /metrics\n  probePort: {PROBES}\n\
         logging:\n  level: info\n  format: json\n"
    );
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(&config_name(operator), operator, settings),
        "data": {"config.yaml": text},
    })
}

fn deployment(operator: &Operator, settings: &Settings) -> Value {
    let spread = |key: &str| {
        json!({
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": labels(operator)},
        })
    };
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(operator.deployment, operator, settings),
        "spec": {
            "replicas": settings.replicas,
            "selector": {"matchLabels": labels(operator)},
            // First the new one, then an old one goes: each share of the work moves once.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {
                "metadata": {"labels": labels(operator)},
                "spec": {
                    "serviceAccountName": operator.account,
                    // A stop takes at most 25 s by itself.
                    "terminationGracePeriodSeconds": 30,
                    "securityContext": {
                        "runAsNonRoot": true,
                        "runAsUser": 65532,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "topologySpreadConstraints":
                        [spread("topology.kubernetes.io/zone"), spread("kubernetes.io/hostname")],
                    "containers": [container(operator, settings)],
                    // The whole folder: a file that is mounted by itself never changes.
                    "volumes": [{"name": "config", "configMap": {"name": config_name(operator)}}],
                },
            },
        },
    })
}

fn container(operator: &Operator, settings: &Settings) -> Value {
    let file = format!("{CONFIG}/config.yaml");
    let arguments = [operator.run, &["--config", &file]].concat();
    let hash = json!({"fieldRef": {"fieldPath": "metadata.labels['pod-template-hash']"}});
    json!({
        "name": "operator",
        "image": settings.image,
        "imagePullPolicy": "IfNotPresent",
        "args": arguments,
        // Replicas of one template know each other by it, so that a rolling update moves each share once.
        "env": [{"name": "REVISION", "valueFrom": hash}],
        "ports": [
            {"name": "probes", "containerPort": PROBES},
            {"name": "metrics", "containerPort": METRICS},
        ],
        "livenessProbe":
            {"httpGet": {"path": "/healthz", "port": "probes"}, "periodSeconds": 10, "failureThreshold": 6},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "probes"}, "periodSeconds": 5},
        "resources": {
            "requests": {"memory": "128Mi", "cpu": "100m"},
            "limits": {"memory": "256Mi", "cpu": "200m"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "config", "mountPath": CONFIG, "readOnly": true}],
    })
}

fn disruption(operator: &Operator, settings: &Settings) -> Value {
    json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(operator.account, operator, settings),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels(operator)}},
    })
}

fn service(operator: &Operator, settings: &Settings) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(operator.metrics, operator, settings),
        "spec": {
            "selector": labels(operator),
            "ports": [{"name": "metrics", "port": METRICS, "targetPort": "metrics"}],
        },
    })
}

/// In come probes and metrics; out go names and the API server, which no selector can mean.
fn network(operator: &Operator, settings: &Settings) -> Value {
    let port = |protocol: &str, port: u16| json!({"protocol": protocol, "port": port});
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(operator.account, operator, settings),
        "spec": {
            "podSelector": {"matchLabels": labels(operator)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"ports": [port("TCP", PROBES), port("TCP", METRICS)]}],
            "egress": [
                {"ports": [port("UDP", 53), port("TCP", 53)]},
                {"ports": [port("TCP", 443), port("TCP", 6443)]},
            ],
        },
    })
}

fn monitor(operator: &Operator, settings: &Settings) -> Value {
    json!({
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": metadata(operator.account, operator, settings),
        "spec": {
            "selector": {"matchLabels": labels(operator)},
            "endpoints": [{"port": "metrics", "path": "/metrics", "interval": "30s"}],
        },
    })
}

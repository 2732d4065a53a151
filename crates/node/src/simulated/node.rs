//! The Node and Lease objects that a kubelet would write.

use serde_json::{Value, json};
use shoal_objects::Timestamp;

use super::addresses;
use super::options::Options;

/// Where leases of nodes live.
pub const LEASES: &str = "kube-node-lease";
/// As kubelets have it.
const LEASE_SECONDS: u32 = 40;

/// The Node, as its kubelet registers it.
pub fn registration(options: &Options, index: u32, now: Timestamp) -> Value {
    let name = options.name(index);
    let zone = format!("zone-{}", index % options.zones.max(1));
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "beta.kubernetes.io/arch": "amd64",
                "beta.kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "topology.kubernetes.io/region": "simulated",
                "topology.kubernetes.io/zone": zone,
                "type": "simulated"
            },
            "annotations": {
                "node.alpha.kubernetes.io/ttl": "0",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true"
            }
        },
        "spec": {"providerID": format!("simulated://{name}")},
        "status": status(options, index, now)
    })
}

/// The status of a node that is well.
pub fn status(options: &Options, index: u32, now: Timestamp) -> Value {
    let name = options.name(index);
    let resources: serde_json::Map<String, Value> =
        options.capacity.iter().map(|(name, amount)| (name.clone(), json!(amount.to_string()))).collect();
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({"type": kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": now.to_string(), "lastTransitionTime": now.to_string()})
    };
    json!({
        "capacity": resources,
        "allocatable": resources,
        "addresses": [
            {"type": "InternalIP", "address": addresses::of_node(index).to_string()},
            {"type": "Hostname", "address": name}
        ],
        "conditions": [
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
            condition("Ready", "True", "KubeletReady", "kubelet is posting ready status")
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": {
            "architecture": "amd64",
            "bootID": name,
            "containerRuntimeVersion": "simulated://1.0.0",
            "kernelVersion": "6.0.0",
            "kubeProxyVersion": "",
            "kubeletVersion": "v1.36.0",
            "machineID": name,
            "operatingSystem": "linux",
            "osImage": "simulated",
            "systemUUID": name
        }
    })
}

/// The Lease of a node, owned by it.
pub fn lease(name: &str, uid: &str, now: Timestamp) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": name,
            "namespace": LEASES,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}]
        },
        "spec": {
            "holderIdentity": name,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": now.to_micro_string()
        }
    })
}

/// What renews a Lease.
pub fn renewal(now: Timestamp) -> Vec<u8> {
    format!(r#"{{"spec":{{"renewTime":"{}"}}}}"#, now.to_micro_string()).into_bytes()
}

/// What tells that a node is still well: only the heartbeats change.
pub fn heartbeat(options: &Options, index: u32, now: Timestamp) -> Value {
    let mut status = status(options, index, now);
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        if let Some(fields) = condition.as_object_mut() {
            fields.remove("lastTransitionTime");
        }
    }
    json!({"status": {"conditions": status["conditions"]}})
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::coordination::v1::Lease;
    use k8s_openapi::api::core::v1::Node;

    use super::*;

    #[test]
    fn a_node_says_what_kubelets_say() {
        let options = Options { nodes: 2, ..Options::default() };
        let now = Timestamp(1_714_557_600_123_456);
        let node: Node = serde_json::from_value(registration(&options, 1, now)).unwrap();
        let status = node.status.unwrap();
        assert_eq!(status.allocatable.as_ref().unwrap()["pods"].0, "110");
        assert_eq!(status.capacity.as_ref().unwrap()["memory"].0, "256Gi");
        let ready = &status.conditions.as_ref().unwrap()[3];
        assert_eq!((ready.type_.as_str(), ready.status.as_str()), ("Ready", "True"));
        assert_eq!(status.addresses.unwrap()[0].address, "10.0.0.2");
        assert_eq!(node.metadata.labels.unwrap()["topology.kubernetes.io/zone"], "zone-1");
        let lease: Lease = serde_json::from_value(lease("simulated-1", "u", now)).unwrap();
        assert_eq!(lease.spec.unwrap().lease_duration_seconds, Some(40));
        let renewal: Value = serde_json::from_slice(&renewal(now)).unwrap();
        assert_eq!(renewal["spec"]["renewTime"], "2024-05-01T10:00:00.123456Z");
    }
}

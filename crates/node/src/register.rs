//! The Node object and its heartbeat.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{Node as NodeObject, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use k8s_openapi::jiff;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use shoal_objects::{Clock, Timestamp};

use crate::pod::status::time;

const LEASE_NAMESPACE: &str = "kube-node-lease";
const LEASE_SECONDS: i32 = 40;
/// How often the Lease is renewed, and how often the status is written although nothing changed.
const RENEW: Duration = Duration::from_secs(10);
const STATUS_EVERY: u32 = 30;

/// What a node says about itself.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Name of the node.
    pub name: String,
    /// Its address.
    pub ip: String,
    /// Where its agent listens.
    pub port: Option<u16>,
    /// CPUs.
    pub cpus: usize,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of disk for pods.
    pub storage: u64,
    /// How many pods it takes.
    pub max_pods: u32,
    /// More labels.
    pub labels: BTreeMap<String, String>,
    /// Whether it enforces limits of CPU and memory, and how.
    pub limits: (bool, String),
}

impl Machine {
    /// Measures this machine.
    pub fn measure(name: &str, dir: &std::path::Path) -> Machine {
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kib = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let kib: u64 = kib.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse().ok()).unwrap_or(0);
        let storage = rustix::fs::statvfs(dir).map(|found| found.f_blocks.saturating_mul(found.f_frsize));
        Machine {
            name: name.to_owned(),
            ip: "127.0.0.1".to_owned(),
            port: None,
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory: kib.saturating_mul(1024),
            storage: storage.unwrap_or(0),
            max_pods: 110,
            labels: BTreeMap::new(),
            limits: crate::limits::statement(),
        }
    }

    fn resources(&self) -> Value {
        json!({
            "cpu": self.cpus.to_string(),
            "memory": format!("{}Ki", self.memory / 1024),
            "ephemeral-storage": format!("{}Ki", self.storage / 1024),
            "pods": self.max_pods.to_string(),
        })
    }

    fn object(&self) -> Value {
        let arch = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let mut labels = json!({
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": arch,
            "shoal.dev/runtime": "process",
        });
        for (key, value) in &self.labels {
            labels[key] = value.as_str().into();
        }
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name, "labels": labels}})
    }

    fn status(&self, known: Option<&NodeObject>, now: Timestamp) -> Value {
        let known: &[NodeCondition] =
            known.and_then(|node| node.status.as_ref()?.conditions.as_deref()).unwrap_or_default();
        let stamp = time(now);
        let condition = |type_: &str, status: &str, reason: &str, message: &str| {
            let same = known.iter().find(|known| known.type_ == type_ && known.status == status);
            let since = same.and_then(|known| known.last_transition_time.clone()).unwrap_or(stamp.clone());
            json!({
                "type": type_, "status": status, "reason": reason, "message": message,
                "lastHeartbeatTime": stamp, "lastTransitionTime": since,
            })
        };
        let uname = rustix::system::uname();
        let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        let id = std::fs::read_to_string("/etc/machine-id").unwrap_or_default().trim().to_owned();
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let version = concat!("v1.36.0+shoal-", env!("CARGO_PKG_VERSION"));
        let (limits, reason) = if self.limits.0 { ("True", "Cgroups") } else { ("False", "NoCgroup") };
        let conditions = vec![
            condition(
                "MemoryPressure",
                "False",
                "KubeletHasSufficientMemory",
                "kubelet has sufficient memory available",
            ),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            condition(
                "PIDPressure",
                "False",
                "KubeletHasSufficientPID",
                "kubelet has sufficient PID available",
            ),
            condition("LimitsEnforced", limits, reason, &self.limits.1),
            condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        ];
        json!({
            "capacity": self.resources(),
            "allocatable": self.resources(),
            "conditions": conditions,
            "addresses": [
                {"type": "InternalIP", "address": self.ip},
                {"type": "Hostname", "address": self.name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.port.unwrap_or(0)}},
            "nodeInfo": {
                "machineID": id, "systemUUID": id, "bootID": boot.trim(),
                "kernelVersion": text(uname.release()), "osImage": os_image(),
                "containerRuntimeVersion": concat!("shoal://", env!("CARGO_PKG_VERSION")),
                "kubeletVersion": version, "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": match std::env::consts::ARCH { "x86_64" => "amd64", "aarch64" => "arm64", other => other },
            },
        })
    }
}

fn os_image() -> String {
    let text = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.map_or_else(|| "Linux".to_owned(), |name| name.trim_matches('"').to_owned())
}

/// Makes the Node object, or brings it up to date.
pub async fn register(client: &Client, machine: &Machine, now: Timestamp) -> Result<NodeObject, kube::Error> {
    let nodes: Api<NodeObject> = Api::all(client.clone());
    let object = machine.object();
    let known = match nodes.get_opt(&machine.name).await? {
        Some(known) => {
            let patch = json!({"metadata": {"labels": object["metadata"]["labels"]}});
            nodes.patch(&machine.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
            known
        }
        None => {
            let made: NodeObject = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
            nodes.create(&PostParams::default(), &made).await?
        }
    };
    write_status(&nodes, machine, Some(&known), now).await
}

async fn write_status(
    nodes: &Api<NodeObject>,
    machine: &Machine,
    known: Option<&NodeObject>,
    now: Timestamp,
) -> Result<NodeObject, kube::Error> {
    let patch = json!({"status": machine.status(known, now)});
    nodes.patch_status(&machine.name, &PatchParams::default(), &Patch::Strategic(patch)).await
}

/// Renews the Lease for ever, and the status now and then; a deleted Node is made again.
pub async fn beat(client: Client, machine: Machine, node: NodeObject, clock: Clock) {
    let nodes: Api<NodeObject> = Api::all(client.clone());
    let mut count = 0_u32;
    loop {
        if let Err(error) = renew(&client, &node, clock.now()).await {
            tracing::warn!(node = machine.name, %error, "the node's Lease cannot be renewed");
        }
        tokio::time::sleep(RENEW).await;
        count = count.wrapping_add(1);
        let known = nodes.get_opt(&machine.name).await;
        let result = match known {
            Ok(Some(known)) => {
                let conditions = known.status.as_ref().and_then(|status| status.conditions.as_deref());
                let is_ready =
                    conditions.unwrap_or_default().iter().any(|c| c.type_ == "Ready" && c.status == "True");
                match is_ready && !count.is_multiple_of(STATUS_EVERY) {
                    true => Ok(known),
                    false => write_status(&nodes, &machine, Some(&known), clock.now()).await,
                }
            }
            Ok(None) => register(&client, &machine, clock.now()).await,
            Err(error) => Err(error),
        };
        if let Err(error) = result {
            tracing::warn!(node = machine.name, %error, "the node's status cannot be written");
        }
    }
}

async fn renew(client: &Client, node: &NodeObject, now: Timestamp) -> Result<(), kube::Error> {
    let name = node.metadata.name.clone().unwrap_or_default();
    let leases: Api<Lease> = Api::namespaced(client.clone(), LEASE_NAMESPACE);
    let renewed = Some(MicroTime(jiff::Timestamp::from_microsecond(now.0).unwrap_or_default()));
    let patch = json!({"spec": {"renewTime": renewed, "holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS}});
    match leases.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        other => return other.map(drop),
    }
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: name.clone(),
        uid: node.metadata.uid.clone().unwrap_or_default(),
        ..OwnerReference::default()
    };
    let lease = Lease {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(name),
            lease_duration_seconds: Some(LEASE_SECONDS),
            renew_time: renewed,
            ..LeaseSpec::default()
        }),
    };
    leases.create(&PostParams::default(), &lease).await.map(drop)
}

//! What is wanted of an Application. The descriptions for users are those of the schema.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::DeploymentStrategy;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerBehavior;
use k8s_openapi::api::core::v1::{
    Affinity, Capabilities, EnvFromSource, EnvVar, ExecAction, GRPCAction, HTTPHeader, LocalObjectReference,
    ResourceRequirements, SeccompProfile, Toleration, TopologySpreadConstraint,
};
use k8s_openapi::api::networking::v1::NetworkPolicyPeer;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::{Deserialize, Serialize};

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ApplicationSpec {
    /// How many pods; with `scaling` only the first number. 0 suspends.
    pub replicas: i32,
    /// The container image.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// Where the program listens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
    /// Where the program listens, if in several places.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<Port>,
    /// Instead of the image's entry point.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Environment variables.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub environment: Vec<EnvVar>,
    /// Sources of many environment variables.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub environment_from: Vec<EnvFromSource>,
    /// Files with settings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub config_files: Vec<ConfigFile>,
    /// Processor and memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// How to tell that it works.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_check: Option<HealthCheck>,
    /// Automatic scaling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaling: Option<Scaling>,
    /// Volumes that stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<Storage>,
    /// How it is reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// As whom it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security: Option<Security>,
    /// How pods are replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<DeploymentStrategy>,
    /// How long a pod must be ready to count as available.
    pub min_ready_seconds: i32,
    /// How long a rollout may make no progress.
    pub progress_deadline_seconds: i32,
    /// How many old ReplicaSets are kept.
    pub revision_history_limit: i32,
    /// How long a pod has to end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination_grace_period_seconds: Option<i64>,
    /// What happens when a rollout fails.
    pub rollback: Rollback,
    /// How many pods may be missing while nodes are drained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_disruption_budget: Option<Budget>,
    /// More labels of pods.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub pod_labels: BTreeMap<String, String>,
    /// Annotations of pods.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub pod_annotations: BTreeMap<String, String>,
    /// Labels that nodes must have.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints that are put up with.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// Which nodes and neighbours are preferred or needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// How pods are spread. A constraint without selector means the pods of this Application.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// Importance of the pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
    /// Leave everything as it is.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// What happens to the children when the Application is deleted.
    pub deletion_policy: DeletionPolicy,
}

impl Default for ApplicationSpec {
    fn default() -> ApplicationSpec {
        ApplicationSpec {
            replicas: 1,
            image: String::new(),
            port: None,
            ports: Vec::new(),
            command: Vec::new(),
            args: Vec::new(),
            environment: Vec::new(),
            environment_from: Vec::new(),
            config_files: Vec::new(),
            resources: None,
            health_check: None,
            scaling: None,
            storage: None,
            network: None,
            security: None,
            strategy: None,
            min_ready_seconds: 0,
            progress_deadline_seconds: 600,
            revision_history_limit: 10,
            termination_grace_period_seconds: None,
            rollback: Rollback::default(),
            pod_disruption_budget: None,
            pod_labels: BTreeMap::new(),
            pod_annotations: BTreeMap::new(),
            node_selector: BTreeMap::new(),
            tolerations: Vec::new(),
            affinity: None,
            topology_spread_constraints: Vec::new(),
            priority_class_name: None,
            paused: false,
            deletion_policy: DeletionPolicy::Delete,
        }
    }
}

impl ApplicationSpec {
    /// All claims.
    pub fn claims(&self) -> &[Claim] {
        self.storage.as_ref().map(|storage| storage.persistent_volume_claims.as_slice()).unwrap_or_default()
    }

    /// All ports: `ports`, or `port` under the name `http`.
    pub fn all_ports(&self) -> Vec<Port> {
        match self.port {
            Some(port) if self.ports.is_empty() => {
                vec![Port { name: "http".to_owned(), port, service_port: None, protocol: "TCP".to_owned() }]
            }
            _ => self.ports.clone(),
        }
    }

    /// Whether no pods are wanted.
    pub fn is_suspended(&self) -> bool {
        self.replicas == 0
    }

    /// The settings of automatic scaling, while it is in force.
    pub fn active_scaling(&self) -> Option<&Scaling> {
        self.scaling.as_ref().filter(|_| !self.is_suspended())
    }

    /// The most pods that there can be at rest.
    pub fn most_replicas(&self) -> i32 {
        self.scaling.as_ref().map_or(self.replicas, |scaling| scaling.max_replicas)
    }
}

/// A place where the program listens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Port {
    /// The name, as probes and Services use it.
    pub name: String,
    /// The number in the container.
    pub port: i32,
    /// The number at the Service; the same unless told otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_port: Option<i32>,
    /// TCP, UDP or SCTP.
    #[serde(default = "tcp")]
    pub protocol: String,
}

fn tcp() -> String {
    "TCP".to_owned()
}

/// A file with settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConfigFile {
    /// Where it lies in the container.
    pub path: String,
    /// What it says.
    #[serde(default)]
    pub content: String,
}

/// How to tell that a pod works.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HealthCheck {
    /// A container that fails this is started again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub liveness_probe: Option<Probe>,
    /// A pod that fails this gets no requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readiness_probe: Option<Probe>,
    /// Until this succeeds the others wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub startup_probe: Option<Probe>,
}

impl HealthCheck {
    /// The probes that are set.
    pub fn probes(&self) -> impl Iterator<Item = &Probe> {
        [&self.liveness_probe, &self.readiness_probe, &self.startup_probe].into_iter().flatten()
    }
}

/// One check. As in Kubernetes, but the port may be left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Probe {
    /// By a request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_get: Option<HttpGet>,
    /// By a connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_socket: Option<TcpSocket>,
    /// By a command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exec: Option<ExecAction>,
    /// By gRPC's health protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grpc: Option<GRPCAction>,
    /// Not earlier than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_delay_seconds: Option<i32>,
    /// How often.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_seconds: Option<i32>,
    /// How long it may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<i32>,
    /// So many successes count as one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub success_threshold: Option<i32>,
    /// So many failures count as one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_threshold: Option<i32>,
}

/// A check by a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpGet {
    /// What is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Number or name; the first port of the Application unless told otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<IntOrString>,
    /// HTTP or HTTPS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheme: Option<String>,
    /// Headers of the request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub http_headers: Vec<HTTPHeader>,
}

/// A check by a connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TcpSocket {
    /// Number or name; the first port of the Application unless told otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<IntOrString>,
}

/// Automatic scaling.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Scaling {
    /// The fewest pods.
    #[serde(default = "one")]
    pub min_replicas: i32,
    /// The most pods.
    pub max_replicas: i32,
    /// Processor time used, in percent of what is requested.
    #[serde(rename = "targetCPUUtilizationPercentage", skip_serializing_if = "Option::is_none")]
    pub target_cpu: Option<i32>,
    /// Memory used, in percent of what is requested.
    #[serde(rename = "targetMemoryUtilizationPercentage", skip_serializing_if = "Option::is_none")]
    pub target_memory: Option<i32>,
    /// How fast, in each direction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behavior: Option<HorizontalPodAutoscalerBehavior>,
}

/// The target when none is given.
pub(crate) const DEFAULT_CPU_TARGET: i32 = 80;

impl Scaling {
    /// The target for processor time: 80 when nothing else is aimed at.
    pub fn cpu_target(&self) -> Option<i32> {
        self.target_cpu.or(match self.target_memory {
            Some(_) => None,
            None => Some(DEFAULT_CPU_TARGET),
        })
    }
}

fn one() -> i32 {
    1
}

/// Volumes that stay.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Storage {
    /// The claims; all pods use the same ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub persistent_volume_claims: Vec<Claim>,
}

/// A volume that stays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// The name; the claim is called APPLICATION-NAME.
    pub name: String,
    /// How large. It can grow, not shrink.
    pub size: Quantity,
    /// Who may use it at once.
    #[serde(default = "read_write_once")]
    pub access_modes: Vec<String>,
    /// From which class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
    /// Where it is in the container; `/data/NAME` unless told otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mount_path: Option<String>,
    /// Which folder of the volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sub_path: Option<String>,
    /// Only for reading.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// Several pods may share it although it can be used on one node only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_shared: bool,
    /// What happens to it in the end.
    #[serde(default)]
    pub retention: Retention,
}

impl Claim {
    /// Where it is in the container.
    pub fn mount_path(&self) -> String {
        self.mount_path.clone().unwrap_or_else(|| format!("/data/{}", self.name))
    }

    /// Whether pods on several nodes can use it.
    pub fn is_shareable(&self) -> bool {
        self.access_modes.iter().any(|mode| mode == "ReadWriteMany" || mode == "ReadOnlyMany")
    }

    /// Whether only one pod can use it.
    pub fn is_for_one_pod(&self) -> bool {
        !self.access_modes.is_empty() && self.access_modes.iter().all(|mode| mode == "ReadWriteOncePod")
    }
}

fn read_write_once() -> Vec<String> {
    vec!["ReadWriteOnce".to_owned()]
}

/// What happens to a claim that is not wanted any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Retention {
    /// It stays, and a new Application of the name takes it up again.
    #[default]
    Retain,
    /// It is deleted, with what is on it.
    Delete,
}

/// How the Application is reached.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Network {
    /// The type of the Service.
    pub service_type: ServiceType,
    /// For the type LoadBalancer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_balancer: Option<LoadBalancer>,
    /// Annotations of the Service.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub service_annotations: BTreeMap<String, String>,
    /// Reached by a host name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ingress: Option<Ingress>,
    /// Who may reach it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_policy: Option<NetworkPolicy>,
}

/// The type of a Service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServiceType {
    /// Within the cluster.
    #[default]
    ClusterIP,
    /// On a port of every node.
    NodePort,
    /// By an address from outside.
    LoadBalancer,
}

impl ServiceType {
    /// As the API writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            ServiceType::ClusterIP => "ClusterIP",
            ServiceType::NodePort => "NodePort",
            ServiceType::LoadBalancer => "LoadBalancer",
        }
    }
}

/// For Services of type LoadBalancer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LoadBalancer {
    /// Only these networks are let in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub source_ranges: Vec<String>,
}

/// Reached by a host name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ingress {
    /// The name.
    pub host: String,
    /// Which paths; all unless told otherwise.
    #[serde(default = "root_path")]
    pub path: String,
    /// The ingress class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class_name: Option<String>,
    /// The Secret with the certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_secret_name: Option<String>,
    /// Annotations of the Ingress.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

fn root_path() -> String {
    "/".to_owned()
}

/// Who may reach the pods, on their ports only.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkPolicy {
    /// These; everybody unless told otherwise.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<NetworkPolicyPeer>,
}

/// As whom the pods run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Security {
    /// The account; made if it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account: Option<String>,
    /// User, group, rights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_context: Option<SecurityContext>,
    /// Secrets for pulling the image.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub image_pull_secrets: Vec<LocalObjectReference>,
}

/// User, group and rights, of pod and container in one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SecurityContext {
    /// Refuse to run as root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_as_non_root: Option<bool>,
    /// The user's number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_as_user: Option<i64>,
    /// The group's number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_as_group: Option<i64>,
    /// The group that volumes belong to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fs_group: Option<i64>,
    /// More groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub supplemental_groups: Vec<i64>,
    /// Which system calls are allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seccomp_profile: Option<SeccompProfile>,
    /// May gain rights that its parent does not have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_privilege_escalation: Option<bool>,
    /// The image's files cannot be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only_root_filesystem: Option<bool>,
    /// All rights of the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub privileged: Option<bool>,
    /// Single rights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<Capabilities>,
}

/// What happens when a rollout fails.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rollback {
    /// Whether the last template that worked is put back.
    pub enabled: bool,
    /// After so many restarts of one new container nobody waits for the deadline.
    pub crash_loop_restarts: i32,
}

impl Default for Rollback {
    fn default() -> Rollback {
        Rollback { enabled: true, crash_loop_restarts: 3 }
    }
}

/// How many pods may be missing while nodes are drained.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Budget {
    /// So many must stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_available: Option<IntOrString>,
    /// So many may be missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
}

/// What happens to the children of an Application that is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeletionPolicy {
    /// They are deleted; claims as their retention says.
    #[default]
    Delete,
    /// They stay and run on, owned by nobody.
    Orphan,
}

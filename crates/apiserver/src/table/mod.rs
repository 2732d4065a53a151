//! Objects as rows of a table, for people: what `kubectl get` prints. The columns of a kind are data, one file per
//! family of kinds; every cell is a pure function of the object and the time.

mod admission;
mod autoscaling;
pub mod cells;
mod cluster;
mod config;
pub mod custom;
mod devices;
pub mod duration;
mod endpoints;
mod events;
mod flow;
mod network;
mod pods;
mod rbac;
mod storage;
#[cfg(test)]
mod tests;
mod workloads;

use serde_json::{Value, json};
use shoal_objects::Timestamp;

use crate::kinds::access::{field, int_at, str_at};
use crate::status::{Failure, Outcome};

/// A cell of an object at a time.
pub type Cell = fn(&Value, Timestamp) -> Value;

/// One column of a kind's table.
pub struct Column {
    /// The heading.
    pub name: &'static str,
    /// `string`, `integer`, `boolean` or `date`.
    pub kind: &'static str,
    /// `name` for the column that names the object, else empty.
    pub format: &'static str,
    /// 0 is always shown, 1 with `-o wide` only.
    pub priority: u8,
    /// What the column shows.
    pub description: &'static str,
    /// Its content.
    pub cell: Cell,
}

impl Column {
    /// A column of text that is always shown.
    pub const fn text(name: &'static str, description: &'static str, cell: Cell) -> Column {
        Column { name, kind: "string", format: "", priority: 0, description, cell }
    }

    /// A column of numbers.
    pub const fn number(name: &'static str, description: &'static str, cell: Cell) -> Column {
        Column { name, kind: "integer", format: "", priority: 0, description, cell }
    }

    /// A column of yes and no.
    pub const fn boolean(name: &'static str, description: &'static str, cell: Cell) -> Column {
        Column { name, kind: "boolean", format: "", priority: 0, description, cell }
    }

    /// The same column for `-o wide` only.
    pub const fn wide(self) -> Column {
        Column { priority: 1, ..self }
    }

    /// The same column, marked as one that names an object.
    pub const fn naming(self) -> Column {
        Column { format: "name", ..self }
    }

    pub(crate) fn definition(&self) -> Value {
        json!({
            "name": self.name, "type": self.kind, "format": self.format, "description": self.description,
            "priority": self.priority,
        })
    }
}

/// What rows carry of their object besides the cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Include {
    /// Its metadata.
    Metadata,
    /// All of it.
    Object,
    /// Nothing.
    None,
}

impl Include {
    /// Reads the query parameter `includeObject`.
    pub fn parse(text: Option<&str>) -> Outcome<Include> {
        match text.unwrap_or_default() {
            "" | "Metadata" => Ok(Include::Metadata),
            "Object" => Ok(Include::Object),
            "None" => Ok(Include::None),
            other => Err(Failure::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: \
                 must be 'Metadata', 'Object', 'None', or empty"
            ))),
        }
    }
}

/// How a table is to be made.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Version of meta.k8s.io.
    pub version: &'static str,
    /// What rows carry.
    pub include: Include,
    /// Whether the columns are described. Watches describe them with the first event only.
    pub headers: bool,
}

/// A `Table` of objects of one built-in kind.
pub fn table(
    group: &str,
    kind: &str,
    objects: &[Value],
    metadata: Value,
    options: Options,
    now: Timestamp,
) -> Value {
    let columns = columns(group, kind);
    let mut objects: Vec<&Value> = objects.iter().collect();
    if kind == "FlowSchema" {
        // In the order in which they are tried.
        objects.sort_by_key(|schema| {
            let precedence = field(schema, "spec").and_then(|spec| int_at(spec, "matchingPrecedence"));
            (precedence.unwrap_or_default(), shoal_objects::meta::name(schema))
        });
    }
    let rows = objects
        .into_iter()
        .map(|object| {
            let cells = columns.iter().map(|column| (column.cell)(object, now)).collect();
            row(cells, conditions(kind, object), object, options)
        })
        .collect();
    let definitions = options.headers.then(|| columns.iter().map(Column::definition).collect());
    assemble(definitions, rows, metadata, options)
}

/// One row. Custom resources bring cells of their own.
pub fn row(cells: Vec<Value>, conditions: Option<Value>, object: &Value, options: Options) -> Value {
    let shown = match options.include {
        Include::Metadata => partial(object, options.version),
        Include::Object => object.clone(),
        Include::None => Value::Null,
    };
    let members = [("cells", Some(Value::Array(cells))), ("conditions", conditions), ("object", Some(shown))];
    members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// Puts a table together. Custom resources bring columns of their own.
pub fn assemble(
    definitions: Option<Vec<Value>>,
    rows: Vec<Value>,
    metadata: Value,
    options: Options,
) -> Value {
    let members = [
        ("kind", "Table".into()),
        ("apiVersion", format!("meta.k8s.io/{}", options.version).into()),
        ("metadata", metadata),
        ("columnDefinitions", definitions.map_or(Value::Null, Value::Array)),
        ("rows", Value::Array(rows)),
    ];
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The metadata of an object and nothing else.
pub fn partial(object: &Value, version: &str) -> Value {
    let api_version = format!("meta.k8s.io/{version}");
    json!({"kind": "PartialObjectMetadata", "apiVersion": api_version, "metadata": object["metadata"]})
}

/// Rows of what is done with are marked, so that clients can hide them.
fn conditions(kind: &str, object: &Value) -> Option<Value> {
    let phase = if kind == "Pod" { str_at(field(object, "status")?, "phase") } else { return None };
    let message = match phase {
        "Succeeded" => "The pod has completed successfully.",
        "Failed" => "The pod failed.",
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": phase, "message": message}]))
}

/// The columns of a kind; kinds nobody made columns for show when they were created.
pub fn columns(group: &str, kind: &str) -> &'static [Column] {
    match (group, kind) {
        ("", "Pod") => pods::POD,
        ("", "PodTemplate") => workloads::POD_TEMPLATE,
        ("", "ReplicationController") => workloads::REPLICATION_CONTROLLER,
        ("apps", "ReplicaSet") => workloads::REPLICA_SET,
        ("apps", "Deployment") => workloads::DEPLOYMENT,
        ("apps", "StatefulSet") => workloads::STATEFUL_SET,
        ("apps", "DaemonSet") => workloads::DAEMON_SET,
        ("apps", "ControllerRevision") => workloads::CONTROLLER_REVISION,
        ("batch", "Job") => workloads::JOB,
        ("batch", "CronJob") => workloads::CRON_JOB,
        ("autoscaling", "HorizontalPodAutoscaler") => autoscaling::AUTOSCALER,
        ("autoscaling", "Scale") => autoscaling::SCALE,
        ("policy", "PodDisruptionBudget") => workloads::DISRUPTION_BUDGET,
        ("", "Service") => network::SERVICE,
        ("", "Endpoints") => endpoints::ENDPOINTS,
        ("discovery.k8s.io", "EndpointSlice") => endpoints::ENDPOINT_SLICE,
        ("networking.k8s.io", "Ingress") => network::INGRESS,
        ("networking.k8s.io", "IngressClass") => network::INGRESS_CLASS,
        ("networking.k8s.io", "NetworkPolicy") => network::NETWORK_POLICY,
        ("networking.k8s.io", "IPAddress") => network::IP_ADDRESS,
        ("networking.k8s.io", "ServiceCIDR") => network::SERVICE_CIDR,
        ("", "Node") => cluster::NODE,
        ("", "Namespace") => cluster::NAMESPACE,
        ("coordination.k8s.io", "Lease") => cluster::LEASE,
        ("node.k8s.io", "RuntimeClass") => cluster::RUNTIME_CLASS,
        ("scheduling.k8s.io", "PriorityClass") => cluster::PRIORITY_CLASS,
        ("apiregistration.k8s.io", "APIService") => cluster::API_SERVICE,
        ("certificates.k8s.io", "CertificateSigningRequest") => cluster::SIGNING_REQUEST,
        ("", "ConfigMap") => config::CONFIG_MAP,
        ("", "Secret") => config::SECRET,
        ("", "ServiceAccount") => cells::NAME_AND_AGE,
        ("", "ResourceQuota") => config::RESOURCE_QUOTA,
        ("" | "events.k8s.io", "Event") => events::EVENT,
        ("", "PersistentVolume") => storage::VOLUME,
        ("", "PersistentVolumeClaim") => storage::CLAIM,
        ("storage.k8s.io", "StorageClass") => storage::STORAGE_CLASS,
        ("storage.k8s.io", "VolumeAttributesClass") => storage::ATTRIBUTES_CLASS,
        ("storage.k8s.io", "VolumeAttachment") => storage::ATTACHMENT,
        ("storage.k8s.io", "CSINode") => storage::CSI_NODE,
        ("storage.k8s.io", "CSIDriver") => storage::CSI_DRIVER,
        ("storage.k8s.io", "CSIStorageCapacity") => storage::CSI_CAPACITY,
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => rbac::BINDING,
        (
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration",
        ) => admission::WEBHOOKS,
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => admission::VALIDATING_POLICY,
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicy") => admission::MUTATING_POLICY,
        (
            "admissionregistration.k8s.io",
            "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding",
        ) => admission::POLICY_BINDING,
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => flow::FLOW_SCHEMA,
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => flow::PRIORITY_LEVEL,
        ("resource.k8s.io", "DeviceClass" | "ResourceClaimTemplate") => cells::NAME_AND_AGE,
        ("resource.k8s.io", "ResourceClaim") => devices::CLAIM,
        ("resource.k8s.io", "ResourceSlice") => devices::SLICE,
        _ => cells::NAME_AND_CREATED_AT,
    }
}

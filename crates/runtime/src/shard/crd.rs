//! The kind of the record, `ShardMap`, and how it gets into a cluster.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

/// The API group of ShardMaps.
pub const API_GROUP: &str = "sharding.shoal.dev";
/// Their version.
pub const API_VERSION: &str = "v1alpha1";
/// The label by which the Leases of a group are found.
pub const GROUP_LABEL: &str = "sharding.shoal.dev/group";

/// How often is looked whether the kind is served by now.
const ASK: Duration = Duration::from_millis(200);
/// And how many times.
const ASKED: u32 = 50;

/// Why the kind is not there.
#[derive(Debug, thiserror::Error)]
pub enum CrdError {
    /// It cannot be created by this replica.
    #[error(
        "the kind ShardMap is not installed and cannot be created: {0}; install it with `shoal crds sharding | kubectl apply -f -`, or allow this controller to create customresourcedefinitions"
    )]
    NotInstalled(String),
    /// The cluster cannot be asked.
    #[error("cannot find out whether the kind ShardMap is installed: {0}")]
    Unreachable(String),
}

/// The kind, for clients that know kinds at run time.
pub fn resource() -> ApiResource {
    ApiResource {
        group: API_GROUP.to_owned(),
        version: API_VERSION.to_owned(),
        api_version: format!("{API_GROUP}/{API_VERSION}"),
        kind: "ShardMap".to_owned(),
        plural: "shardmaps".to_owned(),
    }
}

/// The definition of ShardMaps, as `shoal crds` prints it.
pub fn crd() -> CustomResourceDefinition {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("shardmaps.{API_GROUP}")},
        "spec": {
            "group": API_GROUP,
            "scope": "Namespaced",
            "names": {"kind": "ShardMap", "listKind": "ShardMapList", "plural": "shardmaps", "singular": "shardmap", "shortNames": ["shards"]},
            "versions": [{
                "name": API_VERSION,
                "served": true,
                "storage": true,
                // No status subresource: it would be one more right for replicas to need, and the seal finds edits.
                "schema": {"openAPIV3Schema": schema()},
                "additionalPrinterColumns": columns(),
            }],
        },
    });
    // Made of constants; a test reads it.
    serde_json::from_value(definition).unwrap_or_default()
}

fn columns() -> Value {
    let column = |name: &str, kind: &str, path: &str| json!({"name": name, "type": kind, "jsonPath": path});
    json!([
        column("Slots", "integer", ".status.slots"),
        column("Unowned", "integer", ".status.unowned"),
        column("Moving", "integer", ".status.moving"),
        column("Alarm", "string", ".status.conditions[?(@.type=='SlotsUnowned')].status"),
        column("Key", "string", ".status.keyFunction"),
        column("Algorithm", "string", ".status.algorithm"),
        column("Version", "integer", ".status.version"),
        column("Age", "date", ".metadata.creationTimestamp"),
    ])
}

fn schema() -> Value {
    let text = |about: &str| json!({"type": "string", "description": about});
    let number =
        |about: &str| json!({"type": "integer", "format": "int64", "minimum": 0, "description": about});
    let texts = |about: &str| json!({"type": "array", "items": {"type": "string"}, "description": about});
    json!({
        "type": "object",
        "description": "Who works on which slots of a sharded controller. The status is written by the replicas only; an edited one is repaired.",
        "properties": {
            "spec": {
                "type": "object",
                "description": "What people ask for.",
                "properties": {
                    "pins": {
                        "type": "array",
                        "description": "Slots that belong to one replica.",
                        "items": {
                            "type": "object",
                            "required": ["slots", "replica"],
                            "properties": {
                                "slots": text("FIRST-LAST, such as 0-340."),
                                "replica": text("Name or id of a replica."),
                            },
                        },
                    },
                    "cordoned": texts("Replicas that shall have no slots, by name or id."),
                },
            },
            "status": {
                "type": "object",
                "properties": {
                    "group": text("Name of the group."),
                    "controller": text("What the group does."),
                    "slots": number("How many slots."),
                    "keyFunction": text("From object to key."),
                    "keyFunctionVersion": number("Its version."),
                    "hash": text("From key to number."),
                    "algorithm": text("From slots to replicas."),
                    "longestLeaseMilliseconds": number("No Lease of the group lasts longer."),
                    "version": number("Rises by one with every change."),
                    "repaired": number("Version of the last repair, 0 for none."),
                    "unowned": number("How many slots are nobody's."),
                    "moving": number("How many slots are on the move."),
                    "replicas": texts("Replicas that own or shall own slots; runs name them by position."),
                    "runs": texts("FIRST-LAST owner=N epoch=N [PHASE] [next=N]"),
                    "seal": text("Tells whether somebody edited the record by hand."),
                    "conditions": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["type"],
                        "items": {
                            "type": "object",
                            "required": ["type", "status"],
                            "properties": {
                                "type": text("SlotsUnowned"),
                                "status": text("True, False or Unknown."),
                                "reason": text("In one word."),
                                "message": text("In a sentence."),
                                "lastTransitionTime": {"type": "string", "format": "date-time"},
                            },
                        },
                    },
                },
            },
        },
    })
}

/// Makes sure that the kind is served, creating it if need be and permitted.
pub(crate) async fn ensure(client: &Client, namespace: &str, install: bool) -> Result<(), CrdError> {
    match served(client, namespace).await? {
        true => return Ok(()),
        false if !install => return Err(CrdError::NotInstalled("installing is switched off".to_owned())),
        false => {}
    }
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let wanted = crd();
    match definitions.create(&PostParams::default(), &wanted).await {
        Ok(_) => tracing::info!(kind = wanted.name_any(), "installed the kind of the shard records"),
        // Another replica was faster.
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        Err(kube::Error::Api(status)) if status.code < 500 => {
            return Err(CrdError::NotInstalled(status.message.clone()));
        }
        Err(error) => return Err(CrdError::Unreachable(error.to_string())),
    }
    for _ in 0..ASKED {
        if served(client, namespace).await? {
            return Ok(());
        }
        tokio::time::sleep(ASK).await;
    }
    let name = wanted.name_any();
    Err(CrdError::Unreachable(format!(
        "its definition {name} is there, but the kind is not served; see its conditions"
    )))
}

async fn served(client: &Client, namespace: &str) -> Result<bool, CrdError> {
    let maps: Api<kube::api::DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource());
    match maps.list_metadata(&kube::api::ListParams::default().limit(1)).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        // Whether it may be read is another question: the driver will be told.
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(true),
        Err(error) => Err(CrdError::Unreachable(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_complete() {
        let definition = crd();
        assert_eq!(definition.spec.names.plural, "shardmaps");
        let version = &definition.spec.versions[0];
        assert!(version.subresources.is_none() && version.schema.is_some());
        assert_eq!(version.additional_printer_columns.as_ref().map(Vec::len), Some(8));
    }
}

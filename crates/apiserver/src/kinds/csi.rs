//! The CSI kinds of storage.k8s.io: CSIDriver, CSINode, CSIStorageCapacity.

use std::collections::BTreeMap;

use serde_json::json;
use shoal_objects::quantity::Quantity;
use shoal_objects::selector::validate_label_selector;
use shoal_objects::{Errors, Path, Value, meta, names};

use super::access::{child_mut, field, int_at, is_set, list_at, set, set_default, str_at};
use super::seen::Seen;
use super::storage::validate_driver_name;
use super::{Rules, checks};

/// The rules of CSIDriver.
pub const DRIVER_RULES: Rules = Rules {
    default: default_driver,
    validate: validate_driver,
    validate_update: validate_driver_update,
    ..Rules::NONE
};

/// The rules of CSINode.
pub const NODE_RULES: Rules =
    Rules { validate: validate_node, validate_update: validate_node_update, ..Rules::NONE };

/// The rules of CSIStorageCapacity.
pub const CAPACITY_RULES: Rules =
    Rules { validate: validate_capacity, validate_update: validate_capacity_update, ..Rules::NONE };

const MAX_NODE_ID: usize = 192;

fn default_driver(driver: &mut Value) {
    let Some(spec) = child_mut(driver, "spec") else { return };
    set_default(spec, "attachRequired", true);
    set_default(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    for name in ["podInfoOnMount", "requiresRepublish", "seLinuxMount", "storageCapacity"] {
        set_default(spec, name, false);
    }
    if !is_set(spec, "volumeLifecycleModes") {
        set(spec, "volumeLifecycleModes", json!(["Persistent"]));
    }
}

fn validate_driver(driver: &Value, errors: &mut Errors) {
    let metadata = Path::new("metadata");
    validate_driver_name(meta::name(driver), &metadata.child("name"), errors);
    let spec = field(driver, "spec").unwrap_or(&Value::Null);
    let path = Path::new("spec");
    for name in ["attachRequired", "podInfoOnMount", "storageCapacity"] {
        if field(spec, name).is_none() {
            errors.required(&path.child(name), "");
        }
    }
    let policies = ["File", "None", "ReadWriteOnceWithFSType"];
    checks::optional_one_of(spec, "fsGroupPolicy", &policies, &path, errors);
    for mode in list_at(spec, "volumeLifecycleModes") {
        let path = path.child("volumeLifecycleModes");
        checks::supported_text(
            mode.as_str().unwrap_or_default(),
            &["Ephemeral", "Persistent"],
            &path,
            errors,
        );
    }
    let requests = path.child("tokenRequests");
    let tokens = list_at(spec, "tokenRequests");
    let mut seen = Seen::default();
    for (i, token) in tokens.iter().enumerate() {
        let path = requests.index(i);
        if seen.again(str_at(token, "audience")) {
            errors.duplicate(&path.child("audience"), &str_at(token, "audience").into());
        }
        if let Some(seconds) = int_at(token, "expirationSeconds") {
            super::token_request::validate_seconds(seconds, &path.child("expirationSeconds"), errors);
        }
    }
}

fn validate_driver_update(new: &Value, old: &Value, errors: &mut Errors) {
    let none = Value::Null;
    let (new, old) = (field(new, "spec").unwrap_or(&none), field(old, "spec").unwrap_or(&none));
    for name in ["attachRequired", "volumeLifecycleModes"] {
        checks::immutable(new, old, name, &Path::new("spec"), errors);
    }
}

fn validate_node(node: &Value, errors: &mut Errors) {
    let spec = field(node, "spec").unwrap_or(&Value::Null);
    let spec_path = Path::new("spec");
    let path = spec_path.child("drivers");
    let drivers = list_at(spec, "drivers");
    let mut seen = Seen::default();
    for (i, driver) in drivers.iter().enumerate() {
        let path = path.index(i);
        let name = str_at(driver, "name");
        if name.is_empty() {
            errors.required(&path.child("name"), "");
        } else {
            validate_driver_name(name, &path.child("name"), errors);
            if seen.again(name) {
                errors.duplicate(&path.child("name"), &name.into());
            }
        }
        let id = str_at(driver, "nodeID");
        if id.is_empty() {
            errors.required(&path.child("nodeID"), "");
        } else if id.len() > MAX_NODE_ID {
            let detail = format!("must be {MAX_NODE_ID} characters or less");
            errors.invalid_str(&path.child("nodeID"), id, &detail);
        }
        if let Some(allocatable) = field(driver, "allocatable") {
            checks::not_negative(allocatable, "count", &path.child("allocatable"), errors);
        }
        let mut keys_seen = Seen::default();
        for key in list_at(driver, "topologyKeys") {
            let keys_path = path.child("topologyKeys");
            let text = key.as_str().unwrap_or_default();
            if text.is_empty() {
                errors.required(&keys_path, "");
            } else {
                checks::text(errors, &keys_path, text, names::qualified_name(text));
            }
            if keys_seen.again(text) {
                errors.duplicate(&keys_path, key);
            }
        }
    }
}

fn validate_node_update(new: &Value, old: &Value, errors: &mut Errors) {
    let drivers = |node| field(node, "spec").map(|spec| list_at(spec, "drivers")).unwrap_or_default();
    let spec = Path::new("spec");
    let path = spec.child("drivers");
    let by_name: BTreeMap<&str, &Value> =
        drivers(old).iter().map(|driver| (str_at(driver, "name"), driver)).collect();
    for (i, driver) in drivers(new).iter().enumerate() {
        let before = by_name.get(str_at(driver, "name"));
        // How many volumes fit may be corrected later; everything else of a driver stays while it is listed.
        for name in ["nodeID", "topologyKeys"] {
            if let Some(before) = before {
                checks::immutable(driver, before, name, &path.index(i), errors);
            }
        }
    }
}

fn validate_capacity(capacity: &Value, errors: &mut Errors) {
    match str_at(capacity, "storageClassName") {
        "" => errors.required(&Path::new("storageClassName"), ""),
        name => checks::text(errors, &Path::new("storageClassName"), name, names::dns1123_subdomain(name)),
    }
    if let Some(topology) = field(capacity, "nodeTopology") {
        validate_label_selector(topology, &Path::new("nodeTopology"), errors);
    }
    for name in ["capacity", "maximumVolumeSize"] {
        let Some(amount) = field(capacity, name).and_then(|v| Quantity::from_json(v).ok()) else { continue };
        if amount.is_negative() {
            errors.invalid_str(&Path::new(name), &amount.to_string(), checks::NOT_NEGATIVE);
        }
    }
}

fn validate_capacity_update(new: &Value, old: &Value, errors: &mut Errors) {
    for name in ["nodeTopology", "storageClassName"] {
        if field(new, name) != field(old, name) {
            errors.invalid(&Path::new(name), field(new, name).unwrap_or(&Value::Null), checks::IMMUTABLE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::causes;
    use super::*;

    #[test]
    fn a_driver_is_filled_up() {
        let mut driver = json!({"metadata": {"name": "d.test"}});
        default_driver(&mut driver);
        assert_eq!(
            driver["spec"],
            json!({
                "attachRequired": true, "fsGroupPolicy": "ReadWriteOnceWithFSType", "podInfoOnMount": false,
                "requiresRepublish": false, "seLinuxMount": false, "storageCapacity": false,
                "volumeLifecycleModes": ["Persistent"],
            })
        );
        assert!(causes(|e| validate_driver(&driver, e)).is_empty());
    }

    #[test]
    fn drivers_of_a_node_are_named_once() {
        let node = json!({"spec": {"drivers": [{"name": "a", "nodeID": "1"}, {"name": "a", "nodeID": ""}]}});
        assert_eq!(
            causes(|e| validate_node(&node, e)),
            ["spec.drivers[1].name FieldValueDuplicate", "spec.drivers[1].nodeID FieldValueRequired"]
        );
    }
}

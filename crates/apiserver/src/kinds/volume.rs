//! PersistentVolume.

use serde_json::json;
use shoal_objects::invalid::Reason;
use shoal_objects::{Errors, Path, Value, names};

use super::access::{
    child_mut, existing_mut, field, is_set, object_at, remove, set, set_default, set_default_str, str_at,
};
use super::claim::{VOLUME_MODES, add_finalizer, validate_access_modes};
use super::pod::validate_node_selector;
use super::resource_lists::{amounts, round_up};
use super::{Rules, checks};

/// The rules of PersistentVolume.
pub const RULES: Rules =
    Rules { default, prepare_create, validate, validate_update, warnings, ..Rules::NONE };

/// The kinds of storage behind a volume.
const SOURCES: [&str; 22] = [
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "csi",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "glusterfs",
    "hostPath",
    "iscsi",
    "local",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];

fn default(volume: &mut Value) {
    if let Some(status) = child_mut(volume, "status") {
        set_default_str(status, "phase", "Pending");
    }
    let Some(spec) = child_mut(volume, "spec") else { return };
    set_default_str(spec, "persistentVolumeReclaimPolicy", "Retain");
    set_default(spec, "volumeMode", "Filesystem");
    round_up(spec, "capacity");
    if let Some(host_path) = existing_mut(spec, "hostPath") {
        set_default(host_path, "type", "");
    }
    if let Some(iscsi) = existing_mut(spec, "iscsi") {
        set_default_str(iscsi, "iscsiInterface", "default");
    }
    if let Some(rbd) = existing_mut(spec, "rbd") {
        set_default_str(rbd, "pool", "rbd");
        set_default_str(rbd, "user", "admin");
        set_default_str(rbd, "keyring", "/etc/ceph/keyring");
    }
    if let Some(disk) = existing_mut(spec, "azureDisk") {
        set_default(disk, "cachingMode", "ReadWrite");
        set_default(disk, "kind", "Shared");
        set_default(disk, "fsType", "ext4");
        set_default(disk, "readOnly", false);
    }
    if let Some(scale) = existing_mut(spec, "scaleIO") {
        set_default_str(scale, "storageMode", "ThinProvisioned");
        set_default_str(scale, "fsType", "xfs");
    }
}

fn warnings(volume: &Value) -> Vec<String> {
    let recycled =
        field(volume, "spec").is_some_and(|spec| str_at(spec, "persistentVolumeReclaimPolicy") == "Recycle");
    let text = "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the \
                recommended approach is to use dynamic provisioning.";
    if recycled { vec![text.to_owned()] } else { Vec::new() }
}

fn prepare_create(volume: &mut Value) {
    set(volume, "status", json!({"phase": "Pending"}));
    add_finalizer(volume, "kubernetes.io/pv-protection");
}

fn validate(volume: &Value, errors: &mut Errors) {
    let spec = field(volume, "spec").unwrap_or(&Value::Null);
    let path = Path::new("spec");
    if !is_set(spec, "accessModes") {
        errors.required(&path.child("accessModes"), "");
    }
    validate_access_modes(spec, &path, errors);
    validate_capacity(spec, &path, errors);
    let policy = str_at(spec, "persistentVolumeReclaimPolicy");
    if !policy.is_empty() {
        let path = path.child("persistentVolumeReclaimPolicy");
        checks::supported_text(policy, &["Delete", "Recycle", "Retain"], &path, errors);
    }
    validate_node_affinity(spec, &path, errors);
    validate_source(spec, &path, errors);
    checks::optional_text(spec, "storageClassName", &path, errors, names::dns1123_subdomain);
    checks::optional_one_of(spec, "volumeMode", &VOLUME_MODES, &path, errors);
    if field(spec, "volumeAttributesClassName").is_some() {
        if is_set(spec, "volumeAttributesClassName") {
            let check = names::dns1123_subdomain;
            checks::optional_text(spec, "volumeAttributesClassName", &path, errors, check);
        } else {
            errors.required(&path.child("volumeAttributesClassName"), "an empty string is disallowed");
        }
        if field(spec, "csi").is_none() {
            let detail = "has to be specified when using volumeAttributesClassName";
            errors.required(&path.child("csi"), detail);
        }
    }
}

fn validate_capacity(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let capacity = path.child("capacity");
    let list = object_at(spec, "capacity");
    match list {
        Some(list) if !list.is_empty() => {
            if list.len() > 1 || !list.contains_key("storage") {
                let given = field(spec, "capacity").unwrap_or(&Value::Null);
                let message = format!("Unsupported value: {given}: supported values: \"storage\"");
                errors.push(&capacity, Reason::NotSupported, message);
            }
        }
        _ => errors.required(&capacity, ""),
    }
    for (name, amount) in amounts(spec, "capacity") {
        if amount.is_negative() {
            let value = amount.value().into();
            errors.invalid(&capacity.key(name), &value, "must be a valid resource quantity");
        }
        if amount.is_negative() || amount.is_zero() {
            errors.invalid_str(&capacity.key(name), &amount.to_string(), "must be greater than zero");
        }
    }
}

fn validate_node_affinity(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(affinity) = field(spec, "nodeAffinity") else { return };
    let path = path.child("nodeAffinity");
    let required = path.child("required");
    match field(affinity, "required") {
        None => errors.required(&required, "must specify required node constraints"),
        Some(selector) => validate_node_selector(selector, &required, errors),
    }
}

fn validate_source(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let given: Vec<&str> = SOURCES.into_iter().filter(|name| field(spec, name).is_some()).collect();
    for extra in given.iter().skip(1) {
        errors.forbidden(&path.child(extra), "may not specify more than 1 volume type");
    }
    let Some(first) = given.first() else {
        errors.required(path, "must specify a volume type");
        return;
    };
    let source = field(spec, first).unwrap_or(&Value::Null);
    let source_path = path.child(first);
    match *first {
        "hostPath" => {
            checks::required(source, "path", &source_path, errors);
            checks::no_backsteps(str_at(source, "path"), &source_path.child("path"), errors);
            if str_at(source, "path").trim_matches('/').is_empty()
                && str_at(spec, "persistentVolumeReclaimPolicy") == "Recycle"
            {
                let detail = "may not be 'recycle' for a hostPath mount of '/'";
                errors.forbidden(&path.child("persistentVolumeReclaimPolicy"), detail);
            }
        }
        "nfs" => {
            for name in ["server", "path"] {
                checks::required(source, name, &source_path, errors);
            }
            let export = str_at(source, "path");
            if !export.is_empty() && !export.starts_with('/') {
                errors.invalid_str(&source_path.child("path"), export, "must be an absolute path");
            }
        }
        "local" => {
            checks::required(source, "path", &source_path, errors);
            checks::no_backsteps(str_at(source, "path"), &source_path.child("path"), errors);
            if field(spec, "nodeAffinity").is_none() {
                let detail = "Local volume requires node affinity";
                errors.required(&path.child("nodeAffinity"), detail);
            }
        }
        "csi" => {
            match str_at(source, "driver") {
                "" => errors.required(&source_path.child("driver"), ""),
                driver => super::storage::validate_driver_name(driver, &source_path.child("driver"), errors),
            }
            checks::required(source, "volumeHandle", &source_path, errors);
        }
        _ => {}
    }
}

fn validate_update(new: &Value, old: &Value, errors: &mut Errors) {
    let none = json!({});
    let (new, old) = (field(new, "spec").unwrap_or(&none), field(old, "spec").unwrap_or(&none));
    let path = Path::new("spec");
    let source = |spec: &Value, name: &str| {
        let mut source = field(spec, name).cloned();
        // The secret for expansion may be added later.
        if let Some(source) = &mut source
            && name == "csi"
            && field(old, "csi").is_some_and(|csi| field(csi, "controllerExpandSecretRef").is_none())
        {
            remove(source, "controllerExpandSecretRef");
        }
        source
    };
    if SOURCES.iter().any(|name| source(new, name) != source(old, name)) {
        let detail = "spec.persistentvolumesource is immutable after creation";
        errors.forbidden(&path.child("persistentvolumesource"), detail);
    }
    if field(new, "volumeMode") != field(old, "volumeMode") {
        let mode = field(new, "volumeMode").unwrap_or(&Value::Null);
        errors.invalid(&Path::new("volumeMode"), mode, checks::IMMUTABLE);
    }
    let affinity = |spec| field(spec, "nodeAffinity");
    if affinity(old).is_some() && affinity(new) != affinity(old) {
        let detail = "field is immutable, except for updating from beta label to GA";
        errors.invalid(&Path::new("nodeAffinity"), affinity(new).unwrap_or(&Value::Null), detail);
    }
    if field(old, "volumeAttributesClassName").is_some() && field(new, "volumeAttributesClassName").is_none()
    {
        let detail = "update from non-nil value to nil is forbidden";
        errors.forbidden(&path.child("volumeAttributesClassName"), detail);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::causes;
    use super::*;

    fn volume(spec: &Value) -> Value {
        let mut volume = json!({"spec": spec});
        default(&mut volume);
        prepare_create(&mut volume);
        volume
    }

    #[test]
    fn a_new_volume_is_kept_and_protected() {
        let volume = volume(&json!({
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"},
        }));
        assert_eq!(
            volume,
            json!({
                "metadata": {"finalizers": ["kubernetes.io/pv-protection"]},
                "spec": {
                    "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                    "hostPath": {"path": "/x", "type": ""}, "persistentVolumeReclaimPolicy": "Retain",
                    "volumeMode": "Filesystem",
                },
                "status": {"phase": "Pending"},
            })
        );
        assert!(causes(|e| validate(&volume, e)).is_empty());
    }

    #[test]
    fn a_volume_has_one_source_and_a_size() {
        assert_eq!(
            causes(|e| validate(&volume(&json!({})), e)),
            [
                "spec.accessModes FieldValueRequired",
                "spec.capacity FieldValueRequired",
                "spec FieldValueRequired"
            ]
        );
        let two = json!({
            "capacity": {"storage": "0"}, "accessModes": ["ReadWriteOnce"],
            "nfs": {"server": "s", "path": "p"}, "local": {"path": "/x"},
        });
        assert_eq!(
            causes(|e| validate(&volume(&two), e)),
            [
                "spec.capacity[storage] FieldValueInvalid",
                "spec.nfs FieldValueForbidden",
                "spec.nodeAffinity FieldValueRequired",
            ]
        );
    }

    #[test]
    fn the_source_stays() {
        let (old, new) =
            (volume(&json!({"hostPath": {"path": "/a"}})), volume(&json!({"hostPath": {"path": "/b"}})));
        assert_eq!(
            causes(|e| validate_update(&new, &old, e)),
            ["spec.persistentvolumesource FieldValueForbidden"]
        );
        assert!(causes(|e| validate_update(&old, &old, e)).is_empty());
    }
}

//! Volume mounts and devices of a container.

use shoal_objects::{Errors, Path, Value};

use super::volumes::Volumes;
use crate::kinds::access::{at, field, list_at, str_at};
use crate::kinds::checks;

/// Checks `volumeMounts`.
pub fn validate_mounts(container: &Value, volumes: &Volumes<'_>, path: &Path<'_>, errors: &mut Errors) {
    let devices = list_at(container, "volumeDevices");
    let mounts = list_at(container, "volumeMounts");
    let path = path.child("volumeMounts");
    for (i, mount) in mounts.iter().enumerate() {
        let path = path.index(i);
        let (name, mount_path) = (str_at(mount, "name"), str_at(mount, "mountPath"));
        checks::required(mount, "name", &path, errors);
        checks::required(mount, "mountPath", &path, errors);
        if !volumes.contains_key(name) {
            errors.not_found(&path.child("name"), name);
        }
        if mounts[..i].iter().any(|other| str_at(other, "mountPath") == mount_path) {
            errors.invalid_str(&path.child("mountPath"), mount_path, "must be unique");
        }
        if devices.iter().any(|device| str_at(device, "name") == name) {
            errors.invalid_str(&path.child("name"), name, "must not already exist in volumeDevices");
        }
        if devices.iter().any(|device| str_at(device, "devicePath") == mount_path) {
            let detail = "must not already exist as a path in volumeDevices";
            errors.invalid_str(&path.child("mountPath"), mount_path, detail);
        }
        let (sub_path, expression) = (str_at(mount, "subPath"), str_at(mount, "subPathExpr"));
        if !sub_path.is_empty() {
            checks::local_descending_path(sub_path, &path.child("subPath"), errors);
        }
        if !expression.is_empty() {
            let path = path.child("subPathExpr");
            if !sub_path.is_empty() {
                errors.invalid_str(&path, expression, "subPathExpr and subPath are mutually exclusive");
            }
            checks::local_descending_path(expression, &path, errors);
        }
        validate_propagation(mount, container, &path, errors);
        validate_recursive_read_only(mount, &path, errors);
    }
}

fn validate_propagation(mount: &Value, container: &Value, path: &Path<'_>, errors: &mut Errors) {
    checks::optional_one_of(
        mount,
        "mountPropagation",
        &["Bidirectional", "HostToContainer", "None"],
        path,
        errors,
    );
    let privileged = at(container, &["securityContext", "privileged"]).and_then(Value::as_bool) == Some(true);
    if str_at(mount, "mountPropagation") == "Bidirectional" && !privileged {
        let detail = "Bidirectional mount propagation is available only to privileged containers";
        errors.forbidden(&path.child("mountPropagation"), detail);
    }
}

fn validate_recursive_read_only(mount: &Value, path: &Path<'_>, errors: &mut Errors) {
    let given = str_at(mount, "recursiveReadOnly");
    let path = path.child("recursiveReadOnly");
    match given {
        "" | "Disabled" => {}
        "IfPossible" | "Enabled" => {
            if field(mount, "readOnly").and_then(Value::as_bool) != Some(true) {
                errors.forbidden(&path, "may only be specified when readOnly is true");
            }
            if !matches!(str_at(mount, "mountPropagation"), "" | "None") {
                errors
                    .forbidden(&path, "may only be specified when mountPropagation is None or not specified");
            }
        }
        _ => errors.not_supported(&path, given, &["Disabled", "Enabled", "IfPossible"]),
    }
}

/// Checks `volumeDevices`.
pub fn validate_devices(container: &Value, volumes: &Volumes<'_>, path: &Path<'_>, errors: &mut Errors) {
    let mounts = list_at(container, "volumeMounts");
    let devices = list_at(container, "volumeDevices");
    let path = path.child("volumeDevices");
    for (i, device) in devices.iter().enumerate() {
        let path = path.index(i);
        let (name, device_path) = (str_at(device, "name"), str_at(device, "devicePath"));
        checks::required(device, "name", &path, errors);
        match volumes.get(name) {
            None => errors.not_found(&path.child("name"), name),
            Some(volume)
                if field(volume, "persistentVolumeClaim").is_none()
                    && field(volume, "ephemeral").is_none() =>
            {
                let detail =
                    "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                errors.invalid_str(&path.child("name"), name, detail);
            }
            Some(_) => {}
        }
        if devices[..i].iter().any(|other| str_at(other, "name") == name) {
            errors.invalid_str(&path.child("name"), name, "must be unique");
        }
        match device_path {
            "" => errors.required(&path.child("devicePath"), ""),
            given => {
                if devices[..i].iter().any(|other| str_at(other, "devicePath") == given) {
                    errors.invalid_str(&path.child("devicePath"), given, "must be unique");
                }
                checks::no_backsteps(given, &path.child("devicePath"), errors);
            }
        }
        if mounts.iter().any(|mount| str_at(mount, "name") == name) {
            errors.invalid_str(&path.child("name"), name, "must not already exist in volumeMounts");
        }
        if mounts.iter().any(|mount| str_at(mount, "mountPath") == device_path) {
            let detail = "must not already exist as a path in volumeMounts";
            errors.invalid_str(&path.child("devicePath"), device_path, detail);
        }
    }
}

//! storage.k8s.io: StorageClass, VolumeAttributesClass, VolumeAttachment. See [`super::csi`] for the CSI kinds.

use shoal_objects::{Errors, Path, Value, names};

use super::access::{field, is_set, list_at, object_at, set_default, str_at};
use super::config_map::same_map;
use super::{Rules, checks};

/// The rules of StorageClass.
pub const CLASS_RULES: Rules = Rules {
    default: |class| {
        set_default(class, "reclaimPolicy", "Delete");
        set_default(class, "volumeBindingMode", "Immediate");
    },
    validate: validate_class,
    validate_update: validate_class_update,
    ..Rules::NONE
};

/// The rules of VolumeAttributesClass.
pub const ATTRIBUTES_CLASS_RULES: Rules = Rules {
    validate: validate_attributes_class,
    validate_update: validate_attributes_class_update,
    ..Rules::NONE
};

/// The rules of VolumeAttachment.
pub const ATTACHMENT_RULES: Rules =
    Rules { validate: validate_attachment, validate_update: validate_attachment_update, ..Rules::NONE };

const MAX_PARAMETERS: usize = 512;
const MAX_PARAMETERS_BYTES: usize = 256 * 1024;
const MAX_DRIVER_NAME: usize = 63;

fn validate_class(class: &Value, errors: &mut Errors) {
    let provisioner = str_at(class, "provisioner");
    let path = Path::new("provisioner");
    if provisioner.is_empty() {
        errors.required(&path, "");
    } else {
        checks::text(errors, &path, provisioner, names::qualified_name(&provisioner.to_lowercase()));
    }
    validate_parameters(class, true, errors);
    let policy = str_at(class, "reclaimPolicy");
    if !policy.is_empty() {
        checks::supported_text(policy, &["Delete", "Retain"], &Path::new("reclaimPolicy"), errors);
    }
    match str_at(class, "volumeBindingMode") {
        "" => errors.required(&Path::new("volumeBindingMode"), ""),
        mode => {
            let modes = ["Immediate", "WaitForFirstConsumer"];
            checks::supported_text(mode, &modes, &Path::new("volumeBindingMode"), errors);
        }
    }
    let topologies = Path::new("allowedTopologies");
    for (i, term) in list_at(class, "allowedTopologies").iter().enumerate() {
        let term_path = topologies.index(i);
        let expressions = term_path.child("matchLabelExpressions");
        for (j, expression) in list_at(term, "matchLabelExpressions").iter().enumerate() {
            let path = expressions.index(j);
            let key = str_at(expression, "key");
            checks::text(errors, &path.child("key"), key, names::qualified_name(key));
            if !is_set(expression, "values") {
                errors.required(&path.child("values"), "");
            }
        }
    }
}

fn validate_parameters(class: &Value, may_be_empty: bool, errors: &mut Errors) {
    let path = Path::new("parameters");
    let empty = object_at(class, "parameters").is_none_or(|parameters| parameters.is_empty());
    if empty {
        if !may_be_empty {
            errors.required(&path, "must contain at least one key/value pair");
        }
        return;
    }
    let (mut count, mut size) = (0, 0);
    for (key, value) in object_at(class, "parameters").into_iter().flatten() {
        if key.is_empty() {
            errors.invalid_str(&path, key, "field can not be empty.");
        }
        count += 1;
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if count > MAX_PARAMETERS {
        errors.too_long(&path, MAX_PARAMETERS);
    } else if size > MAX_PARAMETERS_BYTES {
        errors.too_long(&path, MAX_PARAMETERS_BYTES);
    }
}

fn validate_class_update(new: &Value, old: &Value, errors: &mut Errors) {
    if !same_map(new, old, "parameters") {
        errors.forbidden(&Path::new("parameters"), "updates to parameters are forbidden.");
    }
    for name in ["provisioner", "reclaimPolicy"] {
        if str_at(new, name) != str_at(old, name) {
            errors.forbidden(&Path::new(name), &format!("updates to {name} are forbidden."));
        }
    }
    if field(new, "volumeBindingMode") != field(old, "volumeBindingMode") {
        let mode = str_at(new, "volumeBindingMode");
        errors.invalid_str(&Path::new("volumeBindingMode"), mode, checks::IMMUTABLE);
    }
}

fn validate_attributes_class(class: &Value, errors: &mut Errors) {
    match str_at(class, "driverName") {
        "" => errors.required(&Path::new("driverName"), ""),
        driver => validate_driver_name(driver, &Path::new("driverName"), errors),
    }
    validate_parameters(class, false, errors);
}

fn validate_attributes_class_update(new: &Value, old: &Value, errors: &mut Errors) {
    if str_at(new, "driverName") != str_at(old, "driverName") {
        errors.forbidden(&Path::new("driverName"), "updates to driverName are forbidden.");
    }
    if !same_map(new, old, "parameters") {
        errors.forbidden(&Path::new("parameters"), "updates to parameters are forbidden.");
    }
}

/// The name of a CSI driver: a domain, upper case allowed.
pub(super) fn validate_driver_name(driver: &str, path: &Path<'_>, errors: &mut Errors) {
    if driver.len() > MAX_DRIVER_NAME {
        errors.too_long(path, MAX_DRIVER_NAME);
    }
    checks::text(errors, path, driver, names::dns1123_subdomain(&driver.to_lowercase()));
}

fn validate_attachment(attachment: &Value, errors: &mut Errors) {
    let spec = field(attachment, "spec").unwrap_or(&Value::Null);
    let path = Path::new("spec");
    match str_at(spec, "attacher") {
        "" => errors.required(&path.child("attacher"), ""),
        attacher => validate_driver_name(attacher, &path.child("attacher"), errors),
    }
    let source = field(spec, "source").unwrap_or(&Value::Null);
    let source_path = path.child("source");
    match (field(source, "persistentVolumeName"), field(source, "inlineVolumeSpec")) {
        (None, None) => {
            let detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
            errors.required(&source_path, detail);
        }
        (Some(_), Some(_)) => {
            let detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
            errors.invalid(&source_path, source, detail);
        }
        (Some(name), None) if name == "" => {
            errors.required(
                &source_path.child("persistentVolumeName"),
                "must specify non empty persistentVolumeName",
            );
        }
        _ => {}
    }
    let node = str_at(spec, "nodeName");
    checks::text(errors, &path.child("nodeName"), node, names::dns1123_subdomain(node));
}

fn validate_attachment_update(new: &Value, old: &Value, errors: &mut Errors) {
    if field(new, "spec") != field(old, "spec") {
        let spec = field(new, "spec").unwrap_or(&Value::Null);
        errors.invalid(&Path::new("spec"), spec, checks::IMMUTABLE);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::causes;
    use super::*;
    use serde_json::json;

    #[test]
    fn a_class_deletes_and_binds_at_once_unless_told_otherwise() {
        let mut class = json!({"provisioner": "example.test/p"});
        (CLASS_RULES.default)(&mut class);
        assert_eq!(
            class,
            json!({"provisioner": "example.test/p", "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"})
        );
        assert!(causes(|e| validate_class(&class, e)).is_empty());
        let mut other = class.clone();
        other["parameters"] = json!({"a": "b"});
        other["reclaimPolicy"] = "Retain".into();
        assert_eq!(
            causes(|e| validate_class_update(&other, &class, e)),
            ["parameters FieldValueForbidden", "reclaimPolicy FieldValueForbidden"]
        );
    }

    #[test]
    fn an_attachment_has_one_source() {
        let bad = json!({"spec": {"attacher": "a.test", "nodeName": "n", "source": {}}});
        assert_eq!(causes(|e| validate_attachment(&bad, e)), ["spec.source FieldValueRequired"]);
        let good =
            json!({"spec": {"attacher": "a.test", "nodeName": "n", "source": {"persistentVolumeName": "v"}}});
        assert!(causes(|e| validate_attachment(&good, e)).is_empty());
        assert_eq!(causes(|e| validate_attachment_update(&good, &bad, e)), ["spec FieldValueInvalid"]);
    }

    #[test]
    fn attributes_are_given_and_stay() {
        let class = json!({"driverName": "Driver.test"});
        assert_eq!(causes(|e| validate_attributes_class(&class, e)), ["parameters FieldValueRequired"]);
    }
}

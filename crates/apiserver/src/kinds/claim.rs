//! PersistentVolumeClaim.

use serde_json::json;
use shoal_objects::quantity::Quantity;
use shoal_objects::selector::validate_label_selector;
use shoal_objects::{Errors, Path, Value, meta, names};

use super::access::{
    carry_over, child_mut, existing_mut, field, is_set, list_at, object_at, remove, set, set_default,
    set_default_str, str_at,
};
use super::resource_lists::{amount, amounts, round_up, validate_amount};
use super::{Rules, checks};

/// The rules of PersistentVolumeClaim.
pub const RULES: Rules = Rules {
    default,
    prepare_create,
    prepare_update: |new, _| {
        if let Some(spec) = existing_mut(new, "spec") {
            align_data_sources(spec);
        }
    },
    validate,
    validate_update,
    validate_status,
    warnings: |claim| {
        let old = meta::annotation(claim, OLD_CLASS).is_some();
        let text = format!(
            "metadata.annotations[{OLD_CLASS}]: deprecated since v1.8; use \"storageClassName\" attribute instead"
        );
        if old { vec![text] } else { Vec::new() }
    },
    ..Rules::NONE
};

/// What volumes can be asked for.
pub(super) const ACCESS_MODES: [&str; 4] =
    ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
pub(super) const VOLUME_MODES: [&str; 2] = ["Block", "Filesystem"];

const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const RESIZE_STATUSES: [&str; 5] = [
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];

fn default(claim: &mut Value) {
    if let Some(spec) = child_mut(claim, "spec") {
        default_spec(spec);
    }
    if let Some(status) = child_mut(claim, "status") {
        set_default_str(status, "phase", "Pending");
        round_up(status, "capacity");
    }
}

/// Fills the spec of a claim or of a claim's template.
pub fn default_spec(spec: &mut Value) {
    set_default(spec, "volumeMode", "Filesystem");
    if let Some(resources) = child_mut(spec, "resources") {
        round_up(resources, "requests");
        round_up(resources, "limits");
    }
}

fn prepare_create(claim: &mut Value) {
    set(claim, "status", json!({"phase": "Pending"}));
    add_finalizer(claim, "kubernetes.io/pvc-protection");
    if let Some(spec) = existing_mut(claim, "spec") {
        align_data_sources(spec);
    }
}

/// What admission does to objects that must not vanish while in use.
pub(super) fn add_finalizer(obj: &mut Value, finalizer: &str) {
    let Some(metadata) = child_mut(obj, "metadata") else { return };
    let mut finalizers = list_at(metadata, "finalizers").to_vec();
    if !finalizers.iter().any(|f| f == finalizer) {
        finalizers.push(finalizer.into());
        set(metadata, "finalizers", finalizers);
    }
}

/// `dataSource` and `dataSourceRef` say the same, unless the reference leads to another namespace.
fn align_data_sources(spec: &mut Value) {
    match (field(spec, "dataSource").cloned(), field(spec, "dataSourceRef").cloned()) {
        (Some(source), None) => set(spec, "dataSourceRef", source),
        (None, Some(mut reference)) if !is_set(&reference, "namespace") => {
            remove(&mut reference, "namespace");
            set(spec, "dataSource", reference);
        }
        _ => {}
    }
}

fn validate(claim: &Value, errors: &mut Errors) {
    validate_spec(field(claim, "spec").unwrap_or(&Value::Null), &Path::new("spec"), errors);
}

/// Checks the spec of a claim or of a claim's template.
pub fn validate_spec(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    if !is_set(spec, "accessModes") {
        errors.required(&path.child("accessModes"), "at least 1 access mode is required");
    }
    if let Some(selector) = field(spec, "selector") {
        validate_label_selector(selector, &path.child("selector"), errors);
    }
    validate_access_modes(spec, path, errors);
    let resources = path.child("resources");
    let storage = resources.key("storage");
    match amount(field(spec, "resources").unwrap_or(&Value::Null), "requests", "storage") {
        None => errors.required(&storage, ""),
        Some(size) if size.is_negative() || size.is_zero() => {
            errors.invalid_str(&storage, &size.to_string(), "must be greater than zero");
        }
        Some(size) => validate_amount("storage", &size, &storage, errors),
    }
    checks::optional_text(spec, "storageClassName", path, errors, names::dns1123_subdomain);
    checks::optional_one_of(spec, "volumeMode", &VOLUME_MODES, path, errors);
    validate_data_source(spec, "dataSource", path, errors);
    validate_data_source(spec, "dataSourceRef", path, errors);
    if let (Some(source), Some(reference)) = (field(spec, "dataSource"), field(spec, "dataSourceRef")) {
        let same =
            ["apiGroup", "kind", "name"].iter().all(|name| field(source, name) == field(reference, name));
        let detail = if is_set(reference, "namespace") {
            Some("may not be specified when dataSourceRef.namespace is specified")
        } else {
            (!same).then_some("must match dataSourceRef")
        };
        if let Some(detail) = detail {
            errors.invalid_str(path, &path.child("dataSource").to_string(), detail);
        }
    }
    checks::optional_text(spec, "volumeAttributesClassName", path, errors, names::dns1123_subdomain);
}

/// Known modes, and the exclusive one alone.
pub(super) fn validate_access_modes(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let modes: Vec<&str> = list_at(spec, "accessModes").iter().filter_map(Value::as_str).collect();
    for mode in &modes {
        checks::supported_text(mode, &ACCESS_MODES, &path.child("accessModes"), errors);
    }
    let known = modes.iter().filter(|mode| ACCESS_MODES.contains(mode));
    if modes.contains(&"ReadWriteOncePod") && known.clone().any(|mode| *mode != "ReadWriteOncePod") {
        errors.forbidden(&path.child("accessModes"), "may not use ReadWriteOncePod with other access modes");
    }
}

fn validate_data_source(spec: &Value, name: &str, path: &Path<'_>, errors: &mut Errors) {
    let Some(source) = field(spec, name) else { return };
    let path = path.child(name);
    for name in ["name", "kind"] {
        checks::required(source, name, &path, errors);
    }
    let (group, kind) = (str_at(source, "apiGroup"), str_at(source, "kind"));
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        errors.invalid_str(&path, kind, detail);
    }
    checks::optional_text(source, "apiGroup", &path, errors, names::dns1123_subdomain);
    checks::optional_text(source, "namespace", &path, errors, names::dns1123_label);
}

fn validate_update(new: &Value, old: &Value, errors: &mut Errors) {
    let none = json!({});
    let new_spec = field(new, "spec").unwrap_or(&none);
    let old_spec = field(old, "spec").unwrap_or(&none);
    let (mut now, mut before) = (new_spec.clone(), old_spec.clone());
    // The controller that binds the claim names its volume, once.
    if !is_set(old_spec, "volumeName") {
        carry_over(&mut before, new_spec, "volumeName");
    }
    let old_class = meta::annotation(old, OLD_CLASS);
    if old_class != meta::annotation(new, OLD_CLASS) {
        let metadata = Path::new("metadata");
        let annotations = metadata.child("annotations");
        let value = meta::annotation(new, OLD_CLASS).unwrap_or_default();
        errors.invalid_str(&annotations.key(OLD_CLASS), value, checks::IMMUTABLE);
    }
    if let Some(class) = field(new_spec, "storageClassName")
        && field(old_spec, "storageClassName").is_none()
        && old_class.is_none_or(|old| class == old)
    {
        remove(&mut now, "storageClassName");
    }
    let size = |spec: &Value| amount(field(spec, "resources").unwrap_or(&Value::Null), "requests", "storage");
    let (new_size, old_size) = (size(new_spec), size(old_spec));
    let bound = field(new, "status").is_some_and(|status| str_at(status, "phase") == "Bound");
    if (bound || new_size == old_size)
        && let (Some(now), Some(before)) = (requests_mut(&mut now), requests_mut(&mut before))
    {
        carry_over(now, before, "storage");
    }
    if bound && field(new_spec, "volumeAttributesClassName").is_some() {
        carry_over(&mut now, old_spec, "volumeAttributesClassName");
    }
    let path = Path::new("spec");
    if now != before {
        let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName \
                      for bound claims";
        errors.forbidden(&path, detail);
    }
    if let (Some(new_size), Some(old_size)) = (&new_size, &old_size)
        && new_size < old_size
    {
        // Asking for less again is how one recovers from an expansion that cannot succeed.
        let status = field(old, "status").unwrap_or(&Value::Null);
        let has = amount(status, "capacity", "storage").unwrap_or(Quantity::ZERO);
        if *new_size <= has {
            let resources = path.child("resources");
            let requests = resources.child("requests");
            errors.forbidden(&requests.child("storage"), "field can not be less than status.capacity");
        }
    }
    if field(new_spec, "volumeMode") != field(old_spec, "volumeMode") {
        let mode = field(new_spec, "volumeMode").unwrap_or(&Value::Null);
        errors.invalid(&Path::new("volumeMode"), mode, checks::IMMUTABLE);
    }
    validate_attributes_class_kept(new_spec, old_spec, errors);
}

fn requests_mut(spec: &mut Value) -> Option<&mut Value> {
    existing_mut(spec, "resources").and_then(|resources| existing_mut(resources, "requests"))
}

fn validate_attributes_class_kept(new: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    let class = path.child("volumeAttributesClassName");
    if field(old, "volumeAttributesClassName").is_none() {
        return;
    }
    match field(new, "volumeAttributesClassName") {
        None => errors.forbidden(&class, "update from non-nil value to nil is forbidden"),
        Some(new) if new == "" && !is_set(old, "volumeAttributesClassName") => {}
        Some(new) if new == "" => {
            errors.forbidden(&class, "update from non-nil value to an empty string is forbidden");
        }
        Some(_) => {}
    }
}

fn validate_status(new: &Value, _old: &Value, errors: &mut Errors) {
    let Some(status) = field(new, "status") else { return };
    let path = Path::new("status");
    for list in ["capacity", "allocatedResources"] {
        let list_path = path.child(list);
        for (name, amount) in amounts(status, list) {
            if amount.is_negative() {
                let value = amount.value().into();
                errors.invalid(&list_path.key(name), &value, "must be a valid resource quantity");
            }
        }
    }
    for (_, resize) in object_at(status, "allocatedResourceStatuses").into_iter().flatten() {
        let path = path.child("allocatedResourceStatus");
        checks::supported_text(resize.as_str().unwrap_or_default(), &RESIZE_STATUSES, &path, errors);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::causes;
    use super::*;

    fn claim(size: &str) -> Value {
        let mut claim = json!({"metadata": {"name": "a"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": {"requests": {"storage": size}},
        }});
        default(&mut claim);
        prepare_create(&mut claim);
        claim
    }

    #[test]
    fn a_new_claim_is_pending_and_protected() {
        assert_eq!(
            claim("1Gi"),
            json!({
                "metadata": {"name": "a", "finalizers": ["kubernetes.io/pvc-protection"]},
                "spec": {
                    "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
                    "storageClassName": "", "volumeMode": "Filesystem",
                },
                "status": {"phase": "Pending"},
            })
        );
        assert!(causes(|e| validate(&claim("1Gi"), e)).is_empty());
    }

    #[test]
    fn it_asks_for_a_mode_and_a_size() {
        let text = |spec: Value| {
            let mut errors = Errors::new();
            validate(&json!({"spec": spec}), &mut errors);
            errors.to_string()
        };
        assert_eq!(
            text(json!({"resources": {}})),
            "[spec.accessModes: Required value: at least 1 access mode is required, \
             spec.resources[storage]: Required value]"
        );
        assert_eq!(
            text(json!({"accessModes": ["Nope"], "resources": {"requests": {"storage": "-1"}}})),
            "[spec.accessModes: Unsupported value: \"Nope\": supported values: \"ReadOnlyMany\", \"ReadWriteMany\", \
             \"ReadWriteOnce\", \"ReadWriteOncePod\", spec.resources[storage]: Invalid value: \"-1\": \
             must be greater than zero]"
        );
    }

    #[test]
    fn only_a_bound_claim_grows() {
        let old = claim("1Gi");
        assert_eq!(causes(|e| validate_update(&claim("2Gi"), &old, e)), ["spec FieldValueForbidden"]);
        let mut other = old.clone();
        other["spec"]["accessModes"] = json!(["ReadOnlyMany"]);
        assert_eq!(causes(|e| validate_update(&other, &old, e)), ["spec FieldValueForbidden"]);
        let bound = |size: &str| {
            let mut bound = claim(size);
            bound["status"] = json!({"phase": "Bound", "capacity": {"storage": "2Gi"}});
            bound
        };
        assert!(causes(|e| validate_update(&bound("3Gi"), &bound("2Gi"), e)).is_empty());
        assert_eq!(
            causes(|e| validate_update(&bound("1Gi"), &bound("2Gi"), e)),
            ["spec.resources.requests.storage FieldValueForbidden"]
        );
        assert!(causes(|e| validate_update(&bound("3Gi"), &bound("4Gi"), e)).is_empty());
    }

    #[test]
    fn a_claim_is_bound_once() {
        let old = claim("1Gi");
        let mut bound = old.clone();
        bound["spec"]["volumeName"] = "v".into();
        assert!(causes(|e| validate_update(&bound, &old, e)).is_empty());
        assert_eq!(causes(|e| validate_update(&old, &bound, e)), ["spec FieldValueForbidden"]);
    }

    #[test]
    fn both_data_sources_say_the_same() {
        let mut spec = json!({"dataSource": {"kind": "PersistentVolumeClaim", "name": "x"}});
        align_data_sources(&mut spec);
        assert_eq!(spec["dataSourceRef"], spec["dataSource"]);
    }
}

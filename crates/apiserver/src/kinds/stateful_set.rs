//! StatefulSet.

use shoal_objects::invalid::Reason;
use shoal_objects::meta::{validate_annotations, validate_labels};
use shoal_objects::{Errors, Path, Value};

use super::Rules;
use super::access::{
    at, child_mut, equal_but, existing_mut, field, list_mut, part, set_default, set_default_str, str_at,
};
use super::pod::defaults::default_template_of;
use super::pod::warnings;
use super::pod_template::{template, validate_labels_match, validate_restarts_always, validate_selector};
use super::{checks, claim};

const FORBIDDEN: &str = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";

const MUTABLE: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

/// The rules of StatefulSet.
pub const RULES: Rules = Rules {
    default,
    validate,
    validate_update,
    validate_status,
    warnings: warnings::of_owner,
    ..Rules::NONE
};

fn default(set: &mut Value) {
    let Some(spec) = child_mut(set, "spec") else { return };
    default_template_of(spec);
    set_default_str(spec, "podManagementPolicy", "OrderedReady");
    if let Some(strategy) = child_mut(spec, "updateStrategy") {
        if str_at(strategy, "type").is_empty() {
            set_default_str(strategy, "type", "RollingUpdate");
            child_mut(strategy, "rollingUpdate");
        }
        if str_at(strategy, "type") == "RollingUpdate"
            && let Some(rolling) = existing_mut(strategy, "rollingUpdate")
        {
            set_default(rolling, "partition", 0);
        }
    }
    if let Some(policy) = child_mut(spec, "persistentVolumeClaimRetentionPolicy") {
        set_default_str(policy, "whenDeleted", "Retain");
        set_default_str(policy, "whenScaled", "Retain");
    }
    set_default(spec, "replicas", 1);
    set_default(spec, "revisionHistoryLimit", 10);
    for claim in list_mut(spec, "volumeClaimTemplates") {
        default_claim_template(claim);
    }
}

/// A claim template is a whole PersistentVolumeClaim.
fn default_claim_template(template: &mut Value) {
    set_default_str(template, "apiVersion", "v1");
    set_default_str(template, "kind", "PersistentVolumeClaim");
    child_mut(template, "metadata");
    if let Some(spec) = child_mut(template, "spec") {
        claim::default_spec(spec);
    }
    if let Some(status) = child_mut(template, "status") {
        set_default_str(status, "phase", "Pending");
    }
}

fn validate(set: &Value, errors: &mut Errors) {
    let spec = part(set, "spec");
    let path = Path::new("spec");
    match str_at(spec, "podManagementPolicy") {
        "" => errors.required(&path.child("podManagementPolicy"), ""),
        "OrderedReady" | "Parallel" => {}
        other => {
            let detail = "must be 'OrderedReady' or 'Parallel'";
            errors.invalid_str(&path.child("podManagementPolicy"), other, detail);
        }
    }
    validate_strategy(spec, &path.child("updateStrategy"), errors);
    if let Some(policy) = field(spec, "persistentVolumeClaimRetentionPolicy") {
        let path = path.child("persistentVolumeClaimRetentionPolicy");
        for when in ["whenDeleted", "whenScaled"] {
            checks::supported_text(str_at(policy, when), &["Retain", "Delete"], &path.child(when), errors);
        }
    }
    checks::not_negative(spec, "replicas", &path, errors);
    checks::not_negative(spec, "minReadySeconds", &path, errors);
    if let Some(ordinals) = field(spec, "ordinals") {
        checks::not_negative(ordinals, "start", &path.child("ordinals"), errors);
    }
    validate_selector(spec, "empty selector is invalid for statefulset", &path, errors);
    validate_labels_match(spec, &path, errors);
    validate_template(spec, &path.child("template"), errors);
}

/// The pod spec itself is not checked: its mounts may name claim templates, and the pods are checked when made.
fn validate_template(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let template = template(spec);
    if let Some(labels) = at(template, &["metadata", "labels"]).and_then(Value::as_object) {
        validate_labels(labels, &path.child("labels"), errors);
    }
    if let Some(annotations) = at(template, &["metadata", "annotations"]).and_then(Value::as_object) {
        validate_annotations(annotations, &path.child("annotations"), errors);
    }
    validate_restarts_always(template, "StatefulSet", path, errors);
}

fn validate_strategy(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let strategy = part(spec, "updateStrategy");
    let rolling_path = path.child("rollingUpdate");
    match (str_at(strategy, "type"), field(strategy, "rollingUpdate")) {
        ("", _) => errors.required(path, ""),
        ("OnDelete", Some(rolling)) => {
            errors.invalid(&rolling_path, rolling, "only allowed for updateStrategy 'RollingUpdate'");
        }
        ("OnDelete", None) | ("RollingUpdate", None) => {}
        ("RollingUpdate", Some(rolling)) => {
            checks::not_negative(rolling, "partition", &rolling_path, errors);
            if let Some(unavailable) = field(rolling, "maxUnavailable") {
                let path = rolling_path.child("maxUnavailable");
                checks::int_or_percent(unavailable, &path, errors);
                if checks::int_or_percent_number(unavailable) == 0 {
                    errors.invalid(&path, unavailable, "cannot be 0");
                }
                checks::not_more_than_100_percent(unavailable, &path, errors);
            }
        }
        (other, rolling) => {
            let rolling = rolling.unwrap_or(&Value::Null);
            let value = format!("{{\"Type\":{other:?},\"RollingUpdate\":{rolling}}}");
            let detail = "must be 'RollingUpdate' or 'OnDelete'";
            errors.push(path, Reason::Invalid, format!("Invalid value: {value}: {detail}"));
        }
    }
}

fn validate_update(new: &Value, old: &Value, errors: &mut Errors) {
    if !equal_but(part(new, "spec"), part(old, "spec"), &MUTABLE) {
        errors.forbidden(&Path::new("spec"), FORBIDDEN);
    }
}

fn validate_status(new: &Value, old: &Value, errors: &mut Errors) {
    let counters = [
        "replicas",
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
        "observedGeneration",
        "collisionCount",
    ];
    let bounded = ["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"];
    super::replica_set::validate_counters(new, old, &counters, &bounded, errors);
}

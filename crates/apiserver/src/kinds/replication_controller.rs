//! ReplicationController.

use shoal_objects::selector::LabelSelector;
use shoal_objects::{Errors, Map, Path, Value};

use super::Rules;
use super::access::{at, child_mut, field, object_at, part, set, set_default};
use super::checks;
use super::pod::defaults::default_template_of;
use super::pod::warnings;
use super::pod_template::validate_long_running;

/// The rules of ReplicationController.
pub const RULES: Rules = Rules {
    default,
    validate,
    validate_status: super::replica_set::validate_status,
    warnings: warnings::of_owner,
    ..Rules::NONE
};

/// Selector and labels default to the labels of the template.
fn default(controller: &mut Value) {
    let labels = at(controller, &["spec", "template", "metadata", "labels"]).cloned();
    let Some(spec) = child_mut(controller, "spec") else { return };
    set_default(spec, "replicas", 1);
    if field(spec, "template").is_some() {
        default_template_of(spec);
    }
    let Some(labels) = labels else { return };
    if object_at(spec, "selector").is_none_or(Map::is_empty) {
        set(spec, "selector", labels.clone());
    }
    if let Some(metadata) = child_mut(controller, "metadata")
        && object_at(metadata, "labels").is_none_or(Map::is_empty)
    {
        set(metadata, "labels", labels);
    }
}

fn validate(controller: &Value, errors: &mut Errors) {
    let spec = part(controller, "spec");
    let path = Path::new("spec");
    checks::not_negative(spec, "minReadySeconds", &path, errors);
    let selector = object_at(spec, "selector").filter(|s| !s.is_empty());
    if selector.is_none() {
        errors.required(&path.child("selector"), "");
    }
    checks::not_negative(spec, "replicas", &path, errors);
    if field(spec, "template").is_none() {
        errors.required(&path.child("template"), "");
        return;
    }
    let labels = at(spec, &["template", "metadata", "labels"]);
    let selected = |labels: Option<&Map>| {
        selector.is_none_or(|selector| LabelSelector::from_labels(selector).matches_labels(labels))
    };
    if !selected(labels.and_then(Value::as_object)) {
        let detail = "`selector` does not match template `labels`";
        let path = path.child("template");
        let path = path.child("metadata");
        errors.invalid(&path.child("labels"), labels.unwrap_or(&Value::Null), detail);
    }
    validate_long_running(spec, "ReplicationController", &path, errors);
}

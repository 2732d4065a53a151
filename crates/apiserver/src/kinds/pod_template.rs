//! PodTemplate, and what all kinds with a pod template check about it.

use shoal_objects::selector::{LabelSelector, validate_label_selector};
use shoal_objects::{Errors, Path, Value};

use super::Rules;
use super::access::{at, field, list_at, object_at, part, str_at};
use super::pod::defaults::default_template_of;
use super::pod::validate::validate_template;

const NO_MATCH: &str = "`selector` does not match template `labels`";

/// The rules of PodTemplate.
pub const RULES: Rules = Rules {
    default: default_template_of,
    validate: |object, errors| validate_template(template(object), &Path::new("template"), errors),
    ..Rules::NONE
};

/// The `template` of a spec; nothing when there is none.
pub fn template(spec: &Value) -> &Value {
    part(spec, "template")
}

/// Checks a required `selector` that must not select everything. `empty` is what is said of an empty one.
pub fn validate_selector(spec: &Value, empty: &str, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child("selector");
    let Some(selector) = field(spec, "selector") else {
        errors.required(&path, "");
        return;
    };
    validate_label_selector(selector, &path, errors);
    if selects_everything(selector) {
        errors.invalid(&path, selector, empty);
    }
}

/// Whether a selector object has no condition at all.
pub fn selects_everything(selector: &Value) -> bool {
    object_at(selector, "matchLabels").is_none_or(|labels| labels.is_empty())
        && list_at(selector, "matchExpressions").is_empty()
}

/// The template's labels must be selected by the owner's selector; an absent selector selects nothing.
pub fn validate_labels_match(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Ok(selector) = LabelSelector::from_object(field(spec, "selector")) else {
        let given = part(spec, "selector");
        errors.invalid(&path.child("selector"), given, "invalid label selector");
        return;
    };
    let labels = at(spec, &["template", "metadata", "labels"]);
    if !selector.matches_labels(labels.and_then(Value::as_object)) {
        let path = path.child("template");
        let path = path.child("metadata");
        errors.invalid(&path.child("labels"), labels.unwrap_or(&Value::Null), NO_MATCH);
    }
}

/// Checks the template of a kind whose pods run forever.
pub fn validate_long_running(spec: &Value, kind: &str, path: &Path<'_>, errors: &mut Errors) {
    let template = template(spec);
    let path = path.child("template");
    validate_template(template, &path, errors);
    validate_restarts_always(template, kind, &path, errors);
}

/// Pods that run forever are always restarted and have no deadline.
pub fn validate_restarts_always(template: &Value, kind: &str, path: &Path<'_>, errors: &mut Errors) {
    let Some(spec) = field(template, "spec") else { return };
    let path = path.child("spec");
    let policy = str_at(spec, "restartPolicy");
    if policy != "Always" {
        errors.not_supported(&path.child("restartPolicy"), policy, &["Always"]);
    }
    if field(spec, "activeDeadlineSeconds").is_some() {
        let detail = format!("activeDeadlineSeconds in {kind} is not Supported");
        errors.forbidden(&path.child("activeDeadlineSeconds"), &detail);
    }
}

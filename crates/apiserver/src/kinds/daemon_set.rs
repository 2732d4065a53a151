//! DaemonSet.

use shoal_objects::selector::validate_label_selector;
use shoal_objects::{Errors, Path, Value, meta};

use super::Rules;
use super::access::{at, child_mut, field, part, set, set_default, set_default_str, str_at};
use super::checks;
use super::pod::defaults::default_template_of;
use super::pod::warnings;
use super::pod_template::{selects_everything, validate_labels_match, validate_long_running};

/// Where the template generation of old API versions is kept.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// The rules of DaemonSet.
pub const RULES: Rules = Rules {
    default,
    prepare_create: |set| set_template_generation(set, 1),
    prepare_update,
    validate,
    validate_update,
    validate_status,
    warnings: warnings::of_owner,
    ..Rules::NONE
};

fn default(set: &mut Value) {
    let Some(spec) = child_mut(set, "spec") else { return };
    default_template_of(spec);
    set_default(spec, "revisionHistoryLimit", 10);
    let Some(strategy) = child_mut(spec, "updateStrategy") else { return };
    set_default_str(strategy, "type", "RollingUpdate");
    if str_at(strategy, "type") == "RollingUpdate"
        && let Some(rolling) = child_mut(strategy, "rollingUpdate")
    {
        set_default(rolling, "maxUnavailable", 1);
        set_default(rolling, "maxSurge", 0);
    }
}

fn set_template_generation(daemon_set: &mut Value, generation: i64) {
    if let Some(annotations) = child_mut(daemon_set, "metadata").and_then(|m| child_mut(m, "annotations")) {
        set(annotations, TEMPLATE_GENERATION, generation.to_string());
    }
}

/// The template generation counts changes of the template; clients cannot set it.
fn prepare_update(new: &mut Value, old: &Value) {
    let before = meta::annotation(old, TEMPLATE_GENERATION).and_then(|n| n.parse::<i64>().ok()).unwrap_or(1);
    let changed = at(new, &["spec", "template"]) != at(old, &["spec", "template"]);
    set_template_generation(new, before.saturating_add(i64::from(changed)));
}

fn validate(set: &Value, errors: &mut Errors) {
    let spec = part(set, "spec");
    let path = Path::new("spec");
    if let Some(selector) = field(spec, "selector") {
        validate_label_selector(selector, &path.child("selector"), errors);
    }
    validate_labels_match(spec, &path, errors);
    if let Some(selector) = field(spec, "selector").filter(|s| selects_everything(s)) {
        errors.invalid(&path.child("selector"), selector, "empty selector is invalid for daemonset");
    }
    validate_long_running(spec, "DaemonSet", &path, errors);
    checks::not_negative(spec, "minReadySeconds", &path, errors);
    if let Some(strategy) = field(spec, "updateStrategy") {
        validate_strategy(strategy, &path.child("updateStrategy"), errors);
    }
    checks::not_negative(spec, "revisionHistoryLimit", &path, errors);
}

fn validate_strategy(strategy: &Value, path: &Path<'_>, errors: &mut Errors) {
    let rolling_path = path.child("rollingUpdate");
    match (str_at(strategy, "type"), field(strategy, "rollingUpdate")) {
        ("OnDelete", _) => {}
        ("RollingUpdate", None) => errors.required(&rolling_path, ""),
        ("RollingUpdate", Some(rolling)) => {
            let unavailable = part(rolling, "maxUnavailable");
            let surge = part(rolling, "maxSurge");
            for (name, value) in [("maxUnavailable", unavailable), ("maxSurge", surge)] {
                checks::int_or_percent(value, &rolling_path.child(name), errors);
                checks::not_more_than_100_percent(value, &rolling_path.child(name), errors);
            }
            let zero = |v| checks::int_or_percent_number(v) == 0;
            if !zero(unavailable) && !zero(surge) {
                let detail = "may not be set when maxUnavailable is non-zero";
                errors.invalid(&rolling_path.child("maxSurge"), surge, detail);
            } else if zero(unavailable) && zero(surge) {
                errors.required(&rolling_path.child("maxUnavailable"), "cannot be 0 when maxSurge is 0");
            }
        }
        (other, _) => errors.not_supported(&path.child("type"), other, &["RollingUpdate", "OnDelete"]),
    }
}

fn validate_update(new: &Value, old: &Value, errors: &mut Errors) {
    let (new, old) = (part(new, "spec"), part(old, "spec"));
    checks::immutable(new, old, "selector", &Path::new("spec"), errors);
}

fn validate_status(new: &Value, old: &Value, errors: &mut Errors) {
    let counters = [
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "observedGeneration",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
        "collisionCount",
    ];
    super::replica_set::validate_counters(new, old, &counters, &[], errors);
}

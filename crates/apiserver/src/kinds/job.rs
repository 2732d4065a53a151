//! Job: defaults, the generated selector, validation and what may change.

use serde_json::json;
use shoal_objects::selector::{LabelSelector, validate_label_selector};
use shoal_objects::{Errors, Map, Path, Value, meta, names};

use super::Rules;
use super::access::{
    at, bool_at, carry_over, child_mut, existing_mut, field, int_at, list_at, list_mut, object_at, part, set,
    set_default, set_default_str, str_at,
};
use super::checks;
use super::pod::defaults::default_template_of;
use super::pod::validate::validate_template;
use super::pod::warnings;
use super::pod_template::{template, validate_labels_match};

const UID_LABEL: &str = "batch.kubernetes.io/controller-uid";
const UID_LABELS: [&str; 2] = [UID_LABEL, "controller-uid"];
const NAME_LABELS: [&str; 2] = ["batch.kubernetes.io/job-name", "job-name"];

const MAX_INDEXED_PARALLELISM: i64 = 100_000;

/// The rules of Job.
pub const RULES: Rules = Rules {
    default,
    prepare_create,
    validate,
    validate_update,
    validate_status,
    warnings: warnings::of_owner,
    ..Rules::NONE
};

fn default(job: &mut Value) {
    let Some(spec) = child_mut(job, "spec") else { return };
    default_template_of(spec);
    if field(spec, "completions").is_none() && field(spec, "parallelism").is_none() {
        set(spec, "completions", 1);
    }
    set_default(spec, "parallelism", 1);
    let per_index = field(spec, "backoffLimitPerIndex").is_some();
    set_default(spec, "backoffLimit", if per_index { i32::MAX } else { 6 });
    set_default(spec, "completionMode", "NonIndexed");
    set_default(spec, "suspend", false);
    set_default(spec, "manualSelector", false);
    let failure_policy = field(spec, "podFailurePolicy").is_some();
    let replacement = if failure_policy { "Failed" } else { "TerminatingOrFailed" };
    set_default(spec, "podReplacementPolicy", replacement);
    if let Some(policy) = existing_mut(spec, "podFailurePolicy") {
        for rule in list_mut(policy, "rules") {
            for pattern in list_mut(rule, "onPodConditions") {
                set_default_str(pattern, "status", "True");
            }
        }
    }
    labels_from_template(job);
}

/// A job without labels takes those of its template.
fn labels_from_template(job: &mut Value) {
    let Some(labels) = at(job, &["spec", "template", "metadata", "labels"]).cloned() else { return };
    if let Some(metadata) = child_mut(job, "metadata")
        && object_at(metadata, "labels").is_none_or(Map::is_empty)
    {
        set(metadata, "labels", labels);
    }
}

/// Unless the user manages the selector, it is made from the job's uid, and the template labelled to match.
fn prepare_create(job: &mut Value) {
    let (name, uid) = (meta::name(job).to_owned(), meta::uid(job).to_owned());
    let Some(spec) = child_mut(job, "spec") else { return };
    if !bool_at(spec, "manualSelector") {
        let labels = child_mut(spec, "template")
            .and_then(|template| child_mut(template, "metadata"))
            .and_then(|metadata| child_mut(metadata, "labels"));
        if let Some(labels) = labels {
            // Labels the user gave stay; validation refuses them when they differ.
            NAME_LABELS.iter().for_each(|key| set_default(labels, key, name.as_str()));
            UID_LABELS.iter().for_each(|key| set_default(labels, key, uid.as_str()));
        }
        if let Some(labels) =
            child_mut(spec, "selector").and_then(|selector| child_mut(selector, "matchLabels"))
        {
            set_default(labels, UID_LABEL, uid);
        }
    }
    labels_from_template(job);
}

fn validate(job: &Value, errors: &mut Errors) {
    let spec = part(job, "spec");
    let path = Path::new("spec");
    validate_generated_selector(job, spec, errors);
    validate_spec(spec, &path, errors);
    match field(spec, "selector") {
        Some(selector) => validate_label_selector(selector, &path.child("selector"), errors),
        None => errors.required(&path.child("selector"), ""),
    }
    validate_labels_match(spec, &path, errors);
    let completions = int_at(spec, "completions").unwrap_or(0);
    if str_at(spec, "completionMode") == "Indexed" && completions > 0 {
        let name = meta::name(job);
        let longest = format!("{name}-{}", completions - 1);
        for message in names::dns1123_label(&longest) {
            let detail = format!("will not able to create pod with invalid DNS label: {longest}: {message}");
            errors.invalid_str(&Path::new("metadata").child("name"), name, &detail);
        }
    }
}

/// A generated selector and the labels it selects must be what the server generates.
fn validate_generated_selector(job: &Value, spec: &Value, errors: &mut Errors) {
    if bool_at(spec, "manualSelector") || field(spec, "selector").is_none() {
        return;
    }
    let (name, uid) = (meta::name(job), meta::uid(job));
    if uid.is_empty() {
        errors.required(&Path::new("metadata").child("uid"), "");
    }
    let labels = at(spec, &["template", "metadata", "labels"]).unwrap_or(&Value::Null);
    let (spec_path, mut expected) = (Path::new("spec"), Map::new());
    let path = spec_path.child("template");
    let path = path.child("metadata");
    let path = path.child("labels");
    for (keys, value) in [(UID_LABELS, uid), (NAME_LABELS, name)] {
        for key in keys {
            expected.insert(key.to_owned(), json!(value));
            match field(labels, key).and_then(Value::as_str) {
                None => errors.required(&path.key(key), &format!("must be '{value}'")),
                Some(given) if given != value => {
                    errors.invalid(&path.key(key), labels, &format!("must be '{value}'"));
                }
                Some(_) => {}
            }
        }
    }
    if let Ok(selector) = LabelSelector::from_object(field(spec, "selector"))
        && !selector.matches_labels(Some(&expected))
    {
        let given = part(spec, "selector");
        errors.invalid(&spec_path.child("selector"), given, "`selector` not auto-generated");
    }
}

/// Checks a job spec, of a Job or of the template in a CronJob, without its selector.
pub fn validate_spec(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    for name in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        checks::not_negative(spec, name, path, errors);
    }
    if field(spec, "maxFailedIndexes").is_some() && field(spec, "backoffLimitPerIndex").is_none() {
        errors.required(&path.child("backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
    validate_managed_by(spec, path, errors);
    checks::optional_one_of(spec, "completionMode", &["Indexed", "NonIndexed"], path, errors);
    validate_completion_mode(spec, path, errors);
    validate_pod_failure_policy(spec, path, errors);
    validate_success_policy(spec, path, errors);
    checks::optional_one_of(spec, "podReplacementPolicy", &["Failed", "TerminatingOrFailed"], path, errors);
    if field(spec, "podFailurePolicy").is_some()
        && str_at(spec, "podReplacementPolicy") == "TerminatingOrFailed"
    {
        checks::supported_text(
            "TerminatingOrFailed",
            &["Failed"],
            &path.child("podReplacementPolicy"),
            errors,
        );
    }
    let template = template(spec);
    validate_template(template, &path.child("template"), errors);
    let template_path = path.child("template");
    let spec_path = template_path.child("spec");
    let restart_path = spec_path.child("restartPolicy");
    let restart = at(template, &["spec", "restartPolicy"]).and_then(Value::as_str).unwrap_or_default();
    match restart {
        "" | "Always" => errors.required(&restart_path, "valid values: \"OnFailure\", \"Never\""),
        "OnFailure" | "Never" => {}
        other => errors.invalid_str(&restart_path, other, "valid values: \"OnFailure\", \"Never\""),
    }
    if field(spec, "podFailurePolicy").is_some() && restart != "Never" {
        let detail = "only \"Never\" is supported when podFailurePolicy is specified";
        errors.invalid_str(&restart_path, restart, detail);
    }
}

fn validate_managed_by(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(manager) = field(spec, "managedBy").and_then(Value::as_str) else { return };
    let path = path.child("managedBy");
    if !manager.contains('/') {
        errors.invalid_str(&path, manager, "must be a domain-prefixed path (such as \"acme.io/foo\")");
    }
    if manager.len() > 63 {
        errors.too_long(&path, 63);
    }
}

fn validate_completion_mode(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    if str_at(spec, "completionMode") == "Indexed" {
        if field(spec, "completions").is_none() {
            errors.required(&path.child("completions"), "when completion mode is Indexed");
        }
        if let Some(n) = int_at(spec, "parallelism").filter(|n| *n > MAX_INDEXED_PARALLELISM) {
            let detail = format!(
                "must be less than or equal to {MAX_INDEXED_PARALLELISM} when completion mode is Indexed"
            );
            errors.invalid(&path.child("parallelism"), &json!(n), &detail);
        }
        let completions = int_at(spec, "completions").unwrap_or(0);
        if let Some(n) = int_at(spec, "maxFailedIndexes").filter(|n| *n > completions) {
            let detail = "must be less than or equal to completions";
            errors.invalid(&path.child("maxFailedIndexes"), &json!(n), detail);
        }
    } else {
        for name in ["backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"] {
            if let Some(value) = field(spec, name) {
                errors.invalid(&path.child(name), value, "requires indexed completion mode");
            }
        }
    }
}

fn validate_pod_failure_policy(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(policy) = field(spec, "podFailurePolicy") else { return };
    let path = path.child("podFailurePolicy");
    let path = path.child("rules");
    let rules = list_at(policy, "rules");
    if rules.len() > 20 {
        errors.too_many(&path, rules.len(), 20);
    }
    for (i, rule) in rules.iter().enumerate() {
        let path = path.index(i);
        let actions = ["Count", "FailIndex", "FailJob", "Ignore"];
        checks::one_of(rule, "action", &actions, &path, errors);
        if str_at(rule, "action") == "FailIndex" && field(spec, "backoffLimitPerIndex").is_none() {
            let detail = "requires the backoffLimitPerIndex to be set";
            errors.invalid_str(&path.child("action"), "FailIndex", detail);
        }
        let codes = field(rule, "onExitCodes");
        let conditions = list_at(rule, "onPodConditions");
        match codes {
            Some(_) if !conditions.is_empty() => {
                let detail = "specifying both OnExitCodes and OnPodConditions is not supported";
                errors.invalid(&path, &Value::Null, detail);
            }
            None if conditions.is_empty() => {
                errors.invalid(
                    &path,
                    &Value::Null,
                    "specifying one of OnExitCodes and OnPodConditions is required",
                );
            }
            _ => {}
        }
        if let Some(codes) = codes {
            validate_exit_codes(codes, spec, &path.child("onExitCodes"), errors);
        }
        for (j, pattern) in conditions.iter().enumerate() {
            let path = path.child("onPodConditions");
            let path = path.index(j);
            checks::required_text(pattern, "type", &path, errors, names::qualified_name);
            checks::one_of(pattern, "status", &["False", "True", "Unknown"], &path, errors);
        }
    }
}

fn validate_exit_codes(codes: &Value, spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    checks::one_of(codes, "operator", &["In", "NotIn"], path, errors);
    let container = str_at(codes, "containerName");
    let pod_spec = part(template(spec), "spec");
    let known = |list| list_at(pod_spec, list).iter().any(|c| str_at(c, "name") == container);
    if !container.is_empty() && !known("containers") && !known("initContainers") {
        let detail = "must be one of the container or initContainer names in the pod template";
        errors.invalid_str(&path.child("containerName"), container, detail);
    }
    let values = list_at(codes, "values");
    let path = path.child("values");
    if values.is_empty() {
        errors.invalid(&path, &json!(values), "at least one value is required");
    } else if values.len() > 255 {
        errors.too_many(&path, values.len(), 255);
    }
    for (i, value) in values.iter().enumerate() {
        if str_at(codes, "operator") == "In" && value == 0 {
            errors.invalid(&path.index(i), value, "must not be 0 for the In operator");
        }
        if values[..i].contains(value) {
            errors.duplicate(&path.index(i), value);
        }
    }
    if !values.is_sorted_by_key(|v| v.as_i64().unwrap_or(0)) {
        errors.invalid(&path, &json!(values), "must be ordered");
    }
}

fn validate_success_policy(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(policy) = field(spec, "successPolicy") else { return };
    if str_at(spec, "completionMode") != "Indexed" {
        return;
    }
    let path = path.child("successPolicy");
    let path = path.child("rules");
    let rules = list_at(policy, "rules");
    if rules.is_empty() {
        errors.required(&path, "at least one rules must be specified when the successPolicy is specified");
    }
    if rules.len() > 20 {
        errors.too_many(&path, rules.len(), 20);
    }
    for (i, rule) in rules.iter().enumerate() {
        let path = path.index(i);
        if field(rule, "succeededCount").is_none() && field(rule, "succeededIndexes").is_none() {
            errors.required(&path, "at least one of succeededCount or succeededIndexes must be specified");
        }
        checks::not_negative(rule, "succeededCount", &path, errors);
    }
}

fn validate_update(new: &Value, old: &Value, errors: &mut Errors) {
    let (spec, before) = (part(new, "spec"), part(old, "spec"));
    let path = Path::new("spec");
    if str_at(spec, "completionMode") != "Indexed" {
        checks::immutable(spec, before, "completions", &path, errors);
    } else if let Some(completions) = field(spec, "completions")
        && field(before, "completions") != Some(completions)
        && field(spec, "parallelism") != Some(completions)
    {
        let detail = "can only be modified in tandem with spec.parallelism";
        errors.invalid(&path.child("completions"), completions, detail);
    }
    checks::immutable(spec, before, "selector", &path, errors);
    validate_template_update(spec, old, &path, errors);
    for name in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"] {
        checks::immutable(spec, before, name, &path, errors);
    }
}

/// The template is fixed, but for where its pods may run (and what they ask for) while the job is suspended and has not
/// started.
fn validate_template_update(spec: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let before = at(old, &["spec", "template"]).unwrap_or(&Value::Null);
    let mut munged = template(spec).clone();
    let suspended = at(old, &["spec", "suspend"]) == Some(&Value::Bool(true));
    if suspended && at(old, &["status", "startTime"]).is_none() {
        let (old_meta, old_spec) = (part(before, "metadata"), part(before, "spec"));
        if let Some(metadata) = existing_mut(&mut munged, "metadata") {
            ["labels", "annotations"].iter().for_each(|name| carry_over(metadata, old_meta, name));
        }
        if let Some(spec) = existing_mut(&mut munged, "spec") {
            for name in ["nodeSelector", "affinity", "tolerations", "schedulingGates"] {
                carry_over(spec, old_spec, name);
            }
            for list in ["containers", "initContainers"] {
                for (container, before) in list_mut(spec, list).iter_mut().zip(list_at(old_spec, list)) {
                    carry_over(container, before, "resources");
                }
            }
        }
    }
    if &munged != before {
        errors.invalid(&path.child("template"), template(spec), checks::IMMUTABLE);
    }
}

fn validate_status(new: &Value, _old: &Value, errors: &mut Errors) {
    let Some(status) = field(new, "status") else { return };
    for name in ["active", "succeeded", "failed", "ready", "terminating"] {
        checks::not_negative(status, name, &Path::new("status"), errors);
    }
}

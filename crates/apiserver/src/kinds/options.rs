//! What may be asked of a request: the options of reads, writes and deletes.

use serde_json::Value;
use shoal_objects::invalid::Reason;
use shoal_objects::meta::validate_field_manager;
use shoal_objects::{Errors, Path};

use super::access::{bool_at, field, int_at, list_at, str_at};
use super::checks;

/// What a list or watch was asked for, as far as options restrict each other.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListOptions<'a> {
    /// `watch`
    pub watch: bool,
    /// `resourceVersion`
    pub resource_version: &'a str,
    /// `resourceVersionMatch`
    pub resource_version_match: &'a str,
    /// `continue`
    pub continue_token: &'a str,
    /// `sendInitialEvents`, when given
    pub send_initial_events: Option<bool>,
    /// `allowWatchBookmarks`
    pub allow_watch_bookmarks: bool,
}

/// Only `All` means something for a dry run, however often it is said.
pub fn validate_dry_run(dry_run: &[&str], errors: &mut Errors) {
    if dry_run.iter().any(|value| *value != "All") {
        let given = Value::from(dry_run.to_vec());
        let message = format!("Unsupported value: {given}: supported values: \"All\"");
        errors.push(&Path::new("dryRun"), Reason::NotSupported, message);
    }
}

/// What is done about unknown fields.
pub fn validate_field_validation(value: &str, errors: &mut Errors) {
    if !matches!(value, "" | "Ignore" | "Strict" | "Warn") {
        errors.not_supported(&Path::new("fieldValidation"), value, &["", "Ignore", "Strict", "Warn"]);
    }
}

/// CreateOptions and UpdateOptions.
pub fn validate_write(dry_run: &[&str], field_manager: &str, field_validation: &str, errors: &mut Errors) {
    validate_field_manager(field_manager, &Path::new("fieldManager"), errors);
    validate_dry_run(dry_run, errors);
    validate_field_validation(field_validation, errors);
}

/// PatchOptions. Apply must name its manager; only apply can be forced.
pub fn validate_patch(
    dry_run: &[&str],
    field_manager: &str,
    field_validation: &str,
    force: Option<bool>,
    apply: bool,
    errors: &mut Errors,
) {
    if apply {
        if field_manager.is_empty() {
            errors.required(&Path::new("fieldManager"), "is required for apply patch");
        }
    } else if force.is_some() {
        errors.forbidden(&Path::new("force"), "may not be specified for non-apply patch");
    }
    validate_write(dry_run, field_manager, field_validation, errors);
}

/// DeleteOptions, as sent in a body or gathered from the query.
pub fn validate_delete(options: &Value, errors: &mut Errors) {
    let path = Path::new("propagationPolicy");
    let policy = field(options, "propagationPolicy").map(|p| p.as_str().unwrap_or_default());
    if let Some(policy) = policy
        && field(options, "orphanDependents").is_some()
    {
        errors.invalid_str(&path, policy, "orphanDependents and deletionPropagation cannot be both set");
    }
    if let Some(policy) = policy
        && !matches!(policy, "Foreground" | "Background" | "Orphan")
    {
        errors.not_supported(&path, policy, &["Foreground", "Background", "Orphan", "nil"]);
    }
    let dry_run: Vec<&str> = list_at(options, "dryRun").iter().filter_map(Value::as_str).collect();
    validate_dry_run(&dry_run, errors);
    if bool_at(options, "ignoreStoreReadErrorWithClusterBreakingPotential") {
        let path = Path::new("ignoreStoreReadErrorWithClusterBreakingPotential");
        let with = |name: &str| format!("cannot be set together with .{name}");
        if !dry_run.is_empty() {
            errors.invalid(&path, &Value::Bool(true), &with("dryRun"));
        }
        for name in ["propagationPolicy", "orphanDependents", "gracePeriodSeconds", "preconditions"] {
            if field(options, name).is_some() {
                errors.invalid(&path, &Value::Bool(true), &with(name));
            }
        }
    }
}

/// Seconds a delete shall be graceful: what a negative number means is one second.
pub fn grace_period(options: &Value) -> Option<i64> {
    int_at(options, "gracePeriodSeconds").map(|seconds| if seconds < 0 { 1 } else { seconds })
}

/// ListOptions, for lists and watches.
pub fn validate_list(options: &ListOptions<'_>, errors: &mut Errors) {
    let path = Path::new("resourceVersionMatch");
    let wanted = options.resource_version_match;
    if options.watch {
        validate_watch(options, errors);
        return;
    }
    if !wanted.is_empty() {
        if options.resource_version.is_empty() {
            let detail = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            errors.forbidden(&path, detail);
        }
        if !options.continue_token.is_empty() {
            errors.forbidden(&path, "resourceVersionMatch is forbidden when continue is provided");
        }
        if !matches!(wanted, "Exact" | "NotOlderThan") {
            errors.not_supported(&path, wanted, &["Exact", "NotOlderThan", ""]);
        }
        if wanted == "Exact" && options.resource_version == "0" {
            let detail = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            errors.forbidden(&path, detail);
        }
    }
    if options.send_initial_events.is_some() {
        errors.forbidden(&Path::new("sendInitialEvents"), "sendInitialEvents is forbidden for list");
    }
}

fn validate_watch(options: &ListOptions<'_>, errors: &mut Errors) {
    let path = Path::new("resourceVersionMatch");
    let wanted = options.resource_version_match;
    if options.send_initial_events.is_some() {
        if wanted != "NotOlderThan" {
            let detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            errors.forbidden(&path, detail);
        }
    } else if !wanted.is_empty() {
        let detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
        errors.forbidden(&path, detail);
    }
    if !wanted.is_empty() && wanted != "NotOlderThan" {
        errors.not_supported(&path, wanted, &["NotOlderThan"]);
    }
    if !options.continue_token.is_empty() {
        errors.forbidden(&path, "resourceVersionMatch is forbidden when continue is provided");
    }
}

/// autoscaling/v1 Scale.
pub fn validate_scale(scale: &Value, errors: &mut Errors) {
    if let Some(spec) = field(scale, "spec") {
        checks::not_negative(spec, "replicas", &Path::new("spec"), errors);
    }
}

/// policy/v1 Eviction: its delete options.
pub fn validate_eviction(eviction: &Value, errors: &mut Errors) {
    if let Some(options) = field(eviction, "deleteOptions") {
        validate_delete(options, errors);
    }
}

/// Whether this body is an Eviction or DeleteOptions of a kind the server knows; else the kind it named.
pub fn delete_kind(options: &Value) -> Result<(), &str> {
    match str_at(options, "kind") {
        "" | "DeleteOptions" => Ok(()),
        other => Err(other),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::causes;
    use super::*;
    use serde_json::json;

    fn text(check: impl FnOnce(&mut Errors)) -> String {
        let mut errors = Errors::new();
        check(&mut errors);
        errors.to_string()
    }

    #[test]
    fn a_dry_run_is_all_or_nothing() {
        assert!(causes(|e| validate_dry_run(&["All"], e)).is_empty());
        assert_eq!(
            text(|e| validate_dry_run(&["Some"], e)),
            "dryRun: Unsupported value: [\"Some\"]: supported values: \"All\""
        );
        assert_eq!(
            text(|e| validate_field_validation("Wrong", e)),
            "fieldValidation: Unsupported value: \"Wrong\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\""
        );
    }

    #[test]
    fn apply_names_its_manager_and_only_apply_is_forced() {
        assert_eq!(
            text(|e| validate_patch(&[], "", "", None, true, e)),
            "fieldManager: Required value: is required for apply patch"
        );
        assert_eq!(
            text(|e| validate_patch(&[], "", "", Some(true), false, e)),
            "force: Forbidden: may not be specified for non-apply patch"
        );
        let long = "x".repeat(129);
        assert_eq!(causes(|e| validate_write(&[], &long, "", e)), ["fieldManager FieldValueTooLong"]);
    }

    #[test]
    fn deletes_have_one_policy_out_of_three() {
        assert_eq!(
            text(|e| validate_delete(&json!({"propagationPolicy": "Sideways"}), e)),
            "propagationPolicy: Unsupported value: \"Sideways\": supported values: \"Foreground\", \"Background\", \
             \"Orphan\", \"nil\""
        );
        assert_eq!(
            text(|e| validate_delete(&json!({"propagationPolicy": "Orphan", "orphanDependents": true}), e)),
            "propagationPolicy: Invalid value: \"Orphan\": orphanDependents and deletionPropagation cannot be both set"
        );
        assert!(causes(|e| validate_delete(&json!({"gracePeriodSeconds": -5}), e)).is_empty());
        assert_eq!(grace_period(&json!({"gracePeriodSeconds": -5})), Some(1));
        assert_eq!(delete_kind(&json!({"kind": "Wrong"})), Err("Wrong"));
    }

    #[test]
    fn a_list_matches_versions_it_names() {
        let list = |rv, wanted| ListOptions {
            resource_version: rv,
            resource_version_match: wanted,
            ..Default::default()
        };
        assert!(causes(|e| validate_list(&list("5", "Exact"), e)).is_empty());
        assert!(causes(|e| validate_list(&list("0", "NotOlderThan"), e)).is_empty());
        assert_eq!(
            text(|e| validate_list(&list("", "Exact"), e)),
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
        );
        assert_eq!(
            text(|e| validate_list(&list("0", "Exact"), e)),
            "resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""
        );
        assert_eq!(
            text(|e| validate_list(&list("5", "Wrong"), e)),
            "resourceVersionMatch: Unsupported value: \"Wrong\": supported values: \"Exact\", \"NotOlderThan\", \"\""
        );
        let initial = ListOptions { send_initial_events: Some(true), ..list("", "NotOlderThan") };
        assert_eq!(
            causes(|e| validate_list(&initial, e)),
            ["resourceVersionMatch FieldValueForbidden", "sendInitialEvents FieldValueForbidden"]
        );
    }

    #[test]
    fn initial_events_of_a_watch_are_not_older_than() {
        let watch = |initial, rv, wanted| ListOptions {
            watch: true,
            send_initial_events: initial,
            resource_version: rv,
            resource_version_match: wanted,
            ..Default::default()
        };
        assert!(causes(|e| validate_list(&watch(Some(true), "", "NotOlderThan"), e)).is_empty());
        assert!(causes(|e| validate_list(&watch(None, "7", ""), e)).is_empty());
        assert_eq!(
            causes(|e| validate_list(&watch(Some(true), "", ""), e)),
            ["resourceVersionMatch FieldValueForbidden"]
        );
        assert_eq!(
            causes(|e| validate_list(&watch(Some(true), "1", "Exact"), e)),
            ["resourceVersionMatch FieldValueForbidden", "resourceVersionMatch FieldValueNotSupported"]
        );
        assert_eq!(
            causes(|e| validate_list(&watch(None, "", "NotOlderThan"), e)),
            ["resourceVersionMatch FieldValueForbidden"]
        );
    }

    #[test]
    fn a_scale_is_not_negative() {
        assert_eq!(
            text(|e| validate_scale(&json!({"spec": {"replicas": -1}}), e)),
            "spec.replicas: Invalid value: -1: must be greater than or equal to 0"
        );
    }
}

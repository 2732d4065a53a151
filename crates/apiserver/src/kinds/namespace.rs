//! Namespace.

use shoal_objects::{Errors, Path, Value, names};

use super::access::{at, carry_over, child_mut, list_at, set, set_default_str, str_at};
use super::checks;
use super::{NameRule, Rules};
use serde_json::json;

/// The rules of Namespace. `spec.finalizers` changes through `/finalize` only: see [`validate_finalize`].
pub const RULES: Rules = Rules {
    default,
    prepare_create,
    prepare_update,
    validate,
    validate_status,
    name: NameRule::Label,
    ..Rules::NONE
};

const KUBERNETES: &str = "kubernetes";

fn default(namespace: &mut Value) {
    // Without a name (generateName) there is nothing to say yet; the server defaults again once it has one.
    let name = at(namespace, &["metadata", "name"]).and_then(Value::as_str).unwrap_or_default().to_owned();
    if !name.is_empty()
        && let Some(labels) = child_mut(namespace, "metadata").and_then(|meta| child_mut(meta, "labels"))
    {
        set(labels, "kubernetes.io/metadata.name", name);
    }
    child_mut(namespace, "spec");
    if let Some(status) = child_mut(namespace, "status") {
        set_default_str(status, "phase", "Active");
    }
}

fn prepare_create(namespace: &mut Value) {
    set(namespace, "status", json!({"phase": "Active"}));
    let Some(spec) = child_mut(namespace, "spec") else { return };
    let mut finalizers = list_at(spec, "finalizers").to_vec();
    if !finalizers.iter().any(|f| f == KUBERNETES) {
        finalizers.push(KUBERNETES.into());
    }
    set(spec, "finalizers", finalizers);
}

fn prepare_update(new: &mut Value, old: &Value) {
    let empty = json!({});
    let old_spec = old.get("spec").unwrap_or(&empty);
    if let Some(spec) = child_mut(new, "spec") {
        carry_over(spec, old_spec, "finalizers");
    }
    carry_over(new, old, "status");
}

fn validate(namespace: &Value, errors: &mut Errors) {
    let spec = Path::new("spec");
    let path = spec.child("finalizers");
    for finalizer in finalizers(namespace) {
        validate_finalizer(errors, &path, finalizer);
    }
}

/// What is wrong with a namespace sent to `/finalize`.
pub fn validate_finalize(namespace: &Value, errors: &mut Errors) {
    let spec = Path::new("spec");
    let path = spec.child("finalizers");
    for (i, finalizer) in finalizers(namespace).enumerate() {
        validate_finalizer(errors, &path.index(i), finalizer);
    }
}

fn validate_finalizer(errors: &mut Errors, path: &Path<'_>, finalizer: &str) {
    checks::text(errors, path, finalizer, names::qualified_name(finalizer));
    checks::text(errors, path, finalizer, names::finalizer_name(finalizer));
}

fn finalizers(namespace: &Value) -> impl Iterator<Item = &str> {
    let spec = namespace.get("spec").unwrap_or(&Value::Null);
    list_at(spec, "finalizers").iter().map(|f| f.as_str().unwrap_or_default())
}

fn validate_status(new: &Value, _old: &Value, errors: &mut Errors) {
    let deleted = at(new, &["metadata", "deletionTimestamp"]).is_some();
    let phase = new.get("status").map(|status| str_at(status, "phase")).unwrap_or_default();
    let (wanted, detail) = if deleted {
        ("Terminating", "may only be 'Terminating' if `deletionTimestamp` is not empty")
    } else {
        ("Active", "may only be 'Active' if `deletionTimestamp` is empty")
    };
    if phase != wanted {
        errors.invalid_str(&Path::new("status").child("Phase"), phase, detail);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::causes;
    use super::*;

    #[test]
    fn a_new_one_is_active_labelled_and_held_by_kubernetes() {
        let mut ns = json!({"metadata": {"name": "x", "labels": {"a": "b"}}});
        default(&mut ns);
        prepare_create(&mut ns);
        assert_eq!(
            ns,
            json!({
                "metadata": {"name": "x", "labels": {"a": "b", "kubernetes.io/metadata.name": "x"}},
                "spec": {"finalizers": ["kubernetes"]},
                "status": {"phase": "Active"},
            })
        );
    }

    #[test]
    fn an_update_changes_neither_finalizers_nor_the_name_label() {
        let old = json!({"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}});
        let mut new = json!({
            "metadata": {"name": "x", "labels": {"kubernetes.io/metadata.name": "other"}},
            "spec": {"finalizers": ["example.test/x"]},
        });
        default(&mut new);
        prepare_update(&mut new, &old);
        assert_eq!(new["spec"], old["spec"]);
        assert_eq!(new["metadata"]["labels"]["kubernetes.io/metadata.name"], "x");
    }

    #[test]
    fn the_phase_follows_the_deletion() {
        let new = json!({"status": {"phase": "Terminating"}});
        assert_eq!(causes(|e| validate_status(&new, &new, e)), ["status.Phase FieldValueInvalid"]);
        let gone = json!({"metadata": {"deletionTimestamp": "t"}, "status": {"phase": "Terminating"}});
        assert!(causes(|e| validate_status(&gone, &gone, e)).is_empty());
    }

    #[test]
    fn finalizers_are_qualified() {
        let ns = json!({"spec": {"finalizers": ["kubernetes", "bare"]}});
        assert_eq!(causes(|e| validate_finalize(&ns, e)), ["spec.finalizers[1] FieldValueInvalid"]);
    }
}

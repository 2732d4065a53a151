//! Edits that leave an object valid whatever else is in it.
//!
//! An object that was found valid stays so when a field is changed that no rule looks at, or that is checked by itself.
//! Such fields are listed here, of kinds whose rules add nothing to an update: what is not listed is checked with the
//! whole object. A field may only be listed if no default, no rule, no warning and no selectable field depends on it.

use shoal_objects::managed_fields::{Edit, Knowledge};
use shoal_objects::schema::{Field, Type};

const CONFIG_MAP: &str = "io.k8s.api.core.v1.ConfigMap";
const CONTAINER: &str = "io.k8s.api.core.v1.Container";
const DEPLOYMENT: &str = "io.k8s.api.apps.v1.DeploymentSpec";
const REPLICA_SET: &str = "io.k8s.api.apps.v1.ReplicaSetSpec";
const STATEFUL_SET: &str = "io.k8s.api.apps.v1.StatefulSetSpec";
const VARIABLE: &str = "io.k8s.api.core.v1.EnvVar";
const METADATA: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

const FIELD_SELECTOR: &str = "io.k8s.api.core.v1.ObjectFieldSelector";

/// What applies know of these kinds.
pub const KNOWLEDGE: Knowledge<'static> = Knowledge { is_free: &is_free, is_default: &is_default };

/// How large an object and what is applied to it may be together: no limit on annotations or data is reached below it.
pub const MAX_BYTES: usize = 256 * 1024;

/// Whether objects of these kinds can be edited at all.
pub fn has_free_fields(group: &str, plural: &str) -> bool {
    matches!((group, plural), ("", "configmaps") | ("apps", "deployments" | "replicasets" | "statefulsets"))
}

/// Whether an absent field gets this value. Only matters for objects that are applied as one value.
fn is_default(owner: &Type, field: &str, value: &str) -> bool {
    matches!((&*owner.name, field, value), (FIELD_SELECTOR, "apiVersion", "\"v1\""))
}

/// Whether an edit of a field, or inside of it, cannot make a valid object invalid nor change anything else in it.
fn is_free(owner: &Type, field: &Field, edit: Edit<'_>) -> bool {
    match (&*owner.name, &*field.name, edit) {
        // Templates may have blanks around images. The policy to pull it was chosen when the container came.
        (CONTAINER, "image", Edit::Text(_)) | (CONTAINER, "args" | "command", Edit::Texts) => true,
        // Where there is a value before and after, it comes from nowhere else.
        (VARIABLE, "value", Edit::Text(_)) | (CONTAINER, "env", Edit::Removed) => true,
        (DEPLOYMENT | REPLICA_SET | STATEFUL_SET, "replicas", Edit::Integer(count)) => {
            (0..=i64::from(i32::MAX)).contains(&count)
        }
        (METADATA, "annotations", Edit::Text(_) | Edit::Removed) => true,
        (CONFIG_MAP, "data", Edit::Text(_) | Edit::Removed) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use shoal_objects::Errors;

    use crate::kinds::rules;

    const TEXTS: [&str; 8] = ["x", " ", " a b ", "ü", "$(A)", "a:latest", "/../..", "0"];

    fn workload() -> Value {
        json!({
            "metadata": {"name": "a", "annotations": {"n": "1", "m": "2"}},
            "spec": {
                "replicas": 1, "serviceName": "s", "selector": {"matchLabels": {"a": "b"}},
                "template": {
                    "metadata": {"labels": {"a": "b"}, "annotations": {"n": "1", "m": "2"}},
                    "spec": {"containers": [{
                        "name": "c", "image": "i", "args": ["1"], "command": ["2"],
                        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)"}],
                    }]},
                },
            },
        })
    }

    /// Every value in a place that is called free, and every removal.
    fn edited(object: &Value) -> Vec<Value> {
        const CONTAINER: &str = "/spec/template/spec/containers/0";
        let mut all = Vec::new();
        let mut set = |place: &str, value: Value| {
            let mut next = object.clone();
            if let Some(there) = next.pointer_mut(place) {
                *there = value;
                all.push(next);
            }
        };
        for text in TEXTS {
            for field in ["image", "env/0/value", "env/1/value"] {
                set(&format!("{CONTAINER}/{field}"), text.into());
            }
            for field in ["args", "command"] {
                set(&format!("{CONTAINER}/{field}"), json!([text, text]));
            }
            for place in ["/metadata/annotations/n", "/spec/template/metadata/annotations/n", "/data/k"] {
                set(place, text.into());
            }
        }
        for count in [0, 7, i32::MAX] {
            set("/spec/replicas", count.into());
        }
        set(&format!("{CONTAINER}/env"), json!([{"name": "B", "value": "$(A)"}]));
        set("/metadata/annotations", json!({"m": "2"}));
        set("/spec/template/metadata/annotations", json!({"m": "2"}));
        set("/data", json!({"l": "2"}));
        all
    }

    #[test]
    fn no_rule_looks_at_free_fields() {
        let map = json!({"metadata": {"name": "a"}, "data": {"k": "1", "l": "2"}});
        for (group, plural, mut object) in [
            ("apps", "deployments", workload()),
            ("apps", "replicasets", workload()),
            ("apps", "statefulsets", workload()),
            ("", "configmaps", map),
        ] {
            let rules = rules(group, "v1", plural);
            (rules.default)(&mut object);
            let complaints = |new: &Value| {
                let mut errors = Errors::new();
                (rules.validate)(new, &mut errors);
                (rules.validate_update)(new, &object, &mut errors);
                (errors.0, (rules.warnings)(new))
            };
            assert_eq!(complaints(&object), (Vec::new(), Vec::new()), "{plural}");
            for next in edited(&object) {
                assert_eq!(complaints(&next), (Vec::new(), Vec::new()), "{plural} {next}");
                let mut again = next.clone();
                (rules.default)(&mut again);
                (rules.prepare_update)(&mut again, &object);
                assert_eq!(again, next, "{plural}");
            }
        }
    }
}

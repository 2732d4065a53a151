//! Resource names and amounts of kinds other than pods: quotas, limit ranges, nodes, volumes, claims.

use shoal_objects::quantity::Quantity;
use shoal_objects::{Errors, Path, Value, names};

use super::access::{entries_at, existing_mut, field};
use super::checks;

/// Countable things, whole numbers only.
const COUNTED: [&str; 9] = [
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];

const COMPUTE: [&str; 3] = ["cpu", "ephemeral-storage", "memory"];

/// Nothing finer than a thousandth is kept in the resource list in this field.
pub fn round_up(v: &mut Value, name: &str) {
    let Some(list) = existing_mut(v, name).and_then(Value::as_object_mut) else { return };
    for amount in list.values_mut() {
        if let Ok(mut quantity) = Quantity::from_json(amount) {
            let before = quantity.clone();
            quantity.round_up(-3);
            if quantity != before {
                *amount = Value::String(quantity.to_string());
            }
        }
    }
}

/// The amount of one resource in the list in this field.
pub fn amount(v: &Value, list: &str, resource: &str) -> Option<Quantity> {
    field(v, list).and_then(|list| field(list, resource)).and_then(|v| Quantity::from_json(v).ok())
}

/// The amounts of the list in this field, by resource.
pub fn amounts<'a>(v: &'a Value, list: &str) -> impl Iterator<Item = (&'a String, Quantity)> {
    entries_at(v, list).map(|(name, v)| (name, Quantity::from_json(v).unwrap_or(Quantity::ZERO)))
}

/// Whether it is one Kubernetes itself defines.
pub fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether more may be promised than there is.
pub fn is_overcommit_allowed(name: &str) -> bool {
    is_native(name) && !name.starts_with("hugepages-")
}

fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && names::qualified_name(&format!("requests.{name}")).is_empty()
}

fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-") || name.starts_with("requests.hugepages-")
}

/// Whether a quota can be set on it without a prefix.
pub fn is_standard_quota(name: &str) -> bool {
    let base = name.strip_prefix("requests.").or_else(|| name.strip_prefix("limits.")).unwrap_or(name);
    COMPUTE.contains(&base) || COUNTED.contains(&name) || name == "requests.storage" || is_huge_page(name)
}

/// A resource's name: one of the known ones, or with a domain.
pub fn validate_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    let found = names::qualified_name(name);
    if found.is_empty() && !name.contains('/') && !is_standard_quota(name) && name != "storage" {
        errors.invalid_str(path, name, "must be a standard resource type or fully qualified");
    }
    checks::text(errors, path, name, found);
}

/// A resource's name in a quota.
pub fn validate_quota_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    validate_name(name, path, errors);
    if !name.contains('/') && !is_standard_quota(name) {
        errors.invalid_str(path, name, "must be a standard resource for quota");
    }
}

/// A resource's name in the limits of containers.
pub fn validate_container_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    validate_name(name, path, errors);
    if !name.contains('/') {
        if !COMPUTE.contains(&name) && !name.starts_with("hugepages-") {
            errors.invalid_str(path, name, "must be a standard resource for containers");
        }
    } else if !is_native(name) && !is_extended(name) {
        errors.invalid_str(path, name, "doesn't follow extended resource name standard");
    }
}

/// Not negative, and whole where only whole things exist.
pub fn validate_amount(name: &str, amount: &Quantity, path: &Path<'_>, errors: &mut Errors) {
    if amount.is_negative() {
        errors.invalid_str(path, &amount.to_string(), checks::NOT_NEGATIVE);
    }
    if (COUNTED.contains(&name) || is_extended(name)) && amount.milli_value() % 1000 != 0 {
        errors.invalid_str(path, &amount.to_string(), "must be an integer");
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::causes;
    use super::*;
    use serde_json::json;

    #[test]
    fn amounts_are_kept_in_thousandths() {
        let mut v = json!({"capacity": {"cpu": "0.0001", "memory": "1Gi"}});
        round_up(&mut v, "capacity");
        assert_eq!(v, json!({"capacity": {"cpu": "1m", "memory": "1Gi"}}));
    }

    #[test]
    fn quotas_know_their_resources() {
        for name in
            ["pods", "requests.cpu", "limits.memory", "requests.storage", "count/leases.coordination.k8s.io"]
        {
            assert!(causes(|e| validate_quota_name(name, &Path::new("h"), e)).is_empty(), "{name}");
        }
        assert!(!causes(|e| validate_quota_name("storage", &Path::new("h"), e)).is_empty());
        assert_eq!(causes(|e| validate_quota_name("bogus", &Path::new("h"), e)).len(), 2);
    }

    #[test]
    fn pods_come_whole() {
        let half = Quantity::parse("500m").unwrap();
        assert_eq!(causes(|e| validate_amount("pods", &half, &Path::new("h"), e)), ["h FieldValueInvalid"]);
        assert!(causes(|e| validate_amount("cpu", &half, &Path::new("h"), e)).is_empty());
    }
}

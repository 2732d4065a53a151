//! Lease.

use shoal_objects::{Errors, Path, Value};

use super::Rules;
use super::access::{child_mut, field, int_at, str_at};
use super::checks;

/// The rules of Lease.
pub const RULES: Rules = Rules { default, validate, ..Rules::NONE };

fn default(lease: &mut Value) {
    child_mut(lease, "spec");
}

fn validate(lease: &Value, errors: &mut Errors) {
    let Some(spec) = field(lease, "spec") else { return };
    let path = Path::new("spec");
    if let Some(seconds) = int_at(spec, "leaseDurationSeconds")
        && seconds <= 0
    {
        errors.invalid(&path.child("leaseDurationSeconds"), &seconds.into(), "must be greater than 0");
    }
    checks::not_negative(spec, "leaseTransitions", &path, errors);
    let strategy = str_at(spec, "strategy");
    if !strategy.is_empty() && strategy != "OldestEmulationVersion" && !strategy.contains('/') {
        let detail = "must be a fully qualified name or 'OldestEmulationVersion'";
        errors.invalid_str(&path.child("strategy"), strategy, detail);
    }
    if !str_at(spec, "preferredHolder").is_empty() && strategy.is_empty() {
        errors.forbidden(&path.child("preferredHolder"), "may only be specified when `strategy` is defined");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_have_a_floor() {
        let lease = json!({"spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1}});
        let mut errors = Errors::new();
        validate(&lease, &mut errors);
        assert_eq!(
            errors.to_string(),
            "[spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0, \
             spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0]"
        );
    }
}

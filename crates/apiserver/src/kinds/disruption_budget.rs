//! PodDisruptionBudget.

use shoal_objects::invalid::Reason;
use shoal_objects::selector::validate_label_selector;
use shoal_objects::{Errors, Path, Value};

use super::Rules;
use super::access::{field, part};
use super::checks;

/// The rules of PodDisruptionBudget.
pub const RULES: Rules = Rules { validate, validate_status, ..Rules::NONE };

fn validate(budget: &Value, errors: &mut Errors) {
    let spec = part(budget, "spec");
    let path = Path::new("spec");
    let (minimum, maximum) = (field(spec, "minAvailable"), field(spec, "maxUnavailable"));
    if minimum.is_some() && maximum.is_some() {
        // The fields in the order and under the names of the Go type.
        let value = format!(
            "{{\"MinAvailable\":{},\"Selector\":{},\"MaxUnavailable\":{},\"UnhealthyPodEvictionPolicy\":{}}}",
            part(spec, "minAvailable"),
            part(spec, "selector"),
            part(spec, "maxUnavailable"),
            part(spec, "unhealthyPodEvictionPolicy"),
        );
        let detail = "minAvailable and maxUnavailable cannot be both set";
        errors.push(&path, Reason::Invalid, format!("Invalid value: {value}: {detail}"));
    }
    for (name, value) in [("minAvailable", minimum), ("maxUnavailable", maximum)] {
        if let Some(value) = value {
            checks::int_or_percent(value, &path.child(name), errors);
            checks::not_more_than_100_percent(value, &path.child(name), errors);
        }
    }
    if let Some(selector) = field(spec, "selector") {
        validate_label_selector(selector, &path.child("selector"), errors);
    }
    let policies = ["AlwaysAllow", "IfHealthyBudget"];
    checks::optional_one_of(spec, "unhealthyPodEvictionPolicy", &policies, &path, errors);
}

fn validate_status(new: &Value, _old: &Value, errors: &mut Errors) {
    let Some(status) = field(new, "status") else { return };
    for name in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
        checks::not_negative(status, name, &Path::new("status"), errors);
    }
}

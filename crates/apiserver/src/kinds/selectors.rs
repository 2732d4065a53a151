//! Label selectors as fields of objects.

use shoal_objects::meta::validate_labels;
use shoal_objects::{Errors, Path, Value, names};

use super::access::{is_set, list_at, object_at, str_at};
use super::checks;

/// A LabelSelector.
pub fn label_selector(errors: &mut Errors, path: &Path<'_>, selector: &Value) {
    if let Some(wanted) = object_at(selector, "matchLabels") {
        validate_labels(wanted, &path.child("matchLabels"), errors);
    }
    let expressions = path.child("matchExpressions");
    for (i, requirement) in list_at(selector, "matchExpressions").iter().enumerate() {
        selector_requirement(errors, &expressions.index(i), requirement);
    }
}

fn selector_requirement(errors: &mut Errors, path: &Path<'_>, requirement: &Value) {
    let values = path.child("values");
    match str_at(requirement, "operator") {
        "In" | "NotIn" => {
            if !is_set(requirement, "values") {
                errors.required(&values, "must be specified when `operator` is 'In' or 'NotIn'");
            }
        }
        "Exists" | "DoesNotExist" => {
            if is_set(requirement, "values") {
                errors
                    .forbidden(&values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
            }
        }
        operator => errors.invalid_str(&path.child("operator"), operator, "not a valid selector operator"),
    }
    let key = str_at(requirement, "key");
    checks::text(errors, &path.child("key"), key, names::qualified_name(key));
    for (i, value) in list_at(requirement, "values").iter().enumerate() {
        let text = value.as_str().unwrap_or_default();
        checks::text(errors, &values.index(i), text, names::label_value(text));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::causes;
    use super::*;
    use serde_json::json;

    #[test]
    fn a_selector_needs_values_where_they_mean_something() {
        let selector = json!({"matchExpressions": [
            {"key": "a", "operator": "In"},
            {"key": "a", "operator": "Exists", "values": ["x"]},
            {"key": "b", "operator": "Like"},
        ]});
        assert_eq!(
            causes(|e| label_selector(e, &Path::new("s"), &selector)),
            [
                "s.matchExpressions[0].values FieldValueRequired",
                "s.matchExpressions[1].values FieldValueForbidden",
                "s.matchExpressions[2].operator FieldValueInvalid"
            ]
        );
    }
}

//! LimitRange.

use std::collections::BTreeSet;

use shoal_objects::quantity::Quantity;
use shoal_objects::{Errors, Map, Path, Value, names};

use super::access::{child_mut, field, is_set, list_at, list_mut, object_at, set, str_at};
use super::resource_lists::{
    amount, is_overcommit_allowed, round_up, validate_container_name, validate_name,
};
use super::seen::Seen;
use super::{Rules, checks};

/// The rules of LimitRange.
pub const RULES: Rules = Rules { default, validate, ..Rules::NONE };

const LISTS: [&str; 5] = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"];

fn default(limit_range: &mut Value) {
    let Some(spec) = child_mut(limit_range, "spec") else { return };
    for item in list_mut(spec, "limits") {
        for list in LISTS {
            round_up(item, list);
        }
        if str_at(item, "type") != "Container" {
            continue;
        }
        // What has no default has its maximum; what has no default request has its default, else its minimum.
        fill(item, "default", "max");
        fill(item, "defaultRequest", "default");
        fill(item, "defaultRequest", "min");
    }
}

fn fill(item: &mut Value, list: &str, from: &str) {
    let Some(source) = object_at(item, from).filter(|source| !source.is_empty()).cloned() else { return };
    let mut target: Map = object_at(item, list).cloned().unwrap_or_default();
    for (name, amount) in source {
        target.entry(name).or_insert(amount);
    }
    set(item, list, target);
}

fn validate(limit_range: &Value, errors: &mut Errors) {
    let Some(spec) = field(limit_range, "spec") else { return };
    let spec_path = Path::new("spec");
    let path = spec_path.child("limits");
    let mut seen = Seen::default();
    for (i, item) in list_at(spec, "limits").iter().enumerate() {
        let path = path.index(i);
        let kind = str_at(item, "type");
        validate_type(kind, &path.child("type"), errors);
        if seen.again(kind) {
            errors.duplicate(&path.child("type"), &kind.into());
        }
        validate_names(item, kind, &path, errors);
        let known: BTreeSet<&String> = LISTS
            .iter()
            .filter(|list| kind != "Pod" || !list.starts_with("default"))
            .filter_map(|list| object_at(item, list))
            .flat_map(Map::keys)
            .collect();
        for name in known {
            validate_order(item, name, &path, errors);
        }
    }
}

fn validate_type(kind: &str, path: &Path<'_>, errors: &mut Errors) {
    let found = names::qualified_name(kind);
    let standard = matches!(kind, "Pod" | "Container" | "PersistentVolumeClaim");
    if found.is_empty() && !kind.contains('/') && !standard {
        errors.invalid_str(path, kind, "must be a standard limit type or fully qualified");
    }
    checks::text(errors, path, kind, found);
}

fn validate_names(item: &Value, kind: &str, path: &Path<'_>, errors: &mut Errors) {
    for list in LISTS {
        let list_path = path.child(list);
        if kind == "Pod" && list.starts_with("default") {
            if object_at(item, list).is_some_and(|list| !list.is_empty()) {
                errors.forbidden(&list_path, "may not be specified when `type` is 'Pod'");
            }
            continue;
        }
        for (name, _) in object_at(item, list).into_iter().flatten() {
            match kind {
                "Pod" | "Container" => validate_container_name(name, &list_path.key(name), errors),
                _ => validate_name(name, &list_path.key(name), errors),
            }
        }
    }
    let bounded = |list: &str| field(item, list).is_some_and(|list| is_set(list, "storage"));
    if kind == "PersistentVolumeClaim" && !bounded("min") && !bounded("max") {
        let detail = "either minimum or maximum storage value is required, but neither was provided";
        errors.required(&path.child("limits"), detail);
    }
}

/// min ≤ default request ≤ default ≤ max, as far as they are given.
fn validate_order(item: &Value, name: &str, path: &Path<'_>, errors: &mut Errors) {
    let read = |list: &str| amount(item, list, name);
    let (min, max) = (read("min"), read("max"));
    let pod = str_at(item, "type") == "Pod";
    let (limit, request) = if pod { (None, None) } else { (read("default"), read("defaultRequest")) };
    let mut at_most =
        |low: &Option<Quantity>, high: &Option<Quantity>, at: &str, shown: usize, text: [&str; 2]| {
            if let (Some(low), Some(high)) = (low, high)
                && low > high
            {
                let detail = format!("{} {low} is greater than {} {high}", text[0], text[1]);
                let value = if shown == 0 { low } else { high };
                errors.invalid_str(&path.child(at).key(name), &value.to_string(), &detail);
            }
        };
    at_most(&min, &max, "min", 0, ["min value", "max value"]);
    at_most(&min, &request, "defaultRequest", 1, ["min value", "default request value"]);
    at_most(&request, &max, "defaultRequest", 0, ["default request value", "max value"]);
    at_most(&request, &limit, "defaultRequest", 0, ["default request value", "default limit value"]);
    at_most(&min, &limit, "default", 0, ["min value", "default value"]);
    at_most(&limit, &max, "default", 1, ["default value", "max value"]);
    if let Some(ratio) = read("maxLimitRequestRatio") {
        let ratio_path = path.child("maxLimitRequestRatio");
        if ratio.milli_value() < 1000 {
            let detail = format!("ratio {ratio} is less than 1");
            errors.invalid_str(&ratio_path.key(name), &ratio.to_string(), &detail);
        }
        if let (Some(min), Some(max)) = (&min, &max) {
            let bound = max.milli_value() as f64 / min.milli_value() as f64;
            if ratio.milli_value() as f64 / 1000.0 > bound {
                let detail = format!("ratio {ratio} is greater than max/min = {bound:.6}");
                errors.invalid_str(&ratio_path.key(name), &ratio.to_string(), &detail);
            }
        }
    }
    if let (Some(limit), Some(request)) = (&limit, &request)
        && !is_overcommit_allowed(name)
        && limit != request
    {
        let detail = format!("default value {limit} must equal to defaultRequest value {request} in {name}");
        errors.invalid_str(&path.child("defaultRequest").key(name), &request.to_string(), &detail);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::causes;
    use super::*;
    use serde_json::json;

    #[test]
    fn defaults_fill_each_other() {
        let mut range = json!({"spec": {"limits": [{
            "type": "Container", "default": {"cpu": "500m"}, "defaultRequest": {"memory": "64Mi"},
            "max": {"cpu": "2"}, "min": {"memory": "1Mi"},
        }]}});
        default(&mut range);
        assert_eq!(
            range["spec"]["limits"][0],
            json!({
                "type": "Container", "default": {"cpu": "500m"},
                "defaultRequest": {"cpu": "500m", "memory": "64Mi"}, "max": {"cpu": "2"}, "min": {"memory": "1Mi"},
            })
        );
        assert!(causes(|e| validate(&range, e)).is_empty());
        let mut pods = json!({"spec": {"limits": [{"type": "Pod", "max": {"cpu": "2"}}]}});
        let before = pods.clone();
        default(&mut pods);
        assert_eq!(pods, before);
    }

    #[test]
    fn amounts_are_in_order() {
        let range = json!({"spec": {"limits": [
            {"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}, "default": {"cpu": "3"}},
            {"type": "PersistentVolumeClaim"},
            {"type": "Odd"},
        ]}});
        assert_eq!(
            causes(|e| validate(&range, e)),
            [
                "spec.limits[0].min[cpu] FieldValueInvalid",
                "spec.limits[0].default[cpu] FieldValueInvalid",
                "spec.limits[1].limits FieldValueRequired",
                "spec.limits[2].type FieldValueInvalid",
            ]
        );
    }
}

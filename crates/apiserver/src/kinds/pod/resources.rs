//! Requests and limits: rounding, sums and validation.

use std::collections::BTreeMap;

use serde_json::json;
use shoal_objects::quantity::Quantity;
use shoal_objects::{Errors, Path, Value};

use crate::kinds::access::{entries_at, field, list_at, part, str_at};
use crate::kinds::resource_lists::{self, is_overcommit_allowed, validate_amount, validate_container_name};

/// Amounts by resource name.
pub type Amounts = BTreeMap<String, Quantity>;

/// -1, 0 or 1; what does not parse counts as nothing.
pub fn quantity_sign(v: &Value) -> i32 {
    match Quantity::from_json(v) {
        Ok(q) if q.is_negative() => -1,
        Ok(q) if !q.is_zero() => 1,
        _ => 0,
    }
}

/// A resource list of `resources` (`requests` or `limits`) as amounts.
pub fn amounts(resources: &Value, list: &str) -> Amounts {
    resource_lists::amounts(resources, list).map(|(name, amount)| (name.clone(), amount)).collect()
}

/// What the containers of a pod ask for together.
pub fn container_requests(spec: &Value) -> Amounts {
    containers_together(spec, "requests")
}

/// The `requests` or `limits` of a whole pod: of its containers, or what it says for all of them, and its overhead.
pub fn pod_amounts(spec: &Value, list: &str) -> Amounts {
    let mut sum = containers_together(spec, list);
    for (name, amount) in amounts(part(spec, "resources"), list) {
        sum.insert(name, amount);
    }
    for (name, amount) in resource_lists::amounts(spec, "overhead") {
        match sum.get_mut(name) {
            Some(known) => known.add(&amount),
            // Overhead is asked for by every pod; a limit it has only where there is one already.
            None if list == "requests" => drop(sum.insert(name.clone(), amount)),
            None => {}
        }
    }
    sum
}

/// Containers and sidecars add up, ordinary init containers run one at a time beside the sidecars started before them.
fn containers_together(spec: &Value, list: &str) -> Amounts {
    let mut sum = Amounts::new();
    for container in list_at(spec, "containers") {
        add(&mut sum, &amounts(part(container, "resources"), list));
    }
    let mut sidecars = Amounts::new();
    let mut peak = Amounts::new();
    for container in list_at(spec, "initContainers") {
        let mut own = amounts(part(container, "resources"), list);
        if str_at(container, "restartPolicy") == "Always" {
            add(&mut sum, &own);
            add(&mut sidecars, &own);
            own = sidecars.clone();
        } else {
            add(&mut own, &sidecars);
        }
        raise(&mut peak, own);
    }
    raise(&mut sum, peak);
    sum
}

fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        sum.entry(name.clone()).or_insert(Quantity::ZERO).add(amount);
    }
}

fn raise(to: &mut Amounts, at_least: Amounts) {
    for (name, amount) in at_least {
        let current = to.entry(name).or_insert(Quantity::ZERO);
        if amount > *current {
            *current = amount;
        }
    }
}

fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Whether a whole pod, not only a container, can ask for it.
pub fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || is_huge_page(name)
}

/// Checks the `resources` of a container.
pub fn validate_container_resources(
    resources: &Value,
    claims: &[&str],
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let limits_path = path.child("limits");
    let requests_path = path.child("requests");
    let limits = amounts(resources, "limits");
    for (name, amount) in &limits {
        validate_container_amount(name, amount, &limits_path.key(name), errors);
    }
    let requests = amounts(resources, "requests");
    for (name, amount) in &requests {
        validate_container_amount(name, amount, &requests_path.key(name), errors);
        let overcommit = is_overcommit_allowed(name);
        match limits.get(name) {
            Some(limit) if !overcommit && amount != limit => {
                let detail = format!("must be equal to {name} limit of {limit}");
                errors.invalid_str(&requests_path, &amount.to_string(), &detail);
            }
            Some(limit) if amount > limit => {
                let detail = format!("must be less than or equal to {name} limit of {limit}");
                errors.invalid_str(&requests_path, &amount.to_string(), &detail);
            }
            None if !overcommit => {
                errors.required(&limits_path, "Limit must be set for non overcommitable resources");
            }
            _ => {}
        }
    }
    let mut all = limits.keys().chain(requests.keys());
    let cpu_or_memory = all.clone().any(|name| name == "cpu" || name == "memory");
    if !cpu_or_memory && all.any(|name| is_huge_page(name)) {
        errors.forbidden(path, "HugePages require cpu or memory");
    }
    validate_claims(resources, claims, path, errors);
}

fn validate_container_amount(name: &str, amount: &Quantity, path: &Path<'_>, errors: &mut Errors) {
    validate_container_name(name, path, errors);
    validate_amount(name, amount, path, errors);
}

fn validate_claims(resources: &Value, known: &[&str], path: &Path<'_>, errors: &mut Errors) {
    let path = path.child("claims");
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for (i, claim) in list_at(resources, "claims").iter().enumerate() {
        let path = path.index(i);
        let key = (str_at(claim, "name"), str_at(claim, "request"));
        if key.0.is_empty() {
            errors.required(&path.child("name"), "");
            continue;
        }
        if seen.contains(&key) {
            errors.duplicate(&path, &json!(key.0));
        } else {
            seen.push(key);
        }
        if !known.contains(&key.0) {
            errors.not_found(&path.child("name"), key.0);
        }
    }
}

/// Checks the `resources` of a whole pod.
pub fn validate_pod_resources(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(resources) = field(spec, "resources") else { return };
    for list in ["limits", "requests"] {
        let path = path.child(list);
        for (name, _) in entries_at(resources, list) {
            if !is_pod_level(name) {
                errors.not_supported(&path.key(name), name, &["cpu", "memory", "hugepages-"]);
            }
        }
    }
    validate_container_resources(resources, &[], path, errors);
    let requests = amounts(resources, "requests");
    for (name, sum) in container_requests(spec) {
        if let Some(request) = requests.get(&name).filter(|request| **request < sum) {
            let detail = format!("must be greater than or equal to aggregate container requests of {sum}");
            errors.invalid_str(&path.child("requests").key(&name), &request.to_string(), &detail);
        }
    }
}

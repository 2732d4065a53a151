//! LimitRanger: limit ranges of the namespace give containers their defaults and bound what is asked for.

use serde_json::Value;
use shoal_objects::Map;
use shoal_objects::meta;
use shoal_objects::quantity::Quantity;
use shoal_store::Range;

use crate::handlers::{Call, served};
use crate::kinds::access::{at, child_mut, list_at, list_mut, object_at, part, set, str_at};
use crate::kinds::pod::resources::{Amounts, amounts, pod_amounts};
use crate::status::{Failure, Outcome};

const ANNOTATION: &str = "kubernetes.io/limit-ranger";
/// Above this, ratios are compared without thousandths.
const MOST_THOUSANDTHS: i64 = i64::MAX / 1000;

/// Fills in requests and limits that a new pod leaves open.
pub async fn default_pod(call: &Call<'_>, pod: &mut Value) -> Outcome<()> {
    for limit_range in limit_ranges(call).await? {
        fill_pod(pod, &limit_range);
    }
    Ok(())
}

/// Refuses a pod or claim outside the limits of its namespace.
pub async fn validate(call: &Call<'_>, object: &Value) -> Outcome<()> {
    let resource = &*call.target.resource;
    let check: fn(&Value, &Value) -> Vec<String> = match (&*resource.group, &*resource.plural) {
        ("", "pods") => pod_violations,
        ("", "persistentvolumeclaims") => claim_violations,
        _ => return Ok(()),
    };
    for limit_range in limit_ranges(call).await? {
        let mut found = check(object, &limit_range);
        // Some of these say the same for every container.
        found.dedup();
        let why = match &found[..] {
            [] => continue,
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        return Err(Failure::forbidden(resource, meta::name(object), &why));
    }
    Ok(())
}

async fn limit_ranges(call: &Call<'_>) -> Outcome<Vec<Value>> {
    let registry = call.server.registry();
    let Some(ranges) = registry.find("", "v1", "limitranges") else { return Ok(Vec::new()) };
    let range = Range::Namespace(&call.target.namespace);
    let listing = call.server.store.list(&ranges.table, range, None, 0).await;
    listing.objects.iter().map(|object| served(ranges, object)).collect()
}

/// The defaults for containers, and a note of what was set.
fn fill_pod(pod: &mut Value, limit_range: &Value) {
    let (mut requests, mut limits) = (Map::new(), Map::new());
    for limit in list_at(part(limit_range, "spec"), "limits") {
        if str_at(limit, "type") == "Container" {
            requests.extend(object_at(limit, "defaultRequest").cloned().unwrap_or_default());
            limits.extend(object_at(limit, "default").cloned().unwrap_or_default());
        }
    }
    let mut notes = Vec::new();
    let Some(spec) = child_mut(pod, "spec") else { return };
    for (list, called) in [("containers", "container"), ("initContainers", "init container")] {
        for container in list_mut(spec, list) {
            let name = str_at(container, "name").to_owned();
            let Some(resources) = child_mut(container, "resources") else { continue };
            for (list, defaults) in [("requests", &requests), ("limits", &limits)] {
                let set = fill_list(resources, list, defaults);
                if !set.is_empty() {
                    let word = list.trim_end_matches('s');
                    notes.push(format!("{} {word} for {called} {name}", set.join(", ")));
                }
            }
        }
    }
    if !notes.is_empty()
        && let Some(metadata) = child_mut(pod, "metadata")
        && let Some(annotations) = child_mut(metadata, "annotations")
    {
        set(annotations, ANNOTATION, format!("LimitRanger plugin set: {}", notes.join("; ")));
    }
}

/// Adds what the list lacks; names what was added, sorted.
fn fill_list(resources: &mut Value, list: &str, defaults: &Map) -> Vec<String> {
    let missing: Vec<String> = {
        let given = object_at(resources, list);
        let mut names: Vec<String> =
            defaults.keys().filter(|name| given.is_none_or(|g| !g.contains_key(*name))).cloned().collect();
        names.sort_unstable();
        names
    };
    if !missing.is_empty()
        && let Some(target) = child_mut(resources, list)
    {
        for name in &missing {
            set(target, name, defaults[name].clone());
        }
    }
    missing
}

/// What is wrong with a pod, limit by limit.
fn pod_violations(pod: &Value, limit_range: &Value) -> Vec<String> {
    let spec = part(pod, "spec");
    let mut found = Vec::new();
    for limit in list_at(part(limit_range, "spec"), "limits") {
        match str_at(limit, "type") {
            kind @ "Container" => {
                for container in list_at(spec, "containers").iter().chain(list_at(spec, "initContainers")) {
                    let resources = part(container, "resources");
                    let asked = Asked::of(amounts(resources, "requests"), amounts(resources, "limits"));
                    found.extend(asked.violations(limit, kind));
                }
            }
            kind @ "Pod" => {
                let asked = Asked::of(pod_amounts(spec, "requests"), pod_amounts(spec, "limits"));
                found.extend(asked.violations(limit, kind));
            }
            _ => {}
        }
    }
    found
}

/// What is wrong with a claim: only its requests count.
fn claim_violations(claim: &Value, limit_range: &Value) -> Vec<String> {
    let resources = at(claim, &["spec", "resources"]).unwrap_or(&Value::Null);
    let asked = Asked::of(amounts(resources, "requests"), Amounts::new());
    let mut found = Vec::new();
    for limit in list_at(part(limit_range, "spec"), "limits") {
        let kind = str_at(limit, "type");
        if kind != "PersistentVolumeClaim" {
            continue;
        }
        for (name, least) in amounts(limit, "min") {
            found.extend(asked.below(&name, &least, kind));
        }
        for (name, most) in amounts(limit, "max") {
            let word = format!("maximum {name} usage per {kind} is {most}");
            match asked.requests.get(&name) {
                None => found.push(format!("{word}.  No request is specified")),
                Some(request) if *request > most => found.push(format!("{word}, but request is {request}")),
                Some(_) => {}
            }
        }
    }
    found
}

/// What a container or pod asks for.
struct Asked {
    requests: Amounts,
    limits: Amounts,
}

impl Asked {
    fn of(requests: Amounts, limits: Amounts) -> Asked {
        Asked { requests, limits }
    }

    fn violations(&self, limit: &Value, kind: &str) -> Vec<String> {
        let mut found = Vec::new();
        for (name, least) in amounts(limit, "min") {
            found.extend(self.below(&name, &least, kind));
        }
        for (name, most) in amounts(limit, "max") {
            found.extend(self.above(&name, &most, kind));
        }
        for (name, ratio) in amounts(limit, "maxLimitRequestRatio") {
            found.extend(self.beyond_ratio(&name, &ratio, kind));
        }
        found
    }

    fn below(&self, name: &str, least: &Quantity, kind: &str) -> Option<String> {
        let word = format!("minimum {name} usage per {kind} is {least}");
        match (self.requests.get(name), self.limits.get(name)) {
            (None, _) => Some(format!("{word}.  No request is specified")),
            (Some(request), _) if request < least => Some(format!("{word}, but request is {request}")),
            (_, Some(limit)) if limit < least => Some(format!("{word}, but limit is {limit}")),
            _ => None,
        }
    }

    fn above(&self, name: &str, most: &Quantity, kind: &str) -> Option<String> {
        let word = format!("maximum {name} usage per {kind} is {most}");
        match (self.requests.get(name), self.limits.get(name)) {
            (_, None) => Some(format!("{word}.  No limit is specified")),
            (_, Some(limit)) if limit > most => Some(format!("{word}, but limit is {limit}")),
            (Some(request), _) if request > most => Some(format!("{word}, but request is {request}")),
            _ => None,
        }
    }

    fn beyond_ratio(&self, name: &str, ratio: &Quantity, kind: &str) -> Option<String> {
        let word = format!("{name} max limit to request ratio per {kind} is {ratio}");
        let number = |amounts: &Amounts| amounts.get(name).map(exact).filter(|n| *n != 0.0);
        let Some(request) = number(&self.requests) else {
            return Some(format!("{word}, but no request is specified or request is 0"));
        };
        let Some(limit) = number(&self.limits) else {
            return Some(format!("{word}, but no limit is specified or limit is 0"));
        };
        let given = limit / request;
        (given > exact(ratio)).then(|| format!("{word}, but provided ratio is {given:.6}"))
    }
}

/// As a number, with thousandths where they can be told apart.
fn exact(amount: &Quantity) -> f64 {
    let whole = amount.value();
    if whole.abs() < MOST_THOUSANDTHS { amount.milli_value() as f64 / 1000.0 } else { whole as f64 }
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "tests read better with literals")]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(resources: Value) -> Value {
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "app", "resources": resources}]}})
    }

    fn range(limit: Value) -> Value {
        json!({"spec": {"limits": [limit]}})
    }

    #[test]
    fn defaults_fill_what_is_open_and_are_noted() {
        let limits = range(json!({
            "type": "Container", "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "500m", "memory": "64Mi"},
        }));
        let mut open = pod(json!({}));
        fill_pod(&mut open, &limits);
        assert_eq!(
            open["spec"]["containers"][0]["resources"],
            json!({"limits": {"cpu": "500m"}, "requests": {"cpu": "500m", "memory": "64Mi"}})
        );
        assert_eq!(
            open["metadata"]["annotations"][ANNOTATION],
            "LimitRanger plugin set: cpu, memory request for container app; cpu limit for container app"
        );
        let mut given = pod(json!({"limits": {"cpu": "1"}, "requests": {"cpu": "1", "memory": "1"}}));
        let before = given.clone();
        fill_pod(&mut given, &limits);
        assert_eq!(given, before);
    }

    #[test]
    fn limits_are_told_in_the_known_words() {
        let found = |resources: Value, limit: Value| pod_violations(&pod(resources), &range(limit));
        let max = json!({"type": "Container", "max": {"cpu": "2"}});
        assert_eq!(
            found(json!({"limits": {"cpu": "3"}, "requests": {"cpu": "3"}}), max.clone()),
            ["maximum cpu usage per Container is 2, but limit is 3"]
        );
        assert_eq!(found(json!({}), max), ["maximum cpu usage per Container is 2.  No limit is specified"]);
        let min = json!({"type": "Pod", "min": {"memory": "1Gi"}});
        assert_eq!(
            found(json!({"requests": {"memory": "512Mi"}}), min),
            ["minimum memory usage per Pod is 1Gi, but request is 512Mi"]
        );
        let ratio = json!({"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}});
        assert_eq!(
            found(json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "250m"}}), ratio),
            ["cpu max limit to request ratio per Container is 2, but provided ratio is 2.500000"]
        );
    }

    #[test]
    fn claims_are_bound_by_what_they_request() {
        let claim = json!({"spec": {"resources": {"requests": {"storage": "10Gi"}}}});
        let limit =
            json!({"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "5Gi"}});
        assert_eq!(
            claim_violations(&claim, &range(limit)),
            ["maximum storage usage per PersistentVolumeClaim is 5Gi, but request is 10Gi"]
        );
    }
}

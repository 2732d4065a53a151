//! Priority: the class named by the pod, or the default one, gives the number.

use serde_json::Value;
use shoal_objects::meta;

use crate::handlers::{Call, served};
use crate::status::{Failure, Outcome};

/// Gives a pod its priority.
pub async fn priority(call: &Call<'_>, pod: &mut Value) -> Outcome<()> {
    let registry = call.server.registry();
    let Some(classes) = registry.find("scheduling.k8s.io", "v1", "priorityclasses") else { return Ok(()) };
    let store = &call.server.store;
    let named = pod["spec"]["priorityClassName"].as_str().unwrap_or_default().to_owned();
    let class = if named.is_empty() {
        let mut default: Option<Value> = None;
        for object in store.list(&classes.table, shoal_store::Range::All, None, 0).await.objects {
            let class = served(classes, &object)?;
            // Of several defaults the lowest is taken.
            let lower = |d: &Value| class["value"].as_i64() < d["value"].as_i64();
            if class["globalDefault"] == true && default.as_ref().is_none_or(lower) {
                default = Some(class);
            }
        }
        default
    } else {
        let Some(found) = store.get(&classes.table, &named).await else {
            let why = format!("no PriorityClass with name {named} was found");
            return Err(Failure::forbidden(&call.target.resource, meta::name(pod), &why));
        };
        Some(served(classes, &found)?)
    };
    let value = class.as_ref().and_then(|c| c["value"].as_i64()).unwrap_or(0);
    if let Some(given) = pod["spec"]["priority"].as_i64()
        && given != value
    {
        let why = format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
             computed {value} from the given PriorityClass name"
        );
        return Err(Failure::forbidden(&call.target.resource, meta::name(pod), &why));
    }
    if let Some(class) = &class {
        pod["spec"]["priorityClassName"] = meta::name(class).into();
    }
    let policy =
        class.as_ref().and_then(|c| c["preemptionPolicy"].as_str()).unwrap_or("PreemptLowerPriority");
    pod["spec"]["priority"] = value.into();
    if pod["spec"].get("preemptionPolicy").is_none() {
        pod["spec"]["preemptionPolicy"] = policy.into();
    }
    Ok(())
}

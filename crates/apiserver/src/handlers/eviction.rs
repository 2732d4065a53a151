//! Evicting a pod: a delete that respects disruption budgets.

use serde_json::{Value, json};
use shoal_objects::meta;
use shoal_objects::selector::LabelSelector;
use shoal_store::{EventKind, Precondition, Range, WriteError};

use crate::admission;
use crate::encode;
use crate::handlers::delete::{check_options, delete_stored};
use crate::handlers::{Call, served, status_created};
use crate::response::Reply;
use crate::status::{Failure, Outcome};

const TRIES: usize = 20;

/// Evicts the pod of the path, or says why not now.
pub async fn create(call: &Call<'_>) -> Outcome<Reply> {
    let query_dry_run = call.dry_run("CreateOptions")?;
    let mut eviction = call.body_object("policy/v1", "Eviction")?;
    if meta::name(&eviction) != call.target.name {
        return Err(Failure::bad_request("name in URL does not match name in Eviction object"));
    }
    let given = eviction.pointer("/deleteOptions/dryRun").and_then(Value::as_array);
    let dry_run = query_dry_run || given.is_some_and(|d| !d.is_empty());
    admission::subresource(call, &mut eviction, dry_run).await?;
    let mut options = eviction.get("deleteOptions").cloned().unwrap_or_else(|| json!({}));
    if query_dry_run {
        options["dryRun"] = json!(["All"]);
    }
    check_options(&options)?;
    let stored = call.stored().await?;
    let pod = call.served(&stored).await?;
    if !may_go_without_budget(&pod) {
        take_from_budget(call, &pod, dry_run).await?;
    }
    delete_stored(call, stored, &options).await?;
    Ok(Reply::json(201, &status_created()))
}

/// Pods that have ended, are on their way out or never ran disturb nobody.
fn may_go_without_budget(pod: &Value) -> bool {
    let phase = pod.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
    matches!(phase, "Succeeded" | "Failed" | "Pending") || meta::deletion_timestamp(pod).is_some()
}

async fn take_from_budget(call: &Call<'_>, pod: &Value, dry_run: bool) -> Outcome<()> {
    let registry = call.server.registry();
    let Some(budgets) = registry.find("policy", "v1", "poddisruptionbudgets") else { return Ok(()) };
    let store = &call.server.store;
    for _ in 0..TRIES {
        let listing = store.list(&budgets.table, Range::Namespace(&call.target.namespace), None, 0).await;
        let mut matching = Vec::new();
        for object in listing.objects {
            let budget = served(budgets, &object)?;
            let selector = LabelSelector::from_object(budget.pointer("/spec/selector"));
            if selector.is_ok_and(|s| s.matches_object(pod)) {
                matching.push((object, budget));
            }
        }
        let (object, mut budget) = match matching.len() {
            0 => return Ok(()),
            1 => matching.remove(0),
            _ => {
                return Err(Failure::internal(
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                ));
            }
        };
        if is_unready_and_tolerated(pod, &budget) {
            return Ok(());
        }
        check_budget(&budget)?;
        if dry_run {
            return Ok(());
        }
        let allowed = budget["status"]["disruptionsAllowed"].as_i64().unwrap_or(0);
        budget["status"]["disruptionsAllowed"] = (allowed - 1).into();
        let now = call.server.clock.now().to_string();
        budget["status"]["disruptedPods"][meta::name(pod)] = now.into();
        let draft = encode::draft(budgets, &budget);
        let seal = |revision, _| draft.seal(EventKind::Updated, revision);
        let put = store.put(&budgets.table, &object.key, Precondition::Revision(object.revision), seal);
        match put.await {
            Ok(_) => return Ok(()),
            Err(WriteError::Unavailable(why)) => return Err(Failure::unavailable(&why)),
            Err(_) => {}
        }
    }
    Err(Failure::conflict("policy", "poddisruptionbudgets", "", "too many writers at once; try again"))
}

/// Pods that are not healthy may go when their budget says so, or when it is not met anyway.
fn is_unready_and_tolerated(pod: &Value, budget: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    let ready = conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True");
    let number = |field: &str| budget["status"][field].as_i64().unwrap_or(0);
    let met = number("currentHealthy") >= number("desiredHealthy") && number("desiredHealthy") > 0;
    !ready && (budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow" || met)
}

fn check_budget(budget: &Value) -> Outcome<()> {
    let name = meta::name(budget);
    let number = |field: &str| budget["status"][field].as_i64().unwrap_or(0);
    let refuse = |cause: String, retry: Option<u32>| {
        let text = "Cannot evict pod as it would violate the pod's disruption budget.";
        let mut failure = Failure::new(http::StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", text);
        failure.detail("causes", json!([{"reason": "DisruptionBudget", "message": cause}]));
        failure.retry_after = retry;
        Err(failure)
    };
    if number("observedGeneration") < meta::generation(budget) {
        return refuse(
            format!("The disruption budget {name} is still being processed by the server."),
            Some(10),
        );
    }
    if number("disruptionsAllowed") < 1 {
        let cause = format!(
            "The disruption budget {name} needs {} healthy pods and has {} currently",
            number("desiredHealthy"),
            number("currentHealthy")
        );
        return refuse(cause, None);
    }
    Ok(())
}

//! PodDisruptionBudgets: how many pods may be evicted now.

mod expected;
pub mod plan;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use shoal_objects::clock::Clock;
use shoal_objects::selector::LabelSelector;
use shoal_runtime::{Action, Context, Controller, Error, Result};

use crate::selecting::watch_selected;
use crate::time::now;
use crate::written::Written;

/// How long to wait for the cache to show what was written, if no event comes earlier.
const CATCH_UP: Duration = Duration::from_secs(1);

/// What all reconciles share.
struct Shared {
    clock: Clock,
    written: Written,
}

/// The controller.
pub fn controller(clock: Clock) -> Controller {
    let shared = Arc::new(Shared { clock, written: Written::default() });
    let name = "disruption-controller";
    watch_selected::<_, Pod>(Controller::of::<PodDisruptionBudget>(name), name, selector)
        .event_source("controllermanager")
        .reads::<ReplicaSet>()
        .reads::<Deployment>()
        .reads::<StatefulSet>()
        .reads::<ReplicationController>()
        .reconcile(move |context| reconcile(Arc::clone(&shared), context))
}

/// An empty selector covers all pods of the namespace, none covers nothing.
fn selector(budget: &PodDisruptionBudget) -> Option<LabelSelector> {
    let selector = budget.spec.as_ref()?.selector.as_ref()?;
    LabelSelector::from_object(Some(&serde_json::to_value(selector).ok()?)).ok()
}

async fn reconcile(shared: Arc<Shared>, context: Context<PodDisruptionBudget>) -> Result<Action> {
    let Some(budget) = context.object() else {
        shared.written.forget(context.key());
        return Ok(Action::done());
    };
    if !shared.written.is_seen(&*budget) {
        return Ok(Action::after(CATCH_UP));
    }
    let covered = match selector(&budget) {
        Some(selector) => context.lister::<Pod>().select_in(&context.key().namespace, &selector),
        None => Vec::new(),
    };
    if covered.is_empty() {
        context.recorder().normal(&*budget, "NoPods", "No matching pods found");
    }
    let expected = expected::count(&context, &budget, &covered).await;
    if let Err(message) = &expected {
        let message = format!("Failed to calculate the number of expected pods: {message}");
        context.recorder().warning(&*budget, "CalculateExpectedPodCountFailed", message);
    }
    let failed = expected.clone().err();
    let (status, again) = plan::status(&budget, &covered, expected, now(&shared.clock));
    // Evictions write into this status too: what was decided before one is void after it.
    let set = |budget: &mut PodDisruptionBudget| budget.status = Some(status.clone());
    if !shared.written.status(&context, &*budget, set).await? {
        return Ok(Action::after(CATCH_UP));
    }
    match failed {
        // The scale may become readable without any event that comes here.
        Some(message) => Err(Error::transient(format!("cannot count expected pods: {message}"))),
        None => Ok(again.map_or(Action::done(), Action::after)),
    }
}

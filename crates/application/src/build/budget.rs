//! The PodDisruptionBudget.

use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};

use super::{metadata, name_of, selector};
use crate::Application;

/// The budget, if one is asked for.
pub fn budget(app: &Application) -> Option<PodDisruptionBudget> {
    let asked = app.spec.pod_disruption_budget.as_ref()?;
    Some(PodDisruptionBudget {
        metadata: metadata(app, name_of(app)),
        spec: Some(PodDisruptionBudgetSpec {
            min_available: asked.min_available.clone(),
            max_unavailable: asked.max_unavailable.clone(),
            selector: Some(selector(app)),
            ..PodDisruptionBudgetSpec::default()
        }),
        status: None,
    })
}

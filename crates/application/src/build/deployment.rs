//! The Deployment.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{metadata, name_of, selector};
use crate::Application;
use crate::api::{ApplicationSpec, REPLICAS_ANNOTATION};

/// Who says how many pods there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicasFrom {
    /// The specification: the field is ours.
    Application(i32),
    /// The autoscaler: the field is left out.
    Autoscaler,
}

impl ReplicasFrom {
    fn as_str(self) -> &'static str {
        match self {
            ReplicasFrom::Application(_) => "application",
            ReplicasFrom::Autoscaler => "autoscaler",
        }
    }
}

/// Who says how many replicas this Deployment shall have, by what was applied last: whether the field is the autoscaler's.
pub fn replicas_from(deployment: &Deployment) -> bool {
    let annotations = deployment.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(REPLICAS_ANNOTATION)).is_some_and(|from| from == "autoscaler")
}

/// The Deployment with this template.
pub fn deployment(app: &Application, template: PodTemplateSpec, replicas: ReplicasFrom) -> Deployment {
    let spec = &app.spec;
    let mut metadata = metadata(app, name_of(app));
    metadata.annotations =
        Some(BTreeMap::from([(REPLICAS_ANNOTATION.to_owned(), replicas.as_str().to_owned())]));
    Deployment {
        metadata,
        spec: Some(DeploymentSpec {
            replicas: match replicas {
                ReplicasFrom::Application(count) => Some(count),
                ReplicasFrom::Autoscaler => None,
            },
            selector: selector(app),
            template,
            strategy: Some(strategy(spec)),
            min_ready_seconds: Some(spec.min_ready_seconds).filter(|seconds| *seconds != 0),
            progress_deadline_seconds: Some(spec.progress_deadline_seconds),
            revision_history_limit: Some(spec.revision_history_limit),
            ..DeploymentSpec::default()
        }),
        status: None,
    }
}

/// As asked for. Otherwise a few pods at a time; where a volume can be used on one node only, the old pod has to go first, or the
/// new one might wait for ever.
fn strategy(spec: &ApplicationSpec) -> DeploymentStrategy {
    let (surge, unavailable) = match spec.claims().iter().all(super::super::api::Claim::is_shareable) {
        true => (IntOrString::String("25%".to_owned()), IntOrString::String("25%".to_owned())),
        false => (IntOrString::Int(0), IntOrString::Int(1)),
    };
    let asked = spec.strategy.clone().unwrap_or_default();
    if asked.type_.as_deref() == Some("Recreate") {
        return DeploymentStrategy { type_: asked.type_, rolling_update: None };
    }
    let update = asked.rolling_update.unwrap_or_default();
    DeploymentStrategy {
        type_: Some("RollingUpdate".to_owned()),
        rolling_update: Some(RollingUpdateDeployment {
            max_surge: Some(update.max_surge.unwrap_or(surge)),
            max_unavailable: Some(update.max_unavailable.unwrap_or(unavailable)),
        }),
    }
}

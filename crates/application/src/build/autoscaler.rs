//! The HorizontalPodAutoscaler.

use k8s_openapi::api::autoscaling::v2::{
    CrossVersionObjectReference, HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec, MetricSpec,
    MetricTarget, ResourceMetricSource,
};

use super::{metadata, name_of};
use crate::Application;

/// The autoscaler; `None` where the specification says how many pods there are.
pub fn autoscaler(app: &Application) -> Option<HorizontalPodAutoscaler> {
    let scaling = app.spec.active_scaling()?;
    let targets = [("cpu", scaling.cpu_target()), ("memory", scaling.target_memory)];
    let metrics = targets.into_iter().filter_map(|(name, target)| {
        Some(MetricSpec {
            type_: "Resource".to_owned(),
            resource: Some(ResourceMetricSource {
                name: name.to_owned(),
                target: MetricTarget {
                    type_: "Utilization".to_owned(),
                    average_utilization: Some(target?),
                    ..MetricTarget::default()
                },
            }),
            ..MetricSpec::default()
        })
    });
    Some(HorizontalPodAutoscaler {
        metadata: metadata(app, name_of(app)),
        spec: HorizontalPodAutoscalerSpec {
            scale_target_ref: CrossVersionObjectReference {
                api_version: Some("apps/v1".to_owned()),
                kind: "Deployment".to_owned(),
                name: name_of(app).to_owned(),
            },
            min_replicas: Some(scaling.min_replicas),
            max_replicas: scaling.max_replicas,
            metrics: Some(metrics.collect()),
            behavior: scaling.behavior.clone(),
        },
        status: None,
    })
}

//! HorizontalPodAutoscalers: as many replicas as the load needs.

pub mod behavior;
mod metrics;
pub mod plan;
pub mod usage;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::autoscaling::v2::{
    ContainerResourceMetricStatus, HorizontalPodAutoscaler, MetricSpec, MetricStatus, MetricTarget,
    MetricValueStatus, ResourceMetricStatus,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use shoal_objects::Quantity;
use shoal_objects::clock::Clock;
use shoal_objects::selector::LabelSelector;
use shoal_runtime::cache::Delta;
use shoal_runtime::trigger::Predicate;
use shoal_runtime::{Action, Context, Controller, ObjectKey, Result};

use crate::scale::{self, Target};
use crate::time::now;
use behavior::Memory;
use plan::{Failed, Found, Measured, Need, Plan};
use usage::{Goal, Measure, Reading, Starting};

/// Settings, as kube-controller-manager has them.
#[derive(Clone, Debug)]
pub struct Options {
    /// How often each autoscaler looks at its metrics.
    pub sync_period: Duration,
    /// For how long a lower size must have been wanted before anything is taken away, if the autoscaler does not say.
    pub downscale_stabilization: Duration,
    /// Since when the CPU usage of a pod says something.
    pub starting: Starting,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            sync_period: Duration::from_secs(15),
            downscale_stabilization: Duration::from_secs(300),
            starting: Starting::default(),
        }
    }
}

/// What all reconciles share.
struct Shared {
    clock: Clock,
    options: Options,
    memories: Mutex<HashMap<ObjectKey, Memory>>,
}

/// The controller.
pub fn controller(clock: Clock, options: Options) -> Controller {
    let shared = Arc::new(Shared { clock, options, memories: Mutex::default() });
    Controller::of::<HorizontalPodAutoscaler>("horizontal-pod-autoscaler")
        .reads::<Pod>()
        // Its own statuses would make it look far more often than it should.
        .when(Predicate::new(spec_changed))
        .reconcile(move |context| reconcile(Arc::clone(&shared), context))
}

fn spec_changed(delta: &Delta) -> bool {
    let (Some(old), Some(new)) = (&delta.old, &delta.new) else { return true };
    match (old.decode::<HorizontalPodAutoscaler>(), new.decode::<HorizontalPodAutoscaler>()) {
        (Ok(old), Ok(new)) => old.spec != new.spec || old.metadata.uid != new.metadata.uid,
        _ => true,
    }
}

async fn reconcile(shared: Arc<Shared>, context: Context<HorizontalPodAutoscaler>) -> Result<Action> {
    let Some(autoscaler) = context.object() else {
        shared.memories.lock().remove(context.key());
        return Ok(Action::done());
    };
    let window = i32::try_from(shared.options.downscale_stabilization.as_secs()).unwrap_or(i32::MAX);
    let known = shared.memories.lock().get(context.key()).cloned();
    let mut memory = known.unwrap_or_else(|| Memory::lasting(window));
    let moment = (shared.options.starting, now(&shared.clock));
    let plan = look(&context, &autoscaler, &mut memory, moment).await;
    shared.memories.lock().insert(context.key().clone(), memory);
    for (reason, message) in &plan.warnings {
        context.recorder().warning(&*autoscaler, reason, message.clone());
    }
    let status = plan.status;
    let set = |autoscaler: &mut HorizontalPodAutoscaler| autoscaler.status = Some(status.clone());
    context.writer().modify_status(context.key(), Some(&*autoscaler), set).await?;
    Ok(Action::after(shared.options.sync_period))
}

/// Reads the size and the metrics, and changes the size if that is the outcome.
async fn look(
    context: &Context<HorizontalPodAutoscaler>,
    autoscaler: &HorizontalPodAutoscaler,
    memory: &mut Memory,
    (starting, now): (Starting, Timestamp),
) -> Plan {
    let reference = &autoscaler.spec.scale_target_ref;
    let target = Target {
        api_version: reference.api_version.as_deref().unwrap_or("v1"),
        kind: &reference.kind,
        namespace: &context.key().namespace,
        name: &reference.name,
    };
    let (resource, scale) = match scale::get(context.client(), target).await {
        Ok(found) => found,
        Err(error) => return plan::unreadable(autoscaler, &error.to_string(), now),
    };
    let current = scale.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or_default();
    let selector = scale.status.as_ref().and_then(|status| status.selector.as_deref()).unwrap_or_default();
    let measured = match plan::need(autoscaler, current) {
        Need::Metrics => measure_all(context, autoscaler, selector, current, (starting, now)).await,
        Need::Disabled | Need::Fixed(..) => Vec::new(),
    };
    let mut plan = plan::plan(autoscaler, current, &measured, memory, now);
    let Some((replicas, why)) = plan.rescale.clone() else { return plan };
    match scale::set(context.client(), target, &resource, &scale, replicas).await {
        Ok(()) => {
            memory.scaled(current, replicas, now);
            plan.succeed(replicas, now);
            let message = format!("New size: {replicas}; reason: {why}");
            context.recorder().normal(autoscaler, "SuccessfulRescale", message);
        }
        Err(error) => {
            let error = scale::Unscaled::Refused(error).to_string();
            let message = format!("New size: {replicas}; reason: {why}; error: {error}");
            plan.warnings.push(("FailedRescale", message));
            plan.fail(current, &error, now);
        }
    }
    plan
}

async fn measure_all(
    context: &Context<HorizontalPodAutoscaler>,
    autoscaler: &HorizontalPodAutoscaler,
    selector: &str,
    current: i32,
    moment: (Starting, Timestamp),
) -> Vec<Measured> {
    let mut all = Vec::new();
    for metric in autoscaler.spec.metrics.iter().flatten() {
        all.push(measure(context, autoscaler, metric, selector, current, moment).await);
    }
    all
}

/// What one metric says.
async fn measure(
    context: &Context<HorizontalPodAutoscaler>,
    autoscaler: &HorizontalPodAutoscaler,
    metric: &MetricSpec,
    selector: &str,
    current: i32,
    (starting, now): (Starting, Timestamp),
) -> Measured {
    let (measure, target, reason) = source(metric)?;
    let resource = measure.resource;
    let value = match measure.container {
        Some(_) => format!("{resource} container metric value"),
        None => format!("{resource} resource metric value"),
    };
    let fail = |reason, message| Failed { reason, message, value: value.clone() };
    let Some(pods_of) = LabelSelector::parse(selector).ok().filter(|selector| !selector.is_everything())
    else {
        let message = "the HPA target's scale is missing a selector".to_owned();
        return Err(fail("InvalidSelector", message));
    };
    let goal = goal(target).ok_or_else(|| {
        fail(reason, "invalid resource metric source: neither an average utilization target nor an average value target was set".to_owned())
    })?;
    let wanted = if matches!(goal, Goal::Utilization(_)) { "utilization" } else { "usage" };
    let wrap = |message: String| fail(reason, format!("failed to get {resource} {wanted}: {message}"));
    let namespace = &context.key().namespace;
    let samples = metrics::samples(context.client(), namespace, selector, measure)
        .await
        .map_err(|why| wrap(format!("unable to get metrics for resource {resource}: {why}")))?;
    let pods = context.lister::<Pod>().select_in(namespace, &pods_of);
    let rules = (behavior::tolerance(autoscaler), starting);
    let reading = usage::read(current, &pods, &samples, (measure, goal), rules, now).map_err(wrap)?;
    let name = match goal {
        Goal::Utilization(_) => format!("{resource} resource utilization (percentage of request)"),
        Goal::Average(_) => format!("{resource} resource"),
    };
    Ok(Found { name, replicas: reading.replicas, status: status(measure, &reading) })
}

/// What a metric of the specification measures, its target, and the reason when that fails.
fn source(metric: &MetricSpec) -> std::result::Result<(Measure<'_>, &MetricTarget, &'static str), Failed> {
    if let Some(resource) = &metric.resource {
        let measure = Measure { resource: &resource.name, container: None };
        return Ok((measure, &resource.target, "FailedGetResourceMetric"));
    }
    if let Some(resource) = &metric.container_resource {
        let measure = Measure { resource: &resource.name, container: Some(&resource.container) };
        return Ok((measure, &resource.target, "FailedGetContainerResourceMetric"));
    }
    let (reason, api) = match metric.type_.as_str() {
        "Pods" => ("FailedGetPodsMetric", "custom"),
        "Object" => ("FailedGetObjectMetric", "custom"),
        "External" => ("FailedGetExternalMetric", "external"),
        _ => ("InvalidMetricSourceType", "any"),
    };
    let kind = metric.type_.to_lowercase();
    let message = format!(
        "unable to fetch metrics from {api} metrics API: this controller reads resource metrics only"
    );
    Err(Failed { reason, message, value: format!("{kind} metric value") })
}

fn goal(target: &MetricTarget) -> Option<Goal> {
    if let Some(average) = &target.average_value {
        return Some(Goal::Average(Quantity::parse(&average.0).ok()?.milli_value()));
    }
    target.average_utilization.map(Goal::Utilization)
}

fn status(measure: Measure<'_>, reading: &Reading) -> MetricStatus {
    let current = MetricValueStatus {
        average_utilization: reading.utilization,
        average_value: Some(Text(Quantity::from_milli(reading.average).to_string())),
        value: None,
    };
    let name = measure.resource.to_owned();
    match measure.container {
        Some(container) => MetricStatus {
            type_: "ContainerResource".to_owned(),
            container_resource: Some(ContainerResourceMetricStatus {
                container: container.to_owned(),
                current,
                name,
            }),
            ..MetricStatus::default()
        },
        None => MetricStatus {
            type_: "Resource".to_owned(),
            resource: Some(ResourceMetricStatus { current, name }),
            ..MetricStatus::default()
        },
    }
}

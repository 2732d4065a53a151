//! The conditions, in the words of kstatus: Ready, Reconciling and Stalled, and details beside them.

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use shoal_runtime::status::{Report, set_condition};

use super::{Observed, Problem, Rollout, phase_of};
use crate::api::{ApplicationStatus, Phase, ServiceType};

/// Sets all conditions of a status whose other fields are there. Those that do not apply are removed.
pub(super) fn set(
    status: &mut ApplicationStatus,
    observed: &Observed<'_>,
    state: &Rollout,
    problem: Option<&Problem>,
) {
    let mut reports = main(status, observed, state, problem);
    reports.extend(service(observed));
    reports.extend(observed.autoscaler.map(autoscaler));
    reports.extend(storage(observed));
    let known: Vec<&str> = reports.iter().map(|report| report.type_).collect();
    let mut conditions: Vec<Condition> = std::mem::take(&mut status.conditions);
    conditions.retain(|condition| known.contains(&condition.type_.as_str()));
    for report in reports {
        set_condition(&mut conditions, report, observed.app.metadata.generation, observed.now);
    }
    conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
    status.conditions = conditions;
}

fn report(
    type_: &'static str,
    status: bool,
    reason: &'static str,
    message: impl Into<String>,
) -> Report<'static> {
    Report { type_, status: Some(status), reason, message: message.into() }
}

fn main(
    status: &ApplicationStatus,
    observed: &Observed<'_>,
    state: &Rollout,
    problem: Option<&Problem>,
) -> Vec<Report<'static>> {
    let phase = status.phase.unwrap_or(Phase::Creating);
    let (ready, desired) = (status.ready_replicas, status.desired_replicas);
    let all_there = format!("{ready} of {desired} pods are ready");
    let rolled_back = observed.choice.is_rolled_back() && status.failed_revision.is_some();
    let (reason, message) = match phase {
        Phase::Failed => why_failed(status, state, problem, rolled_back),
        Phase::Deleting => ("Deleting", "it is being deleted".to_owned()),
        Phase::Paused => ("Paused", "it is left alone: remove spec.paused to go on".to_owned()),
        Phase::Suspended => ("Suspended", "no pods are wanted".to_owned()),
        Phase::Creating => ("Creating", all_there),
        Phase::Updating => {
            ("Updating", format!("{} of {desired} pods are of the new template", status.updated_replicas))
        }
        Phase::Scaling => ("Scaling", all_there),
        Phase::Running if ready < desired => ("PodsNotReady", all_there),
        Phase::Running => ("AllReady", all_there),
    };
    let is_ready = match phase {
        Phase::Running => ready >= desired,
        Phase::Suspended => true,
        _ => false,
    };
    let moving = matches!(phase, Phase::Creating | Phase::Updating | Phase::Scaling | Phase::Deleting);
    let degraded = phase == Phase::Failed || (phase == Phase::Running && ready < desired);
    let available = status.available_replicas > 0 || (desired == 0 && phase == Phase::Suspended);
    let available_message = format!("{} of {desired} pods are available", status.available_replicas);
    let mut reports = vec![
        report("Ready", is_ready, reason, message.clone()),
        report("Available", available, if available { "PodsAvailable" } else { "NoPods" }, available_message),
        report("Progressing", moving, reason, message.clone()),
        report("Degraded", degraded, reason, message.clone()),
    ];
    // By custom these two are there only while they are true.
    if moving {
        reports.push(report("Reconciling", true, reason, message.clone()));
    }
    if phase == Phase::Failed {
        reports.push(report("Stalled", true, reason, message.clone()));
    }
    if rolled_back {
        reports.push(report("RolledBack", true, "RolloutFailed", message));
    }
    reports
}

fn why_failed(
    status: &ApplicationStatus,
    state: &Rollout,
    problem: Option<&Problem>,
    rolled_back: bool,
) -> (&'static str, String) {
    if let Some(problem) = problem {
        return (problem.reason, problem.message.clone());
    }
    if let Some(why) = &status.failed_reason {
        let remedy = "change the specification to try again";
        if rolled_back {
            let message =
                format!("the rollout failed: {why}; the last template that worked was put back: {remedy}");
            return ("RolledBack", message);
        }
        return ("RolloutFailed", format!("the rollout failed: {why}; {remedy}"));
    }
    match state {
        Rollout::Overdue(said) => ("ProgressDeadlineExceeded", said.clone()),
        _ => ("Failed", "it does not go on".to_owned()),
    }
}

fn service(observed: &Observed<'_>) -> Option<Report<'static>> {
    let service = observed.service?;
    let network = observed.app.spec.network.as_ref();
    let outside = network.is_some_and(|network| network.service_type == ServiceType::LoadBalancer);
    let has_address = || {
        let entries = service.status.as_ref()?.load_balancer.as_ref()?.ingress.as_ref()?;
        (!entries.is_empty()).then_some(())
    };
    if outside && has_address().is_none() {
        let message = "the load balancer has no address yet: a cluster needs a provider of load balancers";
        return Some(report("ServiceReady", false, "AddressPending", message));
    }
    Some(report("ServiceReady", true, "ServiceThere", "the Service is there"))
}

fn autoscaler(autoscaler: &HorizontalPodAutoscaler) -> Report<'static> {
    let conditions = autoscaler.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let failing = conditions
        .filter(|condition| matches!(condition.type_.as_str(), "AbleToScale" | "ScalingActive"))
        .find(|condition| condition.status == "False");
    match failing {
        Some(condition) => {
            let said = condition.message.as_deref().unwrap_or_default();
            let reason = condition.reason.as_deref().unwrap_or_default();
            report("AutoscalerReady", false, "AutoscalerFailing", format!("{reason}: {said}"))
        }
        None => {
            report("AutoscalerReady", true, "AutoscalerThere", "the autoscaler says how many pods there are")
        }
    }
}

fn storage(observed: &Observed<'_>) -> Option<Report<'static>> {
    let wanted = observed.app.spec.claims().len();
    if wanted == 0 {
        return None;
    }
    let bound = observed.claims.iter().filter(|claim| phase_of(claim) == Some("Bound")).count();
    let lost = observed.claims.iter().any(|claim| phase_of(claim) == Some("Lost"));
    let message = format!("{bound} of {wanted} volumes are bound");
    Some(match (lost, bound >= wanted) {
        (true, _) => report("StorageReady", false, "VolumeLost", message),
        (false, true) => report("StorageReady", true, "VolumesBound", message),
        (false, false) => report("StorageReady", false, "VolumesPending", message),
    })
}

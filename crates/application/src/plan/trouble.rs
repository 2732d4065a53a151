//! Pods that will not come up, however long one waits.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use k8s_openapi::jiff::Timestamp;

use super::Problem;

/// A pull that fails is tried again; registries are sometimes away for a moment.
const PULL_GRACE_SECONDS: i64 = 60;

/// What is wrong with the pods of a new template, if it is sure to be more than a hiccup.
pub fn trouble(pods: &[Pod], restarts: i32, now: Timestamp) -> Option<Problem> {
    pods.iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none())
        .find_map(|pod| of_pod(pod, restarts, now))
}

fn of_pod(pod: &Pod, restarts: i32, now: Timestamp) -> Option<Problem> {
    let status = pod.status.as_ref()?;
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let made = pod.metadata.creation_timestamp.as_ref()?.0;
    let old = now.as_second().saturating_sub(made.as_second()) >= PULL_GRACE_SECONDS;
    let containers = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    containers.into_iter().find_map(|container| of_container(name, container, restarts, old))
}

fn of_container(pod: &str, container: &ContainerStatus, restarts: i32, old: bool) -> Option<Problem> {
    if container.ready {
        return None;
    }
    let waiting = container.state.as_ref().and_then(|state| state.waiting.as_ref());
    let reason = waiting.and_then(|waiting| waiting.reason.as_deref()).unwrap_or_default();
    let said = waiting.and_then(|waiting| waiting.message.as_deref()).unwrap_or_default();
    let said = if said.is_empty() { String::new() } else { format!(": {said}") };
    let image = &container.image;
    match reason {
        "InvalidImageName" | "ErrImageNeverPull" => {
            Some(Problem::new("ImageUnusable", format!("image {image} cannot be used ({reason}){said}")))
        }
        "ErrImagePull" | "ImagePullBackOff" if old => {
            Some(Problem::new("ImagePullFailed", format!("image {image} cannot be pulled ({reason}){said}")))
        }
        "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError" if old => {
            let message = format!("a container of pod {pod} cannot be made ({reason}){said}");
            Some(Problem::new("ContainerFailed", message))
        }
        _ if container.restart_count >= restarts => {
            let message = format!("a container of pod {pod} ended {} times", container.restart_count);
            Some(Problem::new("CrashLoop", message))
        }
        _ => None,
    }
}

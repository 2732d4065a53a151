//! The pods of a Job.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, ObjectFieldSelector, Pod};
use shoal_objects::entropy::Entropy;

use crate::{claim, pods};

/// Keeps a pod until its Job has counted it.
pub const TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// Which part of an indexed Job the pod does.
pub const INDEX: &str = "batch.kubernetes.io/job-completion-index";
const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";

/// Whether the Job's pods have indexes.
pub fn is_indexed(job: &Job) -> bool {
    job.spec.as_ref().and_then(|spec| spec.completion_mode.as_deref()) == Some("Indexed")
}

/// The index of a pod.
pub fn index(pod: &Pod) -> Option<i32> {
    pod.metadata.annotations.as_ref()?.get(INDEX)?.parse().ok()
}

/// Whether the Job has not yet let the pod go.
pub fn is_tracked(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == TRACKING)
}

/// A pod of the Job.
pub fn create(job: &Job, index: Option<i32>, entropy: &Entropy) -> Option<Pod> {
    let template = &job.spec.as_ref()?.template;
    let (name, namespace) = (job.metadata.name.as_deref()?, job.metadata.namespace.as_deref()?);
    let owner = claim::reference(job)?;
    let prefix = index.map_or_else(|| name.to_owned(), |index| format!("{name}-{index}"));
    let mut pod = pods::from_template(template, &prefix, namespace, owner, entropy);
    pod.metadata.finalizers.get_or_insert_default().push(TRACKING.to_owned());
    if let Some(index) = index {
        let text = index.to_string();
        pod.metadata.annotations.get_or_insert_default().insert(INDEX.to_owned(), text.clone());
        pod.metadata.labels.get_or_insert_default().insert(INDEX.to_owned(), text);
        let spec = pod.spec.as_mut()?;
        spec.hostname = Some(prefix);
        for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
            let env = container.env.get_or_insert_default();
            if !env.iter().any(|variable| variable.name == INDEX_VARIABLE) {
                env.push(index_variable());
            }
        }
    }
    Some(pod)
}

fn index_variable() -> EnvVar {
    let field = ObjectFieldSelector {
        field_path: format!("metadata.labels['{INDEX}']"),
        ..ObjectFieldSelector::default()
    };
    EnvVar {
        name: INDEX_VARIABLE.to_owned(),
        value_from: Some(EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() }),
        ..EnvVar::default()
    }
}

//! Pods whose Job is gone: nobody will count them, so nothing may hold them.

use std::collections::HashSet;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use parking_lot::Mutex;
use shoal_runtime::controller::Listers;
use shoal_runtime::{Context, ObjectKey, Result, finalizer, owner};

use super::pod;

const JOB_NAME: &str = "batch.kubernetes.io/job-name";

/// Keys of Jobs that seem to have left pods behind.
#[derive(Default)]
pub(super) struct Orphans(Mutex<HashSet<ObjectKey>>);

impl Orphans {
    /// Looks at a pod; gives the key of its Job if the cache does not have that Job.
    pub(super) fn see(&self, pod: &Pod, listers: &Listers) -> Vec<ObjectKey> {
        let Some((key, uid)) = job_of(pod).filter(|_| pod::is_tracked(pod)) else { return Vec::new() };
        let job = listers.of::<Job>().meta(&key);
        if job.is_some_and(|job| uid.is_none_or(|uid| *job.uid() == *uid)) {
            return Vec::new();
        }
        self.0.lock().insert(key.clone());
        vec![key]
    }

    /// Lets go of the pods that the Job of this key has left behind, if it did.
    pub(super) async fn release(&self, context: &Context<Job>) -> Result<()> {
        let key = context.key();
        if !self.0.lock().remove(key) && context.object().is_some() {
            return Ok(());
        }
        let lister = context.lister::<Pod>();
        let all = lister.metas_in(&key.namespace);
        let tracked = all.iter().filter(|pod| pod.finalizers().iter().any(|held| **held == *pod::TRACKING));
        let mut pods: Vec<_> = tracked.filter_map(|pod| lister.decode(pod)).collect();
        pods.retain(|pod| job_of(pod).is_some_and(|(job, _)| job == *key));
        if pods.is_empty() {
            return Ok(());
        }
        // The cache may be behind: only the server knows that a Job is not there.
        let job = context.writer().get::<Job>(key).await?;
        let lives = |uid: Option<&str>| {
            job.as_ref().is_some_and(|job| uid.is_none_or(|uid| job.uid().as_deref() == Some(uid)))
        };
        for pod in pods {
            if !lives(job_of(&pod).and_then(|(_, uid)| uid)) {
                finalizer::remove(context.writer(), &*pod, pod::TRACKING).await?;
            }
        }
        Ok(())
    }
}

/// The Job that controls a pod, or that did by its labels, and its uid where it is known.
fn job_of(pod: &Pod) -> Option<(ObjectKey, Option<&str>)> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    match owner::controller_of(&pod.metadata) {
        Some(job) if job.kind == "Job" => Some((ObjectKey::new(namespace, &job.name), Some(&job.uid))),
        Some(_) => None,
        None => {
            let name = pod.metadata.labels.as_ref()?.get(JOB_NAME)?;
            Some((ObjectKey::new(namespace, name), None))
        }
    }
}

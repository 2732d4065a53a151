//! Creating and deleting pods for an owner, and telling people about it.

use k8s_openapi::api::core::v1::Pod;
use shoal_runtime::{Context, Error, Object, Result};

use crate::pending::Pending;

/// What came of creating pods.
#[derive(Debug, Default)]
pub struct Made {
    /// So many exist now.
    pub created: usize,
    /// What people are told about the first one that does not, and the error itself.
    pub failure: Option<(String, Error)>,
}

/// Creates pods, each batch twice as large as the one before. The first failure ends it, so that a server that refuses
/// is not asked five hundred times.
pub async fn create<K: Object>(
    context: &Context<K>,
    parent: &K,
    pending: &Pending,
    mut pods: Vec<Pod>,
) -> Made {
    let mut made = Made::default();
    let mut batch = 1;
    while !pods.is_empty() && made.failure.is_none() {
        let rest = pods.split_off(batch.min(pods.len()));
        // Before the request: its answer may be lost.
        pods.iter().for_each(|pod| pending.created(context.key(), pod));
        let results = futures::future::join_all(pods.iter().map(|pod| context.writer().create(pod))).await;
        for result in results {
            match result {
                Ok(pod) => {
                    made.created += 1;
                    let name = pod.metadata.name.as_deref().unwrap_or_default();
                    context.recorder().normal(parent, "SuccessfulCreate", format!("Created pod: {name}"));
                }
                Err(error) => {
                    let message = format!("Error creating: {}", why(&error));
                    made.failure = Some((message, error));
                }
            }
        }
        pods = rest;
        batch *= 2;
    }
    if let Some((message, _)) = &made.failure {
        context.recorder().warning(parent, "FailedCreate", message.clone());
    }
    made
}

/// Deletes a pod.
pub async fn delete<K: Object>(context: &Context<K>, parent: &K, pending: &Pending, pod: &Pod) -> Result<()> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    pending.deleted(context.key(), pod);
    if let Err(error) = context.writer().delete(pod).await {
        context.recorder().warning(parent, "FailedDelete", format!("Error deleting: {}", why(&error)));
        return Err(error);
    }
    context.recorder().normal(parent, "SuccessfulDelete", format!("Deleted pod: {name}"));
    Ok(())
}

/// What the server said, or what failed if it was not the server.
pub fn why(error: &Error) -> String {
    match error.source.as_ref().and_then(|source| source.downcast_ref::<kube::Error>()) {
        Some(kube::Error::Api(status)) => status.message.clone(),
        _ => error.to_string(),
    }
}

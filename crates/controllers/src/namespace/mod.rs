//! Namespaces on their way out: everything in them goes first, of whatever kind the server has.

mod conditions;
mod sweep;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, NamespaceStatus};
use kube::core::Request;
use parking_lot::Mutex;
use shoal_objects::clock::Clock;
use shoal_runtime::{Action, Context, Controller, Error, ObjectKey, Result, worker};

use crate::discovery::{Discovery, Kind};
use crate::time::now;
use sweep::Remains;

/// The finalizer that this controller removes.
const FINALIZER: &str = "kubernetes";
/// First and longest pause between two looks at what remains.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(5));

/// What is known about a namespace between two looks.
#[derive(Default)]
struct Progress {
    looks: u32,
    /// Kinds of which something was left.
    waiting: Vec<Kind>,
    failed: Vec<String>,
}

struct Shared {
    clock: Clock,
    progress: Mutex<HashMap<ObjectKey, Progress>>,
}

/// The controller.
pub fn controller(clock: Clock) -> Controller {
    let shared = Arc::new(Shared { clock, progress: Mutex::default() });
    Controller::of::<Namespace>("namespace-controller")
        .field_manager("kube-controller-manager")
        .worker_settings(worker::Settings { max_concurrent: 10, ..worker::Settings::default() })
        .reconcile(move |context| reconcile(Arc::clone(&shared), context))
}

async fn reconcile(shared: Arc<Shared>, context: Context<Namespace>) -> Result<Action> {
    let dying = context.object().filter(|namespace| namespace.metadata.deletion_timestamp.is_some());
    let Some(namespace) = dying else {
        shared.progress.lock().remove(context.key());
        return Ok(Action::done());
    };
    let finalizers = namespace.spec.as_ref().and_then(|spec| spec.finalizers.as_ref());
    if !finalizers.is_some_and(|finalizers| finalizers.iter().any(|finalizer| finalizer == FINALIZER)) {
        // Servers let it go with its last finalizer; those that did not are asked to.
        let last = finalizers.is_none_or(Vec::is_empty) && namespace.metadata.finalizers.is_none();
        if last {
            context.writer().delete(&*namespace).await?;
        }
        return Ok(Action::done());
    }
    let mut progress = shared.progress.lock().remove(context.key()).unwrap_or_default();
    let remains = look(&context, &mut progress).await?;
    if remains.is_empty() && progress.failed.is_empty() {
        return finalize(&context).await;
    }
    let conditions = conditions::of(&remains, &progress.failed);
    let time = now(&shared.clock);
    context
        .writer()
        .modify_status(context.key(), Some(&*namespace), |namespace: &mut Namespace| {
            let status = namespace.status.get_or_insert_with(NamespaceStatus::default);
            conditions::merge(status.conditions.get_or_insert_default(), &conditions, time);
        })
        .await?;
    progress.looks += 1;
    progress.waiting = remains.into_iter().map(|remains| remains.kind).collect();
    let pause = PAUSES.0.saturating_mul(1 << progress.looks.min(12)).min(PAUSES.1);
    shared.progress.lock().insert(context.key().clone(), progress);
    Ok(Action::after(pause))
}

/// Deletes what is there and tells what is left. As long as something is left of the kinds of the last look, the others
/// are not looked at again: nothing new comes into a namespace that goes.
async fn look(context: &Context<Namespace>, progress: &mut Progress) -> Result<Vec<Remains>> {
    let (client, name) = (context.client(), &context.key().name);
    if !progress.waiting.is_empty() {
        let remains = sweep::kinds(client, name, std::mem::take(&mut progress.waiting)).await;
        if !remains.is_empty() {
            return Ok(remains);
        }
    }
    let discovery = Discovery::ask(client).await?;
    progress.failed.clone_from(&discovery.failed);
    let mut kinds: Vec<Kind> = discovery
        .preferred()
        .filter(|kind| kind.namespaced && kind.can(&["list", "delete"]))
        .cloned()
        .collect();
    // Pods go before what they use: policies and secrets must hold as long as anything runs.
    let is_pod = |kind: &Kind| kind.resource.group.is_empty() && kind.resource.plural == "pods";
    if let Some(place) = kinds.iter().position(is_pod) {
        let pods = kinds.swap_remove(place);
        let remains = sweep::kinds(client, name, vec![pods]).await;
        if !remains.is_empty() {
            return Ok(remains);
        }
    }
    Ok(sweep::kinds(client, name, kinds).await)
}

/// Nothing is left: the namespace itself goes.
async fn finalize(context: &Context<Namespace>) -> Result<Action> {
    let writer = context.writer();
    let Some(mut namespace) = writer.get::<Namespace>(context.key()).await? else {
        return Ok(Action::done());
    };
    let uid = context.object().and_then(|seen| seen.metadata.uid.clone());
    if namespace.metadata.uid != uid || namespace.metadata.deletion_timestamp.is_none() {
        return Ok(Action::done());
    }
    if let Some(finalizers) = namespace.spec.as_mut().and_then(|spec| spec.finalizers.as_mut()) {
        finalizers.retain(|finalizer| finalizer != FINALIZER);
    }
    let action = || format!("cannot finalize namespace {}", context.key());
    let body = serde_json::to_vec(&namespace).map_err(|error| Error::permanent(action()).because(error))?;
    let request = Request::new("/api/v1/namespaces")
        .replace_subresource("finalize", &context.key().name, &kube::api::PostParams::default(), body)
        .map_err(|error| Error::permanent(action()).because(error))?;
    match context.client().request::<serde_json::Value>(request).await {
        Ok(_) => Ok(Action::done()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Action::done()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn remains(plural: &str, count: u64, finalizers: &[(&str, u64)]) -> Remains {
        Remains {
            kind: Kind::of_test(plural),
            count,
            finalizers: finalizers.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
            error: None,
        }
    }
}

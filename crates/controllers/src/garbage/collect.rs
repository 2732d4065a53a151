//! What is done about one object. The graph proposes; the server is asked before anything is deleted.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions, PropagationPolicy};
use serde_json::{Value, json};
use shoal_runtime::{Action, Error, Result};

use super::Collector;
use super::graph::{Decision, FOREGROUND, Identity, KindRef, ORPHAN, Policy};
use crate::discovery::Kind;

/// Until all kinds have been seen for the first time.
const SOON: Duration = Duration::from_millis(20);
/// Orphans of one owner that are written at the same time.
const ORPHANS_AT_ONCE: usize = 16;

impl Collector {
    /// An object exists, so.
    pub fn observe(&self, kind: &Arc<KindRef>, meta: &ObjectMeta) {
        let look = self.graph.lock().observe(kind, meta);
        look.into_iter().for_each(|object| self.queue.add(object));
    }

    /// An object is gone.
    pub fn forget(&self, uid: &str) {
        let look = self.graph.lock().remove(uid);
        look.into_iter().for_each(|object| self.queue.add(object));
    }

    /// Looks at one object and does what is due.
    pub async fn work(&self, object: Identity) -> Result<Action> {
        // Who has not seen all dependents cannot know that none is left.
        if !self.monitors.read().have_synced() {
            return Ok(Action::after(SOON));
        }
        let unknown = self.graph.lock().unknown_owners(&object.uid);
        for owner in unknown {
            if !self.exists(&object, &owner).await? {
                self.graph.lock().owner_is_absent(&owner.uid);
            }
        }
        let (decision, owners) = {
            let graph = self.graph.lock();
            (graph.decide(&object.uid), graph.owners_of(&object.uid))
        };
        if decision == Decision::Keep {
            return Ok(Action::done());
        }
        // Most objects have not changed since the cache saw them: then the server need not be asked first.
        if let Decision::Delete(policy) = decision
            && let Some(known) = self.known(&object)
            && may_delete(&known, &owners)
            && self.delete_known(&object, &known, policy).await?
        {
            return Ok(Action::done());
        }
        let Some(live) = self.live(&object).await? else {
            self.forget(&object.uid);
            return Ok(Action::done());
        };
        match decision {
            Decision::Keep => {}
            Decision::Delete(policy) => return self.delete(&object, &live, &owners, policy).await,
            Decision::Forget(owners) => self.forget_owners(&object, &live, &owners).await?,
            Decision::Finish => self.remove_finalizer(&object, &live, FOREGROUND).await?,
            Decision::Orphan(dependents) => {
                let owner = [object.uid.to_string()];
                let forget = |dependent: Identity| {
                    let owner = &owner;
                    async move {
                        match self.live(&dependent).await? {
                            Some(live) => self.forget_owners(&dependent, &live, owner).await,
                            None => Ok(()),
                        }
                    }
                };
                futures::stream::iter(dependents.into_iter().map(forget))
                    .buffer_unordered(ORPHANS_AT_ONCE)
                    .try_collect::<Vec<()>>()
                    .await?;
                self.remove_finalizer(&object, &live, ORPHAN).await?;
            }
        }
        Ok(Action::done())
    }

    /// Whether an owner that no watch has shown exists.
    async fn exists(&self, dependent: &Identity, owner: &OwnerReference) -> Result<bool> {
        let kind = self.kind(&owner.api_version, &owner.kind)?;
        if kind.namespaced && dependent.key.namespace.is_empty() {
            // Nobody can say in which namespace: such a reference holds for ever.
            return Ok(true);
        }
        let api = api(&self.client, &kind, &dependent.key.namespace);
        let found = api.get_metadata_opt(&owner.name).await?;
        Ok(found.is_some_and(|found| found.metadata.uid.as_ref() == Some(&owner.uid)))
    }

    /// The object as the server has it; nothing when it is gone or another has its name.
    async fn live(&self, object: &Identity) -> Result<Option<ObjectMeta>> {
        let found = self.api(object)?.get_metadata_opt(&object.key.name).await?;
        Ok(found.map(|found| found.metadata).filter(|found| found.uid.as_deref() == Some(&*object.uid)))
    }

    /// Deletes an object whose owners, as far as was known, are gone.
    async fn delete(
        &self,
        object: &Identity,
        live: &ObjectMeta,
        gone: &[OwnerReference],
        policy: Policy,
    ) -> Result<Action> {
        if !may_delete(live, gone) {
            // The watch has yet to show what the server knows; then it is looked at again.
            return Ok(Action::done());
        }
        // If it has changed since it was read, it perhaps has an owner again.
        let deleted = self.delete_known(object, live, policy).await?;
        Ok(if deleted { Action::done() } else { Action::after(SOON) })
    }

    /// Deletes exactly this version of an object; `false`: there is another by now.
    async fn delete_known(&self, object: &Identity, known: &ObjectMeta, policy: Policy) -> Result<bool> {
        let has = |finalizer: &str| known.finalizers.iter().flatten().any(|present| present == finalizer);
        let policy = match policy {
            _ if has(ORPHAN) => PropagationPolicy::Orphan,
            _ if has(FOREGROUND) => PropagationPolicy::Foreground,
            Policy::Foreground => PropagationPolicy::Foreground,
            Policy::Orphan => PropagationPolicy::Orphan,
            Policy::Background => PropagationPolicy::Background,
        };
        let params = DeleteParams {
            propagation_policy: Some(policy),
            preconditions: Some(Preconditions {
                uid: known.uid.clone(),
                resource_version: known.resource_version.clone(),
            }),
            ..DeleteParams::default()
        };
        match self.api(object)?.delete(&object.key.name, &params).await {
            Ok(answer) => {
                // What depends on it need not wait for the watch, unless it is not gone yet.
                if answer.is_right() {
                    self.forget(&object.uid);
                }
                Ok(true)
            }
            Err(kube::Error::Api(status)) if status.code == 404 => {
                self.forget(&object.uid);
                Ok(true)
            }
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The object as the cache has it, if that is the same one.
    fn known(&self, object: &Identity) -> Option<ObjectMeta> {
        self.monitors
            .read()
            .known(&object.kind, &object.key)
            .filter(|known| known.uid.as_deref() == Some(&*object.uid))
    }

    async fn forget_owners(&self, object: &Identity, live: &ObjectMeta, gone: &[String]) -> Result<()> {
        let all = live.owner_references.as_deref().unwrap_or_default();
        let kept: Vec<&OwnerReference> = all.iter().filter(|owner| !gone.contains(&owner.uid)).collect();
        if kept.len() == all.len() {
            return Ok(());
        }
        let kept = if kept.is_empty() { Value::Null } else { json!(kept) };
        self.patch(object, live, json!({"ownerReferences": kept})).await
    }

    async fn remove_finalizer(&self, object: &Identity, live: &ObjectMeta, finalizer: &str) -> Result<()> {
        let all = live.finalizers.as_deref().unwrap_or_default();
        let kept: Vec<&String> = all.iter().filter(|present| *present != finalizer).collect();
        if kept.len() == all.len() {
            return Ok(());
        }
        let kept = if kept.is_empty() { Value::Null } else { json!(kept) };
        self.patch(object, live, json!({"finalizers": kept})).await
    }

    /// Writes metadata over exactly the version that was read.
    async fn patch(&self, object: &Identity, live: &ObjectMeta, mut metadata: Value) -> Result<()> {
        metadata["uid"] = json!(live.uid);
        metadata["resourceVersion"] = json!(live.resource_version);
        let patch = Patch::Merge(json!({"metadata": metadata}));
        match self.api(object)?.patch_metadata(&object.key.name, &PatchParams::default(), &patch).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn api(&self, object: &Identity) -> Result<Api<DynamicObject>> {
        let kind = self.kind(&object.kind.api_version, &object.kind.kind)?;
        Ok(api(&self.client, &kind, &object.key.namespace))
    }

    fn kind(&self, api_version: &str, kind: &str) -> Result<Kind> {
        let monitors = self.monitors.read();
        monitors.discovery.find(api_version, kind).cloned().ok_or_else(|| {
            Error::unknown(format!(
                "the server has no {kind} of {api_version}, which an owner reference names"
            ))
        })
    }
}

fn api(client: &Client, kind: &Kind, namespace: &str) -> Api<DynamicObject> {
    if kind.namespaced {
        Api::namespaced_with(client.clone(), namespace, &kind.resource)
    } else {
        Api::all_with(client.clone(), &kind.resource)
    }
}

/// Whether an object is still the one that its deletion was decided for: not what is known by now, but what was known
/// then. Who has no owner any more was made an orphan meanwhile.
fn may_delete(live: &ObjectMeta, gone: &[OwnerReference]) -> bool {
    let owners = plain(live.owner_references.clone().unwrap_or_default());
    live.deletion_timestamp.is_none() && !owners.is_empty() && owners == gone
}

/// References as watches show them: a flag that is false and one that is absent are the same.
fn plain(mut owners: Vec<OwnerReference>) -> Vec<OwnerReference> {
    for owner in &mut owners {
        owner.controller = owner.controller.filter(|set| *set);
        owner.block_owner_deletion = owner.block_owner_deletion.filter(|set| *set);
    }
    owners
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_was_orphaned_since_the_decision_is_kept() {
        let owner = |uid: &str, controller| OwnerReference {
            uid: uid.to_owned(),
            controller,
            ..OwnerReference::default()
        };
        let live = |owners: &[OwnerReference]| ObjectMeta {
            owner_references: Some(owners.to_vec()),
            ..ObjectMeta::default()
        };
        let gone = [owner("a", None)];
        assert!(may_delete(&live(&[owner("a", Some(false))]), &gone));
        assert!(!may_delete(&live(&[]), &gone), "orphaned");
        assert!(!may_delete(&live(&[owner("b", None)]), &gone), "adopted by another");
        assert!(!may_delete(&ObjectMeta::default(), &[]), "never owned");
    }
}

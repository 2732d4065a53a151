//! The end of an Application. Clean-up begins only when the server says that it is being deleted, never because it could not be read.

use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{ControllerRevision, Deployment};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::{Ingress, NetworkPolicy};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Resource as _;
use kube::api::{Api, ListParams};
use serde_json::json;
use shoal_runtime::apply::status_code;
use shoal_runtime::{Action, Context, Object, Result, finalizer, owner};

use crate::act::labelled;
use crate::api::{DeletionPolicy, FINALIZER, Phase};
use crate::controller::Shared;
use crate::reconcile::{conclude, status_of_unchanged};
use crate::{Application, build};

/// What `kubectl delete --cascade=orphan` puts on an object.
const ORPHAN: &str = "orphan";

/// Deals with the children and lets the Application go.
pub(crate) async fn clean_up(
    shared: &Shared,
    context: &Context<Application>,
    app: &Application,
) -> Result<Action> {
    let finalizers = app.meta().finalizers.as_deref().unwrap_or_default();
    if !finalizers.iter().any(|name| name == FINALIZER) {
        return Ok(Action::done());
    }
    if app.status.as_ref().and_then(|status| status.phase) != Some(Phase::Deleting) {
        let status = status_of_unchanged(shared, context, app);
        // The event of the written status brings us back.
        return conclude(shared, context, app, status, Vec::new(), None).await;
    }
    let orphan =
        app.spec.deletion_policy == DeletionPolicy::Orphan || finalizers.iter().any(|name| name == ORPHAN);
    let part = Part { context, app, orphan };
    // The autoscaler before what it scales, and volumes after those who use them.
    part.owned::<HorizontalPodAutoscaler>().await?;
    part.owned::<Ingress>().await?;
    part.owned::<Service>().await?;
    part.owned::<Deployment>().await?;
    part.owned::<PodDisruptionBudget>().await?;
    part.owned::<NetworkPolicy>().await?;
    part.owned::<ConfigMap>().await?;
    part.owned::<ControllerRevision>().await?;
    part.owned::<ServiceAccount>().await?;
    part.owned::<PersistentVolumeClaim>().await?;
    let done = if orphan {
        "Its children stay and run on"
    } else {
        "Its children are gone; volumes stay where that is asked for"
    };
    context.recorder().normal(app, "Deleted", done);
    finalizer::remove(context.writer(), app, FINALIZER).await?;
    Ok(Action::done())
}

struct Part<'a> {
    context: &'a Context<Application>,
    app: &'a Application,
    orphan: bool,
}

impl Part<'_> {
    /// Deletes or releases the children of a kind.
    async fn owned<T>(&self) -> Result<()>
    where
        T: Object + kube::Resource<Scope = NamespaceResourceScope>,
    {
        let writer = self.context.writer();
        for child in self.present::<T>().await? {
            let ours = owner::is_controlled_by(child.meta(), &self.app.metadata);
            if !ours || child.meta().deletion_timestamp.is_some() {
                continue;
            }
            if !self.orphan {
                writer.delete(&*child).await?;
                continue;
            }
            let owners = child.meta().owner_references.iter().flatten();
            let others: Vec<_> =
                owners.filter(|owner| Some(&owner.uid) != self.app.metadata.uid.as_ref()).collect();
            match writer.patch_as_read(&*child, json!({"metadata": {"ownerReferences": others}})).await {
                Err(error) if status_code(&error) == Some(404) => {}
                result => drop(result?),
            }
        }
        Ok(())
    }

    /// The children as the cache has them: one that it lacks still has its owner, and goes with it. One that shall stay must not
    /// be overlooked, therefore the server is asked then.
    async fn present<T>(&self) -> Result<Vec<Arc<T>>>
    where
        T: Object + kube::Resource<Scope = NamespaceResourceScope>,
    {
        if !self.orphan {
            return Ok(labelled::<T>(self.context, self.app));
        }
        let all: Api<T> = Api::namespaced(self.context.client().clone(), &self.context.key().namespace);
        let list = all.list(&ListParams::default().labels(&build::selector_text(self.app))).await?;
        Ok(list.items.into_iter().map(Arc::new).collect())
    }
}

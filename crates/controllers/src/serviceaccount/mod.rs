//! Every namespace has the account that its pods run as.

pub mod tokens;

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use shoal_runtime::apply::status_code;
use shoal_runtime::controller::Listers;
use shoal_runtime::{Action, Context, Controller, Object, ObjectKey, Result};

/// Pods that name no account run as this one.
const NAME: &str = "default";

/// The controller.
pub fn controller() -> Controller {
    Controller::of::<Namespace>("serviceaccount-controller")
        .field_manager("kube-controller-manager")
        .watches::<ServiceAccount>(|account, _: &Listers| namespace_of(account, NAME))
        .reconcile(reconcile)
}

/// The namespace to look at when the object that every namespace has, has changed.
pub(crate) fn namespace_of<T: Object>(object: &T, name: &str) -> Vec<ObjectKey> {
    let ours = object.meta().name.as_deref() == Some(name);
    object.meta().namespace.as_deref().filter(|_| ours).map(ObjectKey::cluster).into_iter().collect()
}

/// Nothing is put into a namespace on its way out.
pub(crate) fn is_active(namespace: &Namespace) -> bool {
    let phase = namespace.status.as_ref().and_then(|status| status.phase.as_deref());
    namespace.metadata.deletion_timestamp.is_none() && phase != Some("Terminating")
}

/// Makes an object that every namespace has. One that someone else has just made is as good, and a namespace that is
/// gone meanwhile needs none.
pub(crate) async fn create<K: Object, T: Object>(context: &Context<K>, object: &T) -> Result<()> {
    match context.writer().create(object).await {
        Ok(_) => Ok(()),
        Err(error) if matches!(status_code(&error), Some(403 | 404 | 409)) => {
            tracing::debug!(%error, "not made");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

async fn reconcile(context: Context<Namespace>) -> Result<Action> {
    let Some(namespace) = context.object().filter(|namespace| is_active(namespace)) else {
        return Ok(Action::done());
    };
    let name = namespace.metadata.name.clone().unwrap_or_default();
    if context.lister::<ServiceAccount>().meta(&ObjectKey::new(&name, NAME)).is_none() {
        let metadata =
            ObjectMeta { name: Some(NAME.to_owned()), namespace: Some(name), ..ObjectMeta::default() };
        create(&context, &ServiceAccount { metadata, ..ServiceAccount::default() }).await?;
    }
    Ok(Action::done())
}

//! The class of claims that name none: volumes in folders of this machine.

use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use shoal_runtime::apply::status_code;
use shoal_runtime::manager::BoxError;
use shoal_runtime::{Component, Lister, Manager, Stop, Writer};

use super::plan::PROVISIONER;

const NAME: &str = "standard";
const DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";

/// Makes the class at every start, unless another one is the default.
pub fn component(manager: &Manager) -> Component {
    let classes = manager.informers().of::<StorageClass>().lister();
    let writer = Writer::new(manager.client(), "kube-controller-manager");
    Component::new("storage-class", |stop| run(classes, writer, stop)).elected()
}

async fn run(classes: Lister<StorageClass>, writer: Writer, stop: Stop) -> Result<(), BoxError> {
    let is_default = |class: &StorageClass| {
        class.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(DEFAULT))
    };
    if !classes.list().iter().any(|class| is_default(class)) {
        match writer.create(&standard()).await {
            Err(error) if status_code(&error) != Some(409) => {
                tracing::warn!(%error, "claims that name no class stay without a volume");
            }
            _ => {}
        }
    }
    stop.requested().await;
    Ok(())
}

fn standard() -> StorageClass {
    StorageClass {
        metadata: ObjectMeta {
            name: Some(NAME.to_owned()),
            annotations: Some([(DEFAULT.to_owned(), "true".to_owned())].into()),
            ..ObjectMeta::default()
        },
        provisioner: PROVISIONER.to_owned(),
        reclaim_policy: Some("Delete".to_owned()),
        volume_binding_mode: Some("Immediate".to_owned()),
        ..StorageClass::default()
    }
}

//! Every namespace has the certificate that its pods recognise the API server by.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use shoal_runtime::controller::Listers;
use shoal_runtime::{Action, Context, Controller, ObjectKey, Result};

use crate::serviceaccount::{create, is_active, namespace_of};

const NAME: &str = "kube-root-ca.crt";
const KEY: &str = "ca.crt";
const DESCRIPTION: &str = "kubernetes.io/description";
const ABOUT: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";

/// The controller, which publishes this certificate (PEM).
pub fn controller(certificate: &str) -> Controller {
    let certificate: Arc<str> = certificate.into();
    Controller::of::<Namespace>("root-ca-certificate-publisher")
        .field_manager("kube-controller-manager")
        .watches::<ConfigMap>(|map, _: &Listers| namespace_of(map, NAME))
        .reconcile(move |context| reconcile(Arc::clone(&certificate), context))
}

async fn reconcile(certificate: Arc<str>, context: Context<Namespace>) -> Result<Action> {
    let Some(namespace) = context.object().filter(|namespace| is_active(namespace)) else {
        return Ok(Action::done());
    };
    let namespace = namespace.metadata.name.clone().unwrap_or_default();
    let key = ObjectKey::new(&namespace, NAME);
    let wanted = || BTreeMap::from([(KEY.to_owned(), certificate.to_string())]);
    let about = || BTreeMap::from([(DESCRIPTION.to_owned(), ABOUT.to_owned())]);
    match context.lister::<ConfigMap>().get(&key) {
        None => {
            let metadata = ObjectMeta {
                name: Some(NAME.to_owned()),
                namespace: Some(namespace),
                annotations: Some(about()),
                ..ObjectMeta::default()
            };
            create(&context, &ConfigMap { metadata, data: Some(wanted()), ..ConfigMap::default() }).await?;
        }
        Some(map) if map.metadata.deletion_timestamp.is_some() => {}
        Some(map) => {
            let put_right = |map: &mut ConfigMap| {
                map.data = Some(wanted());
                map.metadata.annotations.get_or_insert_default().extend(about());
            };
            context.writer().modify(&key, Some(&*map), put_right).await?;
        }
    }
    Ok(Action::done())
}

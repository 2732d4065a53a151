//! From a specification to the children it asks for. Pure: the same specification gives the same bytes.
//!
//! Every child says only what the operator means to decide; what is left out belongs to others. Nothing is said that the server does
//! not keep, such as a zero that means the same as nothing: what is wanted would never equal what is there.

mod account;
mod autoscaler;
mod budget;
mod claim;
mod deployment;
mod files;
mod ingress;
mod policy;
mod revision;
mod service;
mod template;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

pub use account::service_account;
pub use autoscaler::autoscaler;
pub use budget::budget;
pub use claim::{claim, claim_name};
pub use deployment::{ReplicasFrom, deployment, replicas_from};
pub use files::{config_map, config_map_name, config_maps_of};
pub use ingress::ingress;
pub use policy::network_policy;
pub use revision::{last_good, revision_name};
pub use service::{service, url};
pub use template::{Revision, revision_of, template};

use crate::Application;
use crate::api::{APP_LABEL, MANAGED_BY_LABEL, OPERATOR};

/// Name of an Application that was read.
pub(crate) fn name_of(app: &Application) -> &str {
    app.metadata.name.as_deref().unwrap_or_default()
}

/// The labels by which the pods are found. They never change, because a Deployment's selector cannot.
pub fn selector_labels(name: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        (APP_LABEL.to_owned(), name.to_owned()),
        (MANAGED_BY_LABEL.to_owned(), OPERATOR.to_owned()),
    ])
}

/// The selector of everything that was made for an Application, as text.
pub fn selector_text(app: &Application) -> String {
    let labels = selector_labels(name_of(app));
    labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",")
}

/// The labels of all children.
pub(crate) fn labels(name: &str) -> BTreeMap<String, String> {
    let mut labels = selector_labels(name);
    labels.insert("app.kubernetes.io/name".to_owned(), name.to_owned());
    labels
}

/// The selector of the pods.
pub(crate) fn selector(app: &Application) -> LabelSelector {
    LabelSelector { match_labels: Some(selector_labels(name_of(app))), ..LabelSelector::default() }
}

/// Metadata of a child called `name`.
pub(crate) fn metadata(app: &Application, name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: app.metadata.namespace.clone(),
        labels: Some(labels(name_of(app))),
        ..ObjectMeta::default()
    }
}

/// `None` instead of an empty map, so that the field is not claimed.
pub(crate) fn some_map(map: &BTreeMap<String, String>) -> Option<BTreeMap<String, String>> {
    (!map.is_empty()).then(|| map.clone())
}

/// `None` instead of an empty list.
pub(crate) fn some_list<T: Clone>(list: &[T]) -> Option<Vec<T>> {
    (!list.is_empty()).then(|| list.to_vec())
}

/// FNV-1a: the same in every process and version, which hashes of the standard library are not.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests;

//! The last template that worked, kept as a ControllerRevision: a status is too easily lost.

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;

use super::{metadata, name_of};
use crate::Application;

/// Name of the object that keeps a template.
pub fn revision_name(app: &Application, revision: &str) -> String {
    format!("{}-{revision}", name_of(app))
}

/// The object that keeps a template.
pub fn last_good(app: &Application, revision: &str, template: &PodTemplateSpec) -> ControllerRevision {
    let data = serde_json::to_value(template).ok().map(RawExtension);
    ControllerRevision { metadata: metadata(app, &revision_name(app, revision)), data, revision: 1 }
}

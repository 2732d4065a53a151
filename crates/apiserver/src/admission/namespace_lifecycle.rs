//! NamespaceLifecycle: nothing new in namespaces that are absent or on their way out, and some are there for good.

use serde_json::json;

use crate::handlers::Call;
use crate::status::{Failure, Outcome};

/// Namespaces that cannot be deleted.
const PROTECTED: [&str; 3] = ["default", "kube-system", "kube-public"];

/// Refuses to delete what every cluster has.
pub fn may_be_deleted(call: &Call<'_>) -> Outcome<()> {
    let (resource, name) = (&call.target.resource, call.target.name.as_str());
    if &*resource.plural == "namespaces" && resource.group.is_empty() && PROTECTED.contains(&name) {
        return Err(Failure::forbidden(resource, name, "this namespace may not be deleted"));
    }
    Ok(())
}

/// Refuses new objects in namespaces that are absent or on their way out.
pub async fn namespace_is_open(call: &Call<'_>, name: &str) -> Outcome<()> {
    let namespace = call.target.namespace.as_str();
    let resource = &*call.target.resource;
    let registry = call.server.registry();
    let Some(namespaces) = registry.find("", "v1", "namespaces") else { return Ok(()) };
    let Some(found) = call.server.store.get("namespaces", namespace).await else {
        return Err(Failure::not_found(namespaces, namespace));
    };
    // The phase is a selectable field, so the index answers without decoding.
    let position = namespaces.fields.iter().position(|f| *f == "status.phase").unwrap_or(0);
    if crate::index::Index::new(&found.meta).field(position) != "Terminating" {
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let mut failure = Failure::forbidden(resource, name, &why);
    let cause = json!([{
        "reason": "NamespaceTerminating", "field": "metadata.namespace",
        "message": format!("namespace {namespace} is being terminated"),
    }]);
    failure.detail("causes", cause);
    Err(failure)
}

//! What the server adds to, or refuses of, requests that are fine in themselves: the admission plugins that are on
//! by default and need to look at other objects.
//!
//! As in the real server, mutation comes before system fields and validation, and the plugins that only look come
//! after both: they see the object as it would be stored, with its generated name.

mod default_class;
mod limit_ranger;
mod namespace_lifecycle;
mod pod_security;
mod priority;
pub mod quota;
mod service_account;
mod tolerations;

use serde_json::Value;
use shoal_objects::meta;

use crate::handlers::Call;
use crate::handlers::update::Facet;
use crate::status::Outcome;

/// Changes an object that is to be created.
pub async fn create(call: &Call<'_>, object: &mut Value) -> Outcome<()> {
    let resource = &*call.target.resource;
    call.server.authorizer.check_escalation(&call.user, resource, object)?;
    if resource.namespaced {
        namespace_lifecycle::namespace_is_open(call, meta::name(object)).await?;
    }
    match (&*resource.group, &*resource.plural) {
        ("", "pods") => {
            limit_ranger::default_pod(call, object).await?;
            service_account::service_account(call, object).await?;
            priority::priority(call, object).await?;
            tolerations::default_tolerations(object);
        }
        ("", "persistentvolumeclaims") => default_class::default_storage_class(call, object).await,
        ("networking.k8s.io", "ingresses") => default_class::default_ingress_class(call, object).await,
        _ => {}
    }
    Ok(())
}

/// Looks at an object that is valid and about to be created. What comes back is held until it is stored.
pub async fn validate_create(call: &Call<'_>, object: &Value, dry_run: bool) -> Outcome<quota::Charge> {
    limit_ranger::validate(call, object).await?;
    pod_security::validate(call, object, None).await?;
    quota::charge(call, object, None, dry_run).await
}

/// Changes what an update makes of an object.
pub async fn update(call: &Call<'_>, facet: Facet, object: &mut Value, old: &Value) -> Outcome<()> {
    if facet != Facet::Main {
        return Ok(());
    }
    let granted =
        |o: &Value| (o.get("rules").cloned(), o.get("roleRef").cloned(), o.get("subjects").cloned());
    if granted(object) != granted(old) {
        call.server.authorizer.check_escalation(&call.user, &call.target.resource, object)?;
    }
    if &*call.target.resource.plural == "pods" && call.target.resource.group.is_empty() {
        tolerations::default_tolerations(object);
    }
    Ok(())
}

/// Looks at a change that is valid and about to be stored. What comes back is held until it is.
pub async fn validate_update(
    call: &Call<'_>,
    facet: Facet,
    object: &Value,
    old: &Value,
    dry_run: bool,
) -> Outcome<quota::Charge> {
    let plural = &*call.target.resource.plural;
    let claim = facet == Facet::Main && plural == "persistentvolumeclaims";
    if claim || facet == Facet::Resize {
        limit_ranger::validate(call, object).await?;
    }
    if matches!(facet, Facet::Main | Facet::EphemeralContainers) {
        pod_security::validate(call, object, Some(old)).await?;
    }
    let charged = facet == Facet::Main && matches!(plural, "persistentvolumeclaims" | "services");
    if charged || facet == Facet::Resize {
        return quota::charge(call, object, Some(old), dry_run).await;
    }
    Ok(quota::Charge::default())
}

/// Looks at a deletion.
pub fn delete(call: &Call<'_>) -> Outcome<()> {
    namespace_lifecycle::may_be_deleted(call)
}

//! What the server adds to, or refuses of, requests that are fine in themselves: the admission plugins that are on
//! by default and need to look at other objects.
//!
//! As in the real server, mutation comes before system fields and validation, and the plugins that only look come
//! after both: they see the object as it would be stored, with its generated name.

mod attributes;
mod default_class;
mod limit_ranger;
mod namespace_lifecycle;
mod pod_security;
pub mod policies;
mod priority;
pub mod quota;
mod service_account;
mod tolerations;
mod webhooks;

use serde_json::Value;
use shoal_objects::meta;
use shoal_store::Range;

use crate::handlers::Call;
use crate::handlers::update::Facet;
use crate::status::Outcome;

/// Objects that have writes looked at.
const OBSERVERS: [&str; 4] = [
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
    "mutatingadmissionpolicybindings",
    "validatingadmissionpolicybindings",
];

/// Changes an object that is to be created.
pub async fn create(call: &Call<'_>, object: &mut Value, dry_run: bool) -> Outcome<()> {
    let resource = &*call.target.resource;
    call.server.authorizer.check_escalation(&call.user, resource, object)?;
    if resource.namespaced {
        namespace_lifecycle::namespace_is_open(call, meta::name(object)).await?;
    }
    fill(call, object).await?;
    if webhooks::mutate(call, "CREATE", object, &Value::Null, dry_run).await? {
        // What webhooks added may lack what all others have, and what they granted must be the caller's to grant.
        call.server.authorizer.check_escalation(&call.user, resource, object)?;
        fill(call, object).await?;
    }
    Ok(())
}

/// The plugins that fill new objects; running them twice changes nothing more.
async fn fill(call: &Call<'_>, object: &mut Value) -> Outcome<()> {
    let resource = &*call.target.resource;
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
    policies::validate(call, "CREATE", object, &Value::Null, dry_run).await?;
    webhooks::validate(call, "CREATE", object, &Value::Null, dry_run).await?;
    quota::charge(call, object, None, dry_run).await
}

/// Changes what an update makes of an object; tells whether webhooks did.
pub async fn update(
    call: &Call<'_>,
    facet: Facet,
    object: &mut Value,
    old: &Value,
    dry_run: bool,
) -> Outcome<bool> {
    if facet == Facet::Main {
        check_grants(call, object, old)?;
        if &*call.target.resource.plural == "pods" && call.target.resource.group.is_empty() {
            tolerations::default_tolerations(object);
        }
    }
    let changed = facet != Facet::Binding && webhooks::mutate(call, "UPDATE", object, old, dry_run).await?;
    if changed {
        check_grants(call, object, old)?;
    }
    Ok(changed)
}

/// Whether nobody is to be asked about a write but the server's own plugins: no webhook, no policy.
pub async fn is_unobserved(call: &Call<'_>) -> bool {
    let registry = call.server.registry();
    for kinds in OBSERVERS {
        let Some(resource) = registry.find("admissionregistration.k8s.io", "v1", kinds) else { continue };
        if !call.server.store.list(&resource.table, Range::All, None, 1).await.objects.is_empty() {
            return false;
        }
    }
    true
}

/// Whoever changes what a role grants must have all of it.
fn check_grants(call: &Call<'_>, object: &Value, old: &Value) -> Outcome<()> {
    let granted =
        |o: &Value| (o.get("rules").cloned(), o.get("roleRef").cloned(), o.get("subjects").cloned());
    if granted(object) != granted(old) {
        call.server.authorizer.check_escalation(&call.user, &call.target.resource, object)?;
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
    if facet != Facet::Binding {
        policies::validate(call, "UPDATE", object, old, dry_run).await?;
        webhooks::validate(call, "UPDATE", object, old, dry_run).await?;
    }
    let charged = facet == Facet::Main && matches!(plural, "persistentvolumeclaims" | "services");
    if charged || facet == Facet::Resize {
        return quota::charge(call, object, Some(old), dry_run).await;
    }
    Ok(quota::Charge::default())
}

/// Asks webhooks about what is sent to a subresource that stores nothing of its own: binding, eviction, token.
pub async fn validate_subresource(call: &Call<'_>, object: &Value, dry_run: bool) -> Outcome<()> {
    webhooks::validate(call, "CREATE", object, &Value::Null, dry_run).await
}

/// Asks webhooks about the deletion of an object that is there. What an eviction does is not asked about again.
pub async fn validate_delete(call: &Call<'_>, old: &Value, dry_run: bool) -> Outcome<()> {
    if !call.target.subresource.is_empty() {
        return Ok(());
    }
    let mut gone = Value::Null;
    webhooks::mutate(call, "DELETE", &mut gone, old, dry_run).await?;
    policies::validate(call, "DELETE", &Value::Null, old, dry_run).await?;
    webhooks::validate(call, "DELETE", &Value::Null, old, dry_run).await
}

/// Looks at a deletion.
pub fn delete(call: &Call<'_>) -> Outcome<()> {
    namespace_lifecycle::may_be_deleted(call)
}

//! What the server adds to, or refuses of, requests that are fine in themselves: the admission plugins that are on
//! by default and need to look at other objects.
//!
//! As in the real server, mutation comes before system fields and validation, and the plugins that only look come
//! after both: they see the object as it would be stored, with its generated name.

mod attributes;
mod authorizer;
mod default_class;
mod form;
mod limit_ranger;
mod matching;
mod namespace_lifecycle;
mod pod_security;
pub mod policies;
mod priority;
pub mod quota;
mod seen;
mod service_account;
mod tolerations;
mod webhooks;

use serde_json::Value;
use shoal_objects::meta;
use shoal_store::Range;

use crate::authorize::Authorizer;
use crate::handlers::Call;
use crate::handlers::scale::{scale_of, set_replicas};
use crate::handlers::update::Facet;
use crate::status::Outcome;
use attributes::Attributes;
use seen::Seen;

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
    policies::check_params(call, object, &Value::Null).await?;
    if resource.namespaced {
        namespace_lifecycle::namespace_is_open(call, meta::name(object)).await?;
    }
    fill(call, object).await?;
    let mut seen = Seen::default();
    if change(call, "CREATE", object, &Value::Null, dry_run, &mut seen).await? {
        // What was added may lack what all others have, and what was granted must be the caller's to grant.
        fill(call, object).await?;
        change(call, "CREATE", object, &Value::Null, dry_run, &mut seen).await?;
        call.server.authorizer.check_escalation(&call.user, resource, object)?;
    }
    Ok(())
}

/// One round of policies and then webhooks that change objects; tells whether any did.
async fn change(
    call: &Call<'_>,
    operation: &'static str,
    object: &mut Value,
    old: &Value,
    dry_run: bool,
    seen: &mut Seen,
) -> Outcome<bool> {
    let by_policies = policies::mutate(call, operation, object, old, dry_run, seen).await?;
    let by_webhooks = webhooks::mutate(call, operation, object, old, dry_run, seen).await?;
    seen.next_round();
    Ok(by_policies || by_webhooks)
}

/// Both rounds, where no plugin of the server comes in between.
async fn change_twice(
    call: &Call<'_>,
    operation: &'static str,
    object: &mut Value,
    old: &Value,
    dry_run: bool,
) -> Outcome<bool> {
    let mut seen = Seen::default();
    let changed = change(call, operation, object, old, dry_run, &mut seen).await?;
    if changed {
        change(call, operation, object, old, dry_run, &mut seen).await?;
    }
    Ok(changed)
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

/// Changes what an update makes of an object; tells whether policies or webhooks did.
pub async fn update(
    call: &Call<'_>,
    facet: Facet,
    object: &mut Value,
    old: &Value,
    dry_run: bool,
) -> Outcome<bool> {
    if facet == Facet::Main {
        check_grants(call, object, old)?;
        policies::check_params(call, object, old).await?;
        if &*call.target.resource.plural == "pods" && call.target.resource.group.is_empty() {
            tolerations::default_tolerations(object);
        }
    }
    // A binding is asked about when it comes in, not for what it does to the pod.
    if facet == Facet::Binding {
        return Ok(false);
    }
    if call.target.subresource == "scale" {
        let (mut scale, old_scale) = (scale_of(call, object), scale_of(call, old));
        let changed = change_twice(call, "UPDATE", &mut scale, &old_scale, dry_run).await?;
        if changed {
            set_replicas(call, object, &scale);
        }
        return Ok(changed);
    }
    let changed = change_twice(call, "UPDATE", object, old, dry_run).await?;
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

/// Whether pods of the request's namespace, and what makes them, are looked at by the policy of the namespace.
pub async fn has_pod_policy(call: &Call<'_>) -> bool {
    pod_security::is_on(call).await
}

/// Whoever changes a role or binding must have all that it grants: labels count, for they may add the role to others.
fn check_grants(call: &Call<'_>, object: &Value, old: &Value) -> Outcome<()> {
    let resource = &*call.target.resource;
    if !Authorizer::guards(resource) {
        return Ok(());
    }
    // What garbage collectors and the server itself write grants nothing.
    let granting = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in ["ownerReferences", "finalizers", "managedFields", "resourceVersion", "generation"] {
                metadata.remove(field);
            }
        }
        object
    };
    if granting(object) != granting(old) {
        call.server.authorizer.check_escalation(&call.user, resource, object)?;
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
        let scales =
            (call.target.subresource == "scale").then(|| (scale_of(call, object), scale_of(call, old)));
        let (object, old) = scales.as_ref().map_or((object, old), |(object, old)| (object, old));
        policies::validate(call, "UPDATE", object, old, dry_run).await?;
        webhooks::validate(call, "UPDATE", object, old, dry_run).await?;
    }
    let charged = facet == Facet::Main && matches!(plural, "persistentvolumeclaims" | "services");
    if charged || facet == Facet::Resize {
        return quota::charge(call, object, Some(old), dry_run).await;
    }
    Ok(quota::Charge::default())
}

/// Asks policies and webhooks about what is sent to a subresource that stores nothing of its own: binding, eviction,
/// token.
pub async fn subresource(call: &Call<'_>, object: &mut Value, dry_run: bool) -> Outcome<()> {
    change_twice(call, "CREATE", object, &Value::Null, dry_run).await?;
    policies::validate(call, "CREATE", object, &Value::Null, dry_run).await?;
    webhooks::validate(call, "CREATE", object, &Value::Null, dry_run).await
}

/// Asks policies and webhooks about a connection that is to be opened; what they make of its options counts.
pub async fn connect(call: &Call<'_>, options: &mut Value) -> Outcome<()> {
    change_twice(call, "CONNECT", options, &Value::Null, false).await?;
    policies::validate(call, "CONNECT", options, &Value::Null, false).await?;
    webhooks::validate(call, "CONNECT", options, &Value::Null, false).await
}

/// Whether policies or webhooks may want to see an update, as far as their rules tell.
pub async fn is_watched(call: &Call<'_>, dry_run: bool) -> Outcome<bool> {
    if matching::is_exempt(&call.target.resource) {
        return Ok(false);
    }
    let attributes = Attributes::new(call, "UPDATE", &Value::Null, &Value::Null, dry_run);
    Ok(webhooks::any_about(call, &attributes).await? || policies::any_about(call, &attributes).await?)
}

/// Asks webhooks about the deletion of an object that is there. What an eviction does is not asked about again.
pub async fn validate_delete(call: &Call<'_>, old: &Value, dry_run: bool) -> Outcome<()> {
    if !call.target.subresource.is_empty() {
        return Ok(());
    }
    let mut gone = Value::Null;
    webhooks::mutate(call, "DELETE", &mut gone, old, dry_run, &mut Seen::default()).await?;
    policies::validate(call, "DELETE", &Value::Null, old, dry_run).await?;
    webhooks::validate(call, "DELETE", &Value::Null, old, dry_run).await
}

/// Looks at a deletion.
pub fn delete(call: &Call<'_>) -> Outcome<()> {
    namespace_lifecycle::may_be_deleted(call)
}

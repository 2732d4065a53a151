//! Binding a pod to a node.

use serde_json::Value;
use shoal_objects::meta;

use crate::admission;
use crate::handlers::ownership::{Ownership, Proposal};
use crate::handlers::update::{Facet, modify};
use crate::handlers::{Call, status_created};
use crate::kinds::pod::{self, BindError};
use crate::request::Target;
use crate::response::Reply;
use crate::status::{Failure, Outcome};

/// Assigns the pod of the path, or of the binding, to its target.
pub async fn create(call: &Call<'_>) -> Outcome<Reply> {
    let dry_run = call.dry_run("CreateOptions")?;
    let mut binding = call.body_object("v1", "Binding")?;
    let name = if call.target.name.is_empty() { meta::name(&binding) } else { &call.target.name };
    let Some(pods) = call.server.registry().find("", "v1", "pods").cloned() else {
        return Err(Failure::no_such_resource());
    };
    let pod_target = Target {
        resource: pods,
        namespace: call.target.namespace.clone(),
        name: name.to_owned(),
        subresource: String::new(),
        watch_prefix: false,
    };
    let pod_call = call.about(pod_target);
    admission::subresource(call, &mut binding, dry_run).await?;
    let now = call.server.clock.now();
    modify(&pod_call, Facet::Binding, dry_run, |present| {
        let mut next = present.object.clone();
        // A binding is for any version: what a node or a controller has written meanwhile does not matter to it.
        if let Some(metadata) = next.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("resourceVersion");
        }
        pod::bind(&mut next, &binding, now).map_err(|error| match error {
            BindError::Invalid(errors) => Failure::internal(errors.to_string()),
            BindError::Conflict(why) => {
                Failure::conflict("", "pods/binding", meta::name(&present.object), &why)
            }
        })?;
        Ok(Some(Proposal { object: next, ownership: Ownership::Kept }))
    })
    .await?;
    Ok(Reply::json(201, &status_created()))
}

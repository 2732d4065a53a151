//! What an object under admission is: the resource's own kind, or that of a subresource.

use serde_json::Value;
use shoal_objects::managed_fields::Schema;
use shoal_objects::schema::TypeId;

use super::attributes::Attributes;
use crate::builtin;
use crate::conversion;
use crate::decode;
use crate::handlers::{Call, custom, default, ownership};
use crate::registry::Resource;

/// The type of what is sent to a subresource with a kind of its own; none for the resource's kind.
fn subresource_type(resource: &Resource, subresource: &str) -> Option<TypeId> {
    let sub = resource.subresource(subresource)?;
    if *sub.kind == *resource.kind {
        return None;
    }
    let (group, version) = if sub.version.is_empty() {
        (&*resource.group, &*resource.version)
    } else {
        (sub.group, sub.version)
    };
    builtin::type_of(group, version, &sub.kind)
}

/// The types that describe the object as this resource shows it.
pub fn schema<'r>(resource: &'r Resource, subresource: &str) -> Schema<'r> {
    match subresource_type(resource, subresource) {
        Some(type_id) => Schema { types: builtin::types(), root: Some(type_id) },
        None => ownership::schema(resource),
    }
}

/// The object as another resource of the same table shows it.
pub async fn convert(
    call: &Call<'_>,
    attributes: &Attributes<'_>,
    from: &Resource,
    to: &Resource,
    object: &Value,
) -> Result<Value, String> {
    let same = from.group == to.group && from.version == to.version;
    if !object.is_object() || same || subresource_type(from, attributes.subresource).is_some() {
        return Ok(object.clone());
    }
    conversion::between(call.server, from, to, object.clone()).await.map_err(|failure| failure.message)
}

/// Makes an object of what a policy or webhook has made of it: refuses what makes another object of it, removes what
/// its type does not have, fills what it lacks.
pub fn settle(attributes: &Attributes<'_>, before: &Value, after: &mut Value) -> Result<(), String> {
    keeps_identity(before, after)?;
    let resource = attributes.resource;
    let own = subresource_type(resource, attributes.subresource);
    let conformed = match (own, &resource.custom, resource.type_id) {
        (Some(type_id), _, _) | (None, None, Some(type_id)) => {
            decode::conform(builtin::types(), type_id, after).map(|_| ())
        }
        (None, Some(custom), _) => custom::conform(custom, after).map(|_| ()),
        (None, None, None) => Ok(()),
    };
    conformed.map_err(|why| format!("its patch makes something else of the object: {why}"))?;
    if own.is_none() {
        default(resource, after);
    }
    Ok(())
}

/// A patch cannot make another object of this one.
fn keeps_identity(before: &Value, after: &Value) -> Result<(), String> {
    let same = |name: &str, pointer: &str, open: bool| {
        let (was, is) = (before.pointer(pointer), after.pointer(pointer));
        let was_open = was.and_then(Value::as_str).unwrap_or_default().is_empty() && open;
        if was == is || was_open {
            Ok(())
        } else {
            Err(format!("its patch changes {name}, which stays as it is"))
        }
    };
    same("kind", "/kind", false)?;
    same("apiVersion", "/apiVersion", false)?;
    same("metadata.namespace", "/metadata/namespace", false)?;
    same("metadata.uid", "/metadata/uid", false)?;
    same("metadata.resourceVersion", "/metadata/resourceVersion", false)?;
    same("metadata.name", "/metadata/name", true)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn patches_keep_what_an_object_is() {
        let object =
            json!({"kind": "A", "apiVersion": "v1", "metadata": {"generateName": "a-", "namespace": "n"}});
        let changed = |pointer: &str, value: &str| {
            let mut after = object.clone();
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            after.pointer_mut(parent).unwrap()[field] = value.into();
            keeps_identity(&object, &after)
        };
        assert!(changed("/metadata/name", "a-1").is_ok());
        assert!(changed("/metadata/namespace", "other").is_err());
        assert!(changed("/kind", "B").is_err());
        assert!(changed("/metadata/uid", "1").is_err());
    }
}

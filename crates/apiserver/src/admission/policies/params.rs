//! The objects that a binding has a policy asked with.

use serde_json::Value;
use shoal_objects::selector::LabelSelector;
use shoal_store::Range;

use crate::handlers::{Call, all_shown};
use crate::index::Index;
use crate::kinds::access::{field, part, str_at};

/// The objects the binding names as parameters: a single null where the policy takes none. No object at all means
/// that the binding is not in force. The error says what is wrong with the binding.
pub async fn find(call: &Call<'_>, policy: &Value, binding: &Value) -> Result<Vec<Value>, String> {
    let (Some(kind), Some(reference)) =
        (field(policy, "paramKind"), field(part(binding, "spec"), "paramRef"))
    else {
        return Ok(vec![Value::Null]);
    };
    let api_version = str_at(kind, "apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let registry = call.server.registry();
    let found = registry
        .iter()
        .find(|r| &*r.group == group && &*r.version == version && &*r.kind == str_at(kind, "kind"));
    let Some(resource) = found else {
        return Err(format!("paramKind kind `{api_version}, Kind={}` not known", str_at(kind, "kind")));
    };
    let given = str_at(reference, "namespace");
    if !resource.namespaced && !given.is_empty() {
        return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned());
    }
    let namespace = if given.is_empty() { call.target.namespace.as_str() } else { given };
    if resource.namespaced && namespace.is_empty() {
        return Err("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
            .to_owned());
    }
    let store = &call.server.store;
    let stored = match (str_at(reference, "name"), field(reference, "selector")) {
        ("", None) => return Err("one of name or selector must be provided".to_owned()),
        ("", Some(selector)) => {
            let selector = LabelSelector::from_object(Some(selector))?;
            let range = if resource.namespaced { Range::Namespace(namespace) } else { Range::All };
            let mut found = store.list(&resource.table, range, None, 0).await.objects;
            found.retain(|object| selector.matches(|key| Index::new(&object.meta).label(key)));
            found
        }
        (name, _) => store.get(&resource.table, &resource.key(namespace, name)).await.into_iter().collect(),
    };
    let params = all_shown(call.server, resource, &stored).await.map_err(|failure| failure.message)?;
    if params.is_empty() && str_at(reference, "parameterNotFoundAction") == "Deny" {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
    }
    Ok(params)
}

//! Whoever has a policy look at parameters must be allowed to read them.

use serde_json::Value;
use shoal_objects::{Errors, Path, meta};

use super::{GROUP, MUTATING, VALIDATING};
use crate::authorize;
use crate::handlers::{Call, served};
use crate::kinds::access::{field, part, str_at};
use crate::status::{Failure, Outcome};

/// Refuses policies and bindings that would show their writer what they may not read.
pub async fn check_params(call: &Call<'_>, object: &Value, old: &Value) -> Outcome<()> {
    let resource = &*call.target.resource;
    if &*resource.group != GROUP {
        return Ok(());
    }
    let (spec, old_spec) = (part(object, "spec"), part(old, "spec"));
    let plural = &*resource.plural;
    let found = if plural == VALIDATING.0 || plural == MUTATING.0 {
        let kind = field(spec, "paramKind").filter(|kind| Some(*kind) != field(old_spec, "paramKind"));
        kind.and_then(|kind| check_kind(call, kind)).map(|why| ("paramKind", why))
    } else if plural == VALIDATING.1 || plural == MUTATING.1 {
        let policies = if plural == VALIDATING.1 { VALIDATING.0 } else { MUTATING.0 };
        let same = field(spec, "paramRef") == field(old_spec, "paramRef")
            && str_at(spec, "policyName") == str_at(old_spec, "policyName");
        match field(spec, "paramRef").filter(|_| !same) {
            Some(reference) => {
                let kind = param_kind(call, policies, str_at(spec, "policyName")).await?;
                check_reference(call, &kind, reference).map(|why| ("paramRef", why))
            }
            None => None,
        }
    } else {
        None
    };
    let Some((name, why)) = found else { return Ok(()) };
    let mut errors = Errors::new();
    errors.forbidden(&Path::new("spec").child(name), &why);
    Err(Failure::invalid(GROUP, &resource.kind, meta::name(object), &errors))
}

async fn param_kind(call: &Call<'_>, policies: &str, name: &str) -> Outcome<Value> {
    let registry = call.server.registry();
    let Some(resource) = registry.find(GROUP, "v1", policies) else { return Ok(Value::Null) };
    match call.server.store.get(&resource.table, name).await {
        Some(stored) => Ok(part(part(&served(resource, &stored)?, "spec"), "paramKind").clone()),
        None => Ok(Value::Null),
    }
}

/// What the caller needs for a kind; for everything where it is not known.
fn need(call: &Call<'_>, kind: &Value, verb: &str) -> authorize::Attributes {
    let api_version = str_at(kind, "apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let registry = call.server.registry();
    let resource = registry
        .iter()
        .find(|r| &*r.group == group && &*r.version == version && &*r.kind == str_at(kind, "kind"));
    authorize::Attributes {
        verb: verb.to_owned(),
        group: if api_version.is_empty() { "*".to_owned() } else { group.to_owned() },
        resource: resource.map_or_else(|| "*".to_owned(), |r| r.plural.to_string()),
        namespace: "*".to_owned(),
        name: "*".to_owned(),
        ..authorize::Attributes::default()
    }
}

fn check_kind(call: &Call<'_>, kind: &Value) -> Option<String> {
    let allowed = call.server.authorizer.allows(&call.user, &need(call, kind, "get"));
    let (user, name, version) = (&call.user.username, str_at(kind, "kind"), str_at(kind, "apiVersion"));
    (!allowed).then(|| {
        format!(
            "user {user} must have \"get\" permission on all objects of the referenced paramKind (kind={name}, \
             apiVersion={version})"
        )
    })
}

fn check_reference(call: &Call<'_>, kind: &Value, reference: &Value) -> Option<String> {
    let (name, namespace) = (str_at(reference, "name"), str_at(reference, "namespace"));
    let verb = if name.is_empty() { "list" } else { "get" };
    let mut need = need(call, kind, verb);
    if !name.is_empty() {
        name.clone_into(&mut need.name);
    }
    if !namespace.is_empty() {
        namespace.clone_into(&mut need.namespace);
    }
    let allowed = call.server.authorizer.allows(&call.user, &need);
    let user = &call.user.username;
    (!allowed).then(|| format!("user {user} does not have {verb:?} permission on the referenced params"))
}

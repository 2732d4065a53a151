//! Admission policies: expressions about requests, where a binding puts a policy in force.

mod access;
mod mutating;
mod params;
mod validating;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use shoal_objects::{Errors, Path, meta};
use shoal_store::{Object, Range};

pub use access::check_params;
pub use mutating::mutate;
pub use validating::validate;

use super::attributes::Attributes;
use super::matching;
use super::webhooks::namespace_labels;
use crate::cel::policy::{MutatingPolicy, Policy};
use crate::handlers::{Call, served};
use crate::kinds::access::{part, str_at};
use crate::registry::Resource;
use crate::status::Outcome;

const GROUP: &str = "admissionregistration.k8s.io";
/// What all expressions of one policy may cost for one request, as in the real server.
const POLICY_BUDGET: u64 = 10_000_000;
/// When more policies than this were ever seen, all are compiled anew.
const KEPT: usize = 1_000;

/// The plural names of policies and of their bindings.
type Plurals = (&'static str, &'static str);
const VALIDATING: Plurals = ("validatingadmissionpolicies", "validatingadmissionpolicybindings");
const MUTATING: Plurals = ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings");

/// Policies that have been compiled.
#[derive(Default)]
pub struct Compiled {
    validating: Cache<Policy>,
    mutating: Cache<MutatingPolicy>,
}

/// By name, with the revision they were read at.
struct Cache<P>(Mutex<HashMap<Box<str>, AtRevision<P>>>);

type AtRevision<P> = (u64, Arc<P>);
type Compile<P> = fn(&Value, &Path<'_>) -> Result<P, Errors>;

impl<P> Default for Cache<P> {
    fn default() -> Cache<P> {
        Cache(Mutex::default())
    }
}

impl<P> Cache<P> {
    fn get(&self, object: &Object, spec: &Value, compile: Compile<P>) -> Result<Arc<P>, String> {
        let mut known = self.0.lock();
        if let Some((revision, policy)) = known.get(&*object.key)
            && *revision == object.revision
        {
            return Ok(policy.clone());
        }
        let policy = Arc::new(compile(spec, &Path::new("spec")).map_err(|errors| errors.to_string())?);
        if known.len() >= KEPT {
            known.clear();
        }
        known.insert((&*object.key).into(), (object.revision, policy.clone()));
        Ok(policy)
    }
}

/// A policy that a binding puts in force for a request.
struct InForce<P> {
    policy: String,
    binding: Value,
    /// Whether errors refuse the request.
    fails_closed: bool,
    /// Whether it wants to be asked again after others changed the object.
    again: bool,
    /// The resource under which it wants to see the object.
    resource: Arc<Resource>,
    /// The policy and what it is asked with, or what is wrong with either.
    ready: Result<(Arc<P>, Vec<Value>), String>,
}

impl<P> InForce<P> {
    fn binding_name(&self) -> &str {
        meta::name(&self.binding)
    }
}

/// The policies in force for a request, by name, each with its bindings by name.
async fn in_force<P>(
    call: &Call<'_>,
    plurals: Plurals,
    (cache, compile): (&Cache<P>, Compile<P>),
    attributes: &Attributes<'_>,
    objects: (&Value, &Value),
) -> Outcome<Vec<InForce<P>>> {
    let bound = bindings(call, plurals).await?;
    if bound.is_empty() || matching::is_exempt(attributes.resource) {
        return Ok(Vec::new());
    }
    let registry = call.server.registry();
    let Some(policies) = registry.find(GROUP, "v1", plurals.0) else { return Ok(Vec::new()) };
    let namespace = namespace_labels(call, objects.0, objects.1).await?;
    let concerned = |scope: &Value| {
        // Selectors were checked when they were written.
        let found = matching::concerned(&registry, scope, attributes, objects, namespace.as_ref());
        found.unwrap_or_default()
    };
    let mut found = Vec::new();
    for (name, bindings) in bound {
        let Some(stored) = call.server.store.get(&policies.table, &name).await else { continue };
        let policy = served(policies, &stored)?;
        let spec = part(&policy, "spec");
        let Some(resource) = concerned(part(spec, "matchConstraints")) else { continue };
        for binding in bindings {
            if concerned(part(part(&binding, "spec"), "matchResources")).is_none() {
                continue;
            }
            let ready = match cache.get(&stored, spec, compile) {
                Err(why) => Err(format!("failed to configure policy: {why}")),
                Ok(compiled) => params::find(call, spec, &binding)
                    .await
                    .map(|params| (compiled, params))
                    .map_err(|why| format!("failed to configure binding: {why}")),
            };
            found.push(InForce {
                policy: name.clone(),
                binding,
                fails_closed: str_at(spec, "failurePolicy") != "Ignore",
                again: str_at(spec, "reinvocationPolicy") == "IfNeeded",
                resource: resource.clone(),
                ready,
            });
        }
    }
    Ok(found)
}

/// Whether no policy is bound to anything.
async fn is_unbound(call: &Call<'_>, plurals: Plurals) -> bool {
    let registry = call.server.registry();
    let Some(resource) = registry.find(GROUP, "v1", plurals.1) else { return true };
    call.server.store.list(&resource.table, Range::All, None, 1).await.objects.is_empty()
}

/// All bindings by the policy they name.
async fn bindings(
    call: &Call<'_>,
    plurals: Plurals,
) -> Outcome<std::collections::BTreeMap<String, Vec<Value>>> {
    let registry = call.server.registry();
    let mut by_policy = std::collections::BTreeMap::<String, Vec<Value>>::new();
    if let Some(resource) = registry.find(GROUP, "v1", plurals.1) {
        for object in call.server.store.list(&resource.table, Range::All, None, 0).await.objects {
            let binding = served(resource, &object)?;
            let policy = str_at(part(&binding, "spec"), "policyName").to_owned();
            by_policy.entry(policy).or_default().push(binding);
        }
    }
    Ok(by_policy)
}

/// Whether any policy that is bound is about this operation on this resource, as far as its rules tell.
pub async fn any_about(call: &Call<'_>, attributes: &Attributes<'_>) -> Outcome<bool> {
    let registry = call.server.registry();
    for plurals in [MUTATING, VALIDATING] {
        let Some(policies) = registry.find(GROUP, "v1", plurals.0) else { continue };
        for name in bindings(call, plurals).await?.keys() {
            let Some(stored) = call.server.store.get(&policies.table, name).await else { continue };
            let policy = served(policies, &stored)?;
            let scope = part(part(&policy, "spec"), "matchConstraints");
            let rules = serde_json::json!({"rules": scope.get("resourceRules"), "matchPolicy": scope.get("matchPolicy")});
            if matching::wanted_resource(&registry, &rules, attributes).is_some() {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// The namespace of the request as expressions see it; null at cluster scope and for namespaces themselves.
async fn namespace_object(call: &Call<'_>, attributes: &Attributes<'_>) -> Outcome<Value> {
    let resource = attributes.resource;
    let is_namespace = resource.group.is_empty() && &*resource.plural == "namespaces";
    if attributes.namespace.is_empty() || is_namespace {
        return Ok(Value::Null);
    }
    let registry = call.server.registry();
    let Some(namespaces) = registry.find("", "v1", "namespaces") else { return Ok(Value::Null) };
    match call.server.store.get(&namespaces.table, attributes.namespace).await {
        Some(found) => served(namespaces, &found),
        None => Ok(Value::Null),
    }
}

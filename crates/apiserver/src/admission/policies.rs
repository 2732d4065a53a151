//! ValidatingAdmissionPolicy: expressions that requests must satisfy where a binding puts the policy in force.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use shoal_objects::{Path, meta};
use shoal_store::{Object, Range};

use crate::access::UserInfo;
use crate::admission::attributes::Attributes;
use crate::admission::webhooks::{matching, namespace_labels, review};
use crate::cel::Budget;
use crate::cel::policy::{AdmissionInput, Policy, Verdict, enforce};
use crate::handlers::{Call, served};
use crate::kinds::access::{list_at, part, str_at};
use crate::status::{Failure, Outcome};

const GROUP: &str = "admissionregistration.k8s.io";
/// What all expressions of one policy may cost for one request, as in the real server.
const POLICY_BUDGET: u64 = 10_000_000;

/// Policies that have been compiled, by name, with the revision they were read at.
#[derive(Default)]
pub struct Compiled(Mutex<HashMap<Box<str>, AtRevision>>);

type AtRevision = (u64, Arc<Policy>);

impl Compiled {
    fn get(&self, object: &Object, spec: &Value) -> Option<Arc<Policy>> {
        let mut known = self.0.lock();
        if let Some((revision, policy)) = known.get(&*object.key)
            && *revision == object.revision
        {
            return Some(policy.clone());
        }
        // It compiled when it was written; if it does not now, it cannot decide anything.
        let policy = Arc::new(Policy::compile(spec, &Path::new("spec")).ok()?);
        known.insert((&*object.key).into(), (object.revision, policy.clone()));
        Some(policy)
    }
}

/// Refuses, or warns of, what the policies in force do not allow.
pub async fn validate(
    call: &Call<'_>,
    operation: &'static str,
    object: &Value,
    old: &Value,
    dry_run: bool,
) -> Outcome<()> {
    let registry = call.server.registry();
    let (Some(policies), Some(bindings)) = (
        registry.find(GROUP, "v1", "validatingadmissionpolicies"),
        registry.find(GROUP, "v1", "validatingadmissionpolicybindings"),
    ) else {
        return Ok(());
    };
    let store = &call.server.store;
    let bound = store.list(&bindings.table, Range::All, None, 0).await.objects;
    if bound.is_empty() || matching::is_exempt(&call.target.resource) {
        return Ok(());
    }
    let attributes = Attributes::new(call, operation, object, old, dry_run);
    let namespace = namespace_labels(call, object, old).await?;
    for object_of_binding in &bound {
        let binding = served(bindings, object_of_binding)?;
        let Some(stored) = store.get(&policies.table, str_at(part(&binding, "spec"), "policyName")).await
        else {
            continue;
        };
        let policy = served(policies, &stored)?;
        let spec = part(&policy, "spec");
        let scopes = [part(spec, "matchConstraints"), part(part(&binding, "spec"), "matchResources")];
        let applies = scopes
            .iter()
            .all(|scope| concerns(scope, &attributes, object, old, namespace.as_ref()).unwrap_or(true));
        let Some(compiled) = call.server.policies.get(&stored, spec).filter(|_| applies) else { continue };
        let verdict = judge(call, &attributes, (&policy, &binding), &compiled, (object, old)).await?;
        follow(call, verdict, &attributes)?;
    }
    Ok(())
}

/// Whether `matchConstraints` or `matchResources` are about this request; what they leave out restricts nothing.
fn concerns(
    scope: &Value,
    attributes: &Attributes<'_>,
    object: &Value,
    old: &Value,
    namespace: Option<&Value>,
) -> Result<bool, String> {
    if !scope.is_object() {
        return Ok(true);
    }
    let rules = |field: &str| json!({"rules": scope.get(field).cloned().unwrap_or_else(|| json!([]))});
    let included = list_at(scope, "resourceRules").is_empty()
        || matching::rules_match(&rules("resourceRules"), attributes, attributes.resource);
    let excluded = matching::rules_match(&rules("excludeResourceRules"), attributes, attributes.resource);
    Ok(included
        && !excluded
        && matching::namespace_matches(scope, namespace)?
        && matching::object_matches(scope, object, old)?)
}

async fn judge(
    call: &Call<'_>,
    attributes: &Attributes<'_>,
    (policy, binding): (&Value, &Value),
    compiled: &Policy,
    (object, old): (&Value, &Value),
) -> Outcome<Verdict> {
    let user: &UserInfo = &call.user;
    let mut review =
        review::request("", "v1", attributes, attributes.resource, (&Value::Null, &Value::Null), user);
    let request = review["request"].take();
    let namespace = match call.server.store.get("namespaces", attributes.namespace).await {
        Some(found) if !attributes.namespace.is_empty() => {
            let registry = call.server.registry();
            registry.find("", "v1", "namespaces").map_or(Ok(Value::Null), |r| served(r, &found))?
        }
        _ => Value::Null,
    };
    let spec = part(binding, "spec");
    let mut evaluation_budget = Budget::new(POLICY_BUDGET);
    let params = find_params(call, policy, spec).await?;
    let input = AdmissionInput {
        object,
        old_object: old,
        request: &request,
        namespace: &namespace,
        params: &params,
        authorize: None,
    };
    let evaluation = compiled.evaluate(&input, &mut evaluation_budget);
    let actions: Vec<&str> = list_at(spec, "validationActions").iter().filter_map(Value::as_str).collect();
    Ok(enforce(meta::name(policy), meta::name(binding), &actions, &evaluation))
}

/// The object the binding names as parameters; null where the policy takes none or it is missing.
async fn find_params(call: &Call<'_>, policy: &Value, binding: &Value) -> Outcome<Value> {
    let kind = part(part(policy, "spec"), "paramKind");
    let reference = part(binding, "paramRef");
    let (api_version, name) = (str_at(kind, "apiVersion"), str_at(reference, "name"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let registry = call.server.registry();
    let found = registry
        .iter()
        .find(|r| &*r.group == group && &*r.version == version && &*r.kind == str_at(kind, "kind"));
    let Some(resource) = found.filter(|_| !name.is_empty()) else { return Ok(Value::Null) };
    let namespace = match str_at(reference, "namespace") {
        "" => call.target.namespace.as_str(),
        given => given,
    };
    match call.server.store.get(&resource.table, &resource.key(namespace, name)).await {
        Some(object) => served(resource, &object),
        None => Ok(Value::Null),
    }
}

fn follow(call: &Call<'_>, verdict: Verdict, attributes: &Attributes<'_>) -> Outcome<()> {
    verdict.warnings.into_iter().for_each(|text| call.warn(text));
    for (key, text) in verdict.audit_annotations {
        call.annotate_audit(&key, text);
    }
    let Some(denial) = verdict.denial else { return Ok(()) };
    let mut failure = Failure::forbidden(attributes.resource, &attributes.name, &denial.message);
    failure.code = http::StatusCode::from_u16(denial.code).unwrap_or(http::StatusCode::FORBIDDEN);
    failure.reason = match denial.reason.as_str() {
        "Unauthorized" => "Unauthorized",
        "Forbidden" => "Forbidden",
        "RequestEntityTooLarge" => "RequestEntityTooLarge",
        _ => "Invalid",
    };
    failure.detail("causes", json!([{"message": denial.message}]));
    Err(failure)
}

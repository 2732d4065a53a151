//! MutatingAdmissionPolicy: expressions that say how requests are to be changed.

use serde_json::{Value, json};
use shoal_objects::managed_fields::{atomics, check, merge};
use shoal_objects::meta;
use shoal_objects::patch::{JsonPatchError, json_patch};

use super::{InForce, MUTATING, POLICY_BUDGET, in_force, is_unbound, namespace_object};
use crate::admission::attributes::Attributes;
use crate::admission::authorizer::authorizer;
use crate::admission::form;
use crate::admission::seen::Seen;
use crate::admission::webhooks::review;
use crate::cel::Budget;
use crate::cel::policy::{AdmissionInput, MutatingPolicy, Patch};
use crate::handlers::Call;
use crate::registry::Resource;
use crate::status::{Failure, Outcome};

/// Lets the policies in force change the object, once. Tells whether any did.
pub async fn mutate(
    call: &Call<'_>,
    operation: &'static str,
    object: &mut Value,
    old: &Value,
    dry_run: bool,
    seen: &mut Seen,
) -> Outcome<bool> {
    // Mostly there is none, and nothing to remember.
    if is_unbound(call, MUTATING).await {
        return Ok(false);
    }
    let first = object.clone();
    let attributes = Attributes::new(call, operation, &first, old, dry_run);
    let compiled = (&call.server.policies.mutating, MutatingPolicy::compile as _);
    let found = in_force(call, MUTATING, compiled, &attributes, (&first, old)).await?;
    if found.is_empty() {
        return Ok(false);
    }
    let namespace = namespace_object(call, &attributes).await?;
    let mut troubles = Vec::new();
    for one in &found {
        let mut found = Vec::new();
        let params = match &one.ready {
            Ok((_, params)) => params.as_slice(),
            Err(why) => {
                found.push(why.clone());
                &[]
            }
        };
        for params in params {
            let key = format!(
                "policy/{}/{}/{}/{}",
                one.policy,
                one.binding_name(),
                meta::namespace(params),
                meta::name(params)
            );
            if seen.wants(&key, object)
                && invoke(call, &attributes, one, (object, old), (&namespace, params), &mut found).await
                && one.again
            {
                seen.note(key, object);
            }
        }
        let (policy, binding) = (&one.policy, one.binding_name());
        let told = |why| format!("policy '{policy}' with binding '{binding}' denied request: {why}");
        troubles.extend(found.into_iter().filter(|_| one.fails_closed).map(told));
    }
    if troubles.is_empty() { Ok(*object != first) } else { Err(refusal(&attributes, &troubles)) }
}

/// Has one policy change the object as often as it has mutations; false when its conditions do not hold.
async fn invoke(
    call: &Call<'_>,
    attributes: &Attributes<'_>,
    found: &InForce<MutatingPolicy>,
    (object, old): (&mut Value, &Value),
    (namespace, params): (&Value, &Value),
    troubles: &mut Vec<String>,
) -> bool {
    let Ok((policy, _)) = &found.ready else { return false };
    let resource = &*found.resource;
    let mut review =
        review::request("", "v1", attributes, resource, (&Value::Null, &Value::Null), &call.user);
    let request = review["request"].take();
    let old = match form::convert(call, attributes, attributes.resource, resource, old).await {
        Ok(old) => old,
        Err(why) => {
            troubles.push(why);
            return false;
        }
    };
    let authorize = authorizer(call);
    let mut budget = Budget::new(POLICY_BUDGET);
    for index in 0..policy.count() {
        let shown = match form::convert(call, attributes, attributes.resource, resource, object).await {
            Ok(shown) => shown,
            Err(why) => {
                troubles.push(why);
                return true;
            }
        };
        let input = AdmissionInput {
            object: &shown,
            old_object: &old,
            request: &request,
            namespace,
            params,
            authorize: Some(authorize.clone()),
        };
        // Conditions are about the object as it was before the first mutation.
        if index == 0 {
            match policy.is_about(&input, &mut budget) {
                Ok(true) => {}
                Ok(false) => return false,
                Err(why) => {
                    troubles.push(why);
                    return false;
                }
            }
        }
        if !object.is_object() {
            continue;
        }
        let patched = policy
            .patch(index, &input, &mut budget)
            .and_then(|patch| patched(resource, attributes, &shown, &patch));
        let back = match patched {
            Ok(patched) => form::convert(call, attributes, resource, attributes.resource, &patched).await,
            Err(why) => Err(why),
        };
        let settled = back.and_then(|mut back| form::settle(attributes, object, &mut back).map(|()| back));
        match settled {
            Ok(settled) => *object = settled,
            Err(why) => troubles.push(why),
        }
    }
    true
}

fn patched(
    resource: &Resource,
    attributes: &Attributes<'_>,
    object: &Value,
    patch: &Patch,
) -> Result<Value, String> {
    let mut after = object.clone();
    match patch {
        Patch::Json(operations) => match json_patch(&mut after, operations) {
            Ok(()) => {}
            // A test that does not hold leaves the object as it is.
            Err(JsonPatchError::TestFailed(_)) => return Ok(object.clone()),
            Err(why) => return Err(format!("JSONPath: {why}")),
        },
        Patch::Apply(configuration) => {
            let mut configuration = configuration.clone();
            for field in ["kind", "apiVersion"] {
                configuration[field] = object[field].clone();
            }
            let schema = form::schema(resource, attributes.subresource);
            let wrong = |why: String| format!("error applying patch: {why}");
            check(schema, &configuration)
                .map_err(|why| wrong(format!("failed to convert patch object to typed object: {why}")))?;
            let whole = atomics(schema, &configuration);
            if !whole.is_empty() {
                return Err(wrong(format!(
                    "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}",
                    whole.join(", ")
                )));
            }
            merge(schema, &mut after, &configuration);
        }
    }
    Ok(after)
}

fn refusal(attributes: &Attributes<'_>, troubles: &[String]) -> Failure {
    let first = troubles.first().map(String::as_str).unwrap_or_default();
    let mut failure = Failure::forbidden(attributes.resource, &attributes.name, first);
    failure.message = first.to_owned();
    failure.reason = "Invalid";
    let causes: Vec<Value> = troubles.iter().map(|message| json!({"message": message})).collect();
    failure.detail("causes", causes.into());
    failure
}

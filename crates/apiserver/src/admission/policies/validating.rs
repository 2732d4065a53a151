//! ValidatingAdmissionPolicy: expressions that requests must satisfy.

use serde_json::{Value, json};

use super::{InForce, POLICY_BUDGET, VALIDATING, in_force, is_unbound, namespace_object};
use crate::admission::attributes::Attributes;
use crate::admission::authorizer::authorizer;
use crate::admission::form;
use crate::admission::webhooks::review;
use crate::cel::Budget;
use crate::cel::policy::{self, AdmissionInput, Evaluation, Policy, Verdict, enforce};
use crate::handlers::Call;
use crate::kinds::access::{list_at, part};
use crate::status::{Failure, Outcome};

/// Refuses, or warns of, what the policies in force do not allow.
pub async fn validate(
    call: &Call<'_>,
    operation: &'static str,
    object: &Value,
    old: &Value,
    dry_run: bool,
) -> Outcome<()> {
    if is_unbound(call, VALIDATING).await {
        return Ok(());
    }
    let attributes = Attributes::new(call, operation, object, old, dry_run);
    let compiled = (&call.server.policies.validating, Policy::compile as _);
    for found in in_force(call, VALIDATING, compiled, &attributes, (object, old)).await? {
        for evaluation in evaluate(call, &attributes, &found, (object, old)).await? {
            let actions = list_at(part(&found.binding, "spec"), "validationActions");
            let actions: Vec<&str> = actions.iter().filter_map(Value::as_str).collect();
            follow(call, enforce(&found.policy, found.binding_name(), &actions, &evaluation), &attributes)?;
        }
    }
    Ok(())
}

/// What a policy says, once per parameter.
async fn evaluate(
    call: &Call<'_>,
    attributes: &Attributes<'_>,
    found: &InForce<Policy>,
    (object, old): (&Value, &Value),
) -> Outcome<Vec<Evaluation>> {
    let (policy, params) = match &found.ready {
        Ok(ready) => ready,
        Err(why) => return Ok(misconfigured(found, why)),
    };
    let mut review =
        review::request("", "v1", attributes, &found.resource, (&Value::Null, &Value::Null), &call.user);
    let request = review["request"].take();
    let namespace = namespace_object(call, attributes).await?;
    let convert = |object| form::convert(call, attributes, attributes.resource, &found.resource, object);
    let (object, old) = match (convert(object).await, convert(old).await) {
        (Ok(object), Ok(old)) => (object, old),
        (Err(why), _) | (_, Err(why)) => return Ok(misconfigured(found, &why)),
    };
    let evaluations = params.iter().map(|params| {
        let input = AdmissionInput {
            object: &object,
            old_object: &old,
            request: &request,
            namespace: &namespace,
            params,
            authorize: Some(authorizer(call)),
        };
        policy.evaluate(&input, &mut Budget::new(POLICY_BUDGET))
    });
    Ok(evaluations.collect())
}

/// What a policy that cannot be asked says.
fn misconfigured(found: &InForce<Policy>, why: &str) -> Vec<Evaluation> {
    if !found.fails_closed {
        return Vec::new();
    }
    let failure = policy::Failure { message: why.to_owned(), reason: None, index: 0 };
    vec![Evaluation { failures: vec![failure], ..Evaluation::default() }]
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

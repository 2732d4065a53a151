//! Admission webhooks: programs outside that change and judge requests.
//!
//! Mutating ones are asked one after the other, in the order of their configurations' names; validating ones all at
//! once. What goes wrong with one of them (no answer in time, an answer that is none, a patch that does not fit) is
//! decided by its `failurePolicy`.

pub(super) mod review;

use futures::future::join_all;
use http::StatusCode;
use serde_json::{Value, json};
use shoal_objects::meta;
use shoal_objects::patch::json_patch;
use shoal_store::Range;

use super::attributes::Attributes;
use super::authorizer::authorizer;
use super::seen::Seen;
use super::{form, matching};
use crate::cel::policy::AdmissionInput;
use crate::handlers::{Call, served};
use crate::kinds::access::{int_at, list_at, part, str_at};
use crate::outbound::{self, Bounds};
use crate::registry::Resource;
use crate::status::{Failure, Outcome};
use review::Verdict;

const MUTATING: &str = "mutatingwebhookconfigurations";
const VALIDATING: &str = "validatingwebhookconfigurations";

/// What a webhook without a timeout is given.
const SECONDS: u64 = 10;
/// Longer answers are refused.
const ANSWER_BYTES: usize = 1024 * 1024;

/// Reasons that a webhook may give for a refusal; others are not passed on.
const REASONS: [&str; 14] = [
    "AlreadyExists",
    "BadRequest",
    "Conflict",
    "Expired",
    "Forbidden",
    "Gone",
    "InternalError",
    "Invalid",
    "MethodNotAllowed",
    "NotAcceptable",
    "NotFound",
    "ServiceUnavailable",
    "TooManyRequests",
    "Unauthorized",
];

/// One webhook of a configuration.
struct Webhook {
    configuration: String,
    spec: Value,
}

/// Why a webhook does not let a request pass.
enum Trouble {
    /// It said no.
    Denied(Failure),
    /// It could not be asked, or its answer could not be used.
    Failed(String),
}

/// Lets mutating webhooks change the object, once. Tells whether any did.
pub async fn mutate(
    call: &Call<'_>,
    operation: &'static str,
    object: &mut Value,
    old: &Value,
    dry_run: bool,
    seen: &mut Seen,
) -> Outcome<bool> {
    let webhooks = configured(call, MUTATING).await?;
    if webhooks.is_empty() || matching::is_exempt(&call.target.resource) {
        return Ok(false);
    }
    let namespace = namespace_labels(call, object, old).await?;
    let before = object.clone();
    for (i, webhook) in webhooks.iter().enumerate() {
        let key = format!("webhook/{i}");
        if !seen.wants(&key, object) {
            continue;
        }
        let asked = ask_and_patch(call, webhook, operation, object, old, namespace.as_ref(), dry_run).await;
        if let Some(Some(patched)) = settle(call, webhook, "mutating", (seen.round(), i), asked)? {
            *object = patched;
        }
        if str_at(&webhook.spec, "reinvocationPolicy") == "IfNeeded" {
            seen.note(key, object);
        }
    }
    Ok(*object != before)
}

/// Whether any webhook is about this operation on this resource, as far as its rules tell.
pub async fn any_about(call: &Call<'_>, attributes: &Attributes<'_>) -> Outcome<bool> {
    let registry = call.server.registry();
    for plural in [MUTATING, VALIDATING] {
        let webhooks = configured(call, plural).await?;
        let is_about = |w: &Webhook| matching::wanted_resource(&registry, &w.spec, attributes).is_some();
        if webhooks.iter().any(is_about) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Asks validating webhooks about the object as it would be stored; null when it is deleted.
pub async fn validate(
    call: &Call<'_>,
    operation: &'static str,
    object: &Value,
    old: &Value,
    dry_run: bool,
) -> Outcome<()> {
    let webhooks = configured(call, VALIDATING).await?;
    if webhooks.is_empty() || matching::is_exempt(&call.target.resource) {
        return Ok(());
    }
    let namespace = namespace_labels(call, object, old).await?;
    let attributes = Attributes::new(call, operation, object, old, dry_run);
    let asked = join_all(webhooks.iter().map(|webhook| async {
        let asked = ask(call, webhook, &attributes, object, namespace.as_ref()).await?;
        Ok(asked.map(|(verdict, _)| verdict))
    }))
    .await;
    for (i, (webhook, verdict)) in webhooks.iter().zip(asked).enumerate() {
        let verdict = verdict.and_then(|verdict| match verdict {
            Some(verdict) => pass(call, webhook, verdict).map(Some),
            None => Ok(None),
        });
        settle(call, webhook, "validating", (0, i), verdict)?;
    }
    Ok(())
}

/// All webhooks of a kind, in the order they are asked.
async fn configured(call: &Call<'_>, plural: &str) -> Outcome<Vec<Webhook>> {
    let registry = call.server.registry();
    let Some(resource) = registry.find("admissionregistration.k8s.io", "v1", plural) else {
        return Ok(Vec::new());
    };
    let mut webhooks = Vec::new();
    for object in call.server.store.list(&resource.table, Range::All, None, 0).await.objects {
        let configuration = served(resource, &object)?;
        for spec in list_at(&configuration, "webhooks") {
            webhooks
                .push(Webhook { configuration: meta::name(&configuration).to_owned(), spec: spec.clone() });
        }
    }
    Ok(webhooks)
}

/// The object whose labels `namespaceSelector` looks at: None at cluster scope, where every selector matches.
pub(super) async fn namespace_labels(call: &Call<'_>, object: &Value, old: &Value) -> Outcome<Option<Value>> {
    let resource = &*call.target.resource;
    if resource.group.is_empty() && &*resource.plural == "namespaces" {
        return Ok(Some(if object.is_object() { object } else { old }.clone()));
    }
    if call.target.namespace.is_empty() {
        return Ok(None);
    }
    let registry = call.server.registry();
    let Some(namespaces) = registry.find("", "v1", "namespaces") else { return Ok(None) };
    match call.server.store.get(&namespaces.table, &call.target.namespace).await {
        Some(found) => served(namespaces, &found).map(Some),
        None => Ok(Some(json!({}))),
    }
}

/// Asks one webhook, if it is about this request; also tells about which resource it was asked.
async fn ask<'r>(
    call: &Call<'_>,
    webhook: &Webhook,
    attributes: &Attributes<'r>,
    object: &Value,
    namespace: Option<&Value>,
) -> Result<Option<(Verdict, std::sync::Arc<Resource>)>, Trouble> {
    let spec = &webhook.spec;
    let registry = call.server.registry();
    let Some(resource) = matching::wanted_resource(&registry, spec, attributes) else { return Ok(None) };
    let nothing = (&Value::Null, &Value::Null);
    let described = review::request("", "v1", attributes, &resource, nothing, &call.user);
    let input = AdmissionInput {
        object,
        old_object: attributes.old,
        request: &described["request"],
        namespace: namespace.unwrap_or(&Value::Null),
        params: &Value::Null,
        authorize: Some(authorizer(call)),
    };
    let is_about = matching::namespace_matches(spec, namespace)
        .and_then(|matches| Ok(matches && matching::object_matches(spec, object, attributes.old)?))
        .and_then(|matches| Ok(matches && matching::conditions_match(spec, &input)?));
    if !is_about.map_err(Trouble::Failed)? {
        return Ok(None);
    }
    if attributes.dry_run && !matches!(str_at(spec, "sideEffects"), "None" | "NoneOnDryRun") {
        let text = format!("admission webhook {:?} does not support dry run", str_at(spec, "name"));
        return Err(Trouble::Denied(Failure::bad_request(text)));
    }
    let Some(version) = review::version(spec) else {
        return Err(Trouble::Failed(
            "it knows no version of AdmissionReview that this server knows".to_owned(),
        ));
    };
    let uid = call.server.entropy.uid();
    let convert = |object| form::convert(call, attributes, attributes.resource, &resource, object);
    let shown = convert(object).await.map_err(Trouble::Failed)?;
    let old = convert(attributes.old).await.map_err(Trouble::Failed)?;
    let question = review::request(&uid, version, attributes, &resource, (&shown, &old), &call.user);
    let seconds = int_at(spec, "timeoutSeconds").and_then(|s| u64::try_from(s).ok());
    let bounds = Bounds { seconds: seconds.unwrap_or(SECONDS).clamp(1, 30), answer_bytes: ANSWER_BYTES };
    let body = outbound::post(call.server, part(spec, "clientConfig"), question.to_string(), bounds)
        .await
        .map_err(|why| Trouble::Failed(format!("failed to call webhook: {why}")))?;
    let verdict = review::answer(&body, &uid, version).map_err(Trouble::Failed)?;
    Ok(Some((verdict, resource)))
}

/// Asks a mutating webhook and applies its patch; None when it changes nothing or is not about this request.
async fn ask_and_patch(
    call: &Call<'_>,
    webhook: &Webhook,
    operation: &'static str,
    object: &Value,
    old: &Value,
    namespace: Option<&Value>,
    dry_run: bool,
) -> Result<Option<Value>, Trouble> {
    let attributes = Attributes::new(call, operation, object, old, dry_run);
    let Some((verdict, resource)) = ask(call, webhook, &attributes, object, namespace).await? else {
        return Ok(None);
    };
    let patch = verdict.patch.clone();
    pass(call, webhook, verdict)?;
    let (Some(patch), true) = (patch, object.is_object()) else { return Ok(None) };
    let asked = &*call.target.resource;
    let mut patched =
        form::convert(call, &attributes, asked, &resource, object).await.map_err(Trouble::Failed)?;
    json_patch(&mut patched, &patch).map_err(|e| Trouble::Failed(format!("its patch does not fit: {e}")))?;
    let mut patched =
        form::convert(call, &attributes, &resource, asked, &patched).await.map_err(Trouble::Failed)?;
    form::settle(&attributes, object, &mut patched).map_err(Trouble::Failed)?;
    Ok(Some(patched))
}

/// Passes on warnings and notes, and a refusal.
fn pass(call: &Call<'_>, webhook: &Webhook, verdict: Verdict) -> Result<(), Trouble> {
    let name = str_at(&webhook.spec, "name");
    verdict.warnings.into_iter().for_each(|text| call.warn(text));
    for (key, text) in verdict.annotations {
        call.annotate_audit(&format!("{name}/{key}"), text);
    }
    if verdict.allowed { Ok(()) } else { Err(Trouble::Denied(refusal(name, &verdict.status))) }
}

/// The refusal of a webhook as the client sees it.
fn refusal(name: &str, status: &Value) -> Failure {
    let code = status.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
    let code = code.and_then(|code| StatusCode::from_u16(code).ok()).filter(|code| code.as_u16() >= 400);
    let (message, reason) = (str_at(status, "message"), str_at(status, "reason"));
    let why = match (message, reason) {
        ("", "") => " without explanation".to_owned(),
        ("", reason) => format!(": {reason}"),
        (message, _) => format!(": {message}"),
    };
    let reason = REASONS.iter().find(|known| **known == reason).copied().unwrap_or_default();
    let text = format!("admission webhook {name:?} denied the request{why}");
    let mut failure = Failure::new(code.unwrap_or(StatusCode::BAD_REQUEST), reason, text);
    failure.details = status.get("details").and_then(Value::as_object).cloned();
    failure
}

/// Applies the failure policy. None when a webhook that failed is ignored.
fn settle<T>(
    call: &Call<'_>,
    webhook: &Webhook,
    kind: &str,
    (round, index): (usize, usize),
    asked: Result<T, Trouble>,
) -> Outcome<Option<T>> {
    let name = str_at(&webhook.spec, "name");
    match asked {
        Ok(value) => Ok(Some(value)),
        Err(Trouble::Denied(failure)) => Err(failure),
        Err(Trouble::Failed(why)) if str_at(&webhook.spec, "failurePolicy") == "Ignore" => {
            let configuration = &webhook.configuration;
            tracing::warn!(webhook = name, configuration, "a webhook failed and is ignored: {why}");
            let key = format!("failed-open.{kind}.webhook.admission.k8s.io/round_{round}_index_{index}");
            call.annotate_audit(&key, name.to_owned());
            Ok(None)
        }
        Err(Trouble::Failed(why)) => {
            let text = format!("Internal error occurred: failed calling webhook {name:?}: {why}");
            let mut failure = Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", text);
            failure.detail("causes", json!([{"message": format!("failed calling webhook {name:?}: {why}")}]));
            Err(failure)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_never_successes() {
        let refused = |status: Value| {
            let failure = refusal("w.test", &status);
            (failure.code.as_u16(), failure.reason, failure.message)
        };
        let text = |why: &str| format!("admission webhook \"w.test\" denied the request{why}");
        assert_eq!(refused(json!({})), (400, "", text(" without explanation")));
        assert_eq!(refused(json!({"code": 200, "message": "no", "reason": "Odd"})), (400, "", text(": no")));
        assert_eq!(
            refused(json!({"code": 403, "reason": "Forbidden"})),
            (403, "Forbidden", text(": Forbidden"))
        );
        assert_eq!(refused(json!({"code": 70_000})).0, 400);
    }
}

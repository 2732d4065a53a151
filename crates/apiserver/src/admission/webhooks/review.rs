//! The AdmissionReview that a webhook is sent, and the one it answers with.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::access::UserInfo;
use crate::admission::attributes::Attributes;
use crate::kinds::access::{entries_at, list_at, part, str_at};
use crate::registry::Resource;

/// No more warnings of one webhook are passed on, and no longer ones.
const MOST_WARNINGS: usize = 20;
const LONGEST_WARNING: usize = 256;

/// What a webhook says.
#[derive(Debug, Default, PartialEq)]
pub struct Verdict {
    /// Whether the request may go on.
    pub allowed: bool,
    /// Why not.
    pub status: Value,
    /// The JSON patch to apply.
    pub patch: Option<Value>,
    /// For the client.
    pub warnings: Vec<String>,
    /// For the audit log.
    pub annotations: Vec<(String, String)>,
}

/// The version of AdmissionReview that webhook and server both know.
pub fn version(webhook: &Value) -> Option<&str> {
    let wanted = list_at(webhook, "admissionReviewVersions").iter().filter_map(Value::as_str);
    wanted.into_iter().find(|version| matches!(*version, "v1" | "v1beta1"))
}

/// The question. `resource` is the one that the webhook knows: the request's own or an equivalent.
pub fn request(
    uid: &str,
    version: &str,
    attributes: &Attributes<'_>,
    resource: &Resource,
    (object, old): (&Value, &Value),
    user: &UserInfo,
) -> Value {
    let kind = |r: &Resource| match r.subresource(attributes.subresource) {
        Some(sub) if !sub.version.is_empty() => {
            json!({"group": sub.group, "version": sub.version, "kind": &*sub.kind})
        }
        Some(sub) => json!({"group": &*r.group, "version": &*r.version, "kind": &*sub.kind}),
        None => json!({"group": &*r.group, "version": &*r.version, "kind": &*r.kind}),
    };
    let resource_of =
        |r: &Resource| json!({"group": &*r.group, "version": &*r.version, "resource": &*r.plural});
    let asked = attributes.resource;
    let mut request = json!({
        "uid": uid,
        "kind": kind(resource),
        "resource": resource_of(resource),
        "requestKind": kind(asked),
        "requestResource": resource_of(asked),
        "operation": attributes.operation,
        "userInfo": serde_json::to_value(user).unwrap_or_default(),
        "object": object,
        "oldObject": old,
        "dryRun": attributes.dry_run,
        "options": attributes.options(),
    });
    let texts = [
        ("subResource", attributes.subresource),
        ("requestSubResource", attributes.subresource),
        ("name", &attributes.name),
        ("namespace", attributes.namespace),
    ];
    for (field, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
        request[field] = text.into();
    }
    json!({"kind": "AdmissionReview", "apiVersion": format!("admission.k8s.io/{version}"), "request": request})
}

/// Reads the answer. What does not answer this question is an error.
pub fn answer(body: &[u8], uid: &str, version: &str) -> Result<Verdict, String> {
    let review: Value = serde_json::from_slice(body).map_err(|e| format!("the answer is not JSON: {e}"))?;
    let wanted = format!("admission.k8s.io/{version}");
    let (kind, api_version) = (str_at(&review, "kind"), str_at(&review, "apiVersion"));
    if kind != "AdmissionReview" || api_version != wanted {
        return Err(format!(
            "expected webhook response of {wanted}, Kind=AdmissionReview, got {api_version}, Kind={kind}"
        ));
    }
    let Some(response) = review.get("response").filter(|r| r.is_object()) else {
        return Err("webhook response was absent".to_owned());
    };
    if str_at(response, "uid") != uid {
        return Err(format!("expected response.uid={uid:?}, got {:?}", str_at(response, "uid")));
    }
    let Some(allowed) = response.get("allowed").and_then(Value::as_bool) else {
        return Err("response.allowed is not a boolean".to_owned());
    };
    Ok(Verdict {
        allowed,
        status: part(response, "status").clone(),
        patch: patch(response)?,
        warnings: warnings(response),
        annotations: entries_at(response, "auditAnnotations")
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect(),
    })
}

fn patch(response: &Value) -> Result<Option<Value>, String> {
    let text = str_at(response, "patch");
    if text.is_empty() {
        return Ok(None);
    }
    if str_at(response, "patchType") != "JSONPatch" {
        return Err("webhook returned response.patch but response.patchType is not JSONPatch".to_owned());
    }
    let bytes = BASE64_STANDARD.decode(text).map_err(|e| format!("response.patch is not base64: {e}"))?;
    let patch: Value =
        serde_json::from_slice(&bytes).map_err(|e| format!("response.patch is not JSON: {e}"))?;
    Ok(Some(patch))
}

fn warnings(response: &Value) -> Vec<String> {
    let texts = list_at(response, "warnings").iter().filter_map(Value::as_str);
    texts.take(MOST_WARNINGS).map(|text| text.chars().take(LONGEST_WARNING).collect()).collect()
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "tests read better with literals")]
mod tests {
    use super::*;

    fn read(response: Value) -> Result<Verdict, String> {
        let review =
            json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response});
        answer(review.to_string().as_bytes(), "u", "v1")
    }

    #[test]
    fn an_answer_with_a_patch_is_read() {
        let patch = BASE64_STANDARD.encode(r#"[{"op":"add","path":"/a","value":1}]"#);
        let verdict = read(json!({
            "uid": "u", "allowed": true, "patchType": "JSONPatch", "patch": patch, "warnings": ["w"],
            "auditAnnotations": {"k": "v"},
        }))
        .unwrap();
        assert!(verdict.allowed);
        assert_eq!(verdict.patch, Some(json!([{"op": "add", "path": "/a", "value": 1}])));
        assert_eq!(verdict.warnings, ["w"]);
        assert_eq!(verdict.annotations, [("k".to_owned(), "v".to_owned())]);
    }

    #[test]
    fn answers_to_other_questions_are_refused() {
        assert!(answer(b"garbage", "u", "v1").is_err());
        assert!(answer(b"{}", "u", "v1").is_err());
        for response in [
            Value::Null,
            json!({"uid": "other", "allowed": true}),
            json!({"uid": "u"}),
            json!({"uid": "u", "allowed": "yes"}),
            json!({"uid": "u", "allowed": true, "patch": "!!", "patchType": "JSONPatch"}),
            json!({"uid": "u", "allowed": true, "patch": "W10="}),
            json!({"uid": "u", "allowed": true, "patch": "bm8=", "patchType": "JSONPatch"}),
        ] {
            assert!(read(response.clone()).is_err(), "{response}");
        }
    }
}

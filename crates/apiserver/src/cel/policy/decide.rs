//! What a binding makes of a policy's evaluation: refusal, warnings, entries of the audit log.

use serde_json::{Value, json};

use super::Evaluation;

/// The annotation that collects failed validations.
const AUDIT_KEY: &str = "validation.policy.admission.k8s.io/validation_failure";

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// Text of the cause, and of the Status after `… is forbidden: `.
    pub message: String,
    /// Reason of the Status.
    pub reason: String,
    /// HTTP status.
    pub code: u16,
}

/// What becomes of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// It is refused.
    pub denial: Option<Denial>,
    /// Texts of Warning headers.
    pub warnings: Vec<String>,
    /// Annotations of the audit event.
    pub audit_annotations: Vec<(String, String)>,
}

/// Applies the `validationActions` of a binding.
pub fn enforce(policy: &str, binding: &str, actions: &[&str], evaluation: &Evaluation) -> Verdict {
    let mut verdict = Verdict::default();
    for (key, value) in &evaluation.audit_annotations {
        verdict.audit_annotations.push((format!("{policy}/{key}"), value.clone()));
    }
    let mut audited: Vec<Value> = Vec::new();
    for failure in &evaluation.failures {
        if actions.contains(&"Deny") && verdict.denial.is_none() {
            let reason = failure.reason.clone().unwrap_or_else(|| "Invalid".to_owned());
            let message = format!(
                "ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {}",
                failure.message
            );
            verdict.denial = Some(Denial { message, code: code(&reason), reason });
        }
        if actions.contains(&"Warn") {
            verdict.warnings.push(format!(
                "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{binding}': {}",
                failure.message
            ));
        }
        if actions.contains(&"Audit") {
            audited.push(json!({
                "message": failure.message, "policy": policy, "binding": binding,
                "expressionIndex": failure.index, "validationActions": actions,
            }));
        }
    }
    if !audited.is_empty() {
        verdict.audit_annotations.push((AUDIT_KEY.to_owned(), Value::Array(audited).to_string()));
    }
    verdict
}

fn code(reason: &str) -> u16 {
    match reason {
        "Unauthorized" => 401,
        "Forbidden" => 403,
        "RequestEntityTooLarge" => 413,
        _ => 422,
    }
}

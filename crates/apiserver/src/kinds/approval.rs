//! Groups of the Kubernetes project (`*.k8s.io`, `*.kubernetes.io`) need its consent.

use shoal_objects::{Errors, Path, Value, meta};

use super::access::{part, str_at};

const APPROVED: &str = "api-approved.kubernetes.io";
const MORE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";

/// What the annotation of a definition says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Approval {
    Approved,
    Bypassed,
    Missing,
    Invalid,
}

/// The state of a definition in a protected group, and what is to be said about it.
fn approval(definition: &Value) -> Option<(Approval, String)> {
    let group = str_at(part(definition, "spec"), "group");
    let is_protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')));
    if !is_protected {
        return None;
    }
    let needed = format!("protected groups must have approval annotation {APPROVED:?}");
    Some(match meta::annotation(definition, APPROVED).unwrap_or_default() {
        "" => (Approval::Missing, format!("{needed}, {MORE}")),
        text if text.starts_with("unapproved") => (Approval::Bypassed, format!("not approved: {text:?}")),
        text if is_url(text) => (Approval::Approved, format!("approved in {text}")),
        _ => {
            let why = format!("{needed} with either a URL or a reason starting with \"unapproved\", {MORE}");
            (Approval::Invalid, why)
        }
    })
}

fn is_url(text: &str) -> bool {
    text.parse::<http::Uri>()
        .is_ok_and(|url| url.scheme().is_some() && url.host().is_some_and(|h| !h.is_empty()))
}

/// Refuses new definitions without consent.
pub fn validate(definition: &Value, errors: &mut Errors) {
    let Some((state, why)) = approval(definition) else { return };
    let metadata = Path::new("metadata");
    let annotations = metadata.child("annotations");
    let place = annotations.key(APPROVED);
    match state {
        Approval::Approved | Approval::Bypassed => {}
        Approval::Missing => errors.required(&place, &why),
        Approval::Invalid => {
            errors.invalid_str(&place, meta::annotation(definition, APPROVED).unwrap_or_default(), &why);
        }
    }
}

/// As `validate`, for changes: what was like this before may stay.
pub fn validate_update(new: &Value, old: &Value, errors: &mut Errors) {
    let state = |definition| approval(definition).map(|(state, _)| state);
    if state(new) != state(old) {
        validate(new, errors);
    }
}

/// Status, reason and message of the condition `KubernetesAPIApprovalPolicyConformant`; none for other groups.
pub fn condition(definition: &Value) -> Option<(&'static str, &'static str, String)> {
    let (state, message) = approval(definition)?;
    let (status, reason) = match state {
        Approval::Approved => ("True", "ApprovedAnnotation"),
        Approval::Bypassed => ("False", "UnapprovedAnnotation"),
        Approval::Missing => ("False", "MissingAnnotation"),
        Approval::Invalid => ("False", "InvalidAnnotation"),
    };
    Some((status, reason, message))
}

#[cfg(test)]
mod tests {
    use super::super::testing::causes;
    use super::*;
    use serde_json::json;

    #[test]
    fn protected_groups_need_an_url_or_an_excuse() {
        let of = |group: &str, annotation: Option<&str>| {
            let annotations = annotation.map_or(json!({}), |text| json!({APPROVED: text}));
            let definition = json!({"metadata": {"annotations": annotations}, "spec": {"group": group}});
            (
                causes(|e| validate(&definition, e)),
                condition(&definition).map(|(status, reason, _)| (status, reason)),
            )
        };
        for group in ["x.test", "myk8s.io", "k8s.io.x"] {
            assert_eq!(of(group, None), (Vec::new(), None), "{group}");
        }
        let place = "metadata.annotations[api-approved.kubernetes.io]";
        assert_eq!(
            of("x.k8s.io", None),
            (vec![format!("{place} FieldValueRequired")], Some(("False", "MissingAnnotation")))
        );
        assert_eq!(
            of("kubernetes.io", Some("yes")),
            (vec![format!("{place} FieldValueInvalid")], Some(("False", "InvalidAnnotation")))
        );
        assert_eq!(
            of("k8s.io", Some("unapproved, experimental")),
            (vec![], Some(("False", "UnapprovedAnnotation")))
        );
        assert_eq!(
            of("a.kubernetes.io", Some("https://x.test/1")),
            (vec![], Some(("True", "ApprovedAnnotation")))
        );
    }
}

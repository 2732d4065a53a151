//! certificates.k8s.io/v1 CertificateSigningRequest.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use shoal_objects::{Errors, Path, Value, names};

use super::access::{carry_over, field, int_at, is_set, list_at, str_at};
use super::seen::Seen;
use super::{NameRule, Rules, checks};

/// The rules of CertificateSigningRequest. Who asks is filled in by the server.
pub const RULES: Rules = Rules {
    prepare_update: |new, old| carry_over(new, old, "spec"),
    validate,
    validate_status: |new, _, errors| validate_conditions(new, errors),
    name: NameRule::PathSegment,
    ..Rules::NONE
};

const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];
const BEGIN: &str = "-----BEGIN CERTIFICATE REQUEST-----";

fn validate(request: &Value, errors: &mut Errors) {
    let spec = field(request, "spec").unwrap_or(&Value::Null);
    let path = Path::new("spec");
    let pem = STANDARD.decode(str_at(spec, "request")).unwrap_or_default();
    if !String::from_utf8_lossy(&pem).contains(BEGIN) {
        let detail = "PEM block type must be CERTIFICATE REQUEST";
        errors.invalid_str(&path.child("request"), str_at(spec, "request"), detail);
    }
    if !is_set(spec, "usages") {
        errors.required(&path.child("usages"), "");
    }
    let usages = path.child("usages");
    let mut seen = Seen::default();
    for (i, usage) in list_at(spec, "usages").iter().enumerate() {
        let text = usage.as_str().unwrap_or_default();
        checks::supported_text(text, &USAGES, &usages.index(i), errors);
        if seen.again(text) {
            errors.duplicate(&usages.index(i), usage);
        }
    }
    validate_signer(str_at(spec, "signerName"), &path.child("signerName"), errors);
    if let Some(seconds) = int_at(spec, "expirationSeconds")
        && seconds < 600
    {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.invalid(&path.child("expirationSeconds"), &seconds.into(), detail);
    }
}

/// `example.com/signer-name`
fn validate_signer(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        errors.required(path, "");
        return;
    }
    if name == "kubernetes.io/legacy-unknown" {
        errors.invalid_str(path, name, "legacy signerName is not allowed via this API version");
        return;
    }
    match name.split('/').collect::<Vec<_>>().as_slice() {
        [domain, rest] if !rest.is_empty() => {
            checks::text(errors, path, domain, names::fully_qualified_domain(domain));
            checks::text(errors, path, rest, names::dns1123_subdomain(rest));
        }
        _ => {
            let detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
            errors.invalid_str(path, name, detail);
        }
    }
}

fn validate_conditions(request: &Value, errors: &mut Errors) {
    let status = Path::new("status");
    let path = status.child("conditions");
    let conditions = field(request, "status").map(|status| list_at(status, "conditions")).unwrap_or_default();
    let mut seen = Seen::default();
    for (i, condition) in conditions.iter().enumerate() {
        let path = path.index(i);
        checks::required(condition, "type", &path, errors);
        let supported: &[&str] = match str_at(condition, "type") {
            "Approved" | "Denied" | "Failed" => &["True"],
            _ => &["True", "False", "Unknown"],
        };
        checks::one_of(condition, "status", supported, &path, errors);
        if seen.again(str_at(condition, "type")) {
            errors.duplicate(&path.child("type"), &str_at(condition, "type").into());
        }
    }
    let has = |kind: &str| conditions.iter().any(|condition| str_at(condition, "type") == kind);
    if has("Approved") && has("Denied") {
        let detail = "Approved and Denied conditions are mutually exclusive";
        errors.invalid_str(&path, "Denied", detail);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::causes;
    use super::*;
    use serde_json::json;

    #[test]
    fn a_request_names_signer_and_usages() {
        let pem = STANDARD.encode(format!("{BEGIN}\nAA==\n-----END CERTIFICATE REQUEST-----\n"));
        let good = json!({"spec": {"request": pem, "signerName": "a.test/s", "usages": ["client auth"]}});
        assert!(causes(|e| validate(&good, e)).is_empty());
        let bad = json!({"spec": {"request": "", "signerName": "s", "usages": ["x", "any", "any"]}});
        assert_eq!(
            causes(|e| validate(&bad, e)),
            [
                "spec.request FieldValueInvalid",
                "spec.usages[0] FieldValueNotSupported",
                "spec.usages[2] FieldValueDuplicate",
                "spec.signerName FieldValueInvalid",
            ]
        );
    }

    #[test]
    fn the_spec_never_changes() {
        let mut new = json!({"spec": {"signerName": "b"}});
        (RULES.prepare_update)(&mut new, &json!({"spec": {"signerName": "a"}}));
        assert_eq!(new["spec"]["signerName"], "a");
    }
}

//! authentication.k8s.io/v1 TokenRequest.

use shoal_objects::{Errors, Path, Value};

use super::access::{child_mut, field, int_at, set_default};

const MIN_SECONDS: i64 = 10 * 60;
const MAX_SECONDS: i64 = 1 << 32;
const DEFAULT_SECONDS: i64 = 60 * 60;

/// A token lives an hour unless told otherwise.
pub fn default(request: &mut Value) {
    if let Some(spec) = child_mut(request, "spec") {
        set_default(spec, "expirationSeconds", DEFAULT_SECONDS);
    }
}

/// What is wrong with a request for a token.
pub fn validate(request: &Value, errors: &mut Errors) {
    let seconds = field(request, "spec").and_then(|spec| int_at(spec, "expirationSeconds"));
    let path = Path::new("spec");
    validate_seconds(seconds.unwrap_or(DEFAULT_SECONDS), &path.child("expirationSeconds"), errors);
}

/// How long a token may live.
pub(super) fn validate_seconds(seconds: i64, path: &Path<'_>, errors: &mut Errors) {
    if seconds < MIN_SECONDS {
        errors.invalid(path, &seconds.into(), "may not specify a duration less than 10 minutes");
    }
    if seconds > MAX_SECONDS {
        errors.invalid(path, &seconds.into(), "may not specify a duration larger than 2^32 seconds");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_token_lives_ten_minutes_at_least() {
        let mut errors = Errors::new();
        validate(&json!({"spec": {"expirationSeconds": 10}}), &mut errors);
        assert_eq!(
            errors.to_string(),
            "spec.expirationSeconds: Invalid value: 10: may not specify a duration less than 10 minutes"
        );
        let mut request = json!({"spec": {}});
        default(&mut request);
        assert_eq!(request, json!({"spec": {"expirationSeconds": 3600}}));
    }
}

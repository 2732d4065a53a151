//! Secret.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use shoal_objects::{Errors, Path, Value, names};

use super::Rules;
use super::access::{at, bool_at, child_mut, entries_at, object_at, remove, set, set_default_str, str_at};
use super::checks;
use super::config_map::{IMMUTABLE, MAX_DATA_BYTES, decoded_len, same_map};
use crate::decode;

/// The rules of Secret.
pub const RULES: Rules = Rules { default, validate, validate_update, warnings, ..Rules::NONE };

const SERVICE_ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";

fn default(secret: &mut Value) {
    set_default_str(secret, "type", "Opaque");
    let Some(Value::Object(texts)) = remove(secret, "stringData") else { return };
    if texts.is_empty() {
        return;
    }
    if let Some(data) = child_mut(secret, "data") {
        for (key, text) in texts {
            set(data, &key, STANDARD.encode(text.as_str().unwrap_or_default()));
        }
    }
}

/// A TLS secret that no server could use is stored, but said to be useless.
fn warnings(secret: &Value) -> Vec<String> {
    if str_at(secret, "type") != "kubernetes.io/tls" {
        return Vec::new();
    }
    let has_pem = |key: &str| {
        let text = at(secret, &["data", key]).and_then(Value::as_str).unwrap_or_default();
        STANDARD.decode(text).is_ok_and(|bytes| bytes.windows(10).any(|w| w == b"-----BEGIN"))
    };
    let inputs = [("tls.crt", "certificate"), ("tls.key", "key")];
    let first = inputs.iter().find(|(key, _)| !has_pem(key));
    first.map(|(_, what)| format!("tls: failed to find any PEM data in {what} input")).into_iter().collect()
}

fn validate(secret: &Value, errors: &mut Errors) {
    let data = Path::new("data");
    let mut size = 0;
    for (key, value) in entries_at(secret, "data") {
        checks::text(errors, &data.key(key), key, names::config_map_key(key));
        size += decoded_len(value);
    }
    if size > MAX_DATA_BYTES {
        errors.too_long(&data, MAX_DATA_BYTES);
    }
    let has = |key: &str| object_at(secret, "data").is_some_and(|data| data.contains_key(key));
    let has_content =
        |key: &str| at(secret, &["data", key]).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
    let mut require = |key: &str| {
        if !has(key) {
            errors.required(&data.key(key), "");
        }
    };
    match str_at(secret, "type") {
        "kubernetes.io/service-account-token" => {
            let annotations = at(secret, &["metadata", "annotations"]).unwrap_or(&Value::Null);
            if str_at(annotations, SERVICE_ACCOUNT_NAME).is_empty() {
                let metadata = Path::new("metadata");
                errors.required(&metadata.child("annotations").key(SERVICE_ACCOUNT_NAME), "");
            }
        }
        "kubernetes.io/dockercfg" => docker_config(secret, ".dockercfg", errors),
        "kubernetes.io/dockerconfigjson" => docker_config(secret, ".dockerconfigjson", errors),
        // One of the two is enough; without either, both are named.
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            require("username");
            require("password");
        }
        "kubernetes.io/ssh-auth" if !has_content("ssh-privatekey") => {
            errors.required(&data.key("ssh-privatekey"), "");
        }
        "kubernetes.io/tls" => {
            require("tls.crt");
            require("tls.key");
        }
        _ => {}
    }
}

/// The key must be there and hold a JSON object. What it holds instead is never told.
fn docker_config(secret: &Value, key: &str, errors: &mut Errors) {
    let data = Path::new("data");
    let Some(text) = at(secret, &["data", key]) else {
        errors.required(&data.key(key), "");
        return;
    };
    let bytes = STANDARD.decode(text.as_str().unwrap_or_default()).unwrap_or_default();
    let problem = match decode::parse_json(&bytes) {
        Ok((Value::Object(_) | Value::Null, _)) => return,
        Ok(_) => "json: cannot unmarshal into Go value of type map[string]interface {}".to_owned(),
        Err(problem) => problem,
    };
    errors.invalid_str(&data.key(key), "<secret contents redacted>", &problem);
}

fn validate_update(new: &Value, old: &Value, errors: &mut Errors) {
    if str_at(new, "type") != str_at(old, "type") {
        errors.invalid_str(&Path::new("type"), str_at(new, "type"), checks::IMMUTABLE);
    }
    if !bool_at(old, "immutable") {
        return;
    }
    if !bool_at(new, "immutable") {
        errors.forbidden(&Path::new("immutable"), IMMUTABLE);
    }
    if !same_map(new, old, "data") {
        errors.forbidden(&Path::new("data"), IMMUTABLE);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::causes;
    use super::*;
    use serde_json::json;

    fn refused(mut secret: Value) -> Vec<String> {
        default(&mut secret);
        causes(|e| validate(&secret, e))
    }

    #[test]
    fn text_goes_into_data_and_the_type_is_opaque() {
        let mut secret = json!({"data": {"a": "eA=="}, "stringData": {"a": "y", "b": "z"}});
        default(&mut secret);
        assert_eq!(secret, json!({"type": "Opaque", "data": {"a": "eQ==", "b": "eg=="}}));
        let mut empty = json!({"stringData": {}});
        default(&mut empty);
        assert_eq!(empty, json!({"type": "Opaque"}));
    }

    #[test]
    fn typed_secrets_need_their_keys() {
        let typed = |kind: &str, data: Value| json!({"type": format!("kubernetes.io/{kind}"), "data": data});
        assert_eq!(refused(typed("tls", json!({"tls.crt": ""}))), ["data[tls.key] FieldValueRequired"]);
        assert!(refused(typed("tls", json!({"tls.crt": "", "tls.key": ""}))).is_empty());
        assert_eq!(
            refused(typed("basic-auth", json!({"x": "eQ=="}))),
            ["data[username] FieldValueRequired", "data[password] FieldValueRequired"]
        );
        assert!(refused(typed("basic-auth", json!({"username": "eQ=="}))).is_empty());
        assert_eq!(refused(typed("ssh-auth", json!({}))), ["data[ssh-privatekey] FieldValueRequired"]);
        assert_eq!(
            refused(typed("dockerconfigjson", json!({}))),
            ["data[.dockerconfigjson] FieldValueRequired"]
        );
        assert_eq!(
            refused(typed("service-account-token", json!({}))),
            ["metadata.annotations[kubernetes.io/service-account.name] FieldValueRequired"]
        );
    }

    #[test]
    fn a_docker_config_is_json_and_stays_secret() {
        let mut secret = json!({"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "not json"}});
        default(&mut secret);
        let mut errors = Errors::new();
        validate(&secret, &mut errors);
        let text = errors.to_string();
        assert_eq!(
            text,
            "data[.dockerconfigjson]: Invalid value: \"<secret contents redacted>\": invalid character 'o' in literal \
             null (expecting 'u')"
        );
    }

    #[test]
    fn the_type_never_changes() {
        let (new, old) = (json!({"type": "b"}), json!({"type": "a"}));
        let mut errors = Errors::new();
        validate_update(&new, &old, &mut errors);
        assert_eq!(errors.to_string(), "type: Invalid value: \"b\": field is immutable");
    }
}

//! ValidatingWebhookConfiguration and MutatingWebhookConfiguration.

use shoal_objects::{Errors, Path, Value, names};

use super::access::{existing_mut, field, int_at, list_at, list_mut, set_default, str_at};
use super::admission_rules::{
    default_matching, default_rules, validate_conditions, validate_matching, validate_rules,
};
use super::seen::Seen;
use super::{Rules, checks, net};

/// The rules of ValidatingWebhookConfiguration.
pub const VALIDATING_RULES: Rules = Rules { default, validate, ..Rules::NONE };

/// The rules of MutatingWebhookConfiguration.
pub const MUTATING_RULES: Rules = Rules {
    default: |configuration| {
        default(configuration);
        for webhook in list_mut(configuration, "webhooks") {
            set_default(webhook, "reinvocationPolicy", "Never");
        }
    },
    validate,
    ..Rules::NONE
};

const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

fn default(configuration: &mut Value) {
    for webhook in list_mut(configuration, "webhooks") {
        set_default(webhook, "failurePolicy", "Fail");
        set_default(webhook, "timeoutSeconds", 10);
        default_matching(webhook);
        default_rules(webhook, "rules");
        if let Some(service) = existing_mut(webhook, "clientConfig").and_then(|c| existing_mut(c, "service"))
        {
            set_default(service, "port", 443);
        }
    }
}

fn validate(configuration: &Value, errors: &mut Errors) {
    let webhooks = Path::new("webhooks");
    let mut seen = Seen::default();
    for (i, webhook) in list_at(configuration, "webhooks").iter().enumerate() {
        let path = webhooks.index(i);
        validate_webhook(webhook, &path, errors);
        if seen.again(str_at(webhook, "name")) {
            errors.duplicate(&path.child("name"), &str_at(webhook, "name").into());
        }
    }
}

fn validate_webhook(webhook: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_name(str_at(webhook, "name"), &path.child("name"), errors);
    validate_rules(webhook, "rules", path, errors);
    checks::optional_one_of(webhook, "failurePolicy", &["Fail", "Ignore"], path, errors);
    validate_matching(webhook, path, errors);
    if field(webhook, "sideEffects").is_none() {
        errors.required(&path.child("sideEffects"), "must specify one of None, NoneOnDryRun");
    }
    checks::optional_one_of(webhook, "sideEffects", &["None", "NoneOnDryRun"], path, errors);
    if let Some(seconds) = int_at(webhook, "timeoutSeconds")
        && !(1..=30).contains(&seconds)
    {
        let detail = "the timeout value must be between 1 and 30 seconds";
        errors.invalid(&path.child("timeoutSeconds"), &seconds.into(), detail);
    }
    let config = field(webhook, "clientConfig").unwrap_or(&Value::Null);
    validate_client(config, &path.child("clientConfig"), errors);
    validate_review_versions(webhook, &path.child("admissionReviewVersions"), errors);
    checks::optional_one_of(webhook, "reinvocationPolicy", &["IfNeeded", "Never"], path, errors);
    validate_conditions(webhook, path, errors);
}

fn validate_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    let found = names::dns1123_subdomain(name);
    if name.is_empty() {
        errors.required(path, "");
    } else if !found.is_empty() {
        checks::text(errors, path, name, found);
    } else if name.split('.').count() < 3 {
        let detail = "should be a domain with at least three segments separated by dots";
        errors.invalid_str(path, name, detail);
    }
}

/// Who is called: a URL or a service of the cluster.
pub(super) fn validate_client(config: &Value, path: &Path<'_>, errors: &mut Errors) {
    match (field(config, "url"), field(config, "service")) {
        (Some(_), Some(_)) | (None, None) => {
            errors.required(path, "exactly one of url or service is required");
        }
        (Some(_), None) => validate_url(str_at(config, "url"), &path.child("url"), errors),
        (None, Some(service)) => net::service_reference(errors, &path.child("service"), service),
    }
}

fn validate_url(url: &str, path: &Path<'_>, errors: &mut Errors) {
    const FORM: &str = "; desired format: https://host[/path]";
    let Some(rest) = url.strip_prefix("https://") else {
        let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
        errors.invalid_str(path, scheme, &format!("'https' is the only allowed URL scheme{FORM}"));
        return;
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.is_empty() {
        errors.invalid_str(path, authority, &format!("host must be specified{FORM}"));
    }
    for (mark, what) in [('@', "user information is"), ('#', "fragments are"), ('?', "query parameters are")]
    {
        let found = if mark == '@' { authority.contains(mark) } else { rest.contains(mark) };
        if found {
            errors.invalid_str(path, url, &format!("{what} not permitted in the URL"));
        }
    }
}

fn validate_review_versions(webhook: &Value, path: &Path<'_>, errors: &mut Errors) {
    let versions = list_at(webhook, "admissionReviewVersions");
    if versions.is_empty() {
        errors.required(path, "must specify one of v1, v1beta1");
        return;
    }
    let mut seen = Seen::default();
    for (i, version) in versions.iter().enumerate() {
        let text = version.as_str().unwrap_or_default();
        if seen.again(text) {
            errors.invalid_str(&path.index(i), text, "duplicate version");
        } else {
            checks::text(errors, &path.index(i), text, names::dns1035_label(text));
        }
    }
    if !versions.iter().any(|version| REVIEW_VERSIONS.iter().any(|known| version == known)) {
        let given = Value::from(versions.to_vec());
        errors.invalid(path, &given, "must include at least one of v1, v1beta1");
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::causes;
    use super::*;
    use serde_json::json;

    #[test]
    fn a_webhook_is_filled_up() {
        let mut configuration = json!({"webhooks": [{
            "name": "a.b.test", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {"namespace": "n", "name": "s"}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"]}],
        }]});
        (MUTATING_RULES.default)(&mut configuration);
        let webhook = &configuration["webhooks"][0];
        assert_eq!(webhook["failurePolicy"], "Fail");
        assert_eq!(webhook["matchPolicy"], "Equivalent");
        assert_eq!(webhook["namespaceSelector"], json!({}));
        assert_eq!(webhook["timeoutSeconds"], 10);
        assert_eq!(webhook["reinvocationPolicy"], "Never");
        assert_eq!(webhook["rules"][0]["scope"], "*");
        assert_eq!(webhook["clientConfig"]["service"]["port"], 443);
        assert!(causes(|e| validate(&configuration, e)).is_empty());
    }

    #[test]
    fn what_a_webhook_must_say() {
        let configuration = json!({"webhooks": [{
            "name": "short.test", "timeoutSeconds": 31, "clientConfig": {"url": "http://x/y"},
            "rules": [{"operations": ["*", "CREATE"], "apiGroups": [""], "apiVersions": [""],
                       "resources": ["pods/*", "pods/status"]}],
        }]});
        assert_eq!(
            causes(|e| validate(&configuration, e)),
            [
                "webhooks[0].name FieldValueInvalid",
                "webhooks[0].rules[0].operations FieldValueInvalid",
                "webhooks[0].rules[0].apiVersions[0] FieldValueRequired",
                "webhooks[0].rules[0].resources[1] FieldValueInvalid",
                "webhooks[0].sideEffects FieldValueRequired",
                "webhooks[0].timeoutSeconds FieldValueInvalid",
                "webhooks[0].clientConfig.url FieldValueInvalid",
                "webhooks[0].admissionReviewVersions FieldValueRequired",
            ]
        );
    }
}

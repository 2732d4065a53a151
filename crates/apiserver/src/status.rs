//! Errors as the API shows them: a `Status` object with code, reason, details and causes.

use http::StatusCode;
use serde_json::{Map, Value, json};
use shoal_objects::Errors;

use crate::registry::Resource;

/// An error that becomes a `Status` response.
#[derive(Clone, Debug)]
pub struct Failure {
    /// HTTP status code.
    pub code: StatusCode,
    /// Machine readable reason, empty when the real server gives none.
    pub reason: &'static str,
    /// Text for people.
    pub message: String,
    /// The `details` object; `None` leaves it out.
    pub details: Option<Map<String, Value>>,
    /// Value of a `Retry-After` header, in seconds.
    pub retry_after: Option<u32>,
    /// `metadata.continue`: where an expired list can be taken up again, inconsistently.
    pub list_continue: Option<String>,
}

/// What handlers return.
pub type Outcome<T> = Result<T, Failure>;

impl Failure {
    /// A failure with nothing but code, reason and message.
    pub fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Failure {
        Failure {
            code,
            reason,
            message: message.into(),
            details: None,
            retry_after: None,
            list_continue: None,
        }
    }

    /// The resource is not there.
    pub fn not_found(resource: &Resource, name: &str) -> Failure {
        let message = format!("{} {name:?} not found", resource.qualified());
        Failure::new(StatusCode::NOT_FOUND, "NotFound", message).about(
            &resource.group,
            &resource.plural,
            name,
        )
    }

    /// An object of that name exists.
    pub fn already_exists(resource: &Resource, name: &str) -> Failure {
        let message = format!("{} {name:?} already exists", resource.qualified());
        let failure = Failure::new(StatusCode::CONFLICT, "AlreadyExists", message);
        failure.about(&resource.group, &resource.plural, name)
    }

    /// The object changed since it was read.
    pub fn modified(resource: &Resource, name: &str) -> Failure {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Failure::conflict(&resource.group, &resource.plural, name, why)
    }

    /// The request cannot be carried out in the present state of the object.
    pub fn conflict(group: &str, kind: &str, name: &str, why: &str) -> Failure {
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let message = format!("Operation cannot be fulfilled on {qualified} {name:?}: {why}");
        Failure::new(StatusCode::CONFLICT, "Conflict", message).about(group, kind, name)
    }

    /// The object breaks rules.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &Errors) -> Failure {
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let message = format!("{qualified} {name:?} is invalid: {errors}");
        let causes: Vec<Value> = errors
            .0
            .iter()
            .map(|e| json!({"reason": e.reason.as_str(), "message": e.message, "field": e.field}))
            .collect();
        let mut failure =
            Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).about(group, kind, name);
        failure.detail("causes", Value::Array(causes));
        failure
    }

    /// The caller may not do this.
    pub fn forbidden(resource: &Resource, name: &str, why: &str) -> Failure {
        let subject =
            if name.is_empty() { resource.qualified() } else { format!("{} {name:?}", resource.qualified()) };
        let failure =
            Failure::new(StatusCode::FORBIDDEN, "Forbidden", format!("{subject} is forbidden: {why}"));
        failure.about(&resource.group, &resource.plural, name)
    }

    /// The request makes no sense.
    pub fn bad_request(message: impl Into<String>) -> Failure {
        Failure::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// The real server answers these mistakes as internal errors, without a reason.
    pub fn internal(message: impl Into<String>) -> Failure {
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    /// No such path below the API.
    pub fn no_such_resource() -> Failure {
        let text = "the server could not find the requested resource";
        Failure::new(StatusCode::NOT_FOUND, "NotFound", text).with_details()
    }

    /// The path exists, the method does not.
    pub fn method_not_allowed() -> Failure {
        let text = "the server does not allow this method on the requested resource";
        Failure::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", text).with_details()
    }

    /// No offered representation is acceptable.
    pub fn not_acceptable(available: &str) -> Failure {
        let text = format!("406: Not Acceptable\n\nAvailable representations: {available}");
        Failure::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", text).with_details()
    }

    /// The body's format is unknown.
    pub fn unsupported_media_type(message: impl Into<String>) -> Failure {
        Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    /// The revision has left the history window.
    pub fn expired(message: impl Into<String>) -> Failure {
        Failure::new(StatusCode::GONE, "Expired", message)
    }

    /// The revision asked for is not there yet.
    pub fn too_large_resource_version(asked: u64, current: u64) -> Failure {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let mut failure = Failure::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message);
        let cause = json!([{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]);
        failure.detail("causes", cause);
        failure.detail("retryAfterSeconds", json!(1));
        failure.retry_after = Some(1);
        failure
    }

    /// The body is larger than the limit.
    pub fn too_large(limit: usize) -> Failure {
        let text = format!("Request entity too large: limit is {limit}");
        Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", text)
    }

    /// The store cannot take writes now.
    pub fn unavailable(why: &str) -> Failure {
        let mut failure = Failure::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", why);
        failure.retry_after = Some(1);
        failure
    }

    /// Credentials were given and are wrong, or none were given where they are needed.
    pub fn unauthorized() -> Failure {
        Failure::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// Sets name, group and kind in the details; empty ones are left out.
    #[must_use]
    pub fn about(mut self, group: &str, kind: &str, name: &str) -> Failure {
        for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
            if !value.is_empty() {
                self.detail(key, Value::from(value));
            }
        }
        self
    }

    /// Shows `details` even if empty.
    #[must_use]
    pub fn with_details(mut self) -> Failure {
        self.details.get_or_insert_default();
        self
    }

    /// Adds an entry to the details.
    pub fn detail(&mut self, key: &str, value: Value) {
        self.details.get_or_insert_default().insert(key.to_owned(), value);
    }

    /// The `Status` object.
    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code.as_u16(),
        });
        if !self.reason.is_empty() {
            status["reason"] = Value::from(self.reason);
        }
        if let Some(token) = &self.list_continue {
            status["metadata"]["continue"] = Value::from(token.as_str());
        }
        if let Some(details) = &self.details {
            status["details"] = Value::Object(details.clone());
        }
        status
    }
}

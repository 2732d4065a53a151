//! Who may do what.
//!
//! For now every authenticated caller may do everything and anonymous ones may read health and version only; roles
//! are not evaluated yet. This is the one place that decides.

use crate::access::{ANONYMOUS, UserInfo};
use crate::status::Failure;

/// What is to be done.
#[derive(Clone, Debug, Default)]
pub struct Attributes {
    /// `get`, `list`, …
    pub verb: String,
    /// API group.
    pub group: String,
    /// Plural resource, empty for other paths.
    pub resource: String,
    /// Subresource.
    pub subresource: String,
    /// Namespace, empty for cluster scope.
    pub namespace: String,
    /// Object name.
    pub name: String,
    /// Path outside of resources.
    pub path: String,
}

/// Paths that anybody may read.
const PUBLIC: [&str; 4] = ["healthz", "livez", "readyz", "version"];

/// Whether the user is in the group that may do everything.
pub fn is_master(user: &UserInfo) -> bool {
    user.groups.iter().any(|g| g == "system:masters")
}

/// Why the user may do this, if so.
pub fn allowed(user: &UserInfo, attributes: &Attributes) -> Option<&'static str> {
    if is_master(user) {
        return Some("");
    }
    let first = attributes.path.trim_start_matches('/').split('/').next().unwrap_or_default();
    if attributes.resource.is_empty() && PUBLIC.contains(&first) {
        return Some("");
    }
    (user.username != ANONYMOUS && !user.username.is_empty()).then_some("")
}

/// The refusal, in the words of the real server.
pub fn refusal(user: &UserInfo, attributes: &Attributes) -> Failure {
    let Attributes { verb, group, resource, subresource, namespace, name, path } = attributes;
    let (user, mut message) = (&user.username, String::new());
    if resource.is_empty() {
        message.push_str(&format!("forbidden: User {user:?} cannot {verb} path {path:?}"));
        return Failure::new(http::StatusCode::FORBIDDEN, "Forbidden", message).with_details();
    }
    let full = if subresource.is_empty() { resource.clone() } else { format!("{resource}/{subresource}") };
    let qualified = if group.is_empty() { resource.clone() } else { format!("{resource}.{group}") };
    let subject = if name.is_empty() { qualified } else { format!("{qualified} {name:?}") };
    let scope = match namespace.as_str() {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace {namespace:?}"),
    };
    message.push_str(&format!(
        "{subject} is forbidden: User {user:?} cannot {verb} resource {full:?} in API group {group:?} {scope}"
    ));
    Failure::new(http::StatusCode::FORBIDDEN, "Forbidden", message).about(group, resource, name)
}

//! What is known about a caller.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Every caller who has proved who they are is in this group.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group of callers who showed no credentials.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The name of callers who showed no credentials.
pub const ANONYMOUS: &str = "system:anonymous";
/// Tells by which credential a caller was recognised.
pub(super) const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// A caller, in the form of `userInfo` in reviews and audit events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UserInfo {
    /// The unique name among all active users.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub username: String,
    /// Tells users apart who had the same name one after the other.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The groups in the order of the credential.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Anything more the credential tells.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    /// A caller without credentials.
    pub fn anonymous() -> UserInfo {
        UserInfo { username: ANONYMOUS.into(), groups: vec![UNAUTHENTICATED.into()], ..UserInfo::default() }
    }

    /// A user who has proved who they are.
    pub fn authenticated(username: &str, groups: &[&str]) -> UserInfo {
        let mut groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
        add_authenticated(&mut groups);
        UserInfo { username: username.to_owned(), groups, ..UserInfo::default() }
    }
}

/// Adds the group of authenticated callers if it is not there already.
pub(super) fn add_authenticated(groups: &mut Vec<String>) {
    if !groups.iter().any(|group| group == AUTHENTICATED) {
        groups.push(AUTHENTICATED.to_owned());
    }
}

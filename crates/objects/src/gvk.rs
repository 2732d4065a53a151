//! Groups, versions and kinds, and the `apiVersion` they make.

use std::fmt;

use serde_json::Value;

/// `apps/v1`, or `v1` for the core group.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupVersion {
    /// Empty for the core group.
    pub group: String,
    /// `v1`
    pub version: String,
}

/// A group, a version and a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupVersionKind {
    /// Empty for the core group.
    pub group: String,
    /// `v1`
    pub version: String,
    /// `Deployment`
    pub kind: String,
}

/// An `apiVersion` with more than one slash.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unexpected GroupVersion string: {0}")]
pub struct GroupVersionError(String);

impl GroupVersion {
    /// A group and a version.
    pub fn new(group: &str, version: &str) -> GroupVersion {
        GroupVersion { group: group.to_owned(), version: version.to_owned() }
    }

    /// Reads an `apiVersion`.
    pub fn parse(api_version: &str) -> Result<GroupVersion, GroupVersionError> {
        match api_version.split_once('/') {
            None => Ok(GroupVersion::new("", api_version)),
            Some((_, version)) if version.contains('/') => Err(GroupVersionError(api_version.to_owned())),
            Some((group, version)) => Ok(GroupVersion::new(group, version)),
        }
    }

    /// A kind of this group and version.
    pub fn kind(&self, kind: &str) -> GroupVersionKind {
        GroupVersionKind::new(&self.group, &self.version, kind)
    }
}

impl fmt::Display for GroupVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.version)
        } else {
            write!(f, "{}/{}", self.group, self.version)
        }
    }
}

impl GroupVersionKind {
    /// A group, a version and a kind.
    pub fn new(group: &str, version: &str, kind: &str) -> GroupVersionKind {
        GroupVersionKind { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() }
    }

    /// What an object (or a reference with `apiVersion` and `kind`) says it is.
    pub fn of(obj: &Value) -> Result<GroupVersionKind, GroupVersionError> {
        let text = |field: &str| obj.get(field).and_then(Value::as_str).unwrap_or_default();
        Ok(GroupVersion::parse(text("apiVersion"))?.kind(text("kind")))
    }

    /// The group and version.
    pub fn group_version(&self) -> GroupVersion {
        GroupVersion::new(&self.group, &self.version)
    }

    /// The `apiVersion`.
    pub fn api_version(&self) -> String {
        self.group_version().to_string()
    }
}

impl fmt::Display for GroupVersionKind {
    /// `apps/v1, Kind=Deployment`, and `/v1, Kind=Pod` for the core group.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_api_version_is_read_and_written() {
        for text in ["v1", "apps/v1", ""] {
            assert_eq!(GroupVersion::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(
            GroupVersion::parse("a/b/c").unwrap_err().to_string(),
            "unexpected GroupVersion string: a/b/c"
        );
        let deployment =
            GroupVersionKind::of(&json!({"apiVersion": "apps/v1", "kind": "Deployment"})).unwrap();
        assert_eq!(deployment, GroupVersionKind::new("apps", "v1", "Deployment"));
        assert_eq!(deployment.api_version(), "apps/v1");
        assert_eq!(GroupVersionKind::new("", "v1", "Pod").to_string(), "/v1, Kind=Pod");
    }
}

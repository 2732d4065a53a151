//! The name by which an object is queued, cached and looked up.

use std::fmt;
use std::sync::Arc;

use kube::{Resource, ResourceExt};

/// Namespace and name of an object of some kind. Cheap to clone; ordered by namespace, then name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// Empty for kinds without namespaces.
    pub namespace: Arc<str>,
    /// Unique within the namespace.
    pub name: Arc<str>,
}

impl ObjectKey {
    /// The key of an object in a namespace.
    pub fn new(namespace: &str, name: &str) -> ObjectKey {
        ObjectKey { namespace: namespace.into(), name: name.into() }
    }

    /// The key of an object of a kind without namespaces.
    pub fn cluster(name: &str) -> ObjectKey {
        ObjectKey::new("", name)
    }

    /// The key of this object.
    pub fn of<K: Resource>(object: &K) -> ObjectKey {
        ObjectKey::new(object.meta().namespace.as_deref().unwrap_or_default(), &object.name_any())
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

//! Pure machinery on Kubernetes objects as JSON: no IO, no async, no knowledge of a server.

pub mod clock;
pub mod conditions;
pub mod entropy;
pub mod gvk;
pub mod invalid;
pub mod json_path;
pub mod managed_fields;
pub mod meta;
pub mod names;
pub mod outline;
pub mod patch;
pub mod quantity;
pub mod schema;
pub mod selector;
pub mod shard;
pub mod structural;

pub use clock::{Clock, Timestamp};
pub use entropy::Entropy;
pub use gvk::{GroupVersion, GroupVersionKind};
pub use invalid::{Errors, FieldError, Path};
pub use quantity::Quantity;
pub use selector::{FieldSelector, LabelSelector};
pub use shard::ShardSelector;

/// A JSON object with sorted keys.
pub type Map = serde_json::Map<String, Value>;
pub use serde_json::Value;

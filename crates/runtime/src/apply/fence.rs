//! Stopping a writer whose work has gone to another replica.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

/// The right to write for one slot, as it stands now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permit {
    /// The slot that the work belongs to.
    pub slot: u32,
    /// Grows with every change of owner: a fencing token for systems outside the cluster.
    pub epoch: u64,
    /// How long the right lasts if it is not renewed.
    pub remaining: Duration,
}

/// Tells before each request whether this replica may still write. Cheap to clone.
#[derive(Clone)]
pub struct Fence(Arc<dyn Fn() -> Option<Permit> + Send + Sync>);

/// The work has gone to another replica, or this one cannot know that it has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this replica does not own the object's slot any more; its owner will do the work")]
pub struct Fenced;

impl Fence {
    /// A fence that asks `permit` each time; `None` stops the writer.
    pub fn new(permit: impl Fn() -> Option<Permit> + Send + Sync + 'static) -> Fence {
        Fence(Arc::new(permit))
    }

    /// The permit that is valid now.
    pub fn check(&self) -> Result<Permit, Fenced> {
        (self.0)().filter(|permit| !permit.remaining.is_zero()).ok_or(Fenced)
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Fence").field(&self.check()).finish()
    }
}

/// Makes a write valid for this incarnation and version of the object only.
pub(super) fn pin(body: &mut Value, meta: &ObjectMeta) {
    let Some(fields) = body.as_object_mut() else { return };
    let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
    let Some(metadata) = metadata.as_object_mut() else { return };
    if let Some(uid) = &meta.uid {
        metadata.insert("uid".to_owned(), Value::String(uid.clone()));
    }
    if let Some(version) = &meta.resource_version {
        metadata.insert("resourceVersion".to_owned(), Value::String(version.clone()));
    }
}

/// Asks the server to give the request up when the permit ends.
pub(crate) fn limit(request: &mut http::Request<Vec<u8>>, remaining: Duration) {
    // The server reads whole milliseconds and refuses zero.
    let millis = remaining.as_millis().max(1);
    let uri = request.uri();
    let path = uri.path();
    let timeout = format!("timeout={millis}ms");
    let with_timeout = match uri.query().filter(|query| !query.is_empty()) {
        Some(query) => format!("{path}?{}&{timeout}", query.trim_end_matches('&')),
        None => format!("{path}?{timeout}"),
    };
    if let Ok(uri) = with_timeout.parse() {
        *request.uri_mut() = uri;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expired_permit_is_none() {
        let fence = Fence::new(|| Some(Permit { slot: 1, epoch: 2, remaining: Duration::ZERO }));
        assert_eq!(fence.check(), Err(Fenced));
        assert_eq!(Fence::new(|| None).check(), Err(Fenced));
    }

    #[test]
    fn the_server_is_told_when_the_permit_ends() {
        for (before, after) in [
            ("/api/v1/pods/a", "/api/v1/pods/a?timeout=1500ms"),
            ("/api/v1/pods/a?&fieldManager=x", "/api/v1/pods/a?&fieldManager=x&timeout=1500ms"),
        ] {
            let mut request = http::Request::builder().uri(before).body(Vec::new()).unwrap();
            limit(&mut request, Duration::from_millis(1500));
            assert_eq!(request.uri(), after);
        }
    }
}

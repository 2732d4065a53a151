//! The aggregation layer: group versions that others serve under this server's address.
//!
//! An APIService says who serves a group version: this server itself (`Local`), an extension API server behind a
//! Service, or other code of this process that was mounted. Requests to the latter two are passed on after the caller
//! is known and allowed; see `forward`. Whether a Service answers is watched in `availability`, what it serves is read
//! in `discovered`.

mod availability;
mod discovered;
mod forward;
pub mod passing;
mod priority;
mod registration;
mod remote;
mod routes;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use parking_lot::{Mutex, RwLock};
use serde_json::Value;
use shoal_objects::meta;
use shoal_store::Range;

use crate::access::pki::FrontProxy;
use crate::body::Body;
use crate::handlers::served;
use crate::kinds::access::{field, int_at, part, str_at};
use crate::server::Inner;

pub use discovered::Discovered;
pub use forward::forward;
pub use priority::{CUSTOM, Priority, builtin as builtin_priority};
pub use registration::{at_start, custom_changed};
use remote::Remote;
pub use routes::{RequestInfo, route};

/// Where APIServices are stored.
pub const TABLE: &str = "apiregistration.k8s.io/apiservices";

/// Serves a group version inside this process: gets the request with its whole body and a
/// [`UserInfo`](crate::access::UserInfo) among its extensions, after authentication and authorization.
pub type GroupHandler = Arc<dyn Fn(Request<Bytes>) -> BoxFuture<'static, Response<Body>> + Send + Sync>;

/// Why a group version cannot be mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The server has it already.
    #[error("{0} is built in")]
    BuiltIn(String),
    /// The handler does not tell what it serves.
    #[error("the handler of {group_version} gives no APIResourceList at its root: {why}")]
    Discovery {
        /// `GROUP/VERSION`
        group_version: String,
        /// What it gave instead.
        why: String,
    },
}

/// A group version that others serve.
pub struct Delegate {
    /// API group.
    pub group: String,
    /// Version within the group.
    pub version: String,
    /// Its place in discovery.
    pub priority: Priority,
    back: Back,
    discovered: RwLock<Arc<Discovered>>,
}

enum Back {
    Mounted(GroupHandler),
    Remote(Remote),
}

/// All delegates; empty in most clusters.
#[derive(Default)]
pub struct Delegates(Vec<Arc<Delegate>>);

/// What the server knows about group versions that others serve.
pub struct Aggregator {
    delegates: RwLock<Arc<Delegates>>,
    mounted: Mutex<Vec<Arc<Delegate>>>,
    /// Custom group versions that have an APIService of ours.
    registered: tokio::sync::Mutex<BTreeSet<(String, String)>>,
    /// One change at a time.
    changing: tokio::sync::Mutex<()>,
    front_proxy: Option<FrontProxy>,
}

impl Aggregator {
    /// Nobody else serves anything yet.
    pub fn new(front_proxy: Option<FrontProxy>) -> Aggregator {
        Aggregator {
            delegates: RwLock::default(),
            mounted: Mutex::default(),
            registered: tokio::sync::Mutex::default(),
            changing: tokio::sync::Mutex::default(),
            front_proxy,
        }
    }

    /// Who serves what now.
    pub fn delegates(&self) -> Arc<Delegates> {
        self.delegates.read().clone()
    }

    /// How extension API servers recognise this server.
    pub fn front_proxy(&self) -> Option<&FrontProxy> {
        self.front_proxy.as_ref()
    }

    fn holds(&self, delegate: &Arc<Delegate>) -> bool {
        self.delegates.read().0.iter().any(|held| Arc::ptr_eq(held, delegate))
    }
}

impl Delegates {
    /// Whether this server serves everything itself.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Who serves this group version, if others do.
    pub fn find(&self, group: &str, version: &str) -> Option<&Arc<Delegate>> {
        self.0.iter().find(|d| d.group == group && d.version == version)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Delegate>> {
        self.0.iter()
    }
}

impl Delegate {
    /// What it serves, as far as is known.
    pub fn discovered(&self) -> Arc<Discovered> {
        self.discovered.read().clone()
    }

    fn root(&self) -> String {
        format!("/apis/{}/{}", self.group, self.version)
    }
}

/// An APIService was written or deleted: from the next request on, requests go where it says.
pub async fn changed(server: &Arc<Inner>, name: &str) {
    registration::keep(server, name).await;
    refresh(server).await;
}

/// Reads who serves what.
async fn refresh(server: &Arc<Inner>) {
    let aggregator = &server.aggregator;
    let _one_at_a_time = aggregator.changing.lock().await;
    let registry = server.registry();
    let Some(resource) = registry.find("apiregistration.k8s.io", "v1", "apiservices") else { return };
    let before = aggregator.delegates();
    let mut delegates = Vec::new();
    for object in server.store.list(TABLE, Range::All, None, 0).await.objects {
        let Ok(service) = served(resource, &object) else { continue };
        if let Some(delegate) = remote_delegate(server, &before, &service) {
            delegates.push(delegate);
        }
    }
    // An APIService that names a Service goes before what is mounted for the same group version.
    for mounted in aggregator.mounted.lock().iter() {
        if !delegates.iter().any(|d: &Arc<Delegate>| d.group == mounted.group && d.version == mounted.version)
        {
            delegates.push(mounted.clone());
        }
    }
    let new: Vec<Arc<Delegate>> =
        delegates.iter().filter(|d| !before.0.iter().any(|b| Arc::ptr_eq(b, d))).cloned().collect();
    *aggregator.delegates.write() = Arc::new(Delegates(delegates));
    for delegate in new {
        if matches!(delegate.back, Back::Remote(_)) {
            availability::watch(server, delegate);
        }
    }
}

/// The delegate of an APIService that names a Service; the one there is, if nothing about it has changed.
fn remote_delegate(server: &Inner, before: &Delegates, service: &Value) -> Option<Arc<Delegate>> {
    let spec = part(service, "spec");
    field(spec, "service")?;
    let (group, version) = (str_at(spec, "group"), str_at(spec, "version"));
    // The server's own groups stay its own.
    if server.registry().has_builtin_group(group) {
        return None;
    }
    let is_available = shoal_objects::conditions::is_condition_true(service, "Available");
    if let Some(known) = before.find(group, version)
        && let Back::Remote(remote) = &known.back
        && remote.spec == *spec
    {
        remote.recheck(is_available);
        return Some(known.clone());
    }
    let remote = Remote::new(meta::name(service), spec, is_available, server.aggregator.front_proxy());
    Some(Arc::new(Delegate {
        group: group.to_owned(),
        version: version.to_owned(),
        priority: Priority {
            group: int_at(spec, "groupPriorityMinimum").unwrap_or_default(),
            version: int_at(spec, "versionPriority").unwrap_or_default(),
        },
        back: Back::Remote(remote),
        discovered: RwLock::default(),
    }))
}

/// Serves a group version by code of this process. An APIService without a Service stands for it.
pub async fn mount(
    server: &Arc<Inner>,
    group: &str,
    version: &str,
    handler: GroupHandler,
) -> Result<(), MountError> {
    let group_version = format!("{group}/{version}");
    if group.is_empty() || server.registry().has_builtin_group(group) {
        return Err(MountError::BuiltIn(group_version));
    }
    let discovered = discovered::of_handler(group, version, &handler)
        .await
        .map_err(|why| MountError::Discovery { group_version, why })?;
    let delegate = Arc::new(Delegate {
        group: group.to_owned(),
        version: version.to_owned(),
        priority: priority::MOUNTED,
        back: Back::Mounted(handler),
        discovered: RwLock::new(Arc::new(discovered)),
    });
    {
        let mut mounted = server.aggregator.mounted.lock();
        mounted.retain(|d| d.group != group || d.version != version);
        mounted.push(delegate);
    }
    registration::register_mounted(server, group, version).await;
    refresh(server).await;
    Ok(())
}

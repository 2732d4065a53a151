//! A controller: which kinds it watches, which of their changes concern which object, and what it does about it.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use k8s_openapi::api::core::v1::{ConfigMap, Secret};
//! use shoal_runtime::controller::{Context, Controller};
//! use shoal_runtime::{Action, Manager, Result};
//!
//! async fn reconcile(context: Context<ConfigMap>) -> Result<Action> {
//!     let Some(map) = context.object() else { return Ok(Action::done()) };
//!     context.recorder().normal(&*map, "Seen", "there are some Secrets too");
//!     Ok(Action::done())
//! }
//!
//! let cluster = shoal_testkit::Cluster::start().await;
//! let mut manager = Manager::builder("demo").client(cluster.client()).embedded().build().await?;
//! manager.add(Controller::of::<ConfigMap>("maps").owns::<Secret>().reconcile(reconcile));
//! let stopper = manager.stopper();
//! let running = tokio::spawn(manager.run());
//! stopper.stop();
//! running.await??;
//! # Ok(())
//! # }
//! ```

mod builder;
mod context;
mod handler;
mod listers;
mod pipeline;
mod reconciler;
mod run;
mod source;

pub use builder::Builder;
pub use context::Context;
pub use handler::ResourceHandler;
pub use listers::Listers;
pub use reconciler::Reconciler;

use crate::apply::Object;
use crate::manager::{Component, IntoComponent, Manager};

/// A controller, ready to be added to a manager.
///
/// ```
/// use k8s_openapi::api::apps::v1::Deployment;
/// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// use shoal_runtime::{Action, Context, Controller, ObjectKey, Result};
///
/// async fn reconcile(context: Context<Deployment>) -> Result<Action> {
///     let Some(deployment) = context.object() else { return Ok(Action::done()) };
///     let _children = context.children::<ConfigMap>();
///     Ok(Action::done())
/// }
///
/// let _controller = Controller::of::<Deployment>("web")
///     .with_labels("app=web")
///     // A change of a ConfigMap that a Deployment controls is a reason to look at that Deployment …
///     .owns::<ConfigMap>()
///     // … and a change of a Secret, to look at the Deployment of the same name.
///     .watches::<Secret>(|secret, _listers| {
///         let metadata = &secret.metadata;
///         metadata.namespace.iter().zip(&metadata.name).map(|(space, name)| ObjectKey::new(space, name)).collect()
///     })
///     .reconcile(reconcile);
/// ```
///
/// How one runs is shown at [`Manager`]; reconcilers that would rather be told what happened are [`ResourceHandler`]s.
pub struct Controller {
    build: Box<dyn FnOnce(&Manager) -> Component + Send>,
}

impl Controller {
    /// Begins a controller of a kind. The name must be unique within the manager; it is the label of metrics and, by
    /// default, the field manager of what is written.
    pub fn of<K: Object>(name: &str) -> Builder<K> {
        Builder::new(name)
    }
}

impl IntoComponent for Controller {
    fn into_component(self, manager: &Manager) -> Component {
        (self.build)(manager)
    }
}

//! What a manager runs: a name, what must be ready first, and a future that ends when it is asked to.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::Value;

use super::Stop;

/// Any error, boxed.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// Answers whether the component does its work.
pub type Ready = Arc<dyn Fn() -> bool + Send + Sync>;
/// Tells what the component is doing, for `/debug/inspect`.
pub type Inspect = Arc<dyn Fn() -> Value + Send + Sync>;
/// The component's work.
pub type Run = Box<dyn FnOnce(Stop) -> BoxFuture<'static, Result<(), BoxError>> + Send>;

/// When a component starts and stops, relative to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Starts first; all of these are ready before any controller starts, and they stop after the last one.
    Cache,
    /// Everything else.
    Controller,
}

/// One thing that a manager runs.
///
/// ```
/// use shoal_runtime::manager::Component;
///
/// let sweeper = Component::new("sweeper", |stop| async move {
///     stop.requested().await;
///     Ok(())
/// })
/// .needs("web-app")
/// .elected();
/// assert_eq!(sweeper.needs, ["web-app"]);
/// ```
pub struct Component {
    /// Unique within the manager.
    pub name: String,
    /// Names of components that must be ready before this one starts. It stops before they do.
    pub needs: Vec<String>,
    /// Runs on the leader only.
    pub elected: bool,
    /// Caches start before controllers.
    pub stage: Stage,
    /// Asked again and again until it is true.
    pub ready: Ready,
    /// What it is doing.
    pub inspect: Option<Inspect>,
    /// The work. To end before being asked to is an error of the manager.
    pub run: Run,
}

impl Component {
    /// A component that needs nothing, runs on every replica and counts as ready once it runs.
    pub fn new<F, R>(name: impl Into<String>, run: F) -> Component
    where
        F: FnOnce(Stop) -> R + Send + 'static,
        R: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        Component {
            name: name.into(),
            needs: Vec::new(),
            elected: false,
            stage: Stage::Controller,
            ready: Arc::new(|| true),
            inspect: None,
            run: Box::new(move |stop| run(stop).boxed()),
        }
    }

    /// Starts only when the component of this name is ready.
    #[must_use]
    pub fn needs(mut self, name: impl Into<String>) -> Component {
        self.needs.push(name.into());
        self
    }

    /// Runs on the leader only.
    #[must_use]
    pub fn elected(mut self) -> Component {
        self.elected = true;
        self
    }

    /// Starts before all controllers and stops after them.
    #[must_use]
    pub fn cache(mut self) -> Component {
        self.stage = Stage::Cache;
        self
    }

    /// Counts as ready when `ready` says so.
    #[must_use]
    pub fn ready(mut self, ready: impl Fn() -> bool + Send + Sync + 'static) -> Component {
        self.ready = Arc::new(ready);
        self
    }

    /// Shows what `inspect` gives in `/debug/inspect`.
    #[must_use]
    pub fn inspect(mut self, inspect: impl Fn() -> Value + Send + Sync + 'static) -> Component {
        self.inspect = Some(Arc::new(inspect));
        self
    }
}

impl fmt::Debug for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Component")
            .field("name", &self.name)
            .field("needs", &self.needs)
            .field("elected", &self.elected)
            .field("stage", &self.stage)
            .finish_non_exhaustive()
    }
}

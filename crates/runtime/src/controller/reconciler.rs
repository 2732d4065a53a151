//! What a controller does with an object.

use std::future::Future;

use super::Context;
use crate::reconcile::{Action, Result};

/// Brings the cluster closer to what an object asks for. Async functions and closures are reconcilers.
///
/// It may be called at any time, many times, and after anything: it looks at what is, not at what happened. Calls for
/// one object never overlap.
pub trait Reconciler<K>: Send + Sync + 'static {
    /// One step. An error is retried as its class says.
    fn reconcile(&self, context: Context<K>) -> impl Future<Output = Result<Action>> + Send;
}

impl<K, F, R> Reconciler<K> for F
where
    F: Fn(Context<K>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Action>> + Send,
{
    fn reconcile(&self, context: Context<K>) -> impl Future<Output = Result<Action>> + Send {
        self(context)
    }
}

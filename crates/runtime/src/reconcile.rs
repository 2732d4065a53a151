//! What a reconciler gives back: what to do next, or what went wrong and whether trying again can help.

use std::borrow::Cow;
use std::time::Duration;

/// What happens to the key after a reconcile that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing until something changes.
    AwaitChange,
    /// Run again after this time, or earlier when something changes.
    RequeueAfter(Duration),
}

impl Action {
    /// Nothing until something changes.
    pub fn done() -> Action {
        Action::AwaitChange
    }

    /// Run again after this time, or earlier when something changes.
    pub fn after(delay: Duration) -> Action {
        Action::RequeueAfter(delay)
    }
}

/// Whether trying again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// It can: the API server is busy, a write met a conflict. Retried with growing delay, without limit.
    Transient,
    /// It cannot until the object changes. Recorded, not retried.
    Permanent,
    /// Nobody said. Retried with growing delay up to `maxRetries`, then parked until the next event or resync.
    Unknown,
}

/// A failed reconcile.
#[derive(Debug, thiserror::Error)]
#[error("{action}{}", source.as_ref().map(|source| format!(": {source}")).unwrap_or_default())]
pub struct Error {
    /// Whether trying again can help.
    pub class: Class,
    /// What failed, on what.
    pub action: Cow<'static, str>,
    /// Why, if something below said so.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// What reconcilers and the calls they make give back.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error that goes away by itself.
    pub fn transient(action: impl Into<Cow<'static, str>>) -> Error {
        Error { class: Class::Transient, action: action.into(), source: None }
    }

    /// An error that stays until the object changes.
    pub fn permanent(action: impl Into<Cow<'static, str>>) -> Error {
        Error { class: Class::Permanent, action: action.into(), source: None }
    }

    /// An error of which nobody knows whether trying again helps.
    pub fn unknown(action: impl Into<Cow<'static, str>>) -> Error {
        Error { class: Class::Unknown, action: action.into(), source: None }
    }

    /// The same error, with its cause.
    pub fn because(self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error { source: Some(source.into()), ..self }
    }

    /// Whether this happens in every healthy cluster: a write met another, or came into a namespace on its way out.
    pub fn is_ordinary(&self) -> bool {
        match self.source.as_ref().and_then(|source| source.downcast_ref::<kube::Error>()) {
            Some(kube::Error::Api(status)) => status.code == 409 || is_terminating(status),
            _ => false,
        }
    }
}

fn is_terminating(status: &kube::core::Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

/// The retry class of an API error, in one match.
pub fn class_of(error: &kube::Error) -> Class {
    match error {
        // Nothing new comes into a namespace that goes.
        kube::Error::Api(status) if is_terminating(status) => Class::Permanent,
        kube::Error::Api(status) => match status.code {
            // Conflict, timeouts, too many requests, and what servers say while they start, stop or elect.
            408 | 409 | 429 | 500 | 502..=504 => Class::Transient,
            // The request itself is wrong or forbidden: the same request gets the same answer.
            400 | 405 | 406 | 413 | 415 | 422 => Class::Permanent,
            // Not found and forbidden often mend themselves (a namespace or a role on its way), but not for certain.
            _ => Class::Unknown,
        },
        kube::Error::HyperError(_) | kube::Error::Service(_) | kube::Error::ReadEvents(_) => Class::Transient,
        kube::Error::SerdeError(_) | kube::Error::BuildRequest(_) => Class::Permanent,
        _ => Class::Unknown,
    }
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Error {
        Error {
            class: class_of(&error),
            action: "a request to the API server failed".into(),
            source: Some(error.into()),
        }
    }
}

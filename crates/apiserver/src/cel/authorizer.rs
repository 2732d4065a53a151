//! The variable `authorizer`: questions about what the requesting user may do.

use std::fmt;
use std::sync::Arc;

/// Answers questions about permissions.
pub type Authorize = Arc<dyn Fn(&Question) -> Decision + Send + Sync>;

/// What is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// Ask for this service account (namespace, name) instead of the requesting user.
    pub service_account: Option<(String, String)>,
    /// A path that is not a resource.
    pub path: Option<String>,
    /// API group.
    pub group: String,
    /// Plural name of the resource.
    pub resource: String,
    /// Subresource.
    pub subresource: String,
    /// Namespace; empty for all.
    pub namespace: String,
    /// Name; empty for all.
    pub name: String,
    /// Field selector.
    pub field_selector: String,
    /// Label selector.
    pub label_selector: String,
    /// The verb.
    pub verb: String,
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether it is allowed.
    pub allowed: bool,
    /// Why.
    pub reason: String,
    /// What went wrong while deciding.
    pub error: Option<String>,
}

/// A question in the making, and whom to ask.
#[derive(Clone)]
pub struct Check {
    /// Whom to ask.
    pub authorize: Authorize,
    /// What is asked so far.
    pub question: Question,
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.question.fmt(f)
    }
}

impl PartialEq for Check {
    fn eq(&self, other: &Check) -> bool {
        self.question == other.question
    }
}

//! Server-side apply: who owns which field, and what becomes of an object when somebody applies a configuration.
//!
//! Objects are walked over their [`Schema`]. A field is owned by the managers that applied it or wrote it last.
//! [`update`] accounts for any write but an apply, [`apply`] merges a configuration and finds conflicts. Objects are
//! passed without `metadata.managedFields`: [`read_object`] reads it apart, straight into field sets, and what comes back
//! is its text, because as JSON values it would cost more than all the rest of the object.

mod apply;
mod atomics;
mod check;
mod compare;
mod edits;
mod element;
mod entries;
mod last_applied;
mod merge;
mod owned;
mod place;
mod set;
mod text;
mod update;

pub use apply::{Applied, Config, Conflict, apply};
pub use atomics::atomics;
pub use check::check;
pub use compare::{Comparison, compare};
pub use edits::{Edit, Edits, Knowledge, edits};
pub use entries::{Account, Entries, Operation, take_managed_fields};
pub use last_applied::{KUBECTL, LAST_APPLIED, sync_last_applied};
pub use merge::{covers, merge, remove};
pub use owned::owned_fields;
pub use place::Schema;
pub use set::FieldSet;
pub use text::read_object;
pub use update::update;

use serde_json::Value;

use crate::Timestamp;

/// Gives an object in another version, and what is known of that version's type.
pub type Convert<'r> = dyn Fn(&Value, &str) -> Option<(Value, Schema<'r>)> + 'r;

/// Who writes, and how objects are to be read.
#[derive(Clone, Copy)]
pub struct Writer<'r> {
    /// The manager's name.
    pub manager: &'r str,
    /// The version the request is in.
    pub api_version: &'r str,
    /// The subresource written to, or empty.
    pub subresource: &'r str,
    /// The part of the object the request can own.
    pub reach: Reach,
    /// When.
    pub now: Timestamp,
    /// Types of the object in the request's version.
    pub schema: Schema<'r>,
    /// The object in another version, for managers that wrote it in that one. `None`: no such version.
    pub convert: &'r Convert<'r>,
}

/// The part of an object a request can own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Everything.
    Whole,
    /// Everything but the status.
    Body,
    /// The status, and the metadata if so said.
    Status {
        /// Labels and the like too.
        metadata: bool,
    },
}

impl Reach {
    fn includes(self, field: &str) -> bool {
        match self {
            Reach::Whole => true,
            Reach::Body => field != "status",
            Reach::Status { metadata } => field == "status" || (metadata && field == "metadata"),
        }
    }

    fn restrict(self, set: &mut FieldSet<'_>) {
        set.nodes.retain(|node| self.includes(&node.element.text));
    }
}

#[cfg(test)]
mod edits_tests;
#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "tests read better with literals")]
mod tests;

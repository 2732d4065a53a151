//! List and watch of one kind, as bytes.
//!
//! A [`Watcher`] gives one [`Step`] after the other and never ends: lists in pages or as a stream, follows the events,
//! resumes after a cut where it was, lists again when the server has forgotten that place, and waits between failures.
//! It does not hold objects; the cache does.
//!
//! ```text
//! bytes ─▶ frames (lines, not copied) ─▶ answer (pages, events) ─▶ record (where the metadata stands)
//! ```

mod answer;
mod backoff;
mod fault;
mod frames;
mod record;
mod revision;
mod source;
mod span;
mod watcher;

pub use answer::Kind;
pub use backoff::BackoffOptions;
pub use fault::Fault;
pub use record::{Record, Trim};
pub use revision::Revision;
pub use source::{Scope, Source};
pub use watcher::{Change, Step, WatchOptions, Watcher, newest_revision};

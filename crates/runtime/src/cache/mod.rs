//! Objects in memory, up to date: the store, its indexes, and who is told about changes.
//!
//! ```text
//! watcher ─▶ writer (new, old news, gone) ─▶ store ─▶ subscriptions (deltas)
//!                                              └────▶ lister (decodes what is read)
//! ```
//!
//! Objects are held as bytes, mostly compressed, beside their metadata. What a selector, an index or a trigger wants to
//! know is in the metadata; a body is decoded when somebody reads it, and stays decoded while it is read often.

mod decoded;
mod delta;
mod encoded;
mod index;
mod informer;
mod informers;
mod labels;
mod lister;
mod metrics;
mod pack;
mod pages;
mod siblings;
mod side;
mod stats;
mod store;
mod subscription;
mod view;
mod writer;

pub(crate) use informer::{Core, Part};
pub(crate) use informers::Division;

pub use delta::{ChangeKind, Delta, Origin};
pub use encoded::{Encoded, Uid};
pub use index::{IndexFn, owner_uids};
pub use informer::Informer;
pub use informers::{InformerOptions, InformerSnapshot, Informers, KindTransform};
pub use lister::Lister;
pub use metrics::InformerMetrics;
pub use pack::Compression;
pub use pages::Objects;
pub use siblings::Owner;
pub use stats::Stats;
pub use subscription::Subscription;
pub use view::Malformed;
pub use writer::{Filter, Transform};

//! The framework: write a Kubernetes controller, run it on any cluster.
//!
//! The modules are the pipeline that an event goes through, in this order:
//!
//! ```text
//! watch ─▶ cache ─▶ trigger ─▶ gate ─▶ queue ─▶ worker ─▶ reconcile ─▶ apply ─▶ status
//! ```
//!
//! Around it stand the `manager` (life cycle, election, health) and what a controller needs to be operated:
//! `config`, `events`, `metrics`, `state`.

pub mod apply;
pub mod cache;
pub mod client;
pub mod config;
pub mod controller;
pub mod election;
pub mod events;
pub mod expectations;
pub mod finalizer;
pub mod gate;
pub mod health;
pub mod key;
pub mod logging;
pub mod manager;
pub mod metrics;
pub mod monotonic;
mod nearest;
pub mod owner;
pub mod queue;
pub mod rbac;
pub mod reconcile;
pub mod shard;
pub mod state;
pub mod status;
pub mod trace;
pub mod trigger;
pub mod watch;
pub mod worker;
pub mod written;

pub use apply::{Applied, Fence, Object, Permit, Writer};
pub use cache::{Delta, Informer, Informers, Lister, Subscription};
pub use controller::{Context, Controller, Reconciler, ResourceHandler};
pub use events::Recorder;
pub use expectations::Expectations;
pub use key::ObjectKey;
pub use manager::{Component, Manager, Stop};
pub use reconcile::{Action, Class, Error, Result};
pub use shard::{Sharding, ShardingOptions};
pub use written::Written;

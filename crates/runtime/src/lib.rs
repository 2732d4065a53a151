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

pub mod client;
pub mod config;
pub mod election;
pub mod health;
pub mod key;
pub mod logging;
pub mod manager;
pub mod metrics;
pub mod monotonic;
mod nearest;
pub mod reconcile;
pub mod trace;

pub use key::ObjectKey;
pub use manager::{Component, Manager, Stop};
pub use reconcile::{Action, Class, Error, Result};

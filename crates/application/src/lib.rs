//! The Application operator: one object for a program that runs in the cluster, and everything around it.
//!
//! ```text
//! fetch ─▶ validate ─▶ plan ─▶ build ─▶ act ─▶ status
//! ```
//!
//! `api` is the kind; `plan` and `build` are pure; `reconcile`, `act` and `clean_up` do what they say; `controller` puts it together.

#![cfg_attr(test, allow(clippy::needless_pass_by_value, reason = "tests read better with literals"))]

mod act;
pub mod api;
pub mod build;
mod clean_up;
pub mod controller;
mod elsewhere;
pub mod metrics;
pub mod plan;
pub mod rbac;
mod reconcile;
mod usage;

pub use api::{Application, ApplicationSpec, ApplicationStatus, Phase, crd};
pub use controller::{Settings, register};

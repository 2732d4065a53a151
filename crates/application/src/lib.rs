//! The Application operator: one object for a program that runs in the cluster, and everything around it.
//!
//! ```text
//! fetch ─▶ validate ─▶ plan ─▶ build ─▶ act ─▶ status
//! ```
//!
//! `api` is the kind; `plan` and `build` are pure; `reconcile` and `act` do what they say; `controller` puts it together.

pub mod api;
pub mod rbac;

pub use api::{Application, ApplicationSpec, ApplicationStatus, Phase, crd};

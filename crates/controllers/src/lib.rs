//! The built-in controllers of Kubernetes, on the framework and through the public API only.
//!
//! One folder each. `plan` decides purely from what was read; the controller beside it reads, acts and reports.
//!
//! What they share: `claim` (who owns what), `brief` (what is read of pods where all are looked at), `children` (pods in growing batches, and the events about them), `pending`
//! (children that were written and are not yet seen), `written` (statuses that carry state from one reconcile to the
//! next), `revisions` (the templates that a set has had) and `scale` (the scale subresource of any kind).

#![cfg_attr(test, allow(clippy::needless_pass_by_value, reason = "tests read better with literals"))]

pub mod all;
pub mod autoscaler;
pub mod brief;
pub mod children;
pub mod claim;
pub mod clusterrole;
pub mod cronjob;
pub mod daemonset;
pub mod deployment;
pub mod discovery;
pub mod disruption;
pub mod endpoints;
pub mod garbage;
pub mod job;
pub mod namespace;
pub mod nodelifecycle;
mod pace;
pub mod pending;
pub mod persistentvolume;
pub mod podgc;
pub mod pods;
pub mod rbac;
pub mod replicaset;
pub mod resourcequota;
pub mod revisions;
pub mod rootca;
pub mod scale;
pub mod scheduler;
mod selecting;
pub mod serviceaccount;
pub mod statefulset;
pub mod tainteviction;
pub mod time;

pub use shoal_runtime::written;

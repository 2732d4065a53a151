//! DaemonSets: one pod on every node that wants it.

pub mod nodes;
pub mod plan;

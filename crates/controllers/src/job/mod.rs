//! Jobs: pods that run to an end, counted exactly once.

mod failure;
pub mod indexes;
pub mod plan;
pub mod pod;

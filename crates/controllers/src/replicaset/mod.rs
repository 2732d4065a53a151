//! ReplicaSets: as many pods of one template as asked for.

pub mod plan;
pub mod rank;

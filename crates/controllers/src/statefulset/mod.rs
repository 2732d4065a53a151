//! StatefulSets: pods with an identity, made and changed in order.

pub mod identity;
pub mod plan;

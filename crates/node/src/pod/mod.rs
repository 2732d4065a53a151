//! One pod: what is known of its containers, what to do next, and what to tell about it.

pub mod adopt;
pub mod condition;
pub mod container;
pub mod kept;
pub mod launch;
pub mod plan;
pub mod record;
pub mod status;
pub mod worker;

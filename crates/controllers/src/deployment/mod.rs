//! Deployments: ReplicaSets of changing templates, old ones going while the new one comes.

mod conditions;
pub mod plan;
mod rollout;
pub use rollout::resolve;
mod scale;
pub mod sets;
mod status;

//! The built-in controllers on a whole API server.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::needless_pass_by_value,
    reason = "a test that cannot go on has failed"
)]

mod autoscaler;
mod cluster;
mod faults;
mod job;
mod rollout;
mod services;
mod sets;

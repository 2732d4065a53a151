//! The operator on a whole cluster: API server, controllers, scheduler and simulated nodes in this process, with time that jumps.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::needless_pass_by_value,
    reason = "a test that cannot go on has failed"
)]

mod aside;
mod children;
mod cluster;
mod deletion;
mod extension;
mod faults;
mod phases;
mod promotion;
mod scaling;
mod sharded;

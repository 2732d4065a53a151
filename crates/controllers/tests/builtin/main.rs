//! The built-in controllers on a whole API server.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod autoscaler;
mod cluster;
mod job;
mod services;
mod sets;

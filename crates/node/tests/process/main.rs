//! Pods that run as real processes of this machine's user.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod cluster;
mod life;
mod limits;
mod network;
mod volumes;

//! Sharded controllers: several managers in one process, one API server, time that passes at once.

#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, reason = "what fails, fails")]

mod filters;
mod harness;
mod intervals;
mod meddling;
mod membership;
mod storm;
mod surface;

//! Pods of `shoal up`, as people use them: with kubectl.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

#[path = "../process/mod.rs"]
mod process;

mod debug;
mod exec;
mod hooks;
mod hostile;
mod inside;
mod keep;
mod kubectl;
mod logs;
mod ports;
mod probes;
mod tour;
mod webhook;

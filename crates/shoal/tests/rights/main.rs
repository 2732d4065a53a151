//! The roles of `shoal manifests` are enough, and none of their rights is too much: the programs run under exactly these, with a
//! token of their account, and everything that they ask for is compared with what they may.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

#[path = "../process/mod.rs"]
mod process;

mod account;
mod application;
mod asked;
mod controllers;

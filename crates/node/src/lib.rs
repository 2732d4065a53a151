//! Nodes: what runs pods, or plays that it does.
//!
//! The process runtime runs the pods of a node as processes of this machine's user, without root and without a container
//! engine:
//!
//! ```text
//! watch of the node's pods ─▶ agent ─▶ pod worker: plan (pure) ─▶ sandbox, process ─▶ status
//! ```
//!
//! `simulated` plays any number of nodes instead.

#![cfg_attr(test, allow(clippy::needless_pass_by_value, reason = "tests read better with literals"))]

pub mod addresses;
pub mod agent;
pub mod demo;
pub mod directory;
pub mod dns;
pub mod env;
pub mod host_ports;
pub mod images;
pub mod kubelet_api;
pub mod limits;
pub mod logs;
pub mod metrics;
pub mod pod;
pub mod probes;
pub mod process;
pub mod register;
pub mod sandbox;
pub mod simulated;
pub mod terminal;
pub mod usage;
pub mod volumes;

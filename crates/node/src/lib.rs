//! The node agent: runs the pods that are assigned to its node.
//!
//! The process runtime runs them as processes of this machine's user, without root and without a container engine.
//!
//! ```text
//! watch of the node's pods ─▶ agent ─▶ pod worker: plan (pure) ─▶ sandbox, process ─▶ status
//! ```

pub mod addresses;
pub mod agent;
pub mod demo;
pub mod env;
pub mod images;
pub mod kubelet_api;
pub mod logs;
pub mod pod;
pub mod probes;
pub mod process;
pub mod register;
pub mod sandbox;
pub mod terminal;
pub mod volumes;

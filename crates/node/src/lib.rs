//! Nodes: what runs pods, or plays that it does.

#![cfg_attr(test, allow(clippy::needless_pass_by_value, reason = "tests read better with literals"))]

pub mod simulated;

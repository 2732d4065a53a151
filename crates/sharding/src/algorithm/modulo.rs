//! `hash`: slot number modulo replicas. Even, and almost everything moves when a replica comes or goes.

use crate::algorithm::{Algorithm, Request};

/// The seed's hash algorithm.
#[derive(Clone, Copy, Debug)]
pub struct Modulo;

impl Algorithm for Modulo {
    fn name(&self) -> &str {
        "hash"
    }

    fn rebalance(&self, request: &Request<'_>) -> Vec<u16> {
        let nodes = request.nodes.len().max(1);
        (0..request.slots.get() as usize).map(|slot| (slot % nodes) as u16).collect()
    }
}

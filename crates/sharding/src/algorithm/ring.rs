//! `consistent-hash`: virtual nodes on a ring, each slot goes to the next one that is not full.

use crate::algorithm::{Algorithm, Request};
use crate::key::{fnv1a64, mixed};

/// The seed's ring, with a limit on what one node takes so that none stays empty.
#[derive(Clone, Copy, Debug)]
pub struct ConsistentHash {
    /// Points on the ring per replica of weight 100; `sharding.virtualNodes`.
    pub virtual_nodes: u32,
}

impl Default for ConsistentHash {
    fn default() -> Self {
        ConsistentHash { virtual_nodes: 150 }
    }
}

impl Algorithm for ConsistentHash {
    fn name(&self) -> &str {
        "consistent-hash"
    }

    fn rebalance(&self, request: &Request<'_>) -> Vec<u16> {
        let mut ring = Vec::new();
        for (at, node) in request.nodes.iter().enumerate() {
            let points =
                u64::from(self.virtual_nodes.clamp(1, 10_000)) * u64::from(node.weight.min(10_000)) / 100;
            let seed = mixed(fnv1a64(node.id.as_str()));
            ring.extend((0..points.max(1)).map(|point| (mixed(seed ^ mixed(point + 1)), at)));
        }
        ring.sort_unstable();
        let quotas = super::sticky::quotas(request, &vec![0; request.nodes.len()]);
        let mut counts = vec![0_u32; request.nodes.len()];
        (0..request.slots.get())
            .map(|slot| {
                let hash = mixed(u64::from(slot) ^ 0x5107);
                let from = ring.partition_point(|(point, _)| *point < hash);
                let around = ring[from..].iter().chain(&ring[..from]).map(|(_, at)| *at);
                let at = around.into_iter().find(|at| counts[*at] < quotas[*at]).unwrap_or_default();
                counts[at] += 1;
                at as u16
            })
            .collect()
    }
}

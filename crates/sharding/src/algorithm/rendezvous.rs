//! `rendezvous`: every slot goes to the replica with the highest score for it. Little moves, the balance is random.

use crate::algorithm::{Algorithm, Request};
use crate::key::{fnv1a64, mixed};

/// Weighted rendezvous hashing.
#[derive(Clone, Copy, Debug)]
pub struct Rendezvous;

impl Algorithm for Rendezvous {
    fn name(&self) -> &str {
        "rendezvous"
    }

    fn rebalance(&self, request: &Request<'_>) -> Vec<u16> {
        let seeds: Vec<u64> = request.nodes.iter().map(|node| mixed(fnv1a64(node.id.as_str()))).collect();
        let score = |slot: u32, at: usize| {
            let hash = mixed(seeds[at] ^ mixed(u64::from(slot) + 1));
            let fraction = (hash >> 11) as f64 / (1_u64 << 53) as f64;
            // The weighted form: -weight / ln(u), which is fair for any weights.
            -f64::from(request.nodes[at].weight) / fraction.max(f64::MIN_POSITIVE).ln()
        };
        (0..request.slots.get())
            .map(|slot| {
                let best = (0..seeds.len()).max_by(|a, b| score(slot, *a).total_cmp(&score(slot, *b)));
                best.unwrap_or_default() as u16
            })
            .collect()
    }
}

//! Requests against what the node has left.

use crate::scheduler::reason::Reason;
use crate::scheduler::shape::Shape;
use crate::scheduler::snapshot::NodeInfo;

/// Every resource of which there is not enough.
pub fn check(pod: &Shape, node: &NodeInfo) -> Vec<Reason> {
    let mut reasons = Vec::new();
    if node.pods >= node.allowed_pods {
        reasons.push(Reason::TooManyPods);
    }
    let wanted = &pod.requests.fit;
    let (has, taken) = (&node.allocatable, &node.requested);
    let mut compare = |name: &str, wanted: i64, has: i64, taken: i64| {
        // Who asks for nothing is not kept away by a node that has too little for the others.
        if wanted > 0 && wanted > has.saturating_sub(taken) {
            reasons.push(Reason::Insufficient { resource: name.to_owned(), ever: wanted > has });
        }
    };
    compare("cpu", wanted.cpu, has.cpu, taken.cpu);
    compare("memory", wanted.memory, has.memory, taken.memory);
    compare("ephemeral-storage", wanted.storage, has.storage, taken.storage);
    for (name, amount) in &wanted.others {
        let of =
            |amounts: &std::collections::BTreeMap<Box<str>, i64>| amounts.get(name).copied().unwrap_or(0);
        compare(name, *amount, of(&has.others), of(&taken.others));
    }
    reasons
}

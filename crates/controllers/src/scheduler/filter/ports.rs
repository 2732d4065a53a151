//! Ports of the node.

use crate::scheduler::reason::Reason;
use crate::scheduler::shape::{Port, Shape};
use crate::scheduler::snapshot::NodeInfo;

/// Whether a port that the pod wants is taken.
pub fn check(pod: &Shape, node: &NodeInfo) -> Option<Reason> {
    if pod.ports.is_empty() {
        return None;
    }
    let mut taken = node.shapes.iter().flat_map(|(shape, _)| &shape.ports);
    taken.any(|taken| pod.ports.iter().any(|wanted| collide(taken, wanted))).then_some(Reason::Ports)
}

fn collide(a: &Port, b: &Port) -> bool {
    let all = |port: &Port| port.ip == "0.0.0.0";
    a.port == b.port && a.protocol == b.protocol && (a.ip == b.ip || all(a) || all(b))
}

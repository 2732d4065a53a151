//! Why a node is not for a pod, in the words that users of kubectl know, and what could change it.

use std::collections::BTreeMap;
use std::fmt;

/// Why a pod cannot be on a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Someone has cordoned the node.
    Cordoned,
    /// The pod names another node.
    Name,
    /// A taint that the pod does not tolerate.
    Taint {
        /// Its key.
        key: String,
        /// Its value.
        value: String,
    },
    /// The node is not among those that the pod wants.
    NodeAffinity,
    /// A port is taken.
    Ports,
    /// There is not enough left of a resource.
    Insufficient {
        /// Which.
        resource: String,
        /// The node does not have so much even when it is empty.
        ever: bool,
    },
    /// The node has as many pods as it may have.
    TooManyPods,
    /// A volume of the pod is elsewhere.
    VolumeAffinity,
    /// There is no volume for a claim of the pod, and none can be made there.
    NoVolume,
    /// The node lacks a label that the pod is spread by.
    SpreadLabel,
    /// The pod would make the spread uneven.
    Spread,
    /// The pods that it must be beside are not near.
    PodAffinity,
    /// Pods that it must not be beside are near.
    PodAntiAffinity,
    /// Pods that do not want it beside them are near.
    ExistingAntiAffinity,
    /// Something is wrong with the pod itself, wherever it would be.
    Everywhere(String),
}

/// What may make room for a pod: sets of these say which events are worth another try.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wakes(pub u8);

impl Wakes {
    /// Nothing.
    pub const NONE: Wakes = Wakes(0);
    /// A node came, or its labels, taints or cordon have changed.
    pub const NODE: Wakes = Wakes(1);
    /// A node has more of something.
    pub const CAPACITY: Wakes = Wakes(2);
    /// A pod has left its node.
    pub const DEPARTURE: Wakes = Wakes(4);
    /// A pod has got a node, or a pod's labels have changed.
    pub const ARRIVAL: Wakes = Wakes(8);
    /// Volumes, claims or storage classes have changed.
    pub const VOLUME: Wakes = Wakes(16);
    /// Anything.
    pub const ALL: Wakes = Wakes(31);

    /// Either.
    #[must_use]
    pub fn and(self, other: Wakes) -> Wakes {
        Wakes(self.0 | other.0)
    }

    /// Whether they have something in common.
    pub fn meets(self, other: Wakes) -> bool {
        self.0 & other.0 != 0
    }
}

impl Reason {
    /// Whether the pod could be there if others went.
    pub fn is_resolvable(&self) -> bool {
        match self {
            Reason::Ports
            | Reason::TooManyPods
            | Reason::Spread
            | Reason::PodAntiAffinity
            | Reason::ExistingAntiAffinity => true,
            Reason::Insufficient { ever, .. } => !ever,
            _ => false,
        }
    }

    /// Events after which another try may go better. A new node helps always.
    pub fn wakes(&self) -> Wakes {
        let other = match self {
            Reason::Insufficient { ever: true, .. } => Wakes::CAPACITY,
            Reason::Insufficient { .. } | Reason::TooManyPods => Wakes::CAPACITY.and(Wakes::DEPARTURE),
            Reason::Ports => Wakes::DEPARTURE,
            Reason::VolumeAffinity | Reason::NoVolume | Reason::Everywhere(_) => Wakes::VOLUME,
            Reason::Spread
            | Reason::SpreadLabel
            | Reason::PodAffinity
            | Reason::PodAntiAffinity
            | Reason::ExistingAntiAffinity => Wakes::ARRIVAL.and(Wakes::DEPARTURE),
            Reason::Cordoned | Reason::Name | Reason::Taint { .. } | Reason::NodeAffinity => Wakes::NONE,
        };
        Wakes::NODE.and(other)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Reason::Taint { key, value } => {
                return write!(f, "node(s) had untolerated taint {{{key}: {value}}}");
            }
            Reason::Insufficient { resource, .. } => return write!(f, "Insufficient {resource}"),
            Reason::Everywhere(text) => text,
            Reason::Cordoned => "node(s) were unschedulable",
            Reason::Name => "node(s) didn't match the requested node name",
            Reason::NodeAffinity => "node(s) didn't match Pod's node affinity/selector",
            Reason::Ports => "node(s) didn't have free ports for the requested pod ports",
            Reason::TooManyPods => "Too many pods",
            Reason::VolumeAffinity => "node(s) didn't match PersistentVolume's node affinity",
            Reason::NoVolume => "node(s) didn't find available persistent volumes to bind",
            Reason::SpreadLabel => {
                "node(s) didn't match pod topology spread constraints (missing required label)"
            }
            Reason::Spread => "node(s) didn't match pod topology spread constraints",
            Reason::PodAffinity => "node(s) didn't match pod affinity rules",
            Reason::PodAntiAffinity => "node(s) didn't match pod anti-affinity rules",
            Reason::ExistingAntiAffinity => "node(s) didn't satisfy existing pods anti-affinity rules",
        };
        f.write_str(text)
    }
}

/// Why a pod has no place anywhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// How many nodes there are.
    pub nodes: usize,
    /// How many nodes say each reason.
    pub reasons: BTreeMap<Reason, usize>,
    /// Nodes, by their place in the snapshot, where the pod could be if others went.
    pub resolvable: Vec<usize>,
}

impl Failure {
    /// Notes what a node says.
    pub fn note(&mut self, index: usize, reasons: Vec<Reason>) {
        if reasons.iter().all(Reason::is_resolvable) {
            self.resolvable.push(index);
        }
        for reason in reasons {
            *self.reasons.entry(reason).or_default() += 1;
        }
    }

    /// Events after which another try may go better.
    pub fn wakes(&self) -> Wakes {
        self.reasons.keys().fold(Wakes::NODE, |all, reason| all.and(reason.wakes()))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nodes == 0 {
            return f.write_str("no nodes available to schedule pods");
        }
        let mut parts: Vec<String> = self
            .reasons
            .iter()
            .map(|(reason, count)| match reason {
                Reason::Everywhere(text) => text.clone(),
                reason => format!("{count} {reason}"),
            })
            .collect();
        parts.sort();
        write!(f, "0/{} nodes are available: {}.", self.nodes, parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_as_users_know_them() {
        let mut failure = Failure { nodes: 3, ..Failure::default() };
        failure.note(0, vec![Reason::Insufficient { resource: "cpu".into(), ever: false }]);
        for index in [1, 2] {
            failure.note(index, vec![Reason::Taint { key: "k".into(), value: "v".into() }]);
        }
        let text = "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint {k: v}.";
        assert_eq!(failure.to_string(), text);
        assert_eq!(failure.resolvable, [0]);
        assert_eq!(Failure::default().to_string(), "no nodes available to schedule pods");
    }

    #[test]
    fn only_events_that_can_help_wake_a_pod() {
        let wakes = |reason: Reason| reason.wakes();
        let cpu = Reason::Insufficient { resource: "cpu".into(), ever: false };
        assert!(wakes(cpu.clone()).meets(Wakes::DEPARTURE) && !wakes(cpu).meets(Wakes::ARRIVAL));
        let huge = Reason::Insufficient { resource: "cpu".into(), ever: true };
        assert!(!wakes(huge).meets(Wakes::DEPARTURE), "whoever leaves, it will not fit");
        assert!(!wakes(Reason::Cordoned).meets(Wakes::DEPARTURE));
        assert!(wakes(Reason::PodAffinity).meets(Wakes::ARRIVAL));
        assert!(wakes(Reason::VolumeAffinity).meets(Wakes::VOLUME));
    }
}

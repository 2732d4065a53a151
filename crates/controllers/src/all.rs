//! Every controller of the control plane, by the name that it has in kube-controller-manager.

use shoal_objects::clock::Clock;
use shoal_objects::entropy::Entropy;
use shoal_runtime::Manager;

use crate::{deployment, replicaset, rootca, serviceaccount};

/// What the controllers are told when they are made.
#[derive(Clone)]
pub struct Settings {
    /// Where timestamps come from.
    pub clock: Clock,
    /// Where names and jitter come from.
    pub entropy: Entropy,
    /// The certificate that pods recognise the API server by, in PEM. Without it nobody is told.
    pub root_ca: Option<String>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { clock: Clock::system(), entropy: Entropy::system(), root_ca: None }
    }
}

/// Adds one controller to a manager.
type Add = fn(&mut Manager, &Settings);

/// Name and controller. The order is that of the alphabet.
const ALL: &[(&str, Add)] = &[
    ("deployment", |manager, settings| {
        manager.add(deployment::controller(settings.clock.clone()));
    }),
    ("replicaset", |manager, settings| {
        manager.add(replicaset::controller(settings.clock.clone(), settings.entropy.clone()));
    }),
    ("root-ca-certificate-publisher", |manager, settings| {
        if let Some(certificate) = &settings.root_ca {
            manager.add(rootca::controller(certificate));
        }
    }),
    ("serviceaccount", |manager, _| {
        manager.add(serviceaccount::controller());
    }),
];

/// The names that [`register`] knows.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|(name, _)| *name)
}

/// Adds the controllers that are wanted.
pub fn register(manager: &mut Manager, settings: &Settings, wanted: impl Fn(&str) -> bool) {
    for (name, add) in ALL {
        if wanted(name) {
            add(manager, settings);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_and_unique() {
        let names: Vec<_> = names().collect();
        assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
    }
}

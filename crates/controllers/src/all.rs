//! Every controller of the control plane, by the name that it has in kube-controller-manager.

use std::path::PathBuf;

use shoal_objects::clock::Clock;
use shoal_objects::entropy::Entropy;
use shoal_runtime::Manager;

use crate::persistentvolume::{binder, class, protection, volume};
use crate::{
    autoscaler, clusterrole, cronjob, daemonset, deployment, disruption, endpoints, garbage, job, namespace,
    nodelifecycle, podgc, replicaset, resourcequota, rootca, serviceaccount, statefulset, tainteviction,
};

/// What the controllers are told when they are made.
#[derive(Clone)]
pub struct Settings {
    /// Where timestamps come from.
    pub clock: Clock,
    /// Where names and jitter come from.
    pub entropy: Entropy,
    /// The certificate that pods recognise the API server by, in PEM. Without it nobody is told.
    pub root_ca: Option<String>,
    /// Where volumes are made for claims that nobody else serves. Without it none is made.
    pub volumes: Option<PathBuf>,
    /// How autoscalers work.
    pub autoscaler: autoscaler::Options,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            clock: Clock::system(),
            entropy: Entropy::system(),
            root_ca: None,
            volumes: None,
            autoscaler: autoscaler::Options::default(),
        }
    }
}

/// Adds one controller to a manager.
type Add = fn(&mut Manager, &Settings);

/// Name and controller. The order is that of the alphabet.
const ALL: &[(&str, Add)] = &[
    ("clusterrole-aggregation", |manager, _| {
        manager.add(clusterrole::controller());
    }),
    ("cronjob", |manager, settings| {
        manager.add(cronjob::controller(settings.clock.clone()));
    }),
    ("daemonset", |manager, settings| {
        manager.add(daemonset::controller(settings.clock.clone(), settings.entropy.clone()));
    }),
    ("deployment", |manager, settings| {
        manager.add(deployment::controller(settings.clock.clone()));
    }),
    ("disruption", |manager, settings| {
        manager.add(disruption::controller(settings.clock.clone()));
    }),
    ("endpoint", |manager, _| {
        manager.add(endpoints::controller());
    }),
    ("endpointslice", |manager, settings| {
        manager.add(endpoints::slice_controller(settings.entropy.clone()));
    }),
    ("endpointslice-mirroring", |manager, settings| {
        manager.add(endpoints::mirroring_controller(settings.entropy.clone()));
    }),
    ("garbage-collector", |manager, _| {
        let collector = garbage::component(manager);
        manager.add(collector);
    }),
    ("horizontal-pod-autoscaler", |manager, settings| {
        manager.add(autoscaler::controller(settings.clock.clone(), settings.autoscaler.clone()));
    }),
    ("job", |manager, settings| {
        manager.add(job::controller(settings.clock.clone(), settings.entropy.clone()));
    }),
    ("namespace", |manager, settings| {
        manager.add(namespace::controller(settings.clock.clone()));
    }),
    ("node-lifecycle", |manager, settings| {
        manager.add(nodelifecycle::controller(settings.clock.clone()));
    }),
    ("persistentvolume-binder", |manager, settings| {
        manager.add(binder::controller(settings.volumes.clone()));
        manager.add(volume::controller());
        if settings.volumes.is_some() {
            let class = class::component(manager);
            manager.add(class);
        }
    }),
    ("persistentvolume-protection", |manager, _| {
        manager.add(protection::of_volumes());
    }),
    ("persistentvolumeclaim-protection", |manager, _| {
        manager.add(protection::of_claims());
    }),
    ("pod-garbage-collector", |manager, settings| {
        let collector = podgc::component(manager, settings.clock.clone());
        manager.add(collector);
    }),
    ("replicaset", |manager, settings| {
        manager.add(replicaset::controller(settings.clock.clone(), settings.entropy.clone()));
    }),
    ("resourcequota", |manager, _| {
        manager.add(resourcequota::controller());
    }),
    ("root-ca-certificate-publisher", |manager, settings| {
        if let Some(certificate) = &settings.root_ca {
            manager.add(rootca::controller(certificate));
        }
    }),
    ("serviceaccount", |manager, _| {
        manager.add(serviceaccount::controller());
    }),
    ("serviceaccount-token", |manager, _| {
        manager.add(serviceaccount::tokens::controller());
    }),
    ("statefulset", |manager, settings| {
        manager.add(statefulset::controller(settings.clock.clone()));
    }),
    ("taint-eviction", |manager, settings| {
        manager.add(tainteviction::controller(settings.clock.clone()));
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

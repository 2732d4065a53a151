//! Another operator on the same cluster, seen by its Leases. The operator that is built into `shoal up` stands aside for one that people
//! run themselves, as pods or by hand, and takes the work up again when that one is gone.
//!
//! Only time that passed here counts: a Lease keeps us away for its whole duration after it was last seen to change. Who comes begins
//! later than its Lease is seen, because it has caches to fill first; who goes has stopped before its Lease is over.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt as _;
use parking_lot::Mutex;
use shoal_runtime::shard::GROUP_LABEL;
use shoal_runtime::watch::Scope;
use shoal_runtime::{Lister, Manager, ObjectKey, Recorder};
use tokio::time::Instant;

use crate::api::OPERATOR;

/// While another operator is at work, is looked this often whether it still is.
pub(crate) const AGAIN: Duration = Duration::from_secs(5);
/// Of a Lease that does not say how long it lasts.
const USUAL: i32 = 15;

/// Whether another operator is at work.
pub(crate) struct Elsewhere {
    /// Of replicas that share the Applications, and of those of whom one leads.
    leases: [Lister<Lease>; 2],
    heard: Mutex<Heard>,
}

/// What was seen of Leases.
#[derive(Default)]
struct Heard {
    /// The version of each, and when it was first seen.
    versions: HashMap<ObjectKey, (String, Instant)>,
    stands_aside: bool,
}

impl Elsewhere {
    /// Follows the Leases of operators in all namespaces.
    pub fn new(manager: &Manager) -> Elsewhere {
        let shared = Scope::all().labels(&format!("{GROUP_LABEL}={OPERATOR}"));
        let led = Scope::all().fields(&format!("metadata.name={OPERATOR}"));
        let lister = |scope| manager.informers().scoped::<Lease>(scope).lister();
        Elsewhere { leases: [lister(shared), lister(led)], heard: Mutex::default() }
    }

    /// Whether another one is at work now. When that changes, people are told.
    pub fn is_at_work(&self, recorder: &Recorder) -> bool {
        let leases: Vec<Arc<Lease>> = self.leases.iter().flat_map(Lister::list).collect();
        let mut heard = self.heard.lock();
        let found = heard.at_work(&leases, Instant::now());
        match (found, heard.stands_aside) {
            (Some(lease), false) => {
                let (namespace, name) = (lease.namespace().unwrap_or_default(), lease.name_any());
                tracing::warn!(
                    lease = format!("{namespace}/{name}"),
                    "another operator looks after Applications: the built-in one stands aside until that one is gone"
                );
                let message = "The operator built into shoal up leaves all Applications to this one";
                recorder.normal(&**lease, "BuiltInStandsAside", message);
            }
            (None, true) => {
                tracing::warn!("the other operator is gone: the built-in one looks after Applications again");
            }
            _ => {}
        }
        heard.stands_aside = found.is_some();
        heard.stands_aside
    }
}

impl Heard {
    /// The Lease of somebody who is at work.
    fn at_work<'a>(&mut self, leases: &'a [Arc<Lease>], now: Instant) -> Option<&'a Arc<Lease>> {
        let present: Vec<ObjectKey> = leases.iter().map(|lease| ObjectKey::of(&**lease)).collect();
        self.versions.retain(|key, _| present.contains(key));
        let mut found = None;
        for (key, lease) in present.into_iter().zip(leases) {
            let Some(spec) = lease.spec.as_ref() else { continue };
            // Who leaves in good order takes its name away.
            if spec.holder_identity.as_deref().unwrap_or_default().is_empty() {
                continue;
            }
            let version = lease.metadata.resource_version.clone().unwrap_or_default();
            let (known, since) = self.versions.entry(key).or_insert_with(|| (version.clone(), now));
            if *known != version {
                (*known, *since) = (version, now);
            }
            let seconds = spec.lease_duration_seconds.unwrap_or(USUAL).max(1).unsigned_abs();
            if now.duration_since(*since) < Duration::from_secs(seconds.into()) {
                found = found.or(Some(lease));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lease(name: &str, holder: &str, version: u64) -> Arc<Lease> {
        let lease = json!({"metadata": {"name": name, "namespace": "a", "resourceVersion": version.to_string()},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 10}});
        Arc::new(serde_json::from_value(lease).unwrap())
    }

    #[test]
    fn a_lease_counts_as_long_as_it_is_renewed_and_for_its_duration_after_that() {
        let (mut heard, start) = (Heard::default(), Instant::now());
        let mut at_work = |seconds: u64, leases: &[Arc<Lease>]| {
            heard.at_work(leases, start + Duration::from_secs(seconds)).map(|lease| lease.name_any())
        };
        assert_eq!(at_work(0, &[]), None);
        assert_eq!(at_work(100, &[lease("one", "x", 1)]).as_deref(), Some("one"), "however old it is");
        assert_eq!(at_work(109, &[lease("one", "x", 1)]).as_deref(), Some("one"));
        assert_eq!(at_work(110, &[lease("one", "x", 1)]), None);
        assert_eq!(at_work(111, &[lease("one", "x", 2)]).as_deref(), Some("one"), "it lives");
        assert_eq!(at_work(112, &[lease("one", "", 3)]), None, "it has left");
        let both = [lease("one", "", 3), lease("two", "y", 4)];
        assert_eq!(at_work(113, &both).as_deref(), Some("two"));
        assert_eq!(at_work(114, &[]), None);
    }

    #[test]
    fn odd_leases_keep_nobody_away_for_long() {
        let now = Instant::now();
        let odd = |spec: serde_json::Value| {
            Arc::new(serde_json::from_value(json!({"metadata": {"name": "odd"}, "spec": spec})).unwrap())
        };
        let mut heard = Heard::default();
        let leases = [odd(json!({})), odd(json!({"holderIdentity": "x", "leaseDurationSeconds": -5}))];
        assert!(heard.at_work(&leases, now).is_some());
        assert!(heard.at_work(&leases, now + Duration::from_secs(1)).is_none());
    }
}

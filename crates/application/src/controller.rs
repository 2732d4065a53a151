//! The operator as part of a manager.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{ControllerRevision, Deployment};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::{Ingress, NetworkPolicy};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;
use shoal_objects::Clock;
use shoal_runtime::controller::Listers;
use shoal_runtime::{Controller, Manager, ObjectKey, Written, worker};
use tokio::time::Instant;

use crate::api::{APP_LABEL, MANAGED_BY_LABEL, OPERATOR};
use crate::elsewhere::Elsewhere;
use crate::metrics::Metrics;
use crate::{Application, reconcile, usage};

/// The name of the controller, and of the part of `shoal up`.
pub const NAME: &str = "application";

/// Settings of the operator.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Applications that are worked on at one time.
    pub at_once: usize,
    /// While a rollout is under way, its pods are looked at this often.
    pub look_at_pods: Duration,
    /// How often is asked what pods use; `None` shows no figures of single Applications.
    pub usage: Option<Duration>,
    /// Do nothing while another operator is at work on the cluster. Of two at most one may be so polite.
    pub stands_aside: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            at_once: 16,
            look_at_pods: Duration::from_secs(5),
            usage: Some(Duration::from_secs(30)),
            stands_aside: false,
        }
    }
}

/// Versions of children, by kind and name.
type Versions = BTreeMap<(String, String), u64>;

/// What all reconciles share.
pub(crate) struct Shared {
    pub clock: Clock,
    pub settings: Settings,
    pub metrics: Metrics,
    pub written: Written,
    pub elsewhere: Option<Elsewhere>,
    /// Rollouts under way, and when their pods were last looked at.
    looked: Mutex<HashMap<ObjectKey, (String, Instant)>>,
    /// The versions of children that this process has written last and not seen yet, by Application, kind and name.
    applied: Mutex<HashMap<ObjectKey, Versions>>,
}

impl Shared {
    /// Whether it is time to look at the pods of a rollout. The first look is not at its very beginning.
    pub fn is_due(&self, key: &ObjectKey, revision: &str) -> bool {
        let now = Instant::now();
        let mut looked = self.looked.lock();
        match looked.get_mut(key) {
            Some((of, last)) if of == revision => {
                let due = now.duration_since(*last) >= self.settings.look_at_pods;
                if due {
                    *last = now;
                }
                due
            }
            _ => {
                looked.insert(key.clone(), (revision.to_owned(), now));
                false
            }
        }
    }

    /// Takes note of a child as the cache has it. Whether that is older than what this process has written; if not, what was written
    /// need not be remembered.
    pub fn saw_old(&self, app: &ObjectKey, kind: &str, cached: &ObjectMeta) -> bool {
        let mut applied = self.applied.lock();
        let Some(children) = applied.get_mut(app) else { return false };
        let child = child(kind, cached);
        let Some(last) = children.get(&child) else { return false };
        let behind = version(cached).is_some_and(|cached| cached < *last);
        if !behind {
            // Caches do not go back.
            children.remove(&child);
            if children.is_empty() {
                applied.remove(app);
            }
        }
        behind
    }

    /// A child was written.
    pub fn applied(&self, app: &ObjectKey, kind: &str, now: &ObjectMeta) {
        if let Some(version) = version(now) {
            self.applied.lock().entry(app.clone()).or_default().insert(child(kind, now), version);
        }
    }

    /// The Application is gone.
    pub fn gone(&self, app: &ObjectKey) {
        self.applied.lock().remove(app);
    }

    /// No rollout is under way.
    pub fn forget(&self, key: &ObjectKey) {
        self.looked.lock().remove(key);
    }
}

fn child(kind: &str, meta: &ObjectMeta) -> (String, String) {
    (kind.to_owned(), meta.name.clone().unwrap_or_default())
}

/// Versions are numbers that grow; where they are not, no cache is behind.
fn version(meta: &ObjectMeta) -> Option<u64> {
    meta.resource_version.as_ref()?.parse().ok()
}

/// Adds the operator to a manager. The kind has to be [installed](crate::api::install).
pub fn register(manager: &mut Manager, settings: Settings) {
    let metrics = Metrics::default();
    manager.metrics().register(|registry| metrics.register(registry));
    if let Some(period) = settings.usage {
        manager.add(usage::component(manager.client(), metrics.clone(), period));
    }
    let elsewhere = settings.stands_aside.then(|| Elsewhere::new(manager));
    let clock = manager.clock().clone();
    manager.add(controller(clock, settings, metrics, elsewhere));
}

fn controller(
    clock: Clock,
    settings: Settings,
    metrics: Metrics,
    elsewhere: Option<Elsewhere>,
) -> Controller {
    let at_once = settings.at_once;
    let shared = Arc::new(Shared {
        clock,
        settings,
        metrics,
        written: Written::default(),
        elsewhere,
        looked: Mutex::default(),
        applied: Mutex::default(),
    });
    Controller::of::<Application>(NAME)
        .field_manager(OPERATOR)
        .worker_settings(worker::Settings { max_concurrent: at_once, ..worker::Settings::default() })
        .owns::<Deployment>()
        .owns::<Service>()
        .owns::<HorizontalPodAutoscaler>()
        .owns::<PodDisruptionBudget>()
        .owns::<Ingress>()
        .owns::<NetworkPolicy>()
        .owns::<ConfigMap>()
        .owns::<ControllerRevision>()
        // Claims that shall stay have no owner, and an account may serve several Applications.
        .watches(|claim: &PersistentVolumeClaim, _: &Listers| labelled(&claim.metadata))
        .watches(accounts)
        .reconcile(move |context| reconcile::reconcile(Arc::clone(&shared), context))
}

/// The Application that an object was made for, by its labels.
fn labelled(meta: &ObjectMeta) -> Vec<ObjectKey> {
    let label = |name: &str| meta.labels.as_ref().and_then(|labels| labels.get(name));
    let app = label(APP_LABEL).filter(|_| label(MANAGED_BY_LABEL).is_some_and(|by| by == OPERATOR));
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    app.map(|app| ObjectKey::new(namespace, app)).into_iter().collect()
}

/// The Applications that run as an account.
fn accounts(account: &ServiceAccount, listers: &Listers) -> Vec<ObjectKey> {
    let namespace = account.metadata.namespace.as_deref().unwrap_or_default();
    // Every namespace has one called so, and hardly anybody names it.
    if account.metadata.name.as_deref() == Some("default") {
        return Vec::new();
    }
    let names = |app: &Application| {
        let named = app.spec.security.as_ref().and_then(|security| security.service_account.as_ref());
        named.is_some() && named == account.metadata.name.as_ref()
    };
    let applications = listers.of::<Application>().list_in(namespace);
    applications.iter().filter(|app| names(app)).map(|app| ObjectKey::of(&**app)).collect()
}

//! Which pods a pod is spread with when it does not say so itself: those of the same set and behind the same Services, as
//! kube-scheduler has it by default.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{ReplicationController, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector as ApiSelector;
use shoal_objects::selector::LabelSelector;
use shoal_runtime::cache::Informers;
use shoal_runtime::{Informer, ObjectKey, Subscription};

use super::shape::{Set, Shape, compile};

/// The selectors of kin by shape, as long as no set and no Service has changed.
pub(super) struct Kin {
    services: Informer<Service>,
    replica_sets: Informer<ReplicaSet>,
    stateful_sets: Informer<StatefulSet>,
    controllers: Informer<ReplicationController>,
    changes: Vec<Subscription>,
    known: HashMap<u64, Option<Arc<LabelSelector>>>,
}

impl Kin {
    pub(super) fn new(informers: &Informers) -> Kin {
        Kin {
            services: informers.of(),
            replica_sets: informers.of(),
            stateful_sets: informers.of(),
            controllers: informers.of(),
            changes: Vec::new(),
            known: HashMap::new(),
        }
    }

    /// Waits for the caches, and hears of changes from then on.
    pub(super) async fn begin(&mut self) {
        self.services.synced().await;
        self.replica_sets.synced().await;
        self.stateful_sets.synced().await;
        self.controllers.synced().await;
        self.changes = vec![
            self.services.subscribe(),
            self.replica_sets.subscribe(),
            self.stateful_sets.subscribe(),
            self.controllers.subscribe(),
        ];
    }

    /// Takes what has changed: nothing that was known is certain any more.
    pub(super) fn take_all(&mut self) {
        for feed in &mut self.changes {
            while feed.try_recv().is_some() {
                self.known.clear();
            }
        }
    }

    /// The pods that a pod is spread with; nothing if it says so itself or belongs to nobody.
    pub(super) fn of(&mut self, pod: &Shape) -> Option<Arc<LabelSelector>> {
        if !pod.spread.is_empty() {
            return None;
        }
        if let Some(known) = self.known.get(&pod.id) {
            return known.clone();
        }
        let services = self.services.lister().list_in(&pod.namespace);
        let selectors = services.iter().filter_map(|service| service.spec.as_ref()?.selector.as_ref());
        let selector = selector(pod, selectors, self.set_of(pod)).map(Arc::new);
        self.known.insert(pod.id, selector.clone());
        selector
    }

    fn set_of(&self, pod: &Shape) -> Option<ApiSelector> {
        let (set, name) = pod.set.as_ref()?;
        let key = ObjectKey::new(&pod.namespace, name);
        match set {
            Set::ReplicaSet => Some(self.replica_sets.lister().get(&key)?.spec.as_ref()?.selector.clone()),
            Set::StatefulSet => Some(self.stateful_sets.lister().get(&key)?.spec.as_ref()?.selector.clone()),
            Set::ReplicationController => {
                let labels = self.controllers.lister().get(&key)?.spec.as_ref()?.selector.clone();
                labels.map(|labels| ApiSelector { match_labels: Some(labels), match_expressions: None })
            }
        }
    }
}

/// Everything that the pod's Services and its set ask for.
fn selector<'a>(
    pod: &Shape,
    services: impl Iterator<Item = &'a BTreeMap<String, String>>,
    set: Option<ApiSelector>,
) -> Option<LabelSelector> {
    let has = |(key, value): (&String, &String)| pod.labels.get(key) == Some(value);
    let mut all = set.unwrap_or_default();
    let labels = all.match_labels.get_or_insert_default();
    for service in services.filter(|selector| !selector.is_empty() && selector.iter().all(has)) {
        labels.extend(service.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
    if labels.is_empty() && all.match_expressions.as_ref().is_none_or(Vec::is_empty) {
        return None;
    }
    compile(Some(&all))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kin_are_pods_of_the_same_set_behind_the_same_services() {
        let labels = |text: &[(&str, &str)]| -> BTreeMap<String, String> {
            text.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let shape = |text: &[(&str, &str)]| Shape { labels: labels(text), ..Shape::default() };
        let pod = shape(&[("app", "db"), ("tier", "back"), ("index", "0")]);
        let services = [labels(&[("tier", "back")]), labels(&[("tier", "front")]), labels(&[])];
        let set: ApiSelector = serde_json::from_value(json!({"matchLabels": {"app": "db"}})).unwrap();
        let of = |set: Option<ApiSelector>| selector(&pod, services.iter(), set);
        let both = of(Some(set)).unwrap();
        assert!(shape(&[("app", "db"), ("tier", "back"), ("index", "1")]).matches(&both));
        assert!(!shape(&[("app", "db")]).matches(&both));
        let behind = of(None).unwrap();
        assert!(shape(&[("tier", "back")]).matches(&behind));
        assert!(selector(&pod, services[1..].iter(), None).is_none(), "it belongs to nobody");
    }
}

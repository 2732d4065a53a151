//! From an object to those that select it by its labels, without a look at all of them: with thousands of Services in a namespace
//! every change of a pod would ask each of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::RwLock;
use shoal_objects::selector::LabelSelector;
use shoal_runtime::ObjectKey;
use shoal_runtime::apply::Object;
use shoal_runtime::cache::Encoded;
use shoal_runtime::controller::{Builder, Listers};

/// Labels that some selector compares, sorted. There are few such sets: people label things alike.
type Keys = Vec<String>;

struct Selecting<K> {
    /// Name of the index. It has to be the controller's own, because it fills `known`.
    index: String,
    selector: fn(&K) -> Option<LabelSelector>,
    known: RwLock<BTreeSet<Keys>>,
}

/// Reconciles the objects whose selector means a changed object of `T`.
pub fn watch_selected<K: Object, T: Object>(
    builder: Builder<K>,
    controller: &str,
    selector: fn(&K) -> Option<LabelSelector>,
) -> Builder<K> {
    let index = format!("controllers.shoal.dev/selected-by-{controller}");
    let selecting = Arc::new(Selecting { index: index.clone(), selector, known: RwLock::default() });
    let filling = Arc::clone(&selecting);
    builder
        .index(&index, move |parent| filling.place(parent).into_iter().collect())
        .watches_metadata::<T>(move |object, listers| selecting.who(object, listers))
}

impl<K: Object> Selecting<K> {
    /// Where an object stands in the index.
    fn place(&self, parent: &K) -> Option<String> {
        let selector = (self.selector)(parent).filter(|selector| *selector != LabelSelector::NOTHING)?;
        let (keys, values): (Keys, Vec<&str>) =
            selector.equalities().map(|(key, value)| (key.to_owned(), value)).unzip();
        let place = place(parent.meta().namespace.as_deref().unwrap_or_default(), &keys, &values);
        if !self.known.read().contains(&keys) {
            self.known.write().insert(keys);
        }
        Some(place)
    }

    fn who(&self, object: &Encoded, listers: &Listers) -> Vec<ObjectKey> {
        let parents = listers.of::<K>();
        let mut found = Vec::new();
        for keys in self.known.read().iter() {
            let values: Option<Vec<&str>> = keys.iter().map(|key| object.label(key)).collect();
            let Some(values) = values else { continue };
            for parent in
                parents.metas_by_index(&self.index, &place(object.namespace(), keys, &values)).iter()
            {
                // What is not an equality has still to be asked.
                let selector = parents.decode(parent).and_then(|parent| (self.selector)(&parent));
                if selector.is_some_and(|selector| object.matches(&selector)) {
                    found.push(parent.key().clone());
                }
            }
        }
        found
    }
}

/// No label and no namespace has these separators in it.
fn place(namespace: &str, keys: &[String], values: &[&str]) -> String {
    let mut place = namespace.to_owned();
    for (key, value) in keys.iter().zip(values) {
        place.extend(["\n", key, "=", value]);
    }
    place
}

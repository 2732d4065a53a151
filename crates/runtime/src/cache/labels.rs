//! Indexes over labels that nobody asked for: a selector that had to look at many objects to find few is worth one, because a
//! controller asks the same for each of its objects. A cache that nobody selects from has none.

use std::collections::BTreeMap;
use std::sync::Arc;

use shoal_objects::selector::LabelSelector;

use super::encoded::Encoded;
use super::index::Index;
use super::pages::Objects;

/// Looking at fewer objects than this is cheap enough.
const MANY: usize = 256;
/// An index pays off when it leaves out all but one of so many.
const FEW: usize = 8;
/// Each one costs memory for every object that has the label.
const MOST: usize = 8;

/// Objects by the values of some labels.
#[derive(Default)]
pub(super) struct Labels {
    known: BTreeMap<Box<str>, Index>,
}

impl Labels {
    /// The fewest objects among which are all that the selector means, if a label of it is known.
    pub fn narrow(&self, selector: &LabelSelector) -> Option<Objects> {
        let known = selector.equalities().filter_map(|(key, value)| Some(self.known.get(key)?.get(value)));
        known.min_by_key(Objects::len)
    }

    /// The label by which a selector should be found from now on: it looked at `seen` and meant `found` of them.
    pub fn worth<'a>(
        &self,
        selector: &'a LabelSelector,
        seen: &[Arc<Encoded>],
        found: usize,
    ) -> Option<&'a str> {
        if self.known.len() >= MOST {
            return None;
        }
        let carried = |key: &str, value: &str| seen.iter().filter(|o| o.label(key) == Some(value)).count();
        selector
            .equalities()
            .filter(|(key, _)| !self.known.contains_key(*key))
            .map(|(key, value)| (carried(key, value), key))
            .min()
            .filter(|(carried, _)| *carried <= found.max(seen.len() / FEW))
            .map(|(_, key)| key)
    }

    /// Knows a label from now on.
    pub fn learn<'a>(&mut self, key: &str, all: impl Iterator<Item = &'a Arc<Encoded>>) {
        let label: Box<str> = key.into();
        let mut index =
            Index::new(Arc::new(move |object| object.label(&label).map(str::to_owned).into_iter().collect()));
        all.for_each(|object| index.insert(object));
        self.known.insert(key.into(), index);
    }

    #[cfg(test)]
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.known.keys().map(|key| &**key)
    }

    pub fn insert(&mut self, object: &Arc<Encoded>) {
        self.known.values_mut().for_each(|index| index.insert(object));
    }

    pub fn remove(&mut self, object: &Arc<Encoded>) {
        self.known.values_mut().for_each(|index| index.remove(object));
    }
}

/// Whether so many objects were looked at in vain that an index should be thought of.
pub(super) fn is_wasteful(seen: usize, found: usize) -> bool {
    seen > MANY && found < seen / FEW
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::delta::{ChangeKind, Origin};
    use super::super::store::Store;
    use super::*;
    use crate::key::ObjectKey;

    fn key(number: u32) -> ObjectKey {
        ObjectKey::new(&format!("ns-{}", number % 3), &format!("o-{number}"))
    }

    fn object(number: u32, app: u32) -> Arc<Encoded> {
        let labels =
            json!({"app": format!("a{app}"), "tier": format!("t{}", app % 2), "number": number.to_string()});
        Arc::new(Encoded::labelled(key(number), &labels))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8))]
        #[test]
        fn an_index_that_is_learned_on_the_way_changes_no_answer(
            steps in proptest::collection::vec((0..600_u32, 0..40_u32, 0..6_u8), 1..120)
        ) {
            let store = Store::default();
            for number in 0..1_000 {
                store.batch().put(object(number, number % 40), Origin::Live);
            }
            for (number, app, what) in steps {
                match what {
                    0 => store.batch().put(object(number, app), Origin::Live),
                    1 => store.batch().remove(&key(number), ChangeKind::Deleted, Origin::Live),
                    _ => {
                        let text = match what {
                            2 => format!("app=a{app},tier=t{}", app % 2),
                            3 => format!("app in (a{app}),number!=7"),
                            4 => format!("number={number}"),
                            _ => format!("tier=t1,app notin (a{app})"),
                        };
                        let selector = LabelSelector::parse(&text).unwrap();
                        for namespace in [None, Some("ns-1"), Some("none")] {
                            let ids = |objects: Vec<Arc<Encoded>>| {
                                objects.iter().map(|object| object.id()).collect::<Vec<_>>()
                            };
                            let all = store.list(namespace, |object| object.matches(&selector));
                            prop_assert_eq!(ids(store.select(namespace, &selector)), ids(all), "{}", text);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_selected_again_and_again_is_found_without_looking_at_everything() {
        let store = Store::default();
        for number in 0..5_000 {
            store.batch().put(object(number, number / 2), Origin::Live);
        }
        for app in 0..4 {
            let selector = LabelSelector::parse(&format!("app=a{app},tier=t{}", app % 2)).unwrap();
            assert_eq!(store.select(None, &selector).len(), 2);
            assert_eq!(store.labels(), ["app"], "the label that says most");
        }
    }
}

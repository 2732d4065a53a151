//! Objects in the order of their keys, cut into pages: a change copies a page at most, and a reader's copy stays as it was.

use std::sync::Arc;

use super::encoded::Encoded;
use crate::key::ObjectKey;

/// A page that grows beyond this is cut in two.
const PAGE: usize = 256;

/// Objects in the order of keys. A clone costs one reference, whatever their number.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    /// None of them is empty.
    pages: Arc<Vec<Arc<Vec<Arc<Encoded>>>>>,
}

impl Objects {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Encoded>> {
        self.pages.iter().flat_map(|page| page.iter())
    }

    /// Those of a namespace, or all.
    pub(super) fn within(&self, namespace: Option<&str>) -> impl Iterator<Item = &Arc<Encoded>> {
        let first = namespace.map(|namespace| ObjectKey::new(namespace, ""));
        let page = first.as_ref().map_or(0, |first| page_of(&self.pages, first));
        let from = self.pages[page.min(self.pages.len())..].iter().flat_map(|page| page.iter());
        from.skip_while(move |object| first.as_ref().is_some_and(|first| object.key() < first))
            .take_while(move |object| namespace.is_none_or(|namespace| object.namespace() == namespace))
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.pages.iter().map(|page| page.len()).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Adds an object, or takes it instead of the one that has its key.
    pub(super) fn insert(&mut self, object: Arc<Encoded>) {
        let pages = Arc::make_mut(&mut self.pages);
        let at = page_of(pages, object.key());
        let Some(page) = pages.get_mut(at) else {
            pages.push(Arc::new(vec![object]));
            return;
        };
        let page = Arc::make_mut(page);
        match page.binary_search_by(|known| known.key().cmp(object.key())) {
            Ok(place) => page[place] = object,
            Err(place) => page.insert(place, object),
        }
        if page.len() > PAGE {
            let rest = page.split_off(PAGE / 2);
            pages.insert(at + 1, Arc::new(rest));
        }
    }

    /// Takes out the object of this key.
    pub(super) fn remove(&mut self, key: &ObjectKey) {
        let pages = Arc::make_mut(&mut self.pages);
        let at = page_of(pages, key);
        let Some(page) = pages.get_mut(at) else { return };
        let Ok(place) = page.binary_search_by(|known| known.key().cmp(key)) else { return };
        if page.len() == 1 {
            pages.remove(at);
        } else {
            Arc::make_mut(page).remove(place);
        }
    }
}

/// The page in which a key is or would be.
fn page_of(pages: &[Arc<Vec<Arc<Encoded>>>], key: &ObjectKey) -> usize {
    pages.partition_point(|page| page.first().is_some_and(|first| first.key() <= key)).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        // Each case makes thousands of objects.
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn pages_are_a_sorted_map_and_copies_do_not_change(
            ops in proptest::collection::vec((0..1200_u32, any::<bool>()), 1..3000)
        ) {
            let (mut objects, mut model) = (Objects::default(), BTreeMap::new());
            let mut copy: Option<(Objects, Vec<u64>)> = None;
            let ids = |objects: &Objects| objects.iter().map(|object| object.id()).collect::<Vec<_>>();
            for (index, (name, add)) in ops.into_iter().enumerate() {
                let key = ObjectKey::new("a", &format!("n{name:05}"));
                if add || index < 600 {
                    let object = Arc::new(Encoded::bare(key.clone()));
                    model.insert(key, object.id());
                    objects.insert(object);
                } else {
                    objects.remove(&key);
                    model.remove(&key);
                }
                if index == 700 {
                    copy = Some((objects.clone(), ids(&objects)));
                }
            }
            prop_assert_eq!(ids(&objects), model.values().copied().collect::<Vec<_>>());
            prop_assert_eq!(objects.len(), model.len());
            prop_assert_eq!(objects.is_empty(), model.is_empty());
            if let Some((copy, before)) = copy {
                prop_assert_eq!(ids(&copy), before);
            }
        }
    }
}

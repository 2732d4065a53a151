//! Decoded objects beside the encoded ones: as many as are allowed, the recently read ones stay.
//!
//! What was decoded hangs on the encoded object itself, so a read finds both at once, and what is not held any more
//! takes its decoded form with it. Here is only the order in which forms are taken away.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::encoded::Encoded;

/// The decoded forms of one object. Almost always there is one; when the same cache is read as several types, the one is
/// a list of them.
#[derive(Default)]
pub(super) struct Forms(Mutex<Option<Arc<dyn Any + Send + Sync>>>);

struct Several(Vec<Arc<dyn Any + Send + Sync>>);

impl Forms {
    pub fn get<K: Send + Sync + 'static>(&self) -> Option<Arc<K>> {
        let forms = self.0.lock();
        let first = forms.as_ref()?;
        if first.is::<K>() {
            let found = first.clone();
            drop(forms);
            return found.downcast().ok();
        }
        let several = first.downcast_ref::<Several>()?;
        several.0.iter().find(|form| form.is::<K>())?.clone().downcast().ok()
    }

    pub fn put<K: Send + Sync + 'static>(&self, new: Arc<K>) {
        let mut forms = self.0.lock();
        let mut all = others::<K>(forms.take());
        *forms = Some(if all.is_empty() {
            new
        } else {
            all.push(new);
            Arc::new(Several(all))
        });
    }

    pub fn remove<K: Send + Sync + 'static>(&self) {
        let mut forms = self.0.lock();
        let mut all = others::<K>(forms.take());
        *forms = if all.len() > 1 { Some(Arc::new(Several(all))) } else { all.pop() };
    }
}

/// All forms but the one of type `K`.
fn others<K: 'static>(forms: Option<Arc<dyn Any + Send + Sync>>) -> Vec<Arc<dyn Any + Send + Sync>> {
    let Some(first) = forms else {
        return Vec::new();
    };
    let all =
        first.downcast_ref::<Several>().map_or_else(|| vec![first.clone()], |several| several.0.clone());
    all.into_iter().filter(|form| !form.is::<K>()).collect()
}

/// Which objects have been decoded to `K`, at most `capacity`; those of a capacity without end are not counted.
///
/// Second chance (CLOCK): a read marks an object, the hand takes marks away and evicts what it finds without one.
pub(super) struct Decoded<K> {
    ring: Mutex<Ring>,
    capacity: usize,
    of: PhantomData<fn() -> K>,
}

#[derive(Default)]
struct Ring {
    objects: Vec<Weak<Encoded>>,
    hand: usize,
}

impl<K: Send + Sync + 'static> Decoded<K> {
    pub fn new(capacity: usize) -> Decoded<K> {
        Decoded { ring: Mutex::default(), capacity, of: PhantomData }
    }

    /// Keeps what was decoded.
    pub fn insert(&self, object: &Arc<Encoded>, decoded: Arc<K>) {
        if self.capacity == 0 {
            return;
        }
        if self.capacity == usize::MAX {
            // Nothing will ever be taken away: there is no order to keep.
            object.forms().put(decoded);
            return;
        }
        let mut guard = self.ring.lock();
        object.forms().put(decoded);
        let ring = &mut *guard;
        if ring.objects.len() < self.capacity {
            ring.objects.push(Arc::downgrade(object));
            return;
        }
        loop {
            let place = ring.hand % ring.objects.len();
            ring.hand = place + 1;
            let old = ring.objects[place].upgrade();
            if old.as_ref().is_some_and(|old| old.take_mark()) {
                continue;
            }
            ring.objects[place] = Arc::downgrade(object);
            drop(guard);
            if let Some(old) = old.filter(|old| !Arc::ptr_eq(old, object)) {
                old.forms().remove::<K>();
            }
            return;
        }
    }

    /// Takes away what nobody has read since the last time, and forgets what is not held any more.
    pub fn sweep(&self) {
        let mut idle = Vec::new();
        let mut ring = self.ring.lock();
        ring.objects.retain(|object| match object.upgrade() {
            Some(object) if object.take_mark() => true,
            Some(object) => {
                idle.push(object);
                false
            }
            None => false,
        });
        ring.objects.shrink_to_fit();
        ring.hand = 0;
        drop(ring);
        for object in idle {
            object.forms().remove::<K>();
        }
    }

    pub fn len(&self) -> usize {
        self.ring.lock().objects.iter().filter(|object| object.strong_count() > 0).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_several_types_stand_side_by_side() {
        let forms = Forms::default();
        assert_eq!(forms.get::<u8>(), None);
        forms.put(Arc::new(1u8));
        forms.put(Arc::new("text"));
        forms.put(Arc::new(3u64));
        assert_eq!(forms.get::<u8>().as_deref(), Some(&1));
        assert_eq!(forms.get::<&str>().as_deref(), Some(&"text"));
        forms.put(Arc::new(2u8));
        forms.remove::<&str>();
        assert_eq!((forms.get::<u8>().as_deref(), forms.get::<&str>()), (Some(&2), None));
        forms.remove::<u64>();
        assert_eq!((forms.get::<u8>().as_deref(), forms.get::<u64>()), (Some(&2), None));
        forms.remove::<u8>();
        assert_eq!(forms.get::<u8>(), None);
    }
}

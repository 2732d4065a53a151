//! Watch events in protobuf, each encoded once for all who watch.
//!
//! JSON is what the store holds, so protobuf is made when the first watcher wants it. What the others want a moment
//! later is still here; what nobody asked for in a while is not. Servers without such watchers keep nothing.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::negotiate::View;

/// How many bytes of frames are kept, by the size of their JSON.
const KEPT_BYTES: usize = 16 * 1024 * 1024;

/// What a frame shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Revision of the object: no two versions of objects have the same.
    pub revision: u64,
    /// The revision it is shown under, where that is another one.
    pub shown_at: Option<u64>,
    /// `ADDED`, `MODIFIED`, `DELETED`
    pub event: &'static str,
    /// What is shown of the object.
    pub view: View,
    /// Address of the resource in the registry: versions and groups show the same object differently.
    pub resource: usize,
}

/// The frames made lately.
#[derive(Default)]
pub struct Frames(Mutex<Held>);

#[derive(Default)]
struct Held {
    frames: HashMap<Key, Arc<OnceLock<Bytes>>>,
    /// With the size each counts for, oldest first.
    order: VecDeque<(Key, usize)>,
    bytes: usize,
}

impl Frames {
    /// The frame, made by `encode` if nobody has made it yet. `size` is about how large it is.
    pub fn get(&self, key: Key, size: usize, encode: impl FnOnce() -> Bytes) -> Bytes {
        let place = self.0.lock().place(key, size);
        // Outside of the lock: others wait for this frame only.
        place.get_or_init(encode).clone()
    }
}

impl Held {
    fn place(&mut self, key: Key, size: usize) -> Arc<OnceLock<Bytes>> {
        if let Some(known) = self.frames.get(&key) {
            return known.clone();
        }
        while self.bytes + size > KEPT_BYTES
            && let Some((old, size)) = self.order.pop_front()
        {
            self.frames.remove(&old);
            self.bytes -= size;
        }
        let place = Arc::new(OnceLock::new());
        self.frames.insert(key, place.clone());
        self.order.push_back((key, size));
        self.bytes += size;
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(revision: u64) -> Key {
        Key { revision, shown_at: None, event: "ADDED", view: View::Full, resource: 0 }
    }

    #[test]
    fn a_frame_is_made_once_and_old_ones_are_forgotten() {
        let frames = Frames::default();
        let mut made = 0;
        let mut get = |revision, size| {
            frames.get(key(revision), size, || {
                made += 1;
                Bytes::from(revision.to_string())
            })
        };
        assert_eq!((get(1, 10), get(1, 10)), (Bytes::from("1"), Bytes::from("1")));
        get(2, KEPT_BYTES);
        get(1, 10);
        assert_eq!(made, 3, "the large one pushed the first one out");
        let held = frames.0.lock();
        assert_eq!((held.frames.len(), held.order.len(), held.bytes), (1, 1, 10));
    }
}

//! Finding what occurs twice, in lists as long as a request may be.

use std::collections::BTreeSet;

/// The keys met so far.
#[derive(Debug, Default)]
pub struct Seen(BTreeSet<String>);

impl Seen {
    /// Whether this key was met before; it is from now on.
    pub fn again(&mut self, key: impl Into<String>) -> bool {
        !self.0.insert(key.into())
    }
}

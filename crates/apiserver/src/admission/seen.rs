//! Who has seen the object as it is: policies and webhooks that change objects are asked again after others changed it.

use std::collections::HashMap;

use serde_json::Value;

/// What those that want to be asked again last saw, in two rounds.
#[derive(Default)]
pub struct Seen {
    round: usize,
    last: HashMap<String, Value>,
}

impl Seen {
    /// Which round this is.
    pub fn round(&self) -> usize {
        self.round
    }

    /// Whether somebody is to be asked: everybody at first, then who has not seen the object as it is now.
    pub fn wants(&self, who: &str, object: &Value) -> bool {
        self.round == 0 || self.last.get(who).is_some_and(|last| last != object)
    }

    /// Somebody who wants to be asked again has seen this, and left it so.
    pub fn note(&mut self, who: String, object: &Value) {
        self.last.insert(who, object.clone());
    }

    /// All have been asked.
    pub fn next_round(&mut self) {
        self.round += 1;
    }
}

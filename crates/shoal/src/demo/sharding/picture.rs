//! The group as a picture: replicas and the map of slots.

use crate::shards::{Snapshot, heat_map, letter, view};

/// Replicas in one line each, the map of slots, and a line about the objects.
pub fn picture(snapshot: &Snapshot, below: &str, colours: bool) -> String {
    let view = view(snapshot);
    let mut text = String::from("\n");
    for (at, replica) in view.replicas.iter().enumerate() {
        let letter = letter(at);
        text += &format!("  {letter} {:<16} {:<10} {:>5} slots\n", replica.id, replica.status, replica.slots);
    }
    if let Some(map) = snapshot.map() {
        let ids: Vec<&str> = view.replicas.iter().map(|replica| replica.id.as_str()).collect();
        text += &heat_map(map, &ids, &[], colours);
    }
    text += below;
    text.push('\n');
    text
}

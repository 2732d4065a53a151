//! From a request body to an object that has the shape of its type.
//!
//! [`parse_json`] and [`parse_yaml`] read text, [`conform`] gives the object the shape of its type the way Go's decoder
//! would, and [`complete`] adds what Go writes although nobody gave it. `protobuf` produces the same JSON.

mod complete;
pub(crate) mod conform;
pub(crate) mod scalars;
mod syntax;
mod text;

pub use complete::complete;
pub use conform::conform;
pub use text::{parse_json, parse_yaml};

/// The real server stops counting unknown and duplicate fields here.
const MAX_REPORTED: usize = 100;

/// Puts the name or index of the field around before the paths that were noted inside it.
fn prefix(paths: &mut [String], segment: &str) {
    for path in paths {
        let separator = if path.starts_with('[') { "" } else { "." };
        path.insert_str(0, separator);
        path.insert_str(0, segment);
    }
}

#[cfg(test)]
mod tests;

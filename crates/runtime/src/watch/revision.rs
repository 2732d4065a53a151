//! Where a cache stands in the history of its kind.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// A `resourceVersion`. Numbers can be compared, as Kubernetes promises since 1.35 and every server did before; other
/// texts are only equal or not.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Revision {
    /// What servers really send.
    Number(u64),
    /// What some aggregated server might.
    Text(Arc<str>),
}

impl Revision {
    /// Reads a `resourceVersion`.
    pub fn parse(text: &str) -> Revision {
        match text.parse() {
            // A number that prints otherwise ("007") must be sent back as it came.
            Ok(number) if text.len() < 2 || !text.starts_with(['0', '+']) => Revision::Number(number),
            _ => Revision::Text(text.into()),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        matches!(self, Revision::Text(text) if text.is_empty())
    }

    /// Whether who has seen this has seen the other.
    pub fn covers(&self, other: &Revision) -> bool {
        self == other || self.compare(other) == Some(Ordering::Greater)
    }

    /// Whether this is certainly before the other.
    pub fn is_older_than(&self, other: &Revision) -> bool {
        self.compare(other) == Some(Ordering::Less)
    }

    fn compare(&self, other: &Revision) -> Option<Ordering> {
        match (self, other) {
            (Revision::Number(a), Revision::Number(b)) => Some(a.cmp(b)),
            _ => None,
        }
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Revision::Number(number) => number.fmt(f),
            Revision::Text(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_and_other_texts_only_equal() {
        let of = Revision::parse;
        assert!(of("10").covers(&of("9")) && of("10").covers(&of("10")) && !of("9").covers(&of("10")));
        assert!(of("9").is_older_than(&of("10")));
        assert!(of("x").covers(&of("x")) && !of("x").covers(&of("y")) && !of("x").is_older_than(&of("y")));
        assert!(!of("x").is_older_than(&of("1")) && !of("1").covers(&of("x")));
        for text in ["", "0", "007", "18446744073709551615", "18446744073709551616", "+1", "a"] {
            assert_eq!(of(text).to_string(), text);
        }
    }
}

//! Sets of completion indexes in the form that a Job's status has: `0-2,5`.

use std::collections::BTreeSet;

/// Reads a set; what is not a number is left out, and nothing at or above `limit` is believed.
pub fn parse(text: &str, limit: i32) -> BTreeSet<i32> {
    let mut set = BTreeSet::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<i32>(), last.parse::<i32>()) {
            set.extend(first.max(0)..=last.min(limit.saturating_sub(1)));
        }
    }
    set
}

/// Writes a set: ranges of three and more are joined, as are pairs.
pub fn format(set: &BTreeSet<i32>) -> String {
    let mut text = String::new();
    let mut rest = set.iter().copied().peekable();
    while let Some(first) = rest.next() {
        let mut last = first;
        while rest.peek() == Some(&(last + 1)) {
            last += 1;
            rest.next();
        }
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(&first.to_string());
        match last - first {
            0 => {}
            1 => text.push_str(&format!(",{last}")),
            _ => text.push_str(&format!("-{last}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_are_written_short() {
        assert_eq!(format(&BTreeSet::from([0, 1, 2, 5, 7, 8])), "0-2,5,7,8");
        assert_eq!(format(&BTreeSet::new()), "");
        assert_eq!(parse("0-2,5,x,9-", 6), BTreeSet::from([0, 1, 2, 5]));
        assert_eq!(parse("0-2000000000", 3), BTreeSet::from([0, 1, 2]));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(set in prop::collection::btree_set(0..50_i32, 0..30)) {
            prop_assert_eq!(parse(&format(&set), 50), set);
        }
    }
}

//! The nearest known word, for error messages that suggest what was meant.

/// The word that differs least from `wrong`, if one is near enough to be a misspelling of it.
pub(crate) fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Long input is no misspelling, and the comparison is quadratic.
    let limit = 1 + wrong.chars().take(64).count() / 4;
    known
        .into_iter()
        .filter(|word| wrong.len().abs_diff(word.len()) <= 2 * limit && word.len() <= 64)
        .map(|word| (distance(&wrong.to_lowercase(), &word.to_lowercase()), word))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

/// How many letters must be put in, taken out or changed.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, other) in b.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *other);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn misspellings_are_near_and_other_words_are_not() {
        let known = ["leaseDuration", "renewDeadline", "retryPeriod"];
        assert_eq!(nearest("leaseduration", known), Some("leaseDuration"));
        assert_eq!(nearest("retryPeriods", known), Some("retryPeriod"));
        assert_eq!(nearest("renew_deadline", known), Some("renewDeadline"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest(&"x".repeat(1_000_000), known), None);
    }

    proptest! {
        #[test]
        fn distance_is_a_metric(a in "[ab]{0,6}", b in "[ab]{0,6}", c in "[ab]{0,6}") {
            prop_assert_eq!(distance(&a, &b) == 0, a == b);
            prop_assert_eq!(distance(&a, &b), distance(&b, &a));
            prop_assert!(distance(&a, &c) <= distance(&a, &b) + distance(&b, &c));
        }
    }
}

//! Keys as names of objects and files.

use super::Error;

/// The longest name of an object.
const LONGEST: usize = 253;

/// A name for a key: letters and digits stay, everything else becomes `-` and two hexadecimal digits. No two keys have
/// one name, and every name is valid for files and, behind a prefix that begins with a letter, for objects.
pub(super) fn encode(prefix: &str, key: &str) -> Result<String, Error> {
    let wrong = |why| Error::Key { key: key.chars().take(60).collect(), why };
    if key.is_empty() {
        return Err(wrong("it is empty"));
    }
    let mut name = String::with_capacity(prefix.len() + key.len());
    name.push_str(prefix);
    for byte in key.bytes() {
        if byte.is_ascii_lowercase() || byte.is_ascii_digit() {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("-{byte:02x}"));
        }
        if name.len() > LONGEST {
            return Err(wrong("it is too long"));
        }
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_can_be_read_by_people() {
        assert_eq!(encode("web-", "shard-state").unwrap(), "web-shard-2dstate");
        assert_eq!(encode("", "shards/3").unwrap(), "shards-2f3");
        assert!(encode("", "").is_err());
        assert!(encode("", &"x".repeat(254)).is_err());
    }

    proptest! {
        #[test]
        fn different_keys_have_different_valid_names(a in "\\PC{1,20}", b in "\\PC{1,20}") {
            let (one, two) = (encode("web-", &a).unwrap(), encode("web-", &b).unwrap());
            prop_assert_eq!(one == two, a == b);
            prop_assert!(one.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-'));
            prop_assert!(one.starts_with(|c: char| c.is_ascii_alphanumeric()) && one.ends_with(|c: char| c.is_ascii_alphanumeric()));
        }
    }
}

//! Finds where values lie in JSON text, without building them.
//!
//! The scanner trusts structure only as far as it must: it never reads past the end, never recurses, and takes text
//! that is not quite JSON for what it looks like. Whoever decodes the value finds out.

use std::borrow::Cow;

use memchr::memchr2;

/// A part of some bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// The first byte behind.
    pub end: usize,
}

impl Span {
    /// The bytes of this part.
    pub fn of(self, bytes: &[u8]) -> &[u8] {
        bytes.get(self.start..self.end).unwrap_or_default()
    }
}

/// A place in JSON text.
#[derive(Clone, Debug)]
pub struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Scanner<'a> {
    /// Begins at the start of the text.
    pub fn new(bytes: &'a [u8]) -> Scanner<'a> {
        Scanner { bytes, at: 0 }
    }

    /// Where the scanner stands.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The next byte that is no white space, not consumed.
    pub fn peek(&mut self) -> Option<u8> {
        while let Some(byte) = self.bytes.get(self.at) {
            if !matches!(byte, b' ' | b'\n' | b'\t' | b'\r') {
                return Some(*byte);
            }
            self.at += 1;
        }
        None
    }

    /// Consumes this byte, if it is the next one.
    pub fn take(&mut self, expected: u8) -> Option<()> {
        if self.peek()? == expected {
            self.at += 1;
            return Some(());
        }
        None
    }

    /// Within an object: the place and text of the next key, its colon consumed. `Some(None)` at the object's end, which
    /// is consumed; `None` for what is no object.
    #[allow(clippy::option_option, reason = "the end of an object and broken text are different things")]
    pub fn key(&mut self) -> Option<Option<Span>> {
        loop {
            match self.peek()? {
                b',' => self.at += 1,
                b'}' => {
                    self.at += 1;
                    return Some(None);
                }
                b'"' => {
                    let key = self.string()?;
                    self.take(b':')?;
                    return Some(Some(key));
                }
                _ => return None,
            }
        }
    }

    /// Within an array: whether another item follows. The array's end is consumed.
    pub fn item(&mut self) -> Option<bool> {
        loop {
            match self.peek()? {
                b',' => self.at += 1,
                b']' => {
                    self.at += 1;
                    return Some(false);
                }
                _ => return Some(true),
            }
        }
    }

    /// Consumes a string; the span is what stands between the quotes.
    pub fn string(&mut self) -> Option<Span> {
        self.take(b'"')?;
        let start = self.at;
        self.at = string_end(self.bytes, self.at)?;
        Some(Span { start, end: self.at - 1 })
    }

    /// Consumes a value of any type.
    pub fn value(&mut self) -> Option<Span> {
        let first = self.peek()?;
        let start = self.at;
        match first {
            b'"' => self.at = string_end(self.bytes, start + 1)?,
            b'{' | b'[' => self.at = nested_end(self.bytes, start)?,
            b'}' | b']' | b',' | b':' => return None,
            _ => {
                let rest = &self.bytes[start..];
                let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\t' | b'\r');
                self.at = start + rest.iter().position(ends).unwrap_or(rest.len());
            }
        }
        Some(Span { start, end: self.at })
    }
}

/// The place behind the quote that ends a string whose text begins at `at`.
fn string_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let found = at + memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes[found] == b'"' {
            return Some(found + 1);
        }
        at = found + 2;
    }
}

/// The place behind the bracket that closes the one at `at`.
fn nested_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    let mut depth = 0usize;
    loop {
        match bytes.get(at)? {
            b'"' => {
                at = string_end(bytes, at + 1)?;
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
        at += 1;
    }
}

/// The text between quotes, with escapes resolved. `None` for what is no text.
pub fn unescape(raw: &[u8]) -> Option<Cow<'_, str>> {
    if !raw.contains(&b'\\') {
        return std::str::from_utf8(raw).ok().map(Cow::Borrowed);
    }
    let mut quoted = Vec::with_capacity(raw.len() + 2);
    quoted.push(b'"');
    quoted.extend_from_slice(raw);
    quoted.push(b'"');
    serde_json::from_slice(&quoted).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                proptest::collection::btree_map(any::<String>(), inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_value_ends_where_serde_says(value in any_json(), pretty: bool, rest in "[,}\\] ].*") {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
            let long = format!("{text}{rest}");
            let span = Scanner::new(long.as_bytes()).value().unwrap();
            prop_assert_eq!(span, Span { start: 0, end: text.len() });
        }

        #[test]
        fn no_bytes_break_the_scanner(bytes in proptest::collection::vec(prop_oneof![
            Just(b'{'), Just(b'['), Just(b'"'), Just(b'}'), Just(b']'), Just(b','), Just(b':'), Just(b'\\'), any::<u8>(),
        ], 0..60)) {
            let mut scanner = Scanner::new(&bytes);
            while scanner.value().is_some() || scanner.key().is_some() || scanner.item() == Some(false) {
                prop_assert!(scanner.at() <= bytes.len() + 1);
            }
        }

        #[test]
        fn texts_come_out_as_they_went_in(text: String) {
            let quoted = serde_json::to_string(&text).unwrap();
            let span = Scanner::new(quoted.as_bytes()).string().unwrap();
            prop_assert_eq!(unescape(span.of(quoted.as_bytes())).unwrap(), text);
        }
    }

    #[test]
    fn deep_nesting_costs_no_stack() {
        let mut deep = vec![b'['; 3_000_000];
        assert_eq!(Scanner::new(&deep).value(), None);
        deep.extend(vec![b']'; 3_000_000]);
        assert_eq!(Scanner::new(&deep).value(), Some(Span { start: 0, end: 6_000_000 }));
    }

    #[test]
    fn keys_and_items_are_walked() {
        let text = json!({"a": [1, {"b": 2}], "c": "d"}).to_string();
        let mut scanner = Scanner::new(text.as_bytes());
        scanner.take(b'{').unwrap();
        assert_eq!(scanner.key().unwrap().unwrap().of(text.as_bytes()), b"a");
        scanner.take(b'[').unwrap();
        assert_eq!(scanner.item(), Some(true));
        assert_eq!(scanner.value().unwrap().of(text.as_bytes()), b"1");
        assert_eq!(scanner.item(), Some(true));
        assert_eq!(scanner.value().unwrap().of(text.as_bytes()), br#"{"b":2}"#);
        assert_eq!(scanner.item(), Some(false));
        assert_eq!(scanner.key().unwrap().unwrap().of(text.as_bytes()), b"c");
        scanner.string().unwrap();
        assert_eq!(scanner.key(), Some(None));
    }
}

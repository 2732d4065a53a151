//! Reads what servers send: pages of lists, and events.

use bytes::Bytes;

use super::fault::Fault;
use super::record::{Record, Trim};
use super::revision::Revision;
use super::span::{Scanner, unescape};

/// One page of a list.
#[derive(Debug)]
pub struct Page {
    /// The objects.
    pub items: Vec<Record>,
    /// Revision of the whole list.
    pub revision: Revision,
    /// Token for the next page.
    pub next: Option<String>,
    /// The shard selector that the server says it obeyed.
    pub shard: Option<String>,
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It is in a list.
    Present,
    /// It was created, or came into the scope.
    Added,
    /// It was changed.
    Modified,
    /// It was deleted, or left the scope.
    Deleted,
}

/// One line of a watch.
#[derive(Debug)]
pub enum Event {
    /// Something happened to an object.
    Object(Kind, Record),
    /// Nothing happened up to there.
    Bookmark(Record),
    /// The server ends the watch.
    Error(Fault),
}

/// Reads a page of a list.
pub fn page(bytes: &Bytes, trim: Trim) -> Result<Page, Fault> {
    scan_page(bytes, trim).ok_or(Fault::Malformed("a list without items or metadata"))
}

fn scan_page(bytes: &Bytes, trim: Trim) -> Option<Page> {
    let mut scanner = Scanner::new(bytes);
    let mut page = Page { items: Vec::new(), revision: Revision::Text("".into()), next: None, shard: None };
    let mut is_list = false;
    scanner.take(b'{')?;
    while let Some(key) = scanner.key()? {
        match key.of(bytes) {
            b"metadata" if scanner.peek() == Some(b'{') => {
                scan_list_metadata(bytes, &mut scanner, &mut page)?;
            }
            b"items" => {
                is_list = true;
                if scanner.peek()? != b'[' {
                    // Go writes null for an empty list.
                    scanner.value()?;
                    continue;
                }
                scanner.take(b'[')?;
                while scanner.item()? {
                    page.items.push(Record::scan(bytes, &mut scanner, trim)?);
                }
            }
            _ => {
                scanner.value()?;
            }
        }
    }
    is_list.then_some(page)
}

fn scan_list_metadata(bytes: &Bytes, scanner: &mut Scanner<'_>, page: &mut Page) -> Option<()> {
    scanner.take(b'{')?;
    while let Some(key) = scanner.key()? {
        let value = scanner.value()?.of(bytes);
        match key.of(bytes) {
            b"resourceVersion" => {
                page.revision = Revision::parse(&serde_json::from_slice::<String>(value).ok()?);
            }
            b"continue" => {
                page.next = serde_json::from_slice(value).ok().filter(|token: &String| !token.is_empty());
            }
            b"shardInfo" => {
                let info: serde_json::Value = serde_json::from_slice(value).ok()?;
                page.shard = info["selector"].as_str().map(str::to_owned);
            }
            _ => {}
        }
    }
    Some(())
}

/// Reads a line of a watch.
pub fn event(line: &Bytes, trim: Trim) -> Result<Event, Fault> {
    scan_event(line, trim).ok_or(Fault::Malformed("a line of a watch is no event"))
}

fn scan_event(line: &Bytes, trim: Trim) -> Option<Event> {
    let mut scanner = Scanner::new(line);
    let mut kind = None;
    let mut object = None;
    scanner.take(b'{')?;
    while let Some(key) = scanner.key()? {
        match key.of(line) {
            b"type" => kind = Some(unescape(scanner.string()?.of(line))?),
            b"object" if scanner.peek() == Some(b'{') => {
                let start = scanner.at();
                let record = Record::scan(line, &mut scanner, trim)?;
                object = Some((record, line.slice(start..scanner.at())));
            }
            _ => {
                scanner.value()?;
            }
        }
    }
    let (record, raw) = object?;
    Some(match &*kind? {
        "ADDED" => Event::Object(Kind::Added, record),
        "MODIFIED" => Event::Object(Kind::Modified, record),
        "DELETED" => Event::Object(Kind::Deleted, record),
        "BOOKMARK" => Event::Bookmark(record),
        "ERROR" => Event::Error(Fault::of_event(&raw)),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TRIM: Trim = Trim { managed_fields: true, all_but_metadata: false };

    #[test]
    fn a_page_is_read_in_one_pass() {
        let text = r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"12","continue":"next","remainingItemCount":1,
            "shardInfo":{"selector":"s"}},"items":[{"metadata":{"name":"a","resourceVersion":"3"},"spec":{}},{"metadata":{"name":"b"}}]}"#;
        let page = page(&Bytes::from_static(text.as_bytes()), TRIM).unwrap();
        assert_eq!((page.revision, page.next.as_deref()), (Revision::Number(12), Some("next")));
        assert_eq!(page.shard.as_deref(), Some("s"));
        let names: Vec<_> = page.items.iter().map(|item| item.name().into_owned()).collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn null_is_an_empty_list_and_a_status_is_none() {
        let read = |text: &'static str| page(&Bytes::from_static(text.as_bytes()), TRIM);
        assert!(read(r#"{"metadata":{"resourceVersion":"1"},"items":null}"#).unwrap().items.is_empty());
        assert!(read(r#"{"kind":"Status","metadata":{},"code":500}"#).is_err());
        assert!(read(r#"{"metadata":{"resourceVersion":"1"},"items":[{"metadata":"#).is_err());
    }

    #[test]
    fn events_are_told_apart_in_any_order_of_members() {
        let read = |text: &str| event(&Bytes::copy_from_slice(text.as_bytes()), TRIM);
        let object = r#""object":{"metadata":{"name":"a"}}"#;
        assert!(matches!(
            read(&format!(r#"{{"type":"ADDED",{object}}}"#)),
            Ok(Event::Object(Kind::Added, _))
        ));
        assert!(matches!(
            read(&format!(r#"{{{object},"type":"DELETED"}}"#)),
            Ok(Event::Object(Kind::Deleted, _))
        ));
        let error = read(r#"{"type":"ERROR","object":{"kind":"Status","code":410,"message":"m"}}"#);
        assert!(matches!(error, Ok(Event::Error(Fault::Gone(_)))));
        for broken in ["", "{}", "[]", r#"{"type":"NEW","object":{}}"#, r#"{"type":"ADDED","object":null}"#] {
            assert!(read(broken).is_err(), "{broken}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_break_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..80), cut in 0usize..120) {
            let bytes = Bytes::from(bytes);
            let _ = page(&bytes, TRIM);
            let _ = event(&bytes, TRIM);
            let text = br#"{"type":"ADDED","object":{"metadata":{"name":"a","labels":{"x":"y"},"managedFields":[{}]},"spec":{"a":[1]}}}"#;
            let _ = event(&Bytes::copy_from_slice(&text[..cut.min(text.len())]), TRIM);
        }
    }
}

//! One object as it came: its bytes, and where the metadata stands in them.

use std::borrow::Cow;

use bytes::Bytes;

use super::revision::Revision;
use super::span::{Scanner, Span, unescape};

/// Which parts of an object are not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trim {
    /// Drop `metadata.managedFields`.
    pub managed_fields: bool,
    /// Drop everything but the metadata.
    pub all_but_metadata: bool,
}

/// The bytes of one object, scanned once.
#[derive(Clone, Debug, Default)]
pub struct Record {
    bytes: Bytes,
    namespace: Span,
    name: Span,
    uid: Span,
    version: Span,
    generation: Span,
    deletion: Span,
    labels: Span,
    annotations: Span,
    owners: Span,
    finalizers: Span,
    /// Runs of members of the metadata that are kept.
    metadata: Vec<Span>,
    /// Runs of other members that are kept.
    others: Vec<Span>,
}

impl Record {
    /// A whole object.
    #[cfg(test)]
    pub fn of(object: &str) -> Record {
        let bytes = Bytes::copy_from_slice(object.as_bytes());
        let trim = Trim { managed_fields: true, all_but_metadata: false };
        Record::scan(&bytes, &mut Scanner::new(&bytes), trim).unwrap()
    }

    /// Scans the object at the scanner's place in `bytes`.
    pub fn scan(bytes: &Bytes, scanner: &mut Scanner<'_>, trim: Trim) -> Option<Record> {
        scanner.take(b'{')?;
        let start = scanner.at() - 1;
        let mut record = Record::default();
        let mut others = Runs::default();
        while let Some(key) = scanner.key()? {
            let value = match key.of(bytes) {
                b"metadata" if scanner.peek() == Some(b'{') => {
                    record.scan_metadata(bytes, scanner, trim)?;
                    others.cut();
                    continue;
                }
                _ => scanner.value()?,
            };
            match key.of(bytes) {
                b"apiVersion" | b"kind" | b"metadata" => others.cut(),
                _ if trim.all_but_metadata => others.cut(),
                _ => others.keep(Span { start: key.start - 1, end: value.end }),
            }
        }
        record.others = others.0;
        record.rebase(start);
        record.bytes = bytes.slice(start..scanner.at());
        Some(record)
    }

    fn scan_metadata(&mut self, bytes: &Bytes, scanner: &mut Scanner<'_>, trim: Trim) -> Option<()> {
        scanner.take(b'{')?;
        let mut runs = Runs::default();
        while let Some(key) = scanner.key()? {
            let value = scanner.value()?;
            match key.of(bytes) {
                b"namespace" => self.namespace = value,
                b"name" => self.name = value,
                b"uid" => self.uid = value,
                b"resourceVersion" => self.version = value,
                b"generation" => self.generation = value,
                b"deletionTimestamp" => self.deletion = value,
                b"labels" => self.labels = value,
                b"annotations" => self.annotations = value,
                b"ownerReferences" => self.owners = value,
                b"finalizers" => self.finalizers = value,
                b"managedFields" if trim.managed_fields => {
                    runs.cut();
                    continue;
                }
                _ => {}
            }
            runs.keep(Span { start: key.start - 1, end: value.end });
        }
        self.metadata = runs.0;
        Some(())
    }

    /// Places were counted in the whole text; from now on they are within the object.
    fn rebase(&mut self, start: usize) {
        let fields = [
            &mut self.namespace,
            &mut self.name,
            &mut self.uid,
            &mut self.version,
            &mut self.generation,
            &mut self.deletion,
            &mut self.labels,
            &mut self.annotations,
            &mut self.owners,
            &mut self.finalizers,
        ];
        for span in fields.into_iter().chain(&mut self.metadata).chain(&mut self.others) {
            *span = Span { start: span.start.saturating_sub(start), end: span.end.saturating_sub(start) };
        }
    }

    fn text(&self, span: Span) -> Cow<'_, str> {
        let quoted = span.of(&self.bytes);
        quoted
            .strip_prefix(b"\"")
            .and_then(|rest| rest.strip_suffix(b"\""))
            .and_then(unescape)
            .unwrap_or_default()
    }

    /// Empty for kinds without namespaces.
    pub fn namespace(&self) -> Cow<'_, str> {
        self.text(self.namespace)
    }

    /// The object's name.
    pub fn name(&self) -> Cow<'_, str> {
        self.text(self.name)
    }

    /// Which of the objects that had this name over time.
    pub fn uid(&self) -> Cow<'_, str> {
        self.text(self.uid)
    }

    /// The object's version.
    pub fn revision(&self) -> Revision {
        Revision::parse(&self.text(self.version))
    }

    /// How often the object's specification was changed; 0 where nobody counts.
    pub fn generation(&self) -> i64 {
        std::str::from_utf8(self.generation.of(&self.bytes))
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(0)
    }

    /// When deletion was asked for, in RFC 3339; empty for objects that stay.
    pub fn deletion_timestamp(&self) -> Cow<'_, str> {
        self.text(self.deletion)
    }

    /// The labels as JSON; empty for none.
    pub fn labels(&self) -> &[u8] {
        self.labels.of(&self.bytes)
    }

    /// The owner references as JSON; empty for none.
    pub fn owner_references(&self) -> &[u8] {
        self.owners.of(&self.bytes)
    }

    /// The finalizers as JSON; empty for none.
    pub fn finalizers(&self) -> &[u8] {
        self.finalizers.of(&self.bytes)
    }

    /// Whether this bookmark ends the initial events of a streamed list.
    pub fn ends_initial_events(&self) -> bool {
        const MARK: &[u8] = b"\"k8s.io/initial-events-end\":\"true\"";
        let annotations = self.annotations.of(&self.bytes);
        let dense: Vec<u8> = annotations.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
        dense.windows(MARK.len()).any(|window| window == MARK)
    }

    /// How many bytes came.
    pub fn encoded_len(&self) -> usize {
        self.bytes.len()
    }

    /// Writes the object without what is trimmed and without its type: `{"metadata":{…},…}`.
    pub fn write_bare(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(b"{\"metadata\":{");
        for (index, run) in self.metadata.iter().enumerate() {
            if index > 0 {
                into.push(b',');
            }
            into.extend_from_slice(run.of(&self.bytes));
        }
        into.push(b'}');
        for run in &self.others {
            into.push(b',');
            into.extend_from_slice(run.of(&self.bytes));
        }
        into.push(b'}');
    }
}

/// Members that are kept; neighbours are one run.
#[derive(Default)]
struct Runs(Vec<Span>, bool);

impl Runs {
    fn keep(&mut self, member: Span) {
        match self.0.last_mut() {
            Some(run) if self.1 => run.end = member.end,
            _ => self.0.push(member),
        }
        self.1 = true;
    }

    fn cut(&mut self) {
        self.1 = false;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const TRIM: Trim = Trim { managed_fields: true, all_but_metadata: false };

    fn scan(text: &str, trim: Trim) -> Option<Record> {
        let bytes = Bytes::copy_from_slice(text.as_bytes());
        Record::scan(&bytes, &mut Scanner::new(&bytes), trim)
    }

    fn bare(record: &Record) -> Value {
        let mut out = Vec::new();
        record.write_bare(&mut out);
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn managed_fields_and_type_are_cut_wherever_they_stand() {
        let members = [
            r#""kind":"Pod""#,
            r#""apiVersion" : "v1" "#,
            r#""metadata":{"managedFields":[{"a":"}"}],"name":"n","uid":"u"}"#,
            r#""spec":{"x":[1,2]}"#,
        ];
        let expected = json!({"metadata": {"name": "n", "uid": "u"}, "spec": {"x": [1, 2]}});
        for turn in 0..members.len() {
            let mut order = members;
            order.rotate_left(turn);
            let record = scan(&format!("{{ {} }}", order.join(" , ")), TRIM).unwrap();
            assert_eq!(bare(&record), expected, "{order:?}");
            assert_eq!((&*record.name(), &*record.uid()), ("n", "u"));
        }
        for metadata in
            [r#""managedFields":[],"name":"n""#, r#""name":"n","managedFields":[]"#, r#""managedFields":[]"#]
        {
            let record = scan(&format!(r#"{{"metadata":{{{metadata}}}}}"#), TRIM).unwrap();
            assert!(bare(&record)["metadata"].get("managedFields").is_none());
        }
    }

    #[test]
    fn only_metadata_stays_when_only_metadata_is_wanted() {
        let text = r#"{"kind":"Secret","data":{"p":"c2VjcmV0"},"metadata":{"name":"n","managedFields":[]},"type":"t"}"#;
        let record = scan(text, Trim { managed_fields: false, all_but_metadata: true }).unwrap();
        assert_eq!(bare(&record), json!({"metadata": {"name": "n", "managedFields": []}}));
    }

    #[test]
    fn metadata_of_wrong_types_reads_as_absent() {
        let text =
            r#"{"metadata":{"name":7,"namespace":null,"generation":"x","resourceVersion":{},"uid":["u"]}}"#;
        let record = scan(text, TRIM).unwrap();
        assert_eq!((&*record.name(), &*record.namespace(), record.generation()), ("", "", 0));
        assert!(record.revision().is_empty());
        assert!(scan(r#"{"metadata":"#, TRIM).is_none());
        assert_eq!(scan(r#"{"metadata":null}"#, TRIM).unwrap().name(), "");
    }

    #[test]
    fn the_end_of_initial_events_is_seen_with_and_without_spaces() {
        for text in [
            r#"{"metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}}}"#,
            r#"{"metadata":{"annotations": { "k8s.io/initial-events-end" : "true" }}}"#,
        ] {
            assert!(scan(text, TRIM).unwrap().ends_initial_events());
        }
        assert!(!scan(r#"{"metadata":{"resourceVersion":"7"}}"#, TRIM).unwrap().ends_initial_events());
    }
}

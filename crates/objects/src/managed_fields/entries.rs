//! The entries of `metadata.managedFields`: who owns which fields.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::set::FieldSet;
use super::text;

/// At most so many entries stem from updates; older ones are folded together.
const MAX_UPDATE_ENTRIES: usize = 10;
/// The name of the entry old updates are folded into.
const ANCIENT: &str = "ancient-changes";

/// What a manager did to own its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
pub enum Operation {
    /// Applied them.
    Apply,
    /// Wrote them in any other way.
    Update,
}

/// How field sets are read: trusting who wrote them or not.
pub(super) type FieldsReader<'a> = fn(&'a Value) -> Option<FieldSet<'a>>;

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    pub(super) manager: Cow<'a, str>,
    pub(super) operation: Operation,
    pub(super) api_version: Cow<'a, str>,
    pub(super) subresource: Cow<'a, str>,
    pub(super) time: Option<Cow<'a, str>>,
    pub(super) fields: FieldSet<'a>,
}

impl<'a> Entry<'a> {
    /// Reads an entry. `None` when it is damaged.
    pub(super) fn parse(entry: &'a Value, fields: FieldsReader<'a>) -> Option<Entry<'a>> {
        let text = |name: &str| Cow::Borrowed(entry.get(name).and_then(Value::as_str).unwrap_or_default());
        if entry.get("fieldsType")?.as_str()? != "FieldsV1" {
            return None;
        }
        let fields = match entry.get("fieldsV1") {
            None | Some(Value::Null) => FieldSet::default(),
            Some(value) => fields(value)?,
        };
        Some(Entry {
            manager: text("manager"),
            operation: if entry.get("operation")?.as_str()? == "Apply" {
                Operation::Apply
            } else {
                Operation::Update
            },
            api_version: text("apiVersion"),
            subresource: text("subresource"),
            time: entry.get("time").and_then(Value::as_str).map(Cow::Borrowed),
            fields,
        })
    }

    /// Whether both speak of the same manager. Appliers stay who they are in every version.
    pub(super) fn is_same(&self, other: &Entry<'_>) -> bool {
        self.manager == other.manager
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    /// Whether both say the same, whenever it was.
    fn says_the_same(&self, other: &Entry<'_>) -> bool {
        (&self.manager, self.operation, &self.api_version, &self.subresource)
            == (&other.manager, other.operation, &other.api_version, &other.subresource)
            && self.fields == other.fields
    }

    /// As conflicts name it.
    pub(super) fn described(&self) -> String {
        let mut text = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            text.push_str(&format!(" with subresource {:?}", self.subresource));
        }
        if self.operation == Operation::Update {
            text.push_str(&format!(" using {}", self.api_version));
        }
        text
    }
}

/// The entries of an object. Texts are borrowed from what they were read from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entries<'a>(pub(super) Vec<Entry<'a>>);

/// The entries after a write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// `metadata.managedFields` as JSON, empty when nobody owns anything.
    pub json: String,
    /// They say what they said before; only times may differ.
    pub unchanged: bool,
}

impl<'a> Entries<'a> {
    /// Reads entries that this module has written. Damaged ones are none.
    pub fn of(entries: Option<&'a Value>) -> Entries<'a> {
        Entries(parse(entries, FieldSet::parse_own).unwrap_or_default())
    }

    /// Whether nobody owns anything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The same entries after a write that leaves them alone.
    pub fn kept(&self) -> Account {
        Account { json: text::write(&self.0), unchanged: true }
    }

    fn says_the_same(&self, other: &[Entry<'_>]) -> bool {
        self.0.len() == other.len() && self.0.iter().all(|e| other.iter().any(|o| e.says_the_same(o)))
    }
}

/// Reads `metadata.managedFields`. `None` when any entry is damaged.
pub(super) fn parse<'a>(entries: Option<&'a Value>, fields: FieldsReader<'a>) -> Option<Vec<Entry<'a>>> {
    let mut out: Vec<Entry<'_>> = Vec::new();
    for value in entries.and_then(Value::as_array).into_iter().flatten() {
        let entry = Entry::parse(value, fields)?;
        match out.iter_mut().find(|e| e.is_same(&entry)) {
            Some(same) => *same = entry,
            None => out.push(entry),
        }
    }
    Some(out)
}

/// Brings entries after a write to the form in which they are kept.
pub(super) fn finish(present: &Entries<'_>, mut entries: Vec<Entry<'_>>) -> Account {
    let stripped = stripped();
    for entry in &mut entries {
        entry.fields.subtract(stripped);
    }
    entries.retain(|e| !e.fields.is_empty());
    let unchanged = present.says_the_same(&entries);
    // Times of one form sort as text.
    entries.sort_by(|a, b| {
        (a.operation, &a.time, &a.manager, &a.api_version, &a.subresource).cmp(&(
            b.operation,
            &b.time,
            &b.manager,
            &b.api_version,
            &b.subresource,
        ))
    });
    Account { json: text::write(&entries), unchanged }
}

/// Folds the oldest updates of each version into one entry until there are not too many.
pub(super) fn cap<'a>(entries: &mut Vec<Entry<'a>>) {
    let mut updates: Vec<usize> =
        (0..entries.len()).filter(|i| entries[*i].operation == Operation::Update).collect();
    let mut excess = updates.len().saturating_sub(MAX_UPDATE_ENTRIES);
    if excess == 0 {
        return;
    }
    updates.sort_by(|a, b| {
        let key = |i: &usize| (entries[*i].time.clone(), entries[*i].manager.clone());
        key(a).cmp(&key(b))
    });
    // Per version: the entry that takes the others in, and who they are.
    let mut buckets: Vec<usize> = Vec::new();
    let mut gone: Vec<usize> = Vec::new();
    for index in updates {
        if excess == 0 {
            break;
        }
        let version = entries[index].api_version.clone();
        let Some(bucket) = buckets.iter().copied().find(|b| entries[*b].api_version == version) else {
            buckets.push(index);
            continue;
        };
        let (fields, time) = (std::mem::take(&mut entries[index].fields), entries[index].time.take());
        let into = &mut entries[bucket];
        into.manager = Cow::Borrowed(ANCIENT);
        into.subresource = Cow::Borrowed("");
        into.fields.add(&fields);
        into.time = time;
        gone.push(index);
        excess -= 1;
    }
    let mut index = 0;
    entries.retain(|_| {
        index += 1;
        !gone.contains(&(index - 1))
    });
}

/// Fields that nobody owns: the server sets them, or they name the object.
pub(super) fn stripped() -> &'static FieldSet<'static> {
    use std::sync::LazyLock;
    static FIELDS: LazyLock<Value> = LazyLock::new(|| {
        json!({"f:apiVersion": {}, "f:kind": {}, "f:metadata": {
            ".": {}, "f:name": {}, "f:namespace": {}, "f:creationTimestamp": {}, "f:selfLink": {}, "f:uid": {},
            "f:clusterName": {}, "f:generation": {}, "f:managedFields": {}, "f:resourceVersion": {},
        }})
    });
    static SET: LazyLock<FieldSet<'static>> = LazyLock::new(|| FieldSet::parse(&FIELDS).unwrap_or_default());
    &SET
}

/// Takes the entries out of an object.
pub fn take_managed_fields(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

//! Accounts for writes that are not applies.

use std::borrow::Cow;

use serde_json::Value;

use super::compare::{Comparison, compare};
use super::entries::{self, Account, Entries, Entry, Operation};
use super::set::FieldSet;
use super::{Reach, Writer};

/// The entries to start from: those a client sent with the object if it sent any, else the present ones.
/// One empty entry means that all are forgotten. Entries cannot be set through a subresource.
fn given_entries<'v>(
    present: &'v Entries<'v>,
    sent: Option<&'v Value>,
    subresource: &str,
) -> Cow<'v, Entries<'v>> {
    let list = sent.and_then(Value::as_array).filter(|list| subresource.is_empty() && !list.is_empty());
    match list.map(Vec::as_slice) {
        None => Cow::Borrowed(present),
        Some([Value::Object(entry)]) if entry.is_empty() => Cow::Owned(Entries::default()),
        // Most often they come back as they were.
        Some(_) if Entries::of(sent) == *present => Cow::Borrowed(present),
        Some(_) => match entries::parse(sent, FieldSet::parse) {
            Some(given) => Cow::Owned(Entries(given)),
            None => Cow::Borrowed(present),
        },
    }
}

/// The entries after a write that made `new` of `old`; `sent` are those that came with it. What was written belongs to
/// the writer alone. Objects without any entry stay so until somebody applies, unless they are being created (`old` has
/// no uid).
pub fn update(
    writer: &Writer<'_>,
    present: &Entries<'_>,
    sent: Option<&Value>,
    old: &Value,
    new: &Value,
) -> Account {
    let start = given_entries(present, sent, writer.subresource);
    if (matches!(start, Cow::Borrowed(_)) && old == new)
        || (start.is_empty() && !crate::meta::uid(old).is_empty())
    {
        return entries::finish(present, start.into_owned().0);
    }
    let mut all = start.into_owned().0;
    let own = compare(writer.schema, old, new);
    account(writer, &mut all, old, new, own, writer.manager);
    entries::finish(present, all)
}

/// Moves what was written to a manager, as an update.
pub(super) fn account<'a>(
    writer: &'a Writer<'_>,
    all: &mut Vec<Entry<'a>>,
    old: &Value,
    new: &Value,
    mut own: Comparison<'a>,
    manager: &'a str,
) {
    restrict(writer.reach, &mut own);
    for_each_version(writer, all, old, new, &own, |all, indexes, comparison| {
        for index in indexes {
            all[*index].fields.subtract(&comparison.written);
            all[*index].fields.subtract(&comparison.removed);
        }
    });
    all.retain(|e| !e.fields.is_empty());
    let mut written = own.written;
    written.subtract(entries::stripped());
    if !written.is_empty() {
        let entry = Entry {
            manager: Cow::Borrowed(manager),
            operation: Operation::Update,
            api_version: Cow::Borrowed(writer.api_version),
            subresource: Cow::Borrowed(writer.subresource),
            time: Some(Cow::Owned(writer.now.to_string())),
            fields: written,
        };
        match all.iter_mut().find(|e| e.is_same(&entry)) {
            Some(present) => {
                present.fields.add(&entry.fields);
                present.time = entry.time;
            }
            None => all.push(entry),
        }
    }
    entries::cap(all);
}

/// Calls with the difference between two objects in the version of each entry. Entries of versions that are no more
/// are dropped.
pub(super) fn for_each_version<'a>(
    writer: &Writer<'_>,
    all: &mut Vec<Entry<'a>>,
    old: &Value,
    new: &Value,
    own: &Comparison<'_>,
    mut act: impl FnMut(&mut Vec<Entry<'a>>, &[usize], &Comparison<'_>),
) {
    let mut versions: Vec<String> = Vec::new();
    for entry in all.iter() {
        if !versions.iter().any(|v| *v == entry.api_version) {
            versions.push(entry.api_version.to_string());
        }
    }
    for version in versions {
        let of_version = |all: &[Entry<'a>]| -> Vec<usize> {
            (0..all.len()).filter(|i| all[*i].api_version == version).collect()
        };
        if version == writer.api_version {
            let indexes = of_version(all);
            act(all, &indexes, own);
            continue;
        }
        let (before, after) = ((writer.convert)(old, &version), (writer.convert)(new, &version));
        match (before, after) {
            (Some((before, schema)), Some((after, _))) => {
                let mut comparison = compare(schema, &before, &after);
                restrict(writer.reach, &mut comparison);
                let indexes = of_version(all);
                act(all, &indexes, &comparison);
            }
            _ => all.retain(|e| e.api_version != version),
        }
    }
}

pub(super) fn restrict(reach: Reach, comparison: &mut Comparison<'_>) {
    reach.restrict(&mut comparison.written);
    reach.restrict(&mut comparison.removed);
}

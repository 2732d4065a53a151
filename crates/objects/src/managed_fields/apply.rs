//! Applies a configuration: merge, removal of what is no longer applied, conflicts.

use std::borrow::Cow;

use serde_json::Value;

use super::Writer;
use super::check::check;
use super::compare::{Comparison, compare};
use super::entries::{self, Account, Entries, Entry, Operation};
use super::last_applied::{KUBECTL, allowed_conflicts};
use super::merge::{covers, merge, remove};
use super::owned::{owned_fields, reconcile, with_holders};
use super::place::Schema;
use super::set::FieldSet;
use super::update::{account, for_each_version, restrict};

/// Who owns the fields of an object that had no entries when it was first applied.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// A configuration that has the form of its type, and the fields it gives values to.
pub struct Config<'c> {
    object: &'c Value,
    fields: FieldSet<'c>,
}

/// What an apply leads to.
#[derive(Debug)]
pub struct Applied {
    /// The object, unless it stays as it is.
    pub object: Option<Value>,
    /// Its entries.
    pub entries: Account,
}

/// A field that somebody else owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The owner as people read it.
    pub manager: String,
    /// The path of the field.
    pub field: String,
}

impl<'c> Config<'c> {
    /// Reads a configuration. The error says what is wrong with its form.
    pub fn new(writer: &Writer<'_>, object: &'c Value) -> Result<Config<'c>, String> {
        check(writer.schema, object)?;
        let mut fields = owned_fields(writer.schema, object);
        writer.reach.restrict(&mut fields);
        Ok(Config { object, fields })
    }

    /// The usual case: the same configuration as last time, and nobody has touched its fields since.
    pub fn is_in_effect(&self, writer: &Writer<'_>, present: &Entries<'_>, live: &Value) -> bool {
        let last = present.0.iter().find(|e| is_applier(writer, e) && e.api_version == writer.api_version);
        last.is_some_and(|last| self.fields.equals_without(entries::stripped(), &last.fields))
            && covers(writer.schema, live, self.object)
    }
}

/// Applies a configuration to an object and its entries. The object is an empty one when there is none yet.
/// The error is the fields others own and it would change.
pub fn apply(
    writer: &Writer<'_>,
    present: &Entries<'_>,
    live: &Value,
    config: Config<'_>,
    force: bool,
) -> Result<Applied, Vec<Conflict>> {
    let Config { object: config, fields } = config;
    let empty = Value::Object(crate::Map::new());
    let mut all = present.0.clone();
    for entry in all.iter_mut().filter(|e| e.api_version == writer.api_version) {
        reconcile(writer.schema, &mut entry.fields);
    }
    if all.is_empty() {
        let own = compare(writer.schema, &empty, live);
        account(writer, &mut all, &empty, live, own, BEFORE_FIRST_APPLY);
    }
    let applier = Entry {
        manager: Cow::Borrowed(writer.manager),
        operation: Operation::Apply,
        api_version: Cow::Borrowed(writer.api_version),
        subresource: Cow::Borrowed(writer.subresource),
        time: None,
        fields,
    };
    let at = all.iter().position(|e| e.is_same(&applier));
    let last = match at {
        Some(index) => {
            let time = all[index].time.clone();
            Some(std::mem::replace(&mut all[index], Entry { time, ..applier }))
        }
        None => {
            all.push(applier);
            None
        }
    };
    let at = at.unwrap_or(all.len() - 1);

    let mut merged = live.clone();
    merge(writer.schema, &mut merged, config);
    if let Some(last) = last {
        prune(writer, &mut merged, &all, at, last);
    }
    let mut own = compare(writer.schema, live, &merged);
    // What has been found says it at once; items in another order are not found.
    let changed = !own.is_empty() || *live != merged;
    restrict(writer.reach, &mut own);
    let mut conflicts = settle(writer, &mut all, at, live, &merged, &own);
    if !force && !conflicts.is_empty() {
        // kubectl takes over what it has applied in its old way, as the annotation of that way tells.
        if writer.manager == KUBECTL
            && let Some(allowed) = allowed_conflicts(writer, live)
        {
            conflicts.iter_mut().for_each(|(_, set)| set.subtract(&allowed));
        }
        let named: Vec<Conflict> = conflicts
            .iter()
            .flat_map(|(manager, set)| {
                set.paths().into_iter().map(|field| Conflict { manager: manager.clone(), field })
            })
            .collect();
        if !named.is_empty() {
            return Err(named);
        }
    }
    if changed && let Some(entry) = all.iter_mut().find(|e| is_applier(writer, e)) {
        entry.time = Some(Cow::Owned(writer.now.to_string()));
    }
    let entries = entries::finish(present, all);
    Ok(Applied { object: changed.then_some(merged), entries })
}

fn is_applier(writer: &Writer<'_>, entry: &Entry<'_>) -> bool {
    entry.operation == Operation::Apply
        && entry.manager == writer.manager
        && entry.subresource == writer.subresource
}

/// Takes changed and removed fields from all managers but the applier; gives what they lost by a change.
fn settle<'a>(
    writer: &Writer<'_>,
    all: &mut Vec<Entry<'a>>,
    applier: usize,
    live: &Value,
    merged: &Value,
    own: &Comparison<'_>,
) -> Vec<(String, FieldSet<'a>)> {
    let mut conflicts = Vec::new();
    // The applier's own fields are what it applies, whatever changed.
    let fields = std::mem::take(&mut all[applier].fields);
    for_each_version(writer, all, live, merged, own, |all, indexes, comparison| {
        for index in indexes {
            let entry = &mut all[*index];
            let mut lost = entry.fields.clone();
            lost.intersect(&comparison.written);
            entry.fields.subtract(&comparison.written);
            entry.fields.subtract(&comparison.removed);
            if !lost.is_empty() {
                conflicts.push((entry.described(), lost));
            }
        }
    });
    if let Some(entry) = all.iter_mut().find(|e| is_applier(writer, e)) {
        entry.fields = fields;
    }
    all.retain(|e| !e.fields.is_empty());
    conflicts
}

/// Removes what the applier owned, applies no longer, and nobody else owns.
fn prune(writer: &Writer<'_>, merged: &mut Value, all: &[Entry<'_>], applier: usize, last: Entry<'_>) {
    let same_version = last.api_version == writer.api_version;
    // Mostly nothing is given up.
    if last.fields.is_empty() || (same_version && last.fields.is_subset(&all[applier].fields)) {
        return;
    }
    if same_version && all.iter().all(|entry| entry.api_version == last.api_version) {
        return prune_by_sets(writer.schema, merged, all, last.fields);
    }
    prune_by_objects(writer, merged, all, last, same_version);
}

/// Where all speak of one version, sets tell what goes.
pub(super) fn prune_by_sets<'a>(
    schema: Schema<'_>,
    merged: &mut Value,
    all: &[Entry<'a>],
    last: FieldSet<'a>,
) {
    let mut gone = with_holders(schema, last);
    for entry in all {
        gone.subtract(&with_holders(schema, entry.fields.clone()));
    }
    remove(schema, merged, &gone);
}

/// Where versions differ, objects are taken apart and put together in each of them.
pub(super) fn prune_by_objects(
    writer: &Writer<'_>,
    merged: &mut Value,
    all: &[Entry<'_>],
    last: Entry<'_>,
    same_version: bool,
) {
    let converted = if same_version { None } else { (writer.convert)(merged, &last.api_version) };
    let (mut whole, schema) = match converted {
        Some(converted) => converted,
        None if same_version => (std::mem::take(merged), writer.schema),
        None => return,
    };
    let last_fields = with_holders(schema, last.fields);

    let mut kept = whole.clone();
    remove(schema, &mut kept, &last_fields);
    // What other managers, or the applier now, own comes back, version by version.
    let mut versions = vec![&*last.api_version];
    for entry in all {
        if !versions.contains(&&*entry.api_version) {
            versions.push(&entry.api_version);
        }
    }
    for version in versions {
        let owned = all.iter().filter(|e| e.api_version == version).map(|e| &e.fields);
        if version == last.api_version {
            add_back(schema, &whole, &mut kept, owned);
            continue;
        }
        let to = |value: &Value| (writer.convert)(value, version);
        if let (Some((theirs, schema)), Some((mut theirs_kept, _))) = (to(&whole), to(&kept)) {
            add_back(schema, &theirs, &mut theirs_kept, owned);
            if let Some((back, _)) = (writer.convert)(&theirs_kept, &last.api_version) {
                kept = back;
            }
        }
    }
    // Only what the applier owned goes; what belongs to nobody stays where it was not part of that.
    let mut gone = with_holders(schema, owned_fields(schema, &whole));
    gone.subtract(&with_holders(schema, owned_fields(schema, &kept)));
    gone.intersect(&last_fields);
    // The set borrows from the object it is taken from.
    let gone = gone.into_owned();
    remove(schema, &mut whole, &gone);
    if same_version {
        *merged = whole;
    } else if let Some((back, _)) = (writer.convert)(&whole, writer.api_version) {
        *merged = back;
    }
}

/// Makes `kept` of `whole` anew, without what is neither in it nor in any of the sets.
fn add_back<'s, 'a: 's>(
    schema: Schema<'_>,
    whole: &Value,
    kept: &mut Value,
    owned: impl Iterator<Item = &'s FieldSet<'a>>,
) {
    let mut gone = with_holders(schema, owned_fields(schema, whole));
    gone.subtract(&with_holders(schema, owned_fields(schema, kept)));
    for set in owned {
        gone.subtract(&with_holders(schema, set.clone()));
    }
    let mut next = whole.clone();
    remove(schema, &mut next, &gone);
    *kept = next;
}

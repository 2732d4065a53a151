//! Applies that change little, found by comparing texts.
//!
//! Mostly a configuration is applied again with another value somewhere: a new image, one variable less. Then the fields
//! the applier owns stay the same or become fewer, and the stored text needs to be changed in a few places only. Both
//! texts and the applier's entry are walked together, side by side, along the type. Whatever is not as simple as that is
//! left to [`apply`](super::apply), which gives the same result for all that is found here.

use std::ops::Range;

use super::Writer;
use super::place::{Place, Schema};
use crate::outline::{At, Form, Outline};
use crate::schema::{Field, Shape, Type};

/// Longer lists and maps are left to others, for items are looked for one by one.
const MAX_ITEMS: usize = 256;
/// Set by the server, or names of the object: nobody owns them. Those that no configuration gives are not here.
const OF_NOBODY: [&str; 4] = ["apiVersion", "kind", "name", "namespace"];

/// What becomes of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit<'a> {
    /// Another text, not empty and without escapes.
    Text(&'a str),
    /// Another list of texts, not empty.
    Texts,
    /// Another number.
    Integer(i64),
    /// An item of a list or an entry of a map is gone, and others are left.
    Removed,
}

/// What has to be known of a kind.
#[derive(Clone, Copy)]
pub struct Knowledge<'k> {
    /// Whether an edit of a field, or inside of the list or map that the field is, needs no look at the rest of the
    /// object.
    pub is_free: &'k dyn Fn(&Type, &Field, Edit<'_>) -> bool,
    /// Whether an absent field gets this value, written as JSON, whatever else is in the object.
    pub is_default: &'k dyn Fn(&Type, &str, &str) -> bool,
}

/// A stored text and what to change in it.
#[derive(Debug)]
pub struct Edits<'a> {
    text: &'a str,
    /// Where the number of the resourceVersion stands.
    version: Range<usize>,
    /// In no order, without overlap.
    parts: Vec<(Range<usize>, String)>,
}

impl Edits<'_> {
    /// Whether the configuration is in effect already.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The new text, before and behind the number of its resourceVersion. `None` if that does not stand before all else.
    pub fn apply(mut self) -> Option<(Vec<u8>, Vec<u8>)> {
        self.parts.sort_by_key(|(range, _)| range.start);
        let mut tail = Vec::with_capacity(self.text.len() + 64);
        let mut at = self.version.end;
        for (range, new) in &self.parts {
            tail.extend_from_slice(self.text.get(at..range.start)?.as_bytes());
            tail.extend_from_slice(new.as_bytes());
            at = range.end;
        }
        tail.extend_from_slice(self.text.get(at..)?.as_bytes());
        Some((self.text.get(..self.version.start)?.as_bytes().to_vec(), tail))
    }
}

/// Finds what applying a configuration changes in a stored object. `None` when that is not simple. The configuration must
/// name the object, and nobody but its writer may have made the object; `counts` has changes of the spec counted.
pub fn edits<'a>(
    writer: &Writer<'_>,
    stored: &'a Outline<'a>,
    config: &'a Outline<'a>,
    counts: bool,
    knowledge: Knowledge<'_>,
) -> Option<Edits<'a>> {
    let root = writer.schema.root?;
    let metadata = stored.member(stored.root(), "metadata")?;
    let entries = entries(writer, stored, metadata)?;
    if !writer.reach.includes("spec") || config.member(config.root(), "status").is_some() {
        return None;
    }
    let version = stored.range(stored.member(metadata, "resourceVersion")?);
    let version = version.start + 1..version.end - 1;
    let mut walk = Walk { schema: writer.schema, stored, config, knowledge, parts: Vec::new() };
    let here = Here {
        live: stored.root(),
        config: config.root(),
        fields: Some(entries.applier),
        others: &entries.others,
    };
    walk.members(writer.schema.types.get(root), here, Level::Root)?;
    let mut parts = walk.parts;
    if parts.is_empty() {
        return Some(Edits { text: stored.whole(), version, parts });
    }
    if counts && let Some(spec) = stored.member(stored.root(), "spec") {
        let spec = stored.range(spec);
        if parts.iter().any(|(range, _)| spec.contains(&range.start)) {
            let generation = stored.member(metadata, "generation")?;
            let next = stored.text(generation).parse::<i64>().ok()?.checked_add(1)?;
            parts.push((stored.range(generation), next.to_string()));
        }
    }
    let now = writer.now.to_string();
    if entries.before.is_some_and(|before| before >= now.as_str()) {
        return None;
    }
    let time = stored.range(entries.time);
    parts.push((time.start + 1..time.end - 1, now));
    Some(Edits { text: stored.whole(), version, parts })
}

/// The entries of a stored object.
struct Entries<'a> {
    /// Fields of the applier.
    applier: At,
    /// When it applied last.
    time: At,
    /// When the applier before it in the list did. The list is sorted by time.
    before: Option<&'a str>,
    /// Fields of all others.
    others: Vec<At>,
}

/// All entries must be of the writer's version, and the writer's must be the last of those that were applied.
fn entries<'a>(writer: &Writer<'_>, stored: &Outline<'a>, metadata: At) -> Option<Entries<'a>> {
    let (mut applier, mut before, mut others) = (None, None, Vec::new());
    for entry in stored.children(stored.member(metadata, "managedFields")?) {
        let text = |name: &str| stored.member(entry, name).and_then(|at| stored.inside(at));
        let fields = stored.member(entry, "fieldsV1")?;
        if text("apiVersion")? != writer.api_version {
            return None;
        }
        let is_apply = text("operation")? == "Apply";
        if is_apply
            && text("manager")? == writer.manager
            && text("subresource").unwrap_or_default() == writer.subresource
        {
            applier = Some((fields, stored.member(entry, "time")?));
            continue;
        }
        match (is_apply, &applier) {
            (true, None) => before = Some(text("time")?),
            (true, Some(_)) => return None,
            (false, _) => {}
        }
        others.push(fields);
    }
    let (applier, time) = applier?;
    stored.inside(time)?;
    Some(Entries { applier, time, before, others })
}

/// The same place in all texts.
#[derive(Clone, Copy)]
struct Here<'h> {
    live: At,
    config: At,
    /// What the applier owns here.
    fields: Option<At>,
    /// What others own here.
    others: &'h [At],
}

/// How deep in the object members are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Metadata,
    Deeper,
}

struct Walk<'w, 'a> {
    schema: Schema<'w>,
    stored: &'a Outline<'a>,
    config: &'a Outline<'a>,
    knowledge: Knowledge<'w>,
    parts: Vec<(Range<usize>, String)>,
}

impl<'w, 'a> Walk<'w, 'a> {
    /// Compares one place. `field` is what it is, or what it is an item or entry of; `owned` whether the place itself
    /// belongs to the applier, besides what is in it.
    fn place(
        &mut self,
        place: Place<'w>,
        (owner, field): (&'w Type, &'w Field),
        here: Here<'_>,
        owned: bool,
    ) -> Option<()> {
        let fields = here.fields?;
        let form = self.config.form(here.config);
        if matches!(place, Place::Leaf) {
            let leaf = self.stored.is_empty(fields);
            return if leaf { self.leaf((owner, field), here) } else { None };
        }
        if form != self.stored.form(here.live) {
            return None;
        }
        if self.config.is_empty(here.config) {
            // What holds nothing is a value itself, unless it is a list.
            let same = self.stored.is_empty(here.live) && self.stored.is_empty(fields);
            return (same && form == Form::Object).then_some(());
        }
        let marked = self.stored.member(fields, ".").is_some();
        if marked != owned {
            return None;
        }
        match (place, form) {
            (Place::Struct(described), Form::Object) => self.members(described, here, Level::Deeper),
            (Place::Map(shape), Form::Object) => self.entries(shape, (owner, field), here),
            (Place::ListMap(shape, keys), Form::List) => self.items(shape, keys, (owner, field), here),
            (Place::Set, Form::List) => self.set(here),
            _ => None,
        }
    }

    /// Members of an object with named fields: none may come or go.
    fn members(&mut self, described: &'w Type, here: Here<'_>, level: Level) -> Option<()> {
        let (config, stored) = (self.config, self.stored);
        if config.has_twice(here.config) {
            return None;
        }
        let (mut cursor, mut live, mut owned) = (0, None, None);
        let mut count = 0;
        for child in config.children(here.config) {
            let name = config.name(child);
            let there = stored.member_after(here.live, &mut live, |given| given == name)?;
            if level != Level::Deeper && OF_NOBODY.contains(&name) {
                if !config.same(child, stored, there) {
                    return None;
                }
                continue;
            }
            if level == Level::Metadata && !matches!(name, "labels" | "annotations") {
                return None;
            }
            let field = described.field_after(&mut cursor, name)?;
            let fields = here.fields.and_then(|fields| {
                stored.member_after(fields, &mut owned, |given| given.strip_prefix("f:") == Some(name))
            });
            count += usize::from(fields.is_some());
            let others = self.below(here.others, |given| given.strip_prefix("f:") == Some(name));
            let inner = Here { live: there, config: child, fields, others: &others };
            match (level, name, self.schema.field_place(field)) {
                (Level::Root, "metadata", Place::Struct(described)) => {
                    self.members(described, inner, Level::Metadata)?;
                }
                (_, _, place) => self.place(place, (described, field), inner, false)?,
            }
        }
        let needed: &[&str] = match level {
            Level::Root => &["apiVersion", "kind", "metadata"],
            Level::Metadata => &["name"],
            Level::Deeper => &[],
        };
        let named = needed.iter().all(|name| config.member(here.config, name).is_some());
        let all = here.fields.map_or(0, |fields| self.paths_in(fields));
        (named && count == all).then_some(())
    }

    /// How many steps lead on from a place in the applier's fields.
    fn paths_in(&self, fields: At) -> usize {
        self.stored.children(fields).filter(|child| self.stored.name(*child) != ".").count()
    }

    /// What others own one step further.
    fn below(&self, others: &[At], is_it: impl Fn(&str) -> bool) -> Vec<At> {
        let step = |at: &At| self.stored.children(*at).find(|child| is_it(self.stored.name(*child)));
        others.iter().filter_map(step).collect()
    }

    /// Entries of a map: they may go, but not come.
    fn entries(&mut self, shape: &'w Shape, of: (&'w Type, &'w Field), here: Here<'_>) -> Option<()> {
        let (config, stored) = (self.config, self.stored);
        let (mut live, mut owned, mut kept) = (None, None, Vec::new());
        let fields = here.fields?;
        if config.has_twice(here.config) || config.children(here.config).count() > MAX_ITEMS {
            return None;
        }
        for child in config.children(here.config) {
            let name = config.name(child);
            let is_it = |given: &str| given.strip_prefix("f:") == Some(name);
            let there = stored.member_after(here.live, &mut live, |given| given == name)?;
            let step = stored.member_after(fields, &mut owned, is_it)?;
            kept.push(step);
            let others = self.below(here.others, is_it);
            let inner = Here { live: there, config: child, fields: Some(step), others: &others };
            self.place(self.schema.item_place(shape), of, inner, true)?;
        }
        let gone = self.gone(fields, &kept, of, here.others)?;
        let mut places = Vec::with_capacity(gone.len());
        for step in &gone {
            let name = stored.name(*step).strip_prefix("f:")?;
            places.push(stored.member(here.live, name)?);
        }
        self.cut(fields, &gone);
        self.cut(here.live, &places);
        Some(())
    }

    /// Items of a list with keys: they may go, but neither come nor change their order.
    fn items(
        &mut self,
        shape: &'w Shape,
        keys: &'w [Box<str>],
        of: (&'w Type, &'w Field),
        here: Here<'_>,
    ) -> Option<()> {
        let (config, stored) = (self.config, self.stored);
        let Shape::Object(id) = shape else { return None };
        let described = self.schema.types.get(*id);
        let fields = here.fields?;
        let live: Vec<(At, String)> = self.keyed(stored, here.live, described, keys)?;
        let given: Vec<(At, String)> = self.keyed(config, here.config, described, keys)?;
        let (mut next, mut owned, mut kept) = (0, None, Vec::with_capacity(given.len()));
        for (child, key) in &given {
            let found = next + live.get(next..)?.iter().position(|(_, there)| there == key)?;
            next = found + 1;
            let is_it = |given: &str| given.strip_prefix("k:") == Some(key.as_str());
            let step = stored.member_after(fields, &mut owned, is_it)?;
            kept.push(step);
            let others = self.below(here.others, is_it);
            let inner =
                Here { live: live.get(found)?.0, config: *child, fields: Some(step), others: &others };
            self.place(self.schema.item_place(shape), of, inner, true)?;
        }
        let gone = self.gone(fields, &kept, of, here.others)?;
        let mut places = Vec::with_capacity(gone.len());
        for step in &gone {
            let key = stored.name(*step).strip_prefix("k:")?;
            places.push(live.iter().find(|(_, there)| there == key)?.0);
        }
        self.cut(fields, &gone);
        self.cut(here.live, &places);
        Some(())
    }

    /// Items with their keys, as entries name them. `None` if a key is missing, is there twice or needs escapes.
    fn keyed(
        &self,
        outline: &Outline<'a>,
        list: At,
        described: &Type,
        keys: &[Box<str>],
    ) -> Option<Vec<(At, String)>> {
        let mut sorted: Vec<&str> = keys.iter().map(|key| &**key).collect();
        sorted.sort_unstable();
        let mut items: Vec<(At, String)> = Vec::new();
        for item in outline.children(list) {
            if outline.form(item) != Form::Object {
                return None;
            }
            let mut text = String::with_capacity(48);
            for name in &sorted {
                text.push_str(if text.is_empty() { "{\\\"" } else { ",\\\"" });
                text.push_str(name);
                text.push_str("\\\":");
                match outline.member(item, name) {
                    Some(value) => match (outline.form(value), outline.inside(value)) {
                        (_, Some(inside)) => quote(&mut text, inside)?,
                        (Form::Number | Form::Literal, None) => text.push_str(outline.text(value)),
                        _ => return None,
                    },
                    None => match described.field(name)?.default.as_deref()? {
                        serde_json::Value::String(default) => quote(&mut text, default)?,
                        other => text.push_str(&other.to_string()),
                    },
                }
            }
            text.push('}');
            items.push((item, text));
        }
        if items.len() > MAX_ITEMS {
            return None;
        }
        let twice = |i: usize| items[..i].iter().any(|(_, key)| *key == items[i].1);
        (!(0..items.len()).any(twice)).then_some(items)
    }

    /// A list whose items are their own names: it must stay as it is.
    fn set(&self, here: Here<'_>) -> Option<()> {
        let fields = here.fields?;
        if !self.config.same(here.config, self.stored, here.live) {
            return None;
        }
        let mut count = 0;
        for item in self.config.children(here.config) {
            let mut name = "v:".to_owned();
            quote(&mut name, self.config.inside(item)?)?;
            self.stored.member(fields, &name)?;
            count += 1;
        }
        (count == self.paths_in(fields)).then_some(())
    }

    /// What the applier owned and applies no longer, if it may go just so and nobody else owns it.
    fn gone(
        &self,
        fields: At,
        kept: &[At],
        (owner, field): (&Type, &Field),
        others: &[At],
    ) -> Option<Vec<At>> {
        let stored = self.stored;
        let steps = stored.children(fields).filter(|step| stored.name(*step) != ".");
        let gone: Vec<At> = steps.filter(|step| !kept.contains(step)).take(MAX_ITEMS + 1).collect();
        if gone.is_empty() {
            return Some(gone);
        }
        // Whatever is in an item goes with it, if the item itself was applied.
        let applied = |step: &At| stored.is_empty(*step) || stored.member(*step, ".").is_some();
        let alone = |step: &At| self.below(others, |given| given == stored.name(*step)).is_empty();
        let goes = gone.len() <= MAX_ITEMS && gone.iter().all(|step| applied(step) && alone(step));
        (goes && !kept.is_empty() && (self.knowledge.is_free)(owner, field, Edit::Removed)).then_some(gone)
    }

    /// Takes members or items away, each with one comma. Some are left.
    fn cut(&mut self, holder: At, gone: &[At]) {
        if gone.is_empty() {
            return;
        }
        let stored = self.stored;
        let children: Vec<At> = stored.children(holder).collect();
        let mut left = false;
        for (index, child) in children.iter().enumerate() {
            if !gone.contains(child) {
                left = true;
                continue;
            }
            let range =
                match (left, index.checked_sub(1).and_then(|i| children.get(i)), children.get(index + 1)) {
                    (true, Some(before), _) => stored.range(*before).end..stored.range(*child).end,
                    (_, _, Some(after)) => stored.member_start(*child)..stored.member_start(*after),
                    _ => continue,
                };
            self.parts.push((range, String::new()));
        }
    }

    /// An object that is one value, and what it lacks was filled in.
    fn filled(&self, described: &Type, here: Here<'_>) -> Option<()> {
        let (config, stored) = (self.config, self.stored);
        let (mut cursor, mut given) = (None, 0);
        for there in stored.children(here.live) {
            let name = stored.name(there);
            match config.member_after(here.config, &mut cursor, |other| other == name) {
                Some(child) if config.same(child, stored, there) => given += 1,
                Some(_) => return None,
                None if (self.knowledge.is_default)(described, name, stored.text(there)) => {}
                None => return None,
            }
        }
        (given == config.children(here.config).count()).then_some(())
    }

    /// One value: the same, or another in a place where any will do.
    fn leaf(&mut self, (owner, field): (&'w Type, &'w Field), here: Here<'_>) -> Option<()> {
        let (config, stored) = (self.config, self.stored);
        // Null is no value but the wish for none.
        if config.text(here.config) == "null" {
            return None;
        }
        if config.same(here.config, stored, here.live) {
            return Some(());
        }
        if !here.others.is_empty() || config.form(here.config) != stored.form(here.live) {
            return None;
        }
        if let Shape::Object(id) = &field.shape {
            return self.filled(self.schema.types.get(*id), here);
        }
        let text = config.text(here.config);
        let (edit, new) = match config.form(here.config) {
            Form::Text => {
                let inside = config.inside(here.config)?;
                (Edit::Text(plain(inside)?), text.to_owned())
            }
            Form::Number => {
                let number: i64 = text.parse().ok()?;
                // Other spellings of the same number are not for here.
                let spelled = number.to_string();
                (spelled == text).then_some((Edit::Integer(number), spelled))?
            }
            Form::List => {
                let mut new = String::with_capacity(text.len());
                for item in config.children(here.config) {
                    new.push(if new.is_empty() { '[' } else { ',' });
                    plain(config.inside(item)?)?;
                    new.push_str(config.text(item));
                }
                new.push(']');
                (!config.is_empty(here.config)).then_some((Edit::Texts, new))?
            }
            Form::Object | Form::Literal => return None,
        };
        if !(self.knowledge.is_free)(owner, field, edit) {
            return None;
        }
        self.parts.push((stored.range(here.live), new));
        Some(())
    }
}

/// Text without escapes that says something.
fn plain(inside: &str) -> Option<&str> {
    (!inside.is_empty() && !inside.contains('\\')).then_some(inside)
}

/// Appends a text as it stands within a name of FieldsV1: quoted, in quotes.
fn quote(out: &mut String, inside: &str) -> Option<()> {
    if inside.bytes().any(|b| b < b' ' || b == b'"' || b == b'\\') {
        return None;
    }
    out.push_str("\\\"");
    out.push_str(inside);
    out.push_str("\\\"");
    Some(())
}

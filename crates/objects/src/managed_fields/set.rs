//! Sets of field paths as sorted trees.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::Value;

use super::element::{Element, Form};
use crate::Map;

/// Nothing sensible is nested this deep.
const MAX_DEPTH: usize = 200;

/// A set of field paths. Texts are borrowed from the objects and entries it was made of where possible.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet<'a> {
    /// Sorted by element; a node that is no member has children.
    pub(super) nodes: Vec<Node<'a>>,
}

/// What is in the set at one step and below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node<'a> {
    pub(super) element: Element<'a>,
    /// The path that ends here is in the set.
    pub(super) member: bool,
    pub(super) children: FieldSet<'a>,
}

/// A node that does not know its element yet.
#[derive(Default)]
pub(super) struct Parts<'a> {
    pub(super) member: bool,
    pub(super) children: FieldSet<'a>,
}

impl<'a> FieldSet<'a> {
    /// Reads FieldsV1 that anybody may have written. `None` when it is none.
    pub fn parse(fields: &'a Value) -> Option<FieldSet<'a>> {
        FieldSet::parse_own(fields)?.canonical()
    }

    /// Reads FieldsV1 that this module has written.
    pub(super) fn parse_own(fields: &'a Value) -> Option<FieldSet<'a>> {
        parse(fields.as_object()?, 0).map(|parts| parts.children)
    }

    /// The same set in the texts and the order of this module. `None` when a step is damaged.
    fn canonical(self) -> Option<FieldSet<'a>> {
        let mut nodes = Vec::with_capacity(self.nodes.len());
        for node in self.nodes {
            let (element, children) = (node.element.canonical()?, node.children.canonical()?);
            nodes.push(Node { element, member: node.member, children });
        }
        if nodes.is_sorted_by(|a, b| a.element < b.element) {
            return Some(FieldSet { nodes });
        }
        // Different texts for one step fall together.
        let mut merged = FieldSet::default();
        for node in nodes {
            merged.add(&FieldSet { nodes: vec![node] });
        }
        Some(merged)
    }

    /// Whether no path is in it.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Adds all paths of the other set.
    pub fn add(&mut self, other: &FieldSet<'a>) {
        if other.is_empty() {
            return;
        }
        if self.is_empty() {
            self.clone_from(other);
            return;
        }
        let mine = std::mem::take(&mut self.nodes);
        self.nodes.reserve(mine.len().max(other.nodes.len()));
        let mut theirs = other.nodes.iter().peekable();
        for mut node in mine {
            while let Some(before) = theirs.next_if(|t| t.element < node.element) {
                self.nodes.push(before.clone());
            }
            if let Some(same) = theirs.next_if(|t| t.element == node.element) {
                node.member |= same.member;
                node.children.add(&same.children);
            }
            self.nodes.push(node);
        }
        self.nodes.extend(theirs.cloned());
    }

    /// Takes away exactly the paths of the other set; what lies below them stays.
    pub fn subtract(&mut self, other: &FieldSet<'_>) {
        if other.is_empty() {
            return;
        }
        let mut theirs = other.nodes.iter().peekable();
        self.nodes.retain_mut(|node| {
            while theirs.next_if(|t| order(&t.element, &node.element).is_lt()).is_some() {}
            if let Some(same) = theirs.next_if(|t| order(&t.element, &node.element).is_eq()) {
                node.member &= !same.member;
                node.children.subtract(&same.children);
            }
            node.member || !node.children.is_empty()
        });
    }

    /// Keeps only the paths that are in the other set too.
    pub fn intersect(&mut self, other: &FieldSet<'_>) {
        let mut theirs = other.nodes.iter().peekable();
        self.nodes.retain_mut(|node| {
            while theirs.next_if(|t| order(&t.element, &node.element).is_lt()).is_some() {}
            let Some(same) = theirs.next_if(|t| order(&t.element, &node.element).is_eq()) else {
                return false;
            };
            node.member &= same.member;
            node.children.intersect(&same.children);
            node.member || !node.children.is_empty()
        });
    }

    /// Whether the sets are equal once the paths of a third are taken from this one.
    pub(super) fn equals_without(&self, except: &FieldSet<'_>, other: &FieldSet<'_>) -> bool {
        let mut theirs = other.nodes.iter();
        let none = FieldSet::default();
        for node in &self.nodes {
            let exception = except.node(&node.element);
            let member = node.member && !exception.is_some_and(|e| e.member);
            let below = exception.map_or(&none, |e| &e.children);
            match theirs.as_slice().first().filter(|t| order(&t.element, &node.element).is_eq()) {
                Some(same) => {
                    theirs.next();
                    if same.member != member || !node.children.equals_without(below, &same.children) {
                        return false;
                    }
                }
                None if member || !node.children.equals_without(below, &none) => return false,
                None => {}
            }
        }
        theirs.next().is_none()
    }

    /// Whether all its paths are in the other set.
    pub fn is_subset(&self, other: &FieldSet<'_>) -> bool {
        let mut theirs = other.nodes.iter().peekable();
        self.nodes.iter().all(|node| {
            while theirs.next_if(|t| order(&t.element, &node.element).is_lt()).is_some() {}
            match theirs.next_if(|t| order(&t.element, &node.element).is_eq()) {
                Some(same) => (!node.member || same.member) && node.children.is_subset(&same.children),
                None => false,
            }
        })
    }

    /// The set with texts of its own.
    pub fn into_owned(self) -> FieldSet<'static> {
        let own = |node: Node<'a>| Node {
            element: Element { form: node.element.form, text: Cow::Owned(node.element.text.into_owned()) },
            member: node.member,
            children: node.children.into_owned(),
        };
        FieldSet { nodes: self.nodes.into_iter().map(own).collect() }
    }

    /// All paths as people read them (`.spec.containers[name="a"].image`), those of a level before those below it.
    pub fn paths(&self) -> Vec<String> {
        let mut out = Vec::new();
        self.collect_paths(&mut String::new(), &mut out);
        out
    }

    fn collect_paths(&self, prefix: &mut String, out: &mut Vec<String>) {
        let length = prefix.len();
        for node in self.nodes.iter().filter(|n| n.member) {
            node.element.show(prefix);
            out.push(prefix.clone());
            prefix.truncate(length);
        }
        for node in self.nodes.iter().filter(|n| !n.children.is_empty()) {
            node.element.show(prefix);
            node.children.collect_paths(prefix, out);
            prefix.truncate(length);
        }
    }

    /// Finds a step.
    pub(super) fn node(&self, element: &Element<'_>) -> Option<&Node<'a>> {
        let at = self.nodes.binary_search_by(|n| order(&n.element, element)).ok()?;
        self.nodes.get(at)
    }

    /// Finds the step to a field.
    pub(super) fn field(&self, name: &str) -> Option<&Node<'a>> {
        let wanted =
            |n: &Node<'a>| n.element.form.cmp(&Form::Field).then_with(|| (*n.element.text).cmp(name));
        let at = self.nodes.binary_search_by(wanted).ok()?;
        self.nodes.get(at)
    }

    /// Adds a step that sorts behind all others, unless nothing is in it.
    pub(super) fn push(&mut self, element: Element<'a>, parts: Parts<'a>) {
        if parts.member || !parts.children.is_empty() {
            self.nodes.push(Node { element, member: parts.member, children: parts.children });
        }
    }
}

/// Compares elements of sets with different lifetimes.
fn order(a: &Element<'_>, b: &Element<'_>) -> Ordering {
    a.form.cmp(&b.form).then_with(|| (*a.text).cmp(&*b.text))
}

fn parse(fields: &Map, depth: usize) -> Option<Parts<'_>> {
    if depth > MAX_DEPTH {
        return None;
    }
    let mut parts = Parts { member: false, children: FieldSet::default() };
    parts.children.nodes.reserve(fields.len());
    for (name, value) in fields {
        if name == "." {
            parts.member = true;
            continue;
        }
        let element = Element::parse(name)?;
        let inner = parse(value.as_object()?, depth + 1)?;
        // A step without anything below it is a path of the set.
        let member = inner.member || inner.children.is_empty();
        parts.children.nodes.push(Node { element, member, children: inner.children });
    }
    Some(parts)
}

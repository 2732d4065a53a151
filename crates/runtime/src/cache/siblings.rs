//! What many objects of a kind have in common is kept once.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use serde::Deserialize;

use super::pack::Packing;
use crate::watch::Record;

/// What all objects of an informer share.
#[derive(Debug)]
pub struct KindShared {
    /// `{"apiVersion":…,"kind":…,` with which every object begins.
    pub prefix: Box<str>,
    /// How bodies are packed.
    pub packing: Packing,
}

/// An owner of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// Group and version of the owner's kind.
    pub api_version: Arc<str>,
    /// The owner's kind.
    pub kind: Arc<str>,
    /// The owner's name.
    pub name: Arc<str>,
    /// Which object of that name.
    pub uid: Arc<str>,
    /// Whether the owner is the controller.
    pub controller: bool,
    /// Whether the owner waits for this object when it is deleted in the foreground.
    pub block_owner_deletion: bool,
}

/// Labels, owners and finalizers: equal for all replicas of one workload.
#[derive(Debug)]
pub struct Siblings {
    pub(crate) kind: Arc<KindShared>,
    /// Sorted by key.
    pub(crate) labels: Box<[(Arc<str>, Arc<str>)]>,
    pub(crate) owners: Box<[Owner]>,
    pub(crate) finalizers: Box<[Arc<str>]>,
}

impl PartialEq for Siblings {
    fn eq(&self, other: &Siblings) -> bool {
        self.labels == other.labels && self.owners == other.owners && self.finalizers == other.finalizers
    }
}

impl Eq for Siblings {}

impl Hash for Siblings {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (&self.labels, &self.owners, &self.finalizers).hash(state);
    }
}

/// Keeps one copy of everything that repeats.
#[derive(Debug)]
pub struct Interner {
    kind: Arc<KindShared>,
    texts: HashSet<Arc<str>>,
    sets: HashSet<Arc<Siblings>>,
    /// The object before, which often is a sibling: its metadata as it came, and what was made of it.
    last: Option<(Vec<u8>, Arc<Siblings>)>,
    clean_at: usize,
}

/// Sets are looked through for unused ones whenever there are twice as many as after the last time, and at least so many.
const CLEAN_AT_LEAST: usize = 1024;

impl Interner {
    /// Nothing kept yet.
    pub fn new(kind: Arc<KindShared>) -> Interner {
        Interner { kind, texts: HashSet::new(), sets: HashSet::new(), last: None, clean_at: CLEAN_AT_LEAST }
    }

    /// The one copy of a text.
    pub fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return known.clone();
        }
        let new: Arc<str> = text.into();
        self.texts.insert(new.clone());
        new
    }

    /// The one copy of an object's labels, owners and finalizers.
    pub fn siblings(&mut self, record: &Record) -> Arc<Siblings> {
        let parts = [record.labels(), record.owner_references(), record.finalizers()];
        if let Some((raw, known)) = &self.last
            && is_concatenation(raw, parts)
        {
            return known.clone();
        }
        let new = Siblings {
            kind: self.kind.clone(),
            labels: self.labels(parts[0]),
            owners: self.owners(parts[1]),
            finalizers: self.finalizers(parts[2]),
        };
        let shared = match self.sets.get(&new) {
            Some(known) => known.clone(),
            None => {
                let new = Arc::new(new);
                self.sets.insert(new.clone());
                new
            }
        };
        self.last = Some((parts.concat(), shared.clone()));
        self.clean();
        shared
    }

    fn labels(&mut self, raw: &[u8]) -> Box<[(Arc<str>, Arc<str>)]> {
        let labels: std::collections::BTreeMap<String, String> =
            serde_json::from_slice(raw).unwrap_or_default();
        labels.iter().map(|(key, value)| (self.text(key), self.text(value))).collect()
    }

    fn finalizers(&mut self, raw: &[u8]) -> Box<[Arc<str>]> {
        let finalizers: Vec<String> = serde_json::from_slice(raw).unwrap_or_default();
        finalizers.iter().map(|finalizer| self.text(finalizer)).collect()
    }

    fn owners(&mut self, raw: &[u8]) -> Box<[Owner]> {
        let owners: Vec<OwnerFields> = serde_json::from_slice(raw).unwrap_or_default();
        let owner = |fields: &OwnerFields| Owner {
            api_version: self.text(&fields.api_version),
            kind: self.text(&fields.kind),
            name: self.text(&fields.name),
            uid: self.text(&fields.uid),
            controller: fields.controller.unwrap_or_default(),
            block_owner_deletion: fields.block_owner_deletion.unwrap_or_default(),
        };
        owners.iter().map(owner).collect()
    }

    fn clean(&mut self) {
        if self.sets.len() + self.texts.len() < self.clean_at {
            return;
        }
        self.sets.retain(|set| Arc::strong_count(set) > 1);
        self.texts.retain(|text| Arc::strong_count(text) > 1);
        self.clean_at = (2 * (self.sets.len() + self.texts.len())).max(CLEAN_AT_LEAST);
    }
}

fn is_concatenation(whole: &[u8], parts: [&[u8]; 3]) -> bool {
    let mut rest = whole;
    parts.iter().all(|part| match rest.strip_prefix(*part) {
        Some(after) => {
            rest = after;
            true
        }
        None => false,
    }) && rest.is_empty()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct OwnerFields {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
    controller: Option<bool>,
    block_owner_deletion: Option<bool>,
}

//! The hand-written list of what Go does with empty and absent fields.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, bail};

/// How Go writes a field that is empty or absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Omission {
    /// A pointer: as given.
    Pointer,
    /// Not written when empty.
    Omit,
    /// Always written, with the zero value of its type.
    Zero,
    /// Always written, as null when absent.
    Null,
}

/// The list, by `package.Type.field`.
pub struct Omissions {
    entries: BTreeMap<String, Omission>,
    used: RefCell<BTreeSet<String>>,
}

/// Reads `go-fields.txt`.
pub fn read(text: &str) -> anyhow::Result<Omissions> {
    let mut entries = BTreeMap::new();
    let mut section = None;
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
        } else if let Some(name) = line.strip_prefix('[') {
            section = Some(match name.trim_end_matches(']') {
                "pointer" => Omission::Pointer,
                "omit" => Omission::Omit,
                "zero" => Omission::Zero,
                "null" => Omission::Null,
                other => bail!("unknown section {other}"),
            });
        } else {
            let (name, fields) = line.split_once(": ").with_context(|| line.to_owned())?;
            for field in fields.split(' ') {
                let previous = entries.insert(format!("{name}.{field}"), section.context("no section")?);
                if previous.is_some() {
                    bail!("{name}.{field} stands twice in the list");
                }
            }
        }
    }
    Ok(Omissions { entries, used: RefCell::default() })
}

impl Omissions {
    /// What the list says about a field of `io.k8s.api.core.v1.Pod`.
    pub fn get(&self, full_name: &str, field: &str) -> Option<Omission> {
        let mut parts = full_name.rsplitn(4, '.');
        let (kind, version, package) = (parts.next()?, parts.next()?, parts.next()?);
        [version, "*"].iter().find_map(|version| {
            let name = format!("{package}.{version}.{kind}.{field}");
            let found = self.entries.get(&name).copied();
            if found.is_some() {
                self.used.borrow_mut().insert(name);
            }
            found
        })
    }

    /// Entries that were never asked for: misspelt, or gone from the schema.
    pub fn unused(&self) -> impl Iterator<Item = String> {
        let used = self.used.borrow().clone();
        self.entries.keys().filter(move |name| !used.contains(*name)).cloned()
    }
}

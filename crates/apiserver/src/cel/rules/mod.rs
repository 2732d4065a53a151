//! `x-kubernetes-validations`: rules a schema has beyond its keywords.
//!
//! [`CompiledRules::compile`] runs when a definition is created and tells what is wrong with its rules;
//! [`validate_rules`] runs for every object.

mod compile;
mod field_path;
mod validate;

use std::collections::BTreeMap;

use super::types::ListKind;
use super::{Program, Type};

pub(super) use validate::computed;
pub use validate::validate_rules;

/// The rules of a schema. Parts of the schema without rules are left out.
#[derive(Debug, Default)]
pub struct CompiledRules {
    root: Option<Place>,
}

impl CompiledRules {
    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }
}

/// A part of the schema that has rules, or has parts with rules.
#[derive(Debug)]
struct Place {
    ty: Type,
    rules: Vec<Rule>,
    properties: BTreeMap<String, Place>,
    /// Values of a map.
    additional: Option<Box<Place>>,
    items: Option<Box<Place>>,
    /// Which items of an old and a new list correspond.
    list: ListKind,
}

#[derive(Debug)]
struct Rule {
    source: String,
    program: Program,
    message: Option<String>,
    message_expression: Option<Program>,
    reason: Option<String>,
    /// Relative to the place, in the form `.a.b[key]`.
    field_path: String,
    /// It compares with the old value.
    transition: bool,
    /// It runs without an old value too.
    optional_old: bool,
}

/// Places of the variables.
const SELF: usize = 0;
const OLD_SELF: usize = 1;

#[cfg(test)]
mod tests;

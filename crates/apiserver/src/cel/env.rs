//! What an expression may refer to, and what those names stand for when it is evaluated.

use std::cell::RefCell;

use serde_json::Value;

use super::Program;
use super::error::EvalError;
use super::types::Type;
use super::value::CelValue;

/// Declared variables.
#[derive(Clone, Debug, Default)]
pub struct Env {
    variables: Vec<(String, Type)>,
    /// Whether `Object{…}` and `JSONPatch{…}` may be built, as mutating policies do.
    pub objects: bool,
}

impl Env {
    /// Nothing declared.
    pub fn new() -> Env {
        Env::default()
    }

    /// Declares a variable, `self` or `variables.x`, and gives its place.
    pub fn declare(&mut self, name: &str, ty: Type) -> usize {
        self.variables.push((name.to_owned(), ty));
        self.variables.len() - 1
    }

    /// The place and type of a variable.
    pub fn find(&self, name: &str) -> Option<(usize, &Type)> {
        let place = self.variables.iter().position(|(declared, _)| declared == name)?;
        self.variables.get(place).map(|(_, ty)| (place, ty))
    }

    /// The type of the variable at a place.
    pub fn type_at(&self, place: usize) -> Option<&Type> {
        self.variables.get(place).map(|(_, ty)| ty)
    }

    /// The name of the variable at a place.
    pub fn name_at(&self, place: usize) -> Option<&str> {
        self.variables.get(place).map(|(name, _)| name.as_str())
    }
}

/// The values of an environment's variables.
#[derive(Debug, Default)]
pub struct Bindings<'a> {
    slots: Vec<Slot<'a>>,
}

#[derive(Debug)]
enum Slot<'a> {
    Unset,
    Value(CelValue<'a>),
    /// Computed when first asked for.
    Lazy(&'a Program, RefCell<Option<Result<CelValue<'a>, EvalError>>>),
}

/// What a variable stands for.
pub(super) enum Bound<'b, 'a> {
    /// Nothing.
    Unset,
    /// This.
    Value(CelValue<'a>),
    /// The result of this program, to be kept in the cell.
    Lazy(&'a Program, &'b RefCell<Option<Result<CelValue<'a>, EvalError>>>),
}

impl<'a> Bindings<'a> {
    /// Nothing bound.
    pub fn new() -> Bindings<'a> {
        Bindings::default()
    }

    /// Binds the variable at `place`.
    pub fn set(&mut self, place: usize, value: CelValue<'a>) {
        *self.slot(place) = Slot::Value(value);
    }

    /// Binds the variable at `place` to a part of a document.
    pub fn set_json(&mut self, place: usize, value: &'a Value, ty: &'a Type) {
        self.set(place, CelValue::from_json(value, ty));
    }

    /// Binds the variable at `place` to what a program gives, computed at most once and only when needed.
    pub fn set_lazy(&mut self, place: usize, program: &'a Program) {
        *self.slot(place) = Slot::Lazy(program, RefCell::new(None));
    }

    fn slot(&mut self, place: usize) -> &mut Slot<'a> {
        while self.slots.len() <= place {
            self.slots.push(Slot::Unset);
        }
        &mut self.slots[place]
    }

    pub(super) fn get(&self, place: usize) -> Bound<'_, 'a> {
        match self.slots.get(place) {
            Some(Slot::Value(value)) => Bound::Value(value.clone()),
            Some(Slot::Lazy(program, result)) => Bound::Lazy(program, result),
            Some(Slot::Unset) | None => Bound::Unset,
        }
    }
}

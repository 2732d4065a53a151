//! The Common Expression Language as Kubernetes uses it: rules of custom resources and admission policies.
//!
//! [`Program::compile`] parses an expression, checks its types against an [`Env`] and resolves names; [`Program::eval`]
//! computes it over JSON documents under a [`Budget`]. [`rules`] and [`policy`] build on that.
//!
//! The parser is our own. The published parser for CEL rests on an ANTLR runtime: it brings a dozen crates for a grammar
//! of a page, its depth is bounded by the stack rather than by us, and its tree keeps too little of the positions that
//! errors in Kubernetes' words point to.

pub mod ast;
pub mod authorizer;
pub mod budget;
mod check;
mod compare;
pub mod env;
pub mod error;
mod eval;
mod fold;
mod lexer;
mod library;
mod macros;
mod node;
pub mod opaque;
pub mod parser;
pub mod policy;
pub mod rules;
pub mod schema;
mod signature;
mod time;
pub mod types;
pub mod value;

use std::collections::BTreeSet;

pub use budget::Budget;
pub use env::{Bindings, Env};
pub use error::{CompileError, EvalError};
pub use types::Type;
pub use value::CelValue;

/// A checked expression, ready to be evaluated any number of times.
#[derive(Debug)]
pub struct Program {
    node: node::Node,
    ty: Type,
    used: BTreeSet<usize>,
}

impl Program {
    /// Parses and checks an expression.
    pub fn compile(source: &str, env: &Env) -> Result<Program, CompileError> {
        let expr = parser::parse(source)?;
        let checked = check::check(&expr, env).map_err(|issues| CompileError::new(source, issues))?;
        Ok(Program { node: checked.node, ty: checked.ty, used: checked.used })
    }

    /// Computes the expression.
    pub fn eval<'a>(
        &'a self,
        bindings: &Bindings<'a>,
        budget: &mut Budget,
    ) -> Result<CelValue<'a>, EvalError> {
        budget.begin_call();
        eval::run(&self.node, bindings, budget)
    }

    /// The type of its values.
    pub fn result_type(&self) -> &Type {
        &self.ty
    }

    /// Whether its values are of that type, as far as can be told beforehand.
    pub fn gives(&self, expected: &Type) -> bool {
        self.ty == Type::Dyn || self.ty.plain() == expected
    }

    /// Whether it refers to the variable at that place of its environment.
    pub fn uses(&self, place: usize) -> bool {
        self.used.contains(&place)
    }

    pub(crate) fn node(&self) -> &node::Node {
        &self.node
    }
}

#[cfg(test)]
mod tests;

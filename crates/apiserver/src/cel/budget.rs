//! How much work expressions may do.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use regex::Regex;
use shoal_objects::structural;

use super::error::EvalError;

/// What one expression may cost.
pub const PER_CALL: u64 = 1_000_000;
/// What all expressions about one object may cost together.
pub const PER_OBJECT: u64 = 10_000_000;
/// What all match conditions of one request may cost together.
pub const PER_MATCH_CONDITIONS: u64 = 2_500_000;
/// The largest compiled pattern, in bytes.
const REGEX_SIZE: usize = 128 << 10;
/// What compiling a pattern costs: up to two milliseconds at that size.
const COMPILING: u64 = 40_000;
/// Patterns kept for the rest of the budget's life.
const REGEX_KEPT: usize = 64;

/// What is left to spend. One step of an expression costs 1; work on texts a tenth of their bytes.
#[derive(Debug)]
pub struct Budget {
    total: u64,
    call: u64,
    /// Patterns computed by expressions, which may ask for them again and again.
    patterns: HashMap<String, Arc<Regex>>,
}

impl Budget {
    /// A budget for several expressions, each of which gets at most [`PER_CALL`].
    pub fn new(total: u64) -> Budget {
        Budget { total, call: 0, patterns: HashMap::new() }
    }

    /// What is left.
    pub fn remaining(&self) -> u64 {
        self.total + self.call
    }

    /// Whether nothing is left for further expressions.
    pub fn is_spent(&self) -> bool {
        self.remaining() == 0
    }

    /// Sets aside what the next expression may spend.
    pub(super) fn begin_call(&mut self) {
        self.total += self.call;
        self.call = PER_CALL.min(self.total);
        self.total -= self.call;
    }

    /// Pays for some work before it is done.
    #[inline]
    pub fn charge(&mut self, cost: u64) -> Result<(), EvalError> {
        match self.call.checked_sub(cost) {
            Some(left) => {
                self.call = left;
                Ok(())
            }
            None => {
                self.call = 0;
                Err(EvalError::BudgetExceeded)
            }
        }
    }

    /// Pays for reading or writing that many bytes of text.
    #[inline]
    pub fn charge_text(&mut self, bytes: usize) -> Result<(), EvalError> {
        self.charge((bytes / 10) as u64)
    }

    /// Pays for and finds the compiled form of a pattern.
    pub(super) fn pattern(&mut self, pattern: &str) -> Result<Arc<Regex>, EvalError> {
        if let Some(found) = self.patterns.get(pattern) {
            return Ok(found.clone());
        }
        self.charge(COMPILING)?;
        let compiled = Arc::new(compile_pattern(pattern)?);
        if self.patterns.len() < REGEX_KEPT {
            self.patterns.insert(pattern.to_owned(), compiled.clone());
        }
        Ok(compiled)
    }
}

/// A pattern that is part of an expression, compiled when first used.
#[derive(Debug)]
pub struct FixedPattern {
    text: Box<str>,
    compiled: OnceLock<Result<Regex, EvalError>>,
}

impl FixedPattern {
    /// Checks the syntax only: a definition may hold thousands of patterns.
    pub(super) fn new(text: &str) -> Result<FixedPattern, EvalError> {
        structural::check_pattern(text).map_err(|why| broken(text, &why))?;
        Ok(FixedPattern { text: text.into(), compiled: OnceLock::new() })
    }

    /// Whether the pattern occurs in the text.
    pub(super) fn is_match(&self, text: &str, budget: &mut Budget) -> Result<bool, EvalError> {
        if self.compiled.get().is_none() {
            budget.charge(COMPILING)?;
        }
        budget.charge(search_cost(text.len(), self.text.len()))?;
        match self.compiled.get_or_init(|| compile_pattern(&self.text)) {
            Ok(regex) => Ok(regex.is_match(text)),
            Err(error) => Err(error.clone()),
        }
    }
}

/// What one search costs: the length of the text times that of the pattern.
pub(super) fn search_cost(text: usize, pattern: usize) -> u64 {
    let text = text as u64 / 10 + 1;
    text.saturating_mul(pattern as u64 / 4 + 1)
}

fn compile_pattern(pattern: &str) -> Result<Regex, EvalError> {
    structural::compile_within(pattern, REGEX_SIZE).map_err(|why| broken(pattern, &why))
}

fn broken(pattern: &str, why: &str) -> EvalError {
    EvalError::owned(format!("error parsing regexp: {why}: `{pattern}`"))
}

//! How much work expressions may do.

use std::collections::HashMap;
use std::sync::Arc;

use regex::Regex;
use shoal_objects::structural;

use super::error::EvalError;

/// What one expression may cost.
pub const PER_CALL: u64 = 1_000_000;
/// What all expressions about one object may cost together.
pub const PER_OBJECT: u64 = 10_000_000;
/// What all match conditions of one request may cost together.
pub const PER_MATCH_CONDITIONS: u64 = 2_500_000;
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
        // Compiling is slow: some microseconds per character.
        self.charge(500 + 100 * pattern.len() as u64)?;
        let compiled = Arc::new(compile_pattern(pattern)?);
        if self.patterns.len() < REGEX_KEPT {
            self.patterns.insert(pattern.to_owned(), compiled.clone());
        }
        Ok(compiled)
    }
}

/// Compiles a pattern.
pub(super) fn compile_pattern(pattern: &str) -> Result<Regex, EvalError> {
    structural::compile_pattern(pattern)
        .map_err(|why| EvalError::owned(format!("error parsing regexp: {why}: `{pattern}`")))
}

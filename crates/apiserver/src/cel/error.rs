//! What can go wrong with an expression, in the words users of cel-go know.

use std::borrow::Cow;
use std::fmt;

/// Expressions are compiled in one piece; several things may be wrong with one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileError {
    /// The findings, in the order of the source.
    pub issues: Vec<Issue>,
    source: String,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// Byte offset in the source.
    pub at: usize,
    /// What is wrong.
    pub message: String,
}

/// The most findings reported for one expression.
const MAX_ISSUES: usize = 20;

impl CompileError {
    /// Puts the findings in order.
    pub fn new(source: &str, mut issues: Vec<Issue>) -> CompileError {
        issues.sort_by_key(|issue| issue.at);
        issues.dedup();
        issues.truncate(MAX_ISSUES);
        CompileError { issues, source: source.to_owned() }
    }
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, issue) in self.issues.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            let before = self.source.get(..issue.at).unwrap_or(&self.source);
            let line = before.matches('\n').count();
            let column = before.rsplit('\n').next().unwrap_or_default().chars().count();
            let text = self.source.split('\n').nth(line).unwrap_or_default();
            write!(f, "ERROR: <input>:{}:{}: {}\n | {text}\n | ", line + 1, column + 1, issue.message)?;
            write!(f, "{:.<column$}^", "")?;
        }
        Ok(())
    }
}

impl std::error::Error for CompileError {}

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvalError {
    /// A map or object lacks the key.
    NoSuchKey(String),
    /// The operation does not exist for values of these types.
    NoSuchOverload,
    /// The budget is used up. Unlike other errors it is never absorbed by `&&` or `||`.
    BudgetExceeded,
    /// Anything else: overflow, division by zero, index out of bounds, …
    Other(Cow<'static, str>),
}

impl EvalError {
    /// An error with a fixed text.
    pub const fn text(text: &'static str) -> EvalError {
        EvalError::Other(Cow::Borrowed(text))
    }

    /// An error with a computed text.
    pub fn owned(text: String) -> EvalError {
        EvalError::Other(Cow::Owned(text))
    }
}

impl fmt::Display for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EvalError::NoSuchKey(key) => write!(f, "no such key: {key}"),
            EvalError::NoSuchOverload => f.write_str("no such overload"),
            EvalError::BudgetExceeded => f.write_str("operation cancelled: actual cost limit exceeded"),
            EvalError::Other(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for EvalError {}

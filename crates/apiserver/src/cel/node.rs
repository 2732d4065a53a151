//! The checked form of an expression: names resolved to places, functions to code, patterns compiled.

use std::cmp::Ordering;

use super::ast::Fold;
use super::budget::FixedPattern;
use super::library::Function;
use super::value::CelValue;

/// One step of a program.
#[derive(Debug)]
pub enum Node {
    /// A fixed value.
    Const(CelValue<'static>),
    /// A declared variable, by its place in the environment.
    Variable(usize),
    /// A variable of an iteration or binding, by its place on the stack.
    Local(usize),
    /// `operand.field`
    Select(Box<Node>, Box<str>),
    /// `operand.?field`
    OptionalSelect(Box<Node>, Box<str>),
    /// `has(operand.field)`
    Has(Box<Node>, Box<str>),
    /// `operand[index]`
    Index(Box<[Node; 2]>),
    /// `operand[?index]`
    OptionalIndex(Box<[Node; 2]>),
    /// A function; several when only the values can tell which is meant.
    Call(Vec<&'static Function>, Box<[Node]>),
    /// `text.matches(pattern)` with a fixed pattern
    Matches(Box<Node>, FixedPattern),
    /// `a == b`, or `a != b`
    Equal(Box<[Node; 2]>, bool),
    /// `a < b` and its like
    Compare(Box<[Node; 2]>, Comparison),
    /// `!a`
    Not(Box<Node>),
    /// `a && b`: ends with the first that is false
    And(Box<[Node]>),
    /// `a || b`: ends with the first that is true
    Or(Box<[Node]>),
    /// `a ? b : c`
    Ternary(Box<[Node; 3]>),
    /// `[a, ?b]`
    List(Box<[(Node, bool)]>),
    /// `{a: b, ?c: d}`
    Map(Box<[(Node, Node, bool)]>),
    /// `range.all(x, …)`
    Comprehension(Box<Comprehension>),
    /// The first is a variable of the second.
    Bind(Box<[Node; 2]>),
    /// The content of the first is a variable of the second, which is optional itself when the flag is set.
    OptMap(Box<[Node; 2]>, bool),
}

/// An iteration.
#[derive(Debug)]
pub struct Comprehension {
    /// What it computes.
    pub fold: Fold,
    /// What it goes over.
    pub range: Node,
    /// Whether index or key and element are both variables.
    pub two: bool,
    /// Which elements count.
    pub filter: Option<Node>,
    /// Predicate or transformation.
    pub body: Node,
}

/// The comparing operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

impl Comparison {
    /// Whether operands in this order satisfy it.
    pub fn holds(self, order: Option<Ordering>) -> bool {
        match self {
            Comparison::Less => order == Some(Ordering::Less),
            Comparison::LessOrEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
            Comparison::Greater => order == Some(Ordering::Greater),
            Comparison::GreaterOrEqual => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
        }
    }

    /// By the operator's function name.
    pub fn of(function: &str) -> Option<Comparison> {
        Some(match function {
            "_<_" => Comparison::Less,
            "_<=_" => Comparison::LessOrEqual,
            "_>_" => Comparison::Greater,
            "_>=_" => Comparison::GreaterOrEqual,
            _ => return None,
        })
    }
}

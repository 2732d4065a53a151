//! Calls that are syntax rather than functions: `has`, `all`, `map`, `cel.bind`, `optMap`, …

use super::ast::{Expr, Fold, Kind};
use super::error::Issue;

/// What the call of `function` is: a macro where name and number of arguments fit, otherwise a call.
pub fn expand(target: Option<Expr>, function: &str, args: Vec<Expr>, at: usize) -> Result<Kind, Issue> {
    match target {
        None if function == "has" && args.len() == 1 => has(args, at),
        Some(target) if function == "bind" && args.len() == 3 && is_name(&target, "cel") => bind(args),
        Some(target) if matches!(function, "optMap" | "optFlatMap") && args.len() == 2 => {
            let mut args = args.into_iter();
            let (Some(name), Some(body)) = (args.next(), args.next()) else { return Err(bad_arguments(at)) };
            let (target, body, flat) = (Box::new(target), Box::new(body), function == "optFlatMap");
            Ok(Kind::OptMap { target, name: variable(&name)?, body, flat })
        }
        Some(target) => match fold(function, args.len()) {
            Some((fold, two)) => comprehension(fold, two, target, args, at),
            None => Ok(call(Some(target), function, args)),
        },
        None => Ok(call(None, function, args)),
    }
}

fn call(target: Option<Expr>, function: &str, args: Vec<Expr>) -> Kind {
    Kind::Call { function: function.to_owned(), target: target.map(Box::new), args }
}

/// Which iteration a method name and its number of arguments ask for, and whether it has two variables.
fn fold(function: &str, args: usize) -> Option<(Fold, bool)> {
    Some(match (function, args) {
        ("all", 2) => (Fold::All, false),
        ("all", 3) => (Fold::All, true),
        ("exists", 2) => (Fold::Exists, false),
        ("exists", 3) => (Fold::Exists, true),
        ("exists_one" | "existsOne", 2) => (Fold::ExistsOne, false),
        ("exists_one" | "existsOne", 3) => (Fold::ExistsOne, true),
        ("map", 2 | 3) => (Fold::List, false),
        ("filter", 2) => (Fold::Filter, false),
        ("transformList", 3 | 4) => (Fold::List, true),
        ("transformMap", 3 | 4) => (Fold::Map, true),
        ("transformMapEntry", 3 | 4) => (Fold::MapEntry, true),
        ("sortBy", 2) => (Fold::SortBy, false),
        _ => return None,
    })
}

fn comprehension(fold: Fold, two: bool, range: Expr, args: Vec<Expr>, at: usize) -> Result<Kind, Issue> {
    let mut args = args.into_iter();
    let mut next = || args.next().ok_or_else(|| bad_arguments(at));
    let first = variable(&next()?)?;
    let second = if two { Some(variable(&next()?)?) } else { None };
    if second.as_ref() == Some(&first) {
        return Err(Issue { at, message: format!("duplicate variable name: {first}") });
    }
    let one = next()?;
    let (filter, body) = match args.next() {
        Some(body) => (Some(Box::new(one)), body),
        None => (None, one),
    };
    Ok(Kind::Comprehension { fold, range: Box::new(range), first, second, filter, body: Box::new(body) })
}

fn has(args: Vec<Expr>, at: usize) -> Result<Kind, Issue> {
    let position = args.first().map_or(at, |arg| arg.at);
    match args.into_iter().next().map(|arg| arg.kind) {
        Some(Kind::Select { operand, field, test: false, optional: false }) => {
            Ok(Kind::Select { operand, field, test: true, optional: false })
        }
        _ => Err(Issue { at: position, message: "invalid argument to has() macro".to_owned() }),
    }
}

fn bind(args: Vec<Expr>) -> Result<Kind, Issue> {
    let mut args = args.into_iter();
    match (args.next(), args.next(), args.next()) {
        (Some(name), Some(value), Some(body)) => {
            Ok(Kind::Bind { name: variable(&name)?, value: Box::new(value), body: Box::new(body) })
        }
        _ => Err(bad_arguments(0)),
    }
}

fn is_name(expr: &Expr, name: &str) -> bool {
    matches!(&expr.kind, Kind::Ident(ident) if ident == name)
}

fn variable(expr: &Expr) -> Result<String, Issue> {
    match &expr.kind {
        Kind::Ident(name) => Ok(name.clone()),
        _ => Err(Issue { at: expr.at, message: "argument must be a simple name".to_owned() }),
    }
}

fn bad_arguments(at: usize) -> Issue {
    Issue { at, message: "wrong number of arguments".to_owned() }
}

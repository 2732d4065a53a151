//! The functions expressions can call.

mod access;
mod arithmetic;
mod convert;
mod encoders;
mod formats;
mod lists;
mod math;
pub mod net;
mod optional;
mod printing;
mod quantity;
mod regex;
pub mod semver;
mod strings;
mod times;
pub mod url;

use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;

use super::budget::Budget;
use super::error::EvalError;
use super::eval::Evaluated;
use super::signature::Signature;
use super::value::CelValue;

/// The code of a function. It answers [`EvalError::NoSuchOverload`] to arguments it is not made for.
pub type Builtin = for<'a> fn(&mut Budget, &[CelValue<'a>]) -> Evaluated<'a>;

/// A line of a library's table: name, signatures, code.
type Row = (&'static str, &'static [&'static str], Builtin);

/// A function as one library defines it.
pub struct Function {
    /// Its name.
    pub name: &'static str,
    /// What it can be applied to.
    pub signatures: Vec<Signature>,
    /// What it does.
    pub call: Builtin,
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

const LIBRARIES: [&[Row]; 15] = [
    access::ROWS,
    arithmetic::ROWS,
    convert::ROWS,
    encoders::ROWS,
    formats::ROWS,
    lists::ROWS,
    math::ROWS,
    net::ROWS,
    optional::ROWS,
    quantity::ROWS,
    regex::ROWS,
    semver::ROWS,
    strings::ROWS,
    times::ROWS,
    url::ROWS,
];

static FUNCTIONS: LazyLock<HashMap<&'static str, Vec<Function>>> = LazyLock::new(|| {
    let mut functions: HashMap<&'static str, Vec<Function>> = HashMap::new();
    for (name, signatures, call) in LIBRARIES.into_iter().flatten() {
        let signatures = signatures.iter().filter_map(|text| Signature::parse(text)).collect();
        functions.entry(name).or_default().push(Function { name, signatures, call: *call });
    }
    functions
});

/// The functions of that name.
pub fn find(name: &str) -> Option<&'static [Function]> {
    FUNCTIONS.get(name).map(Vec::as_slice)
}

/// For operators that the evaluator handles itself.
fn never<'a>(_: &mut Budget, _: &[CelValue<'a>]) -> Evaluated<'a> {
    Err(EvalError::NoSuchOverload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signature_is_well_formed() {
        for (name, signatures, _) in LIBRARIES.into_iter().flatten() {
            for signature in *signatures {
                assert!(Signature::parse(signature).is_some(), "{name}: {signature}");
            }
        }
    }
}

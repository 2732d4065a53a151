//! Semantic versions.

use std::cmp::Ordering;
use std::fmt;

use super::Row;
use crate::cel::budget::Budget;
use crate::cel::error::EvalError;
use crate::cel::eval::Evaluated;
use crate::cel::opaque::Opaque;
use crate::cel::value::CelValue;

const ORDER: &[&str] = &["semver.(semver)bool"];
const PART: &[&str] = &["semver.()int"];

pub const ROWS: &[Row] = &[
    ("semver", &["(string)semver", "(string,bool)semver"], semver),
    ("isSemver", &["(string)bool", "(string,bool)bool"], is_semver),
    ("major", PART, major),
    ("minor", PART, minor),
    ("patch", PART, patch),
    ("isGreaterThan", ORDER, is_greater),
    ("isLessThan", ORDER, is_less),
    ("compareTo", &["semver.(semver)int"], compare_to),
];

/// A semantic version. The build part does not count when versions are compared.
#[derive(Clone, Debug)]
pub struct Semver {
    numbers: [u64; 3],
    pre: Vec<Identifier>,
    build: Option<String>,
}

/// A part of the pre-release; numbers come before words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    Number(u64),
    Word(String),
}

impl Semver {
    /// Reads `1.2.3-rc.1+build`; a lenient reading also takes `v1.2` and leading zeros.
    pub fn parse(text: &str, lenient: bool) -> Option<Semver> {
        let text = if lenient { text.strip_prefix('v').unwrap_or(text) } else { text };
        let (text, build) = match text.split_once('+') {
            Some((text, build)) => (text, Some(build)),
            None => (text, None),
        };
        let (core, pre) = match text.split_once('-') {
            Some((core, pre)) => (core, Some(pre)),
            None => (text, None),
        };
        let mut parts: Vec<&str> = core.split('.').collect();
        while lenient && parts.len() < 3 {
            parts.push("0");
        }
        let [major, minor, patch] = parts.as_slice() else { return None };
        let number = |part: &&str| {
            let part = if lenient && part.len() > 1 { part.trim_start_matches('0') } else { part };
            numeric(if part.is_empty() { "0" } else { part })
        };
        let numbers = [number(major)?, number(minor)?, number(patch)?];
        let pre = match pre {
            None => Vec::new(),
            Some(pre) => pre.split('.').map(identifier).collect::<Option<_>>()?,
        };
        let build_fits = build.is_none_or(|build| build.split('.').all(is_word));
        build_fits.then(|| Semver { numbers, pre, build: build.map(str::to_owned) })
    }
}

fn is_word(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

fn numeric(part: &str) -> Option<u64> {
    let digits = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let leading_zero = part.len() > 1 && part.starts_with('0');
    if digits && !leading_zero { part.parse().ok() } else { None }
}

fn identifier(part: &str) -> Option<Identifier> {
    if !is_word(part) {
        return None;
    }
    if part.bytes().all(|b| b.is_ascii_digit()) {
        return numeric(part).map(Identifier::Number);
    }
    Some(Identifier::Word(part.to_owned()))
}

impl fmt::Display for Semver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.numbers;
        write!(f, "{major}.{minor}.{patch}")?;
        for (index, part) in self.pre.iter().enumerate() {
            f.write_str(if index == 0 { "-" } else { "." })?;
            match part {
                Identifier::Number(number) => write!(f, "{number}")?,
                Identifier::Word(word) => f.write_str(word)?,
            }
        }
        self.build.iter().try_for_each(|build| write!(f, "+{build}"))
    }
}

impl PartialEq for Semver {
    fn eq(&self, other: &Semver) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Semver {}

impl PartialOrd for Semver {
    fn partial_cmp(&self, other: &Semver) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Semver {
    fn cmp(&self, other: &Semver) -> Ordering {
        // A version without a pre-release comes after all its pre-releases.
        let released = self.pre.is_empty().cmp(&other.pre.is_empty());
        self.numbers.cmp(&other.numbers).then(released).then_with(|| self.pre.cmp(&other.pre))
    }
}

const MISMATCH: EvalError = EvalError::NoSuchOverload;

fn parse_args(budget: &mut Budget, args: &[CelValue<'_>]) -> Result<Option<Semver>, EvalError> {
    let (text, lenient) = match args {
        [CelValue::String(text)] => (text, false),
        [CelValue::String(text), CelValue::Bool(lenient)] => (text, *lenient),
        _ => return Err(MISMATCH),
    };
    // Every part is a text of its own.
    budget.charge(5 + text.as_str().len() as u64)?;
    Ok(Semver::parse(text.as_str(), lenient))
}

fn semver<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let parsed = parse_args(budget, args)?;
    parsed
        .map(|version| CelValue::opaque(Opaque::Semver(version)))
        .ok_or(EvalError::text("Invalid Semver: version does not follow semantic versioning"))
}

fn is_semver<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(CelValue::Bool(parse_args(budget, args)?.is_some()))
}

fn read<'b>(value: Option<&'b CelValue<'_>>) -> Result<&'b Semver, EvalError> {
    match value {
        Some(CelValue::Opaque(opaque)) => match opaque.as_ref() {
            Opaque::Semver(version) => Ok(version),
            _ => Err(MISMATCH),
        },
        _ => Err(MISMATCH),
    }
}

fn part<'a>(args: &[CelValue<'a>], index: usize) -> Evaluated<'a> {
    let number = read(args.first())?.numbers.get(index).copied().unwrap_or(0);
    Ok(CelValue::Int(i64::try_from(number).unwrap_or(i64::MAX)))
}

fn major<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    part(args, 0)
}

fn minor<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    part(args, 1)
}

fn patch<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    part(args, 2)
}

fn is_greater<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(CelValue::Bool(read(args.first())? > read(args.get(1))?))
}

fn is_less<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(CelValue::Bool(read(args.first())? < read(args.get(1))?))
}

fn compare_to<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(CelValue::Int(read(args.first())?.cmp(read(args.get(1))?) as i64))
}

//! Shard selectors (KEP-5866): which part of a collection a list or watch is about, by the hash of uid or namespace.
//!
//! `shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000') || shardRange(…)`; ranges include
//! their start and exclude their end, and the last one may end at `0x10000000000000000` (2^64).

use std::fmt;

use serde_json::{Value, json};

use crate::meta;

mod expression;

use expression::{Expression, Literal};

/// What is hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardField {
    /// `object.metadata.uid`
    Uid,
    /// `object.metadata.namespace`
    Namespace,
}

/// A range of hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardRange {
    /// The first hash in the range.
    pub start: u64,
    /// The first hash behind the range, at most 2^64.
    pub end: u128,
}

/// The objects whose hash lies in one of some ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardSelector {
    field: ShardField,
    ranges: Vec<ShardRange>,
}

/// Why a text is no shard selector, in the words of the real server (which answers 500).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid shard selector: {0}")]
pub struct ShardError(String);

impl ShardSelector {
    /// Reads a selector. The caller takes an empty parameter for none.
    pub fn parse(text: &str) -> Result<ShardSelector, ShardError> {
        requirements(text).map_err(ShardError)
    }

    /// What is hashed.
    pub fn field(&self) -> ShardField {
        self.field
    }

    /// The ranges, as given.
    pub fn ranges(&self) -> &[ShardRange] {
        &self.ranges
    }

    /// Whether an object with this uid and namespace belongs to the shard.
    pub fn contains(&self, uid: &str, namespace: &str) -> bool {
        let hash = fnv1a64(match self.field {
            ShardField::Uid => uid,
            ShardField::Namespace => namespace,
        });
        self.ranges.iter().any(|range| range.start <= hash && u128::from(hash) < range.end)
    }

    /// Whether this object belongs to the shard.
    pub fn contains_object(&self, obj: &Value) -> bool {
        self.contains(meta::uid(obj), meta::namespace(obj))
    }

    /// `metadata.shardInfo` of a list: tells the client that the selector was obeyed.
    pub fn shard_info(&self) -> Value {
        json!({ "selector": self.to_string() })
    }
}

impl fmt::Display for ShardSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, ShardRange { start, end }) in self.ranges.iter().enumerate() {
            let or = if index > 0 { " || " } else { "" };
            write!(f, "{or}shardRange({}, '{start:#018x}', '{end:#018x}')", self.field)?;
        }
        Ok(())
    }
}

impl fmt::Display for ShardField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ShardField::Uid => "object.metadata.uid",
            ShardField::Namespace => "object.metadata.namespace",
        })
    }
}

/// The hash that spreads objects over shards.
pub fn fnv1a64(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn requirements(text: &str) -> Result<ShardSelector, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("empty shard selector is not allowed; omit the parameter for unfiltered lists".to_owned());
    }
    let expression = expression::parse(text).map_err(|e| format!("CEL parse error: {e}"))?;
    let alternatives = match &expression {
        Expression::Or(alternatives) => alternatives.as_slice(),
        one => std::slice::from_ref(one),
    };
    let found: Vec<(ShardField, ShardRange)> =
        alternatives.iter().map(shard_range).collect::<Result<_, _>>()?;
    let Some(&(field, _)) = found.first() else {
        return Err("|| operator requires exactly 2 arguments".to_owned());
    };
    if let Some((other, _)) = found.iter().find(|(other, _)| *other != field) {
        return Err(format!("all shard ranges must use the same field, got \"{field}\" and \"{other}\""));
    }
    Ok(ShardSelector { field, ranges: found.into_iter().map(|(_, range)| range).collect() })
}

fn shard_range(expression: &Expression) -> Result<(ShardField, ShardRange), String> {
    let Expression::Call { function, arguments } = expression else {
        let kind = expression.kind();
        return Err(format!("unexpected expression kind {kind}; expected shardRange() call or || operator"));
    };
    if function != "shardRange" {
        return Err(format!("unsupported function {function:?}; only shardRange() and || are allowed"));
    }
    let [field, start, end] = arguments.as_slice() else {
        return Err(format!("shardRange() requires exactly 3 arguments, got {}", arguments.len()));
    };
    let path = match field {
        Expression::Ident(path) | Expression::Select(path) => path.as_str(),
        other => {
            return Err(format!(
                "shardRange() first argument: expected field path (e.g. object.metadata.uid), got expression kind {}",
                other.kind()
            ));
        }
    };
    let supported = [ShardField::Uid, ShardField::Namespace];
    let Some(field) = supported.into_iter().find(|field| field.to_string() == path) else {
        return Err(format!(
            "unsupported field path {path:?}; supported: object.metadata.uid, object.metadata.namespace"
        ));
    };
    let (start_text, start) = hex(start, "hexStart")?;
    let (end_text, end) = hex(end, "hexEnd")?;
    match u64::try_from(start) {
        Ok(start) if u128::from(start) < end => Ok((field, ShardRange { start, end })),
        _ => Err(format!("shard range start {start_text} must be less than end {end_text}")),
    }
}

fn hex<'a>(expression: &'a Expression, name: &str) -> Result<(&'a str, u128), String> {
    let text = match expression {
        Expression::Literal(Literal::Text(text)) => text.as_str(),
        Expression::Literal(other) => {
            return Err(format!("{name} must be a string literal, got {}", other.type_name()));
        }
        other => {
            let kind = other.kind();
            return Err(format!("{name} must be a string literal (e.g. '0xff'), got expression kind {kind}"));
        }
    };
    let Some(digits) = text.strip_prefix("0x") else {
        return Err(format!("{name} must have '0x' prefix, got {text:?}"));
    };
    if digits.is_empty() {
        return Err(format!("{name}: hex value is required after '0x'"));
    }
    if digits.len() > 17 {
        return Err(format!("{name}: hex value too long ({} chars, max 17): {digits:?}", digits.len()));
    }
    if let Some(bad) = digits.chars().find(|c| !matches!(c, '0'..='9' | 'a'..='f')) {
        let bad = bad.to_string();
        return Err(format!("{name}: invalid hex character {bad:?} in {text:?}"));
    }
    if digits.len() == 17 && digits != "10000000000000000" {
        return Err(format!("{name}: 17-digit hex value must be '0x10000000000000000' (2^64), got {text:?}"));
    }
    if digits.len() < 16 {
        return Err(format!(
            "{name} must be a 0x-prefixed 16-digit hex value, got {text:?} (did you mean \"0x{digits:0>16}\"?)"
        ));
    }
    u128::from_str_radix(digits, 16).map(|value| (text, value)).map_err(|e| format!("{name}: {e}"))
}

#[cfg(test)]
mod tests;

//! Field selectors: `metadata.name=a,spec.nodeName!=b`, with `\` before a comma, an equals sign or itself.

use std::fmt;

/// Whether a field shall have the value or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldOperator {
    /// `=` and `==`
    Equals,
    /// `!=`
    NotEquals,
}

/// One condition on one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRequirement {
    /// `metadata.name`
    pub field: String,
    /// How it is compared.
    pub operator: FieldOperator,
    /// What with, unescaped.
    pub value: String,
}

/// Conditions on fields that must all hold. Which fields there are is for the kind to say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    /// In the order of their text.
    pub requirements: Vec<FieldRequirement>,
}

impl FieldSelector {
    /// Reads the text form. The error is what the real server says.
    pub fn parse(text: &str) -> Result<FieldSelector, String> {
        let mut terms = split_terms(text);
        terms.sort_unstable();
        let mut requirements = Vec::new();
        for term in terms.into_iter().filter(|term| !term.is_empty()) {
            let Some((field, operator, value)) = split_term(term) else {
                return Err(format!("invalid selector: '{text}'; can't understand '{term}'"));
            };
            requirements.push(FieldRequirement {
                field: field.to_owned(),
                operator,
                value: unescape(value)?,
            });
        }
        Ok(FieldSelector { requirements })
    }

    /// Whether an object whose fields are read by `get` (absent is empty) is meant.
    pub fn matches<'a>(&self, get: impl Fn(&str) -> &'a str) -> bool {
        self.requirements.iter().all(|r| (get(&r.field) == r.value) == (r.operator == FieldOperator::Equals))
    }

    /// Whether every object is meant.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The one value the field must have, if there is one.
    pub fn exact(&self, field: &str) -> Option<&str> {
        let exact = |r: &&FieldRequirement| r.field == field && r.operator == FieldOperator::Equals;
        self.requirements.iter().find(exact).map(|r| r.value.as_str())
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, FieldRequirement { field, operator, value }) in self.requirements.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let operator = if *operator == FieldOperator::Equals { "=" } else { "!=" };
            write!(f, "{comma}{field}{operator}")?;
            for c in value.chars() {
                if matches!(c, '\\' | ',' | '=') {
                    f.write_str("\\")?;
                }
                write!(f, "{c}")?;
            }
        }
        Ok(())
    }
}

fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (index, b) in text.bytes().enumerate() {
        match b {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b',' => {
                terms.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn split_term(term: &str) -> Option<(&str, FieldOperator, &str)> {
    let at = term.find('=')?;
    if let Some(field) = term[..at].strip_suffix('!') {
        return Some((field, FieldOperator::NotEquals, &term[at + 1..]));
    }
    let value = &term[at + 1..];
    Some((&term[..at], FieldOperator::Equals, value.strip_prefix('=').unwrap_or(value)))
}

fn unescape(value: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => plain.push(c),
                Some(c) => return Err(format!("invalid field selector: invalid escape sequence: \\{c}")),
                None => return Err("invalid field selector: invalid escape sequence: \\".to_owned()),
            },
            // The real server prints the character's number.
            ',' | '=' => {
                return Err(format!(
                    "invalid field selector: unescaped character in value: {}",
                    u32::from(c)
                ));
            }
            _ => plain.push(c),
        }
    }
    Ok(plain)
}

//! The text form of label selectors. One pass over the text, no recursion.

use std::collections::BTreeSet;

use super::{Operator, Requirement};
use crate::names;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Token {
    End,
    Close,
    Comma,
    Not,
    DoubleEquals,
    Equals,
    Greater,
    Identifier,
    In,
    Less,
    NotEquals,
    NotIn,
    Open,
}

type Item<'a> = (Token, &'a str);

/// The conditions in the order written.
pub(super) fn requirements(text: &str) -> Result<Vec<Requirement>, String> {
    let mut parser = Parser { rest: text };
    let mut found = Vec::new();
    loop {
        match parser.peek_value() {
            (Token::Identifier | Token::Not, _) => {}
            (Token::End, _) => return Ok(found),
            (_, literal) => {
                return Err(format!("found '{literal}', expected: !, identifier, or 'end of string'"));
            }
        }
        let requirement = parser.requirement().map_err(|e| format!("unable to parse requirement: {e}"))?;
        found.push(requirement);
        match parser.next_value() {
            (Token::End, _) => return Ok(found),
            (Token::Comma, _) => match parser.peek_value() {
                (Token::Identifier | Token::Not, _) => {}
                (_, literal) => return Err(format!("found '{literal}', expected: identifier after ','")),
            },
            (_, literal) => return Err(format!("found '{literal}', expected: ',' or 'end of string'")),
        }
    }
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn next(&mut self) -> Item<'a> {
        let text = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let special = |c: char| matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<');
        let length = match text.chars().next() {
            None | Some('\0') => 0,
            Some(c) if special(c) => {
                if text.starts_with("==") || text.starts_with("!=") {
                    2
                } else {
                    1
                }
            }
            Some(_) => text
                .find(|c| special(c) || matches!(c, ' ' | '\t' | '\r' | '\n' | '\0'))
                .unwrap_or(text.len()),
        };
        let (literal, rest) = text.split_at(length);
        // A NUL ends the text: nothing behind it is looked at.
        self.rest = if length == 0 { "" } else { rest };
        let token = match literal {
            "" => Token::End,
            ")" => Token::Close,
            "," => Token::Comma,
            "!" => Token::Not,
            "==" => Token::DoubleEquals,
            "=" => Token::Equals,
            ">" => Token::Greater,
            "in" => Token::In,
            "<" => Token::Less,
            "!=" => Token::NotEquals,
            "notin" => Token::NotIn,
            "(" => Token::Open,
            _ => Token::Identifier,
        };
        (token, literal)
    }

    /// Where a key or value is expected, `in` and `notin` are just words.
    fn next_value(&mut self) -> Item<'a> {
        match self.next() {
            (Token::In | Token::NotIn, literal) => (Token::Identifier, literal),
            other => other,
        }
    }

    fn peek_value(&self) -> Item<'a> {
        Parser { rest: self.rest }.next_value()
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let (mut token, mut key) = self.next_value();
        let negated = token == Token::Not;
        if negated {
            (token, key) = self.next_value();
        }
        if token != Token::Identifier {
            return Err(format!("found '{key}', expected: identifier"));
        }
        let found = names::qualified_name(key);
        if !found.is_empty() {
            // The real server has no path here and says so.
            return Err(format!("<nil>: Invalid value: {key:?}: {}", found.join("; ")));
        }
        if negated {
            return Requirement::new(key, Operator::DoesNotExist, Vec::new());
        }
        if matches!(self.peek_value().0, Token::End | Token::Comma) {
            return Requirement::new(key, Operator::Exists, Vec::new());
        }
        let operator = match self.next() {
            (Token::In, _) => Operator::In,
            (Token::NotIn, _) => Operator::NotIn,
            (Token::Equals, _) => Operator::Equals,
            (Token::DoubleEquals, _) => Operator::DoubleEquals,
            (Token::NotEquals, _) => Operator::NotEquals,
            (Token::Greater, _) => Operator::GreaterThan,
            (Token::Less, _) => Operator::LessThan,
            (_, literal) => {
                return Err(format!("found '{literal}', expected: in, notin, =, ==, !=, gt, lt"));
            }
        };
        let values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => vec![self.value()?],
        };
        Requirement::new(key, operator, values)
    }

    fn value(&mut self) -> Result<String, String> {
        if matches!(self.peek_value().0, Token::End | Token::Comma) {
            return Ok(String::new());
        }
        match self.next_value() {
            (Token::Identifier, literal) => Ok(literal.to_owned()),
            (_, literal) => Err(format!("found '{literal}', expected: identifier")),
        }
    }

    /// `(a,b)`; nothing between commas or parentheses stands for the empty value.
    fn values(&mut self) -> Result<Vec<String>, String> {
        match self.next_value() {
            (Token::Open, _) => {}
            (_, literal) => return Err(format!("found '{literal}' expected: '('")),
        }
        match self.peek_value() {
            (Token::Identifier | Token::Comma | Token::Close, _) => {}
            (_, literal) => return Err(format!("found '{literal}', expected: ',', ')' or identifier")),
        }
        let mut values = BTreeSet::new();
        loop {
            let value = match self.peek_value() {
                (Token::Identifier, _) => self.next_value().1,
                (Token::Comma | Token::Close, _) => "",
                (_, literal) => return Err(format!("found '{literal}', expected: ',', or identifier")),
            };
            values.insert(value.to_owned());
            match self.next_value() {
                (Token::Close, _) => return Ok(values.into_iter().collect()),
                (Token::Comma, _) => {}
                (_, literal) => return Err(format!("found '{literal}', expected: ',' or ')'")),
            }
        }
    }
}

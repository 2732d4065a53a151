//! As much of the expression language CEL as it takes to say what is wrong with a shard selector.

/// Deeper parentheses are refused.
const MAX_DEPTH: usize = 250;

/// An expression, read but never evaluated.
#[derive(Debug)]
pub(super) enum Expression {
    /// Alternatives, none of which is itself an `Or`.
    Or(Vec<Expression>),
    /// A function or operator and its arguments.
    Call { function: String, arguments: Vec<Expression> },
    /// A name.
    Ident(String),
    /// Names joined by dots.
    Select(String),
    /// A value.
    Literal(Literal),
}

#[derive(Debug)]
pub(super) enum Literal {
    Text(String),
    Int,
    Double,
    Bool,
    Null,
}

impl Expression {
    /// The number by which complaints name the kind of an expression.
    pub(super) fn kind(&self) -> u8 {
        match self {
            Expression::Or(_) | Expression::Call { .. } => 1,
            Expression::Ident(_) => 3,
            Expression::Literal(_) => 5,
            Expression::Select(_) => 7,
        }
    }
}

impl Literal {
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Literal::Text(_) => "string",
            Literal::Int => "int64",
            Literal::Double => "float64",
            Literal::Bool => "bool",
            Literal::Null => "structpb.NullValue",
        }
    }
}

/// Reads a whole text as one expression.
pub(super) fn parse(text: &str) -> Result<Expression, String> {
    let mut parser = Parser { rest: text };
    let expression = parser.or(0)?;
    match parser.token()? {
        "" => Ok(expression),
        other => Err(format!("Syntax error: extraneous input '{other}' expecting <EOF>")),
    }
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    /// The next token, not consumed; empty at the end.
    fn token(&mut self) -> Result<&'a str, String> {
        self.rest = self.rest.trim_start();
        let text = self.rest;
        let Some(first) = text.chars().next() else {
            return Ok("");
        };
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let length = match first {
            '|' if text.starts_with("||") => 2,
            '&' if text.starts_with("&&") => 2,
            '\'' | '"' => text_length(text, first)?,
            c if c.is_ascii_digit() => text.find(|c: char| !is_word(c) && c != '.').unwrap_or(text.len()),
            c if is_word(c) => text.find(|c| !is_word(c)).unwrap_or(text.len()),
            '(' | ')' | ',' | '.' => 1,
            other => return Err(format!("Syntax error: token recognition error at: '{other}'")),
        };
        Ok(&text[..length])
    }

    fn advance(&mut self, token: &str) {
        self.rest = self.rest.get(token.len()..).unwrap_or_default();
    }

    /// Consumes the token if it is next.
    fn accept(&mut self, token: &str) -> Result<bool, String> {
        let found = self.token()? == token;
        if found {
            self.advance(token);
        }
        Ok(found)
    }

    fn or(&mut self, depth: usize) -> Result<Expression, String> {
        if depth > MAX_DEPTH {
            return Err(format!("expression recursion limit exceeded: {MAX_DEPTH}"));
        }
        let mut alternatives = Vec::new();
        loop {
            match self.and(depth)? {
                Expression::Or(inner) => alternatives.extend(inner),
                other => alternatives.push(other),
            }
            if !self.accept("||")? {
                break;
            }
        }
        Ok(match alternatives.len() {
            1 => alternatives.remove(0),
            _ => Expression::Or(alternatives),
        })
    }

    fn and(&mut self, depth: usize) -> Result<Expression, String> {
        let first = self.primary(depth, false)?;
        if self.token()? != "&&" {
            return Ok(first);
        }
        let mut arguments = vec![first];
        while self.accept("&&")? {
            arguments.push(self.primary(depth, false)?);
        }
        Ok(Expression::Call { function: "_&&_".to_owned(), arguments })
    }

    fn primary(&mut self, depth: usize, may_close: bool) -> Result<Expression, String> {
        let token = self.token()?;
        let first = token.chars().next();
        match first {
            Some('(') => {
                self.advance(token);
                let inner = self.or(depth + 1)?;
                if self.accept(")")? { Ok(inner) } else { Err(self.unexpected("')'")) }
            }
            Some('\'' | '"') => {
                self.advance(token);
                Ok(Expression::Literal(Literal::Text(unquote(token)?)))
            }
            Some(c) if c.is_ascii_digit() => {
                self.advance(token);
                let literal = if token.contains('.') { Literal::Double } else { Literal::Int };
                Ok(Expression::Literal(literal))
            }
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                self.advance(token);
                match token {
                    "true" | "false" => Ok(Expression::Literal(Literal::Bool)),
                    "null" => Ok(Expression::Literal(Literal::Null)),
                    name => self.member(name, depth),
                }
            }
            _ => {
                let close = if may_close { "')', " } else { "" };
                let expected = format!(
                    "{{'[', '{{', '(', {close}'.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, \
                     STRING, BYTES, IDENTIFIER}}"
                );
                Err(self.unexpected(&expected))
            }
        }
    }

    /// What follows a name: more names, or arguments.
    fn member(&mut self, name: &str, depth: usize) -> Result<Expression, String> {
        let mut path = name.to_owned();
        let mut last = name;
        loop {
            if self.accept("(")? {
                let arguments = self.arguments(depth)?;
                if self.token()? == "." {
                    return Err(self.unexpected("<EOF>"));
                }
                return Ok(Expression::Call { function: last.to_owned(), arguments });
            }
            if !self.accept(".")? {
                break;
            }
            let token = self.token()?;
            if !token.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
                return Err(self.unexpected("IDENTIFIER"));
            }
            self.advance(token);
            last = token;
            path.push('.');
            path.push_str(token);
        }
        Ok(if path == name { Expression::Ident(path) } else { Expression::Select(path) })
    }

    fn arguments(&mut self, depth: usize) -> Result<Vec<Expression>, String> {
        let mut arguments = Vec::new();
        if self.accept(")")? {
            return Ok(arguments);
        }
        if self.token()?.is_empty() {
            self.primary(depth, true)?;
        }
        loop {
            arguments.push(self.or(depth + 1)?);
            if self.accept(")")? {
                return Ok(arguments);
            }
            if !self.accept(",")? {
                return Err(self.unexpected("{',', ')'}"));
            }
        }
    }

    fn unexpected(&mut self, expected: &str) -> String {
        let found = match self.token() {
            Ok("") => "<EOF>",
            Ok(token) => token,
            Err(error) => return error,
        };
        format!("Syntax error: mismatched input '{found}' expecting {expected}")
    }
}

/// The length of a quoted text with its quotes.
fn text_length(text: &str, quote: char) -> Result<usize, String> {
    let mut escaped = false;
    for (index, c) in text.char_indices().skip(1) {
        match c {
            '\n' | '\r' => break,
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return Ok(index + 1),
            _ => {}
        }
    }
    Err(format!("Syntax error: token recognition error at: '{text}'"))
}

fn unquote(token: &str) -> Result<String, String> {
    let inner = token.get(1..token.len().saturating_sub(1)).unwrap_or_default();
    let mut plain = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | '\'' | '"' | '`' | '?')) => plain.push(c),
                _ => return Err("unable to unescape string".to_owned()),
            },
            other => plain.push(other),
        }
    }
    Ok(plain)
}

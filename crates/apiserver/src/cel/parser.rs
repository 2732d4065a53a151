//! From tokens to a syntax tree: recursive descent over CEL's small grammar.
//!
//! Depth and length are limited, so hostile text is refused in linear time and never exhausts the stack.

use super::ast::{Entry, Expr, Kind, Literal};
use super::error::{CompileError, Issue};
use super::lexer::{Token, TokenKind, tokenize};
use super::macros;

/// The longest expression that is read at all, in characters.
const MAX_LENGTH: usize = 100_000;
/// The deepest expression.
pub const MAX_DEPTH: usize = 150;
/// The deepest nesting of brackets, each level of which costs more stack than a level of the tree.
const MAX_NESTING: usize = 80;

const OPERAND_EXPECTED: &str = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, \
     IDENTIFIER}";

const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Binary operators: symbol, strength, name of the function.
const OPERATORS: [(&str, u8, &str); 14] = [
    ("||", 1, "_||_"),
    ("&&", 2, "_&&_"),
    ("==", 3, "_==_"),
    ("!=", 3, "_!=_"),
    ("<=", 3, "_<=_"),
    (">=", 3, "_>=_"),
    ("<", 3, "_<_"),
    (">", 3, "_>_"),
    ("in", 3, "@in"),
    ("+", 4, "_+_"),
    ("-", 4, "_-_"),
    ("*", 5, "_*_"),
    ("/", 5, "_/_"),
    ("%", 5, "_%_"),
];

/// Reads an expression.
pub fn parse(source: &str) -> Result<Expr, CompileError> {
    let refuse = |issue| CompileError::new(source, vec![issue]);
    if source.len() > MAX_LENGTH {
        let size = source.chars().count();
        if size > MAX_LENGTH {
            let message =
                format!("expression code point size exceeds limit: size: {size}, limit {MAX_LENGTH}");
            return Err(CompileError::new("", vec![Issue { at: 0, message }]));
        }
    }
    let tokens = tokenize(source).map_err(refuse)?;
    let mut parser = Parser { tokens, next: 0, depth: 0 };
    let expr = parser.expression().map_err(refuse)?;
    match parser.peek().kind {
        TokenKind::End => Ok(expr),
        _ => Err(refuse(parser.unexpected("<EOF>"))),
    }
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    next: usize,
    depth: usize,
}

type Parsed = Result<Expr, Issue>;

impl<'a> Parser<'a> {
    fn peek(&self) -> &Token<'a> {
        // The last token is `End` and is never passed.
        &self.tokens[self.next.min(self.tokens.len() - 1)]
    }

    fn advance(&mut self) -> Token<'a> {
        let token = self.peek().clone();
        self.next += 1;
        token
    }

    fn symbol(&self, symbol: &str) -> bool {
        matches!(self.peek().kind, TokenKind::Symbol(s) if s == symbol)
    }

    /// Takes the symbol and tells where it stood.
    fn take(&mut self, symbol: &str) -> Option<usize> {
        self.symbol(symbol).then(|| self.advance().at)
    }

    fn expect(&mut self, symbol: &str) -> Result<usize, Issue> {
        self.take(symbol).ok_or_else(|| self.unexpected(&format!("'{symbol}'")))
    }

    fn unexpected(&self, expected: &str) -> Issue {
        let token = self.peek();
        let text = match &token.kind {
            TokenKind::Ident(name) => (*name).to_owned(),
            TokenKind::Quoted(name) => format!("`{name}`"),
            TokenKind::Int(value, false) => value.to_string(),
            TokenKind::Int(value, true) => format!("{value}u"),
            TokenKind::Double(value) => value.to_string(),
            TokenKind::String(text) => format!("{text:?}"),
            TokenKind::Bytes(_) => "b\"…\"".to_owned(),
            TokenKind::Symbol(symbol) => (*symbol).to_owned(),
            TokenKind::End => "<EOF>".to_owned(),
        };
        let follows = self.tokens.get(self.next + 1).map(|token| &token.kind);
        let word =
            if expected == "<EOF>" && follows == Some(&TokenKind::End) { "extraneous" } else { "mismatched" };
        Issue { at: token.at, message: format!("Syntax error: {word} input '{text}' expecting {expected}") }
    }

    /// Builds a node, unless it would be too deep.
    fn node(&self, at: usize, kind: Kind) -> Parsed {
        let expr = Expr::new(at, kind);
        if expr.depth > MAX_DEPTH { Err(too_deep(at)) } else { Ok(expr) }
    }

    fn expression(&mut self) -> Parsed {
        self.depth += 1;
        if self.depth > MAX_NESTING {
            return Err(too_deep(self.peek().at));
        }
        let test = self.binary(1)?;
        let result = match self.take("?") {
            None => Ok(test),
            Some(at) => {
                let then = self.binary(1)?;
                self.expect(":")?;
                let otherwise = self.expression()?;
                self.node(at, Kind::Ternary(Box::new([test, then, otherwise])))
            }
        };
        self.depth -= 1;
        result
    }

    fn binary(&mut self, weakest: u8) -> Parsed {
        let mut left = self.unary()?;
        loop {
            let found = match self.peek().kind {
                TokenKind::Symbol(text) | TokenKind::Ident(text) => {
                    OPERATORS.iter().find(|(symbol, strength, _)| *symbol == text && *strength >= weakest)
                }
                _ => None,
            };
            let Some((_, strength, function)) = found else { return Ok(left) };
            let at = self.advance().at;
            let right = self.binary(strength + 1)?;
            left = self.combine(at, function, left, right)?;
        }
    }

    /// Long chains of `&&` and `||` are one node, so that they are not deep.
    fn combine(&self, at: usize, function: &str, mut left: Expr, right: Expr) -> Parsed {
        match (&mut left.kind, function) {
            (Kind::And(parts), "_&&_") | (Kind::Or(parts), "_||_") => {
                left.depth = left.depth.max(right.depth + 1);
                parts.push(right);
                if left.depth > MAX_DEPTH { Err(too_deep(at)) } else { Ok(left) }
            }
            (_, "_&&_") => self.node(at, Kind::And(vec![left, right])),
            (_, "_||_") => self.node(at, Kind::Or(vec![left, right])),
            (_, function) => {
                let args = vec![left, right];
                self.node(at, Kind::Call { function: function.to_owned(), target: None, args })
            }
        }
    }

    fn unary(&mut self) -> Parsed {
        let (symbol, function) = if self.symbol("!") { ("!", "!_") } else { ("-", "-_") };
        let Some(at) = self.take(symbol) else { return self.member() };
        if symbol == "-" && matches!(self.peek().kind, TokenKind::Int(..) | TokenKind::Double(_)) {
            return self.negative(at);
        }
        let mut odd = true;
        while self.take(symbol).is_some() {
            odd = !odd;
        }
        let operand = self.member()?;
        if !odd {
            return Ok(operand);
        }
        self.node(at, Kind::Call { function: function.to_owned(), target: None, args: vec![operand] })
    }

    fn negative(&mut self, at: usize) -> Parsed {
        let token = self.advance();
        let literal = match token.kind {
            TokenKind::Int(value, false) => {
                let value = 0_i64.checked_sub_unsigned(value);
                Literal::Int(value.ok_or_else(|| issue(token.at, "invalid int literal"))?)
            }
            TokenKind::Double(value) => Literal::Double(-value),
            _ => return Err(issue(token.at, "Syntax error: a negative number cannot be unsigned")),
        };
        let start = self.node(at, Kind::Literal(literal))?;
        self.suffixes(start)
    }

    fn member(&mut self) -> Parsed {
        let start = self.primary()?;
        self.suffixes(start)
    }

    fn suffixes(&mut self, mut expr: Expr) -> Parsed {
        loop {
            if let Some(at) = self.take(".") {
                let optional = self.take("?").is_some();
                let field = match self.advance().kind {
                    TokenKind::Ident(name) if !matches!(name, "in" | "true" | "false" | "null") => name,
                    TokenKind::Quoted(name) => name,
                    _ => {
                        self.next -= 1;
                        return Err(issue(
                            self.peek().at,
                            "Syntax error: no viable alternative at input '.'",
                        ));
                    }
                };
                let open = self.peek().at;
                if !optional && self.take("(").is_some() {
                    let args = self.arguments(")")?;
                    let kind = macros::expand(Some(expr), field, args, open)?;
                    expr = self.node(open, kind)?;
                } else {
                    let (operand, field) = (Box::new(expr), field.to_owned());
                    expr = self.node(at, Kind::Select { operand, field, test: false, optional })?;
                }
            } else if let Some(at) = self.take("[") {
                let optional = self.take("?").is_some();
                let index = Box::new(self.expression()?);
                self.expect("]")?;
                expr = self.node(at, Kind::Index { operand: Box::new(expr), index, optional })?;
            } else if self.symbol("{") {
                let Some(name) = expr.qualified_name() else { return Ok(expr) };
                let at = self.advance().at;
                let fields = self.fields()?;
                expr = self.node(at, Kind::Object { name, fields })?;
            } else {
                return Ok(expr);
            }
        }
    }

    fn primary(&mut self) -> Parsed {
        let token = self.advance();
        let at = token.at;
        let literal = match token.kind {
            TokenKind::Ident("true") => Literal::Bool(true),
            TokenKind::Ident("false") => Literal::Bool(false),
            TokenKind::Ident("null") => Literal::Null,
            TokenKind::Int(value, true) => Literal::Uint(value),
            TokenKind::Int(value, false) => {
                Literal::Int(i64::try_from(value).map_err(|_| issue(at, "invalid int literal"))?)
            }
            TokenKind::Double(value) => Literal::Double(value),
            TokenKind::String(text) => Literal::String(text),
            TokenKind::Bytes(bytes) => Literal::Bytes(bytes),
            TokenKind::Symbol(".") if matches!(self.peek().kind, TokenKind::Ident(_)) => {
                return self.primary();
            }
            TokenKind::Ident(name) if name != "in" => {
                let open = self.peek().at;
                if self.take("(").is_some() {
                    let args = self.arguments(")")?;
                    let kind = macros::expand(None, name, args, open)?;
                    return self.node(open, kind);
                }
                if RESERVED.contains(&name) {
                    return Err(issue(at, &format!("reserved identifier: {name}")));
                }
                return self.node(at, Kind::Ident(name.to_owned()));
            }
            TokenKind::Symbol("(") => {
                let inner = self.expression()?;
                self.expect(")")?;
                return Ok(inner);
            }
            TokenKind::Symbol("[") => {
                let entries = self.elements()?;
                return self.node(at, Kind::List(entries));
            }
            TokenKind::Symbol("{") => {
                let entries = self.entries()?;
                return self.node(at, Kind::Map(entries));
            }
            _ => {
                self.next -= 1;
                return Err(self.unexpected(OPERAND_EXPECTED));
            }
        };
        self.node(at, Kind::Literal(literal))
    }

    fn arguments(&mut self, close: &str) -> Result<Vec<Expr>, Issue> {
        let mut args = Vec::new();
        if self.take(close).is_some() {
            return Ok(args);
        }
        loop {
            args.push(self.expression()?);
            if self.take(",").is_none() {
                self.expect(close)?;
                return Ok(args);
            }
        }
    }

    fn elements(&mut self) -> Result<Vec<Entry<()>>, Issue> {
        self.separated("]", |parser, optional| Ok(Entry { key: (), value: parser.expression()?, optional }))
    }

    fn entries(&mut self) -> Result<Vec<Entry<Expr>>, Issue> {
        self.separated("}", |parser, optional| {
            let key = parser.expression()?;
            parser.expect(":")?;
            Ok(Entry { key, value: parser.expression()?, optional })
        })
    }

    fn fields(&mut self) -> Result<Vec<Entry<String>>, Issue> {
        self.separated("}", |parser, optional| {
            let key = match parser.peek().kind {
                TokenKind::Ident(name) | TokenKind::Quoted(name) => name.to_owned(),
                _ => return Err(parser.unexpected("{'}', ',', IDENTIFIER}")),
            };
            parser.advance();
            parser.expect(":")?;
            Ok(Entry { key, value: parser.expression()?, optional })
        })
    }

    /// Comma-separated items, the last of which may be followed by a comma.
    fn separated<T>(
        &mut self,
        close: &str,
        item: impl Fn(&mut Self, bool) -> Result<T, Issue>,
    ) -> Result<Vec<T>, Issue> {
        let mut items = Vec::new();
        while self.take(close).is_none() {
            let optional = self.take("?").is_some();
            items.push(item(self, optional)?);
            if self.take(",").is_none() {
                self.expect(close)?;
                break;
            }
        }
        Ok(items)
    }
}

fn issue(at: usize, message: &str) -> Issue {
    Issue { at, message: message.to_owned() }
}

fn too_deep(at: usize) -> Issue {
    issue(at, "expression recursion limit exceeded")
}

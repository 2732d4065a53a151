//! From text to tokens.

use super::error::Issue;

/// A token and where it starts.
#[derive(Clone, Debug, PartialEq)]
pub struct Token<'a> {
    /// Byte offset.
    pub at: usize,
    /// What it is.
    pub kind: TokenKind<'a>,
}

/// The kinds of tokens.
#[derive(Clone, Debug, PartialEq)]
pub enum TokenKind<'a> {
    /// A name or keyword.
    Ident(&'a str),
    /// An escaped name in backticks.
    Quoted(&'a str),
    /// A whole number without sign; `true` when marked unsigned.
    Int(u64, bool),
    /// A number with point or exponent.
    Double(f64),
    /// A text.
    String(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// An operator or bracket.
    Symbol(&'static str),
    /// The end.
    End,
}

/// Longest first, so that `<=` is not `<` and `=`.
const SYMBOLS: [&str; 24] = [
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", ".", ",", "(", ")",
    "[", "]", "{", "}",
];

/// All tokens of `source`, ending with [`TokenKind::End`].
pub fn tokenize(source: &str) -> Result<Vec<Token<'_>>, Issue> {
    let mut lexer = Lexer { source, at: 0 };
    let mut tokens = Vec::with_capacity(source.len() / 3 + 1);
    loop {
        lexer.skip_blank();
        let at = lexer.at;
        let kind = lexer.next()?;
        let end = kind == TokenKind::End;
        tokens.push(Token { at, kind });
        if end {
            return Ok(tokens);
        }
    }
}

struct Lexer<'a> {
    source: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        self.source.get(self.at..).unwrap_or_default()
    }

    fn take_while(&mut self, accept: impl Fn(u8) -> bool) -> &'a str {
        let rest = self.rest();
        let length = rest.bytes().position(|b| !accept(b)).unwrap_or(rest.len());
        self.at += length;
        rest.get(..length).unwrap_or_default()
    }

    fn skip_blank(&mut self) {
        loop {
            self.take_while(|b| matches!(b, b' ' | b'\t' | b'\n' | b'\r' | 0x0c));
            if !self.rest().starts_with("//") {
                return;
            }
            self.take_while(|b| b != b'\n');
        }
    }

    fn refuse(&self, at: usize) -> Issue {
        let text: String = self.source.get(at..).unwrap_or_default().chars().take(20).collect();
        Issue { at, message: format!("Syntax error: token recognition error at: '{text}'") }
    }

    fn next(&mut self) -> Result<TokenKind<'a>, Issue> {
        let rest = self.rest();
        let Some(first) = rest.bytes().next() else { return Ok(TokenKind::End) };
        if first.is_ascii_digit() || (first == b'.' && rest.as_bytes().get(1).is_some_and(u8::is_ascii_digit))
        {
            return self.number();
        }
        if let Some((prefix, quote)) = string_start(rest) {
            return self.string(prefix, quote);
        }
        if first.is_ascii_alphabetic() || first == b'_' {
            return Ok(TokenKind::Ident(self.take_while(|b| b.is_ascii_alphanumeric() || b == b'_')));
        }
        if first == b'`' {
            let at = self.at;
            self.at += 1;
            let name = self
                .take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-' | b'/' | b' '));
            if name.is_empty() || !self.rest().starts_with('`') {
                return Err(self.refuse(at));
            }
            self.at += 1;
            return Ok(TokenKind::Quoted(name));
        }
        let symbol =
            SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)).ok_or_else(|| self.refuse(self.at))?;
        self.at += symbol.len();
        Ok(TokenKind::Symbol(symbol))
    }

    fn number(&mut self) -> Result<TokenKind<'a>, Issue> {
        let start = self.at;
        if self.rest().starts_with("0x") || self.rest().starts_with("0X") {
            self.at += 2;
            let digits = self.take_while(|b| b.is_ascii_hexdigit());
            let value = u64::from_str_radix(digits, 16);
            return self.whole(start, value.ok());
        }
        let whole = self.take_while(|b| b.is_ascii_digit());
        let mut fractional = false;
        let mut after = self.rest().bytes();
        if after.next() == Some(b'.') && after.next().is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
            self.take_while(|b| b.is_ascii_digit());
            fractional = true;
        }
        if self.rest().starts_with(['e', 'E']) {
            let mark = self.at;
            self.at += 1;
            if self.rest().starts_with(['+', '-']) {
                self.at += 1;
            }
            if self.take_while(|b| b.is_ascii_digit()).is_empty() {
                self.at = mark;
            } else {
                fractional = true;
            }
        }
        if !fractional {
            return self.whole(start, whole.parse().ok());
        }
        let text = self.source.get(start..self.at).unwrap_or_default();
        let value: f64 = text.parse().map_err(|_| self.refuse(start))?;
        if value.is_infinite() {
            return Err(Issue { at: start, message: "invalid double literal".to_owned() });
        }
        Ok(TokenKind::Double(value))
    }

    fn whole(&mut self, start: usize, value: Option<u64>) -> Result<TokenKind<'a>, Issue> {
        let unsigned = self.rest().starts_with(['u', 'U']);
        if unsigned {
            self.at += 1;
        }
        let word = if unsigned { "invalid uint literal" } else { "invalid int literal" };
        let value = value.ok_or_else(|| Issue { at: start, message: word.to_owned() })?;
        Ok(TokenKind::Int(value, unsigned))
    }

    fn string(&mut self, prefix: usize, quote: &'static str) -> Result<TokenKind<'a>, Issue> {
        let start = self.at;
        let flags = self.rest().get(..prefix).unwrap_or_default();
        let raw = flags.contains(['r', 'R']);
        let bytes = flags.contains(['b', 'B']);
        self.at += prefix + quote.len();
        let mut out = Vec::new();
        loop {
            let rest = self.rest();
            if rest.starts_with(quote) {
                self.at += quote.len();
                break;
            }
            let Some(c) = rest.chars().next() else { return Err(self.refuse(start)) };
            if quote.len() == 1 && matches!(c, '\n' | '\r') {
                return Err(self.refuse(start));
            }
            if c == '\\' && !raw {
                self.at += 1;
                self.escape(bytes, &mut out).ok_or_else(|| self.refuse(start))?;
            } else {
                self.at += c.len_utf8();
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        if bytes {
            return Ok(TokenKind::Bytes(out));
        }
        String::from_utf8(out).map(TokenKind::String).map_err(|_| self.refuse(start))
    }

    /// Reads what follows a backslash.
    fn escape(&mut self, bytes: bool, out: &mut Vec<u8>) -> Option<()> {
        let c = self.rest().chars().next()?;
        self.at += c.len_utf8();
        let plain = match c {
            'a' => 0x07,
            'b' => 0x08,
            'f' => 0x0c,
            'n' => b'\n',
            'r' => b'\r',
            't' => b'\t',
            'v' => 0x0b,
            '\\' | '\'' | '"' | '`' | '?' => c as u8,
            'x' | 'X' => return self.coded(2, 16, bytes, out),
            'u' if !bytes => return self.coded(4, 16, false, out),
            'U' if !bytes => return self.coded(8, 16, false, out),
            '0'..='3' => {
                self.at -= 1;
                return self.coded(3, 8, bytes, out);
            }
            _ => return None,
        };
        out.push(plain);
        Some(())
    }

    fn coded(&mut self, digits: usize, radix: u32, byte: bool, out: &mut Vec<u8>) -> Option<()> {
        let text = self.rest().get(..digits).filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()))?;
        let value = u32::from_str_radix(text, radix).ok()?;
        self.at += digits;
        if byte {
            out.push(u8::try_from(value).ok()?);
        } else {
            out.extend_from_slice(char::from_u32(value)?.encode_utf8(&mut [0; 4]).as_bytes());
        }
        Some(())
    }
}

/// Length of the prefix (`r`, `b`, `rb`, …) and the quotes when a string starts here.
fn string_start(rest: &str) -> Option<(usize, &'static str)> {
    let prefix = rest.bytes().take(2).take_while(|b| matches!(b, b'r' | b'R' | b'b' | b'B')).count();
    let after = rest.get(prefix..)?;
    let quote = ["\"\"\"", "'''", "\"", "'"].into_iter().find(|quote| after.starts_with(quote))?;
    Some((prefix, quote))
}

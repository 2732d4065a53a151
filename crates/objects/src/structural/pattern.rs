//! Regular expressions as Go understands them, run by an engine that is linear in the length of the text.

use std::sync::OnceLock;

use regex::{Regex, RegexBuilder};

/// A compiled expression may not take more than this.
const SIZE_LIMIT: usize = 1 << 20;

/// A pattern of a schema, compiled when first used.
#[derive(Debug)]
pub struct Pattern {
    text: Box<str>,
    compiled: OnceLock<Option<Regex>>,
}

impl Pattern {
    /// Takes the pattern as written.
    pub fn new(text: &str) -> Pattern {
        Pattern { text: text.into(), compiled: OnceLock::new() }
    }

    /// The pattern as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the pattern occurs in the text. A pattern that cannot be compiled matches nothing.
    pub fn matches(&self, text: &str) -> bool {
        let compiled = self.compiled.get_or_init(|| compile(&self.text).ok());
        compiled.as_ref().is_some_and(|regex| regex.is_match(text))
    }
}

/// Compiles a pattern; the error says why it cannot be.
pub fn compile(pattern: &str) -> Result<Regex, String> {
    compile_within(pattern, SIZE_LIMIT)
}

/// Tells what is wrong with the syntax of a pattern, without the work of compiling it.
pub fn check(pattern: &str) -> Result<(), String> {
    let parsed = regex_syntax::parse(&translate(pattern));
    parsed.map(|_| ()).map_err(|error| error.to_string().lines().last().unwrap_or_default().to_owned())
}

/// Compiles a pattern to a program of at most so many bytes. The time it takes grows with that limit.
pub fn compile_within(pattern: &str, size: usize) -> Result<Regex, String> {
    RegexBuilder::new(&translate(pattern))
        .size_limit(size)
        .dfa_size_limit(SIZE_LIMIT)
        .build()
        .map_err(|error| error.to_string().lines().last().unwrap_or_default().to_owned())
}

/// Rewrites what Go reads differently: `\d`, `\w`, `\s` and `\b` are ASCII, braces that repeat nothing are text, and
/// classes have no set operations.
fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern.chars().peekable();
    // How many characters of a class were read: a bracket right at its start is text.
    let mut class: Option<usize> = None;
    while let Some(c) = rest.next() {
        match (c, class) {
            ('\\', _) => escape(rest.next(), &mut rest, class.is_some(), &mut out),
            ('[', None) => {
                out.push('[');
                class = Some(0);
                if rest.peek() == Some(&'^') {
                    rest.next();
                    out.push('^');
                }
                continue;
            }
            ('[', Some(_)) if rest.peek() == Some(&':') => {
                // A named class, up to its own closing bracket.
                out.push('[');
                for c in rest.by_ref() {
                    out.push(c);
                    if c == ']' {
                        break;
                    }
                }
            }
            (']', Some(0)) => out.push_str("\\]"),
            (']', Some(_)) => {
                out.push(']');
                class = None;
                continue;
            }
            ('[' | '&' | '~', Some(_)) => {
                out.push('\\');
                out.push(c);
            }
            ('{', None) if !repeats(rest.clone()) => out.push_str("\\{"),
            _ => out.push(c),
        }
        class = class.map(|read| read + 1);
    }
    out
}

fn escape(
    c: Option<char>,
    rest: &mut std::iter::Peekable<std::str::Chars<'_>>,
    in_class: bool,
    out: &mut String,
) {
    let set = match c {
        Some('d' | 'D') => "0-9",
        Some('w' | 'W') => "0-9A-Za-z_",
        Some('s' | 'S') => "\\t\\n\\x0C\\r ",
        _ => "",
    };
    match c {
        Some('d' | 'w' | 's') if in_class => out.push_str(set),
        Some('d' | 'w' | 's') => out.extend(["[", set, "]"]),
        Some('D' | 'W' | 'S') => out.extend(["[^", set, "]"]),
        Some('b') if !in_class => out.push_str("(?-u:\\b)"),
        Some('B') if !in_class => out.push_str("(?-u:\\B)"),
        Some(c @ ('<' | '>')) => out.push(c),
        Some('Q') => {
            let mut quoted = String::new();
            while let Some(c) = rest.next() {
                if c == '\\' && rest.peek() == Some(&'E') {
                    rest.next();
                    break;
                }
                quoted.push(c);
            }
            out.push_str(&regex::escape(&quoted));
        }
        Some(c) => {
            out.push('\\');
            out.push(c);
        }
        None => out.push('\\'),
    }
}

/// Whether `{` begins `{2}`, `{2,}` or `{2,5}`.
fn repeats(rest: impl Iterator<Item = char>) -> bool {
    let inside: String = rest.take_while(|c| *c != '}').take(12).collect();
    let number = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    match inside.split_once(',') {
        Some((low, high)) => number(low) && (high.is_empty() || number(high)),
        None => number(&inside),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_go_means() {
        for (pattern, text, matches) in [
            (r"^\d+$", "12", true),
            (r"^\d+$", "١٢", false),
            (r"^[\w.-]+$", "a_b.c-d", true),
            (r"^[\w]+$", "é", false),
            (r"^[^\s]+$", "a b", false),
            (r"^a{,3}$", "a{,3}", true),
            (r"^a{2}$", "aa", true),
            (r"^[a&&b]$", "&", true),
            (r"^[[]$", "[", true),
            (r"^[]a]+$", "]a", true),
            (r"^[[:alpha:]]+$", "ab", true),
            (r"^\Qa.b\E$", "a.b", true),
            (r"^\Qa.b\E$", "axb", false),
            (r"\bfoo\b", "a foo b", true),
            (r"^a\/b$", "a/b", true),
        ] {
            let compiled = compile(pattern).unwrap_or_else(|e| unreachable!("{pattern}: {e}"));
            assert_eq!(compiled.is_match(text), matches, "{pattern} on {text}");
        }
    }

    #[test]
    fn broken_and_huge_patterns_are_refused() {
        for pattern in ["(", "[a", "a**b(", r"(?=x)", "(a{1000}){1000}", "\\"] {
            assert!(compile(pattern).is_err(), "{pattern}");
        }
        assert!(!Pattern::new("(").matches("("));
    }
}

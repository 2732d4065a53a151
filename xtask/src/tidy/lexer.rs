//! Rust source with comments and the contents of strings taken out, so that searches see code only.

/// The text with every comment, string and character literal blanked; line breaks stay where they are.
pub(super) fn code_only(text: &str) -> String {
    let mut rest = text;
    let mut code = String::with_capacity(text.len());
    let mut before = ' ';
    while let Some(first) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if let Some(length) = raw_string(rest).filter(|_| !is_word(before)) {
            length
        } else if first == '"' {
            quoted(rest, '"')
        } else if first == '\'' && !is_lifetime(rest) {
            quoted(rest, '\'')
        } else {
            0
        };
        if skipped == 0 {
            code.push(first);
            before = first;
            rest = &rest[first.len_utf8()..];
            continue;
        }
        code.push(' ');
        code.extend(rest[..skipped].chars().filter(|found| *found == '\n'));
        before = ' ';
        rest = &rest[skipped..];
    }
    code
}

fn is_word(found: char) -> bool {
    found.is_alphanumeric() || found == '_'
}

fn block_comment(text: &str) -> usize {
    let mut depth = 0usize;
    let mut at = 0;
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// Length of a raw string (`r"…"`, `br#"…"#`) at the start of the text.
fn raw_string(text: &str) -> Option<usize> {
    let after = text.strip_prefix("br").or_else(|| text.strip_prefix('r'))?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    if !after[hashes..].starts_with('"') {
        return None;
    }
    let body = text.len() - after.len() + hashes + 1;
    let end = format!("\"{}", "#".repeat(hashes));
    Some(text[body..].find(&end).map_or(text.len(), |at| body + at + end.len()))
}

/// Length of a literal that starts with and ends at `quote`, with backslash escapes.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, found) in text.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if found == '\\' {
            escaped = true;
        } else if found == quote {
            return at + found.len_utf8();
        }
    }
    text.len()
}

/// `'a` in `&'a str`, as opposed to `'a'`.
fn is_lifetime(text: &str) -> bool {
    let mut letters = text.chars().skip(1);
    let first = letters.next().unwrap_or(' ');
    is_word(first) && letters.next() != Some('\'')
}

#[cfg(test)]
mod tests {
    use super::code_only;

    fn check(source: &str, code: &str) {
        let squeeze =
            |text: &str| text.split(' ').filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
        assert_eq!(squeeze(&code_only(source)), squeeze(code), "{source}");
    }

    #[test]
    fn comments_and_literals_are_not_code() {
        check("a // b\nc", "a \nc");
        check("a /* b /* c */ d */ e", "a e");
        check(r#"f("x \" y") + 1"#, "f( ) + 1");
        check(r##"f(r#"x " y"#)"##, "f( )");
        check(r"g('\'', 'a', '{')", "g( , , )");
        check("fn f<'a>(x: &'a str, r: u8) {}", "fn f<'a>(x: &'a str, r: u8) {}");
        check("\"a\nb\"\nc", " \n\nc");
    }

    #[test]
    fn an_unfinished_literal_ends_with_the_file() {
        check("a \"b", "a");
        check("a /* b", "a");
        check("a r#\"b\"", "a");
    }
}

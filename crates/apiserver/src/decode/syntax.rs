//! Complaints about malformed JSON in the words of Go. Only used when parsing has already failed.

/// What Go's scanner would say about this text, or `None` if it would accept it.
pub fn complaint(text: &[u8]) -> Option<String> {
    let mut scanner = Scanner { text, at: 0 };
    let outcome = scanner.document();
    outcome.err().map(|fault| match fault {
        Fault::End => "unexpected end of JSON input".to_owned(),
        Fault::Character(context) => format!("invalid character {} {context}", quoted(text, scanner.at)),
        Fault::Depth => "exceeded max depth".to_owned(),
    })
}

enum Fault {
    End,
    Character(&'static str),
    Depth,
}

struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

const MAX_DEPTH: usize = 128;

impl Scanner<'_> {
    fn document(&mut self) -> Result<(), Fault> {
        self.value(0)?;
        match self.skip_space() {
            None => Ok(()),
            Some(_) => Err(Fault::Character("after top-level value")),
        }
    }

    fn skip_space(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.text.get(self.at) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    fn next(&self) -> Result<u8, Fault> {
        self.text.get(self.at).copied().ok_or(Fault::End)
    }

    fn value(&mut self, depth: usize) -> Result<(), Fault> {
        if depth >= MAX_DEPTH {
            return Err(Fault::Depth);
        }
        match self.skip_space().ok_or(Fault::End)? {
            b'{' => self.object(depth),
            b'[' => self.array(depth),
            b'"' => self.string(),
            b't' => self.literal(
                b"true",
                [
                    "in literal true (expecting 'r')",
                    "in literal true (expecting 'u')",
                    "in literal true (expecting 'e')",
                    "",
                ],
            ),
            b'f' => self.literal(
                b"false",
                [
                    "in literal false (expecting 'a')",
                    "in literal false (expecting 'l')",
                    "in literal false (expecting 's')",
                    "in literal false (expecting 'e')",
                ],
            ),
            b'n' => self.literal(
                b"null",
                [
                    "in literal null (expecting 'u')",
                    "in literal null (expecting 'l')",
                    "in literal null (expecting 'l')",
                    "",
                ],
            ),
            b'-' | b'0'..=b'9' => self.number(),
            _ => Err(Fault::Character("looking for beginning of value")),
        }
    }

    fn object(&mut self, depth: usize) -> Result<(), Fault> {
        self.at += 1;
        if self.skip_space() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            if self.skip_space().ok_or(Fault::End)? != b'"' {
                return Err(Fault::Character("looking for beginning of object key string"));
            }
            self.string()?;
            if self.skip_space().ok_or(Fault::End)? != b':' {
                return Err(Fault::Character("after object key"));
            }
            self.at += 1;
            self.value(depth + 1)?;
            match self.skip_space().ok_or(Fault::End)? {
                b',' => self.at += 1,
                b'}' => break,
                _ => return Err(Fault::Character("after object key:value pair")),
            }
        }
        self.at += 1;
        Ok(())
    }

    fn array(&mut self, depth: usize) -> Result<(), Fault> {
        self.at += 1;
        if self.skip_space() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.value(depth + 1)?;
            match self.skip_space().ok_or(Fault::End)? {
                b',' => self.at += 1,
                b']' => break,
                _ => return Err(Fault::Character("after array element")),
            }
        }
        self.at += 1;
        Ok(())
    }

    fn string(&mut self) -> Result<(), Fault> {
        self.at += 1;
        loop {
            match self.next()? {
                b'"' => break,
                b'\\' => {
                    self.at += 1;
                    match self.next()? {
                        b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => {}
                        b'u' => {
                            for _ in 0..4 {
                                self.at += 1;
                                if !self.next()?.is_ascii_hexdigit() {
                                    return Err(Fault::Character("in \\u hexadecimal character escape"));
                                }
                            }
                        }
                        _ => return Err(Fault::Character("in string escape code")),
                    }
                }
                0..0x20 => return Err(Fault::Character("in string literal")),
                _ => {}
            }
            self.at += 1;
        }
        self.at += 1;
        Ok(())
    }

    fn literal(&mut self, word: &[u8], contexts: [&'static str; 4]) -> Result<(), Fault> {
        self.at += 1;
        for (expected, context) in word.iter().skip(1).zip(contexts) {
            if self.next()? != *expected {
                return Err(Fault::Character(context));
            }
            self.at += 1;
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), Fault> {
        if self.next()? == b'-' {
            self.at += 1;
        }
        match self.next()? {
            b'0' => self.at += 1,
            b'1'..=b'9' => self.digits(),
            _ => return Err(Fault::Character("in numeric literal")),
        }
        if self.text.get(self.at) == Some(&b'.') {
            self.at += 1;
            if !self.next()?.is_ascii_digit() {
                return Err(Fault::Character("after decimal point in numeric literal"));
            }
            self.digits();
        }
        if let Some(b'e' | b'E') = self.text.get(self.at) {
            self.at += 1;
            if let b'+' | b'-' = self.next()? {
                self.at += 1;
            }
            if !self.next()?.is_ascii_digit() {
                return Err(Fault::Character("in exponent of numeric literal"));
            }
            self.digits();
        }
        Ok(())
    }

    fn digits(&mut self) {
        while self.text.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
    }
}

/// The character at that place as Go quotes it; bytes beyond ASCII are shown as the Latin-1 letter of their value.
fn quoted(text: &[u8], at: usize) -> String {
    match text.get(at).copied().unwrap_or_default() {
        b'\'' => r"'\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        byte => format!("'{}'", char::from(byte).escape_debug()),
    }
}

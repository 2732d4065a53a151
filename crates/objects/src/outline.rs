//! The structure of a JSON text, without a copy of what it says.
//!
//! Reading a text into values costs an allocation per name and text. Where two texts are only compared, it is enough to
//! know where everything stands. Texts are not decoded: a member or value is known by its characters as written.

/// Nothing sensible is nested this deep.
const MAX_DEPTH: usize = 128;
/// Objects with more members are only the same if they are written alike.
const MAX_COMPARED: usize = 256;

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `{…}`
    Object,
    /// `[…]`
    List,
    /// `"…"`
    Text,
    /// A number; its digits were not checked.
    Number,
    /// `true`, `false` or `null`
    Literal,
}

/// A value and where it stands.
#[derive(Clone, Copy, Debug)]
struct Node<'a> {
    /// As written between the quotes; empty for items of lists.
    name: &'a str,
    form: Form,
    /// Where the member begins, with its name.
    at: u32,
    start: u32,
    end: u32,
    /// The node behind everything in this one.
    next: u32,
}

/// The values of a text in the order in which they stand there.
#[derive(Debug)]
pub struct Outline<'a> {
    text: &'a str,
    nodes: Vec<Node<'a>>,
}

/// Names a value of an [`Outline`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At(u32);

impl<'a> Outline<'a> {
    /// Reads a text that is one JSON object. `None` when it is damaged; some damage inside of scalars is not noticed.
    pub fn read(text: &'a str) -> Option<Outline<'a>> {
        if text.len() > u32::MAX as usize {
            return None;
        }
        let mut reader =
            Reader { text, bytes: text.as_bytes(), at: 0, nodes: Vec::with_capacity(text.len() / 16) };
        reader.skip_space();
        if reader.peek() != Some(b'{') {
            return None;
        }
        reader.value("", 0, 0)?;
        reader.skip_space();
        (reader.at == text.len()).then_some(Outline { text, nodes: reader.nodes })
    }

    /// The text it was read from.
    pub fn whole(&self) -> &'a str {
        self.text
    }

    /// The whole object.
    pub fn root(&self) -> At {
        At(0)
    }

    fn node(&self, at: At) -> &Node<'a> {
        &self.nodes[at.0 as usize]
    }

    /// The name of a member as written.
    pub fn name(&self, at: At) -> &'a str {
        self.node(at).name
    }

    /// What a value is.
    pub fn form(&self, at: At) -> Form {
        self.node(at).form
    }

    /// A value as written.
    pub fn text(&self, at: At) -> &'a str {
        let node = self.node(at);
        &self.text[node.start as usize..node.end as usize]
    }

    /// What stands between the quotes of a text.
    pub fn inside(&self, at: At) -> Option<&'a str> {
        let node = self.node(at);
        (node.form == Form::Text).then(|| &self.text[node.start as usize + 1..node.end as usize - 1])
    }

    /// Where a value begins and ends.
    pub fn range(&self, at: At) -> std::ops::Range<usize> {
        let node = self.node(at);
        node.start as usize..node.end as usize
    }

    /// Where a member begins, with its name.
    pub fn member_start(&self, at: At) -> usize {
        self.node(at).at as usize
    }

    /// The members of an object or items of a list.
    pub fn children(&self, at: At) -> impl Iterator<Item = At> + '_ {
        let end = self.node(at).next;
        let first = at.0 + 1;
        std::iter::successors((first < end).then_some(At(first)), move |child| {
            let next = self.node(*child).next;
            (next < end).then_some(At(next))
        })
    }

    /// Whether nothing is in an object or list.
    pub fn is_empty(&self, at: At) -> bool {
        self.node(at).next == at.0 + 1
    }

    /// Finds a member.
    pub fn member(&self, at: At, name: &str) -> Option<At> {
        self.children(at).find(|child| self.name(*child) == name)
    }

    /// Finds a member when members are asked for in the order in which they stand: the search goes on from the last one.
    pub fn member_after(&self, at: At, cursor: &mut Option<At>, is_it: impl Fn(&str) -> bool) -> Option<At> {
        let end = self.node(at).next;
        let first = cursor.map_or(at.0 + 1, |last| self.node(last).next);
        let mut child = first;
        while child < end {
            if is_it(self.name(At(child))) {
                *cursor = Some(At(child));
                return *cursor;
            }
            child = self.node(At(child)).next;
        }
        let found =
            self.children(at).take_while(|child| child.0 < first).find(|child| is_it(self.name(*child)))?;
        *cursor = Some(found);
        Some(found)
    }

    /// Whether an object has two members of one name.
    pub fn has_twice(&self, at: At) -> bool {
        let mut last = "";
        if self.children(at).all(|child| std::mem::replace(&mut last, self.name(child)) < self.name(child)) {
            return false;
        }
        let mut names: Vec<&str> = self.children(at).map(|child| self.name(child)).collect();
        names.sort_unstable();
        names.windows(2).any(|pair| pair[0] == pair[1])
    }

    /// Whether two values say the same, as far as their characters tell: other spellings of one value differ.
    pub fn same(&self, at: At, other: &Outline<'_>, there: At) -> bool {
        let (form, text) = (self.form(at), self.text(at));
        if form != other.form(there) {
            return false;
        }
        if text == other.text(there) {
            return true;
        }
        match form {
            Form::Object => {
                let mut cursor = None;
                let count = self.children(at).count();
                count == other.children(there).count()
                    && count <= MAX_COMPARED
                    && !self.has_twice(at)
                    && self.children(at).all(|child| {
                        let name = self.name(child);
                        let found = other.member_after(there, &mut cursor, |given| given == name);
                        found.is_some_and(|found| self.same(child, other, found))
                    })
            }
            Form::List => {
                let (mut mine, mut theirs) = (self.children(at), other.children(there));
                loop {
                    match (mine.next(), theirs.next()) {
                        (None, None) => return true,
                        (Some(a), Some(b)) if self.same(a, other, b) => {}
                        _ => return false,
                    }
                }
            }
            Form::Text | Form::Number | Form::Literal => false,
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    nodes: Vec<Node<'a>>,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    /// Reads what stands between quotes.
    fn quoted(&mut self) -> Option<&'a str> {
        let start = self.at + 1;
        let mut at = start;
        loop {
            match *self.bytes.get(at)? {
                b'"' => break,
                b'\\' => at += 2,
                0..b' ' => return None,
                _ => at += 1,
            }
        }
        self.at = at + 1;
        self.text.get(start..at)
    }

    fn value(&mut self, name: &'a str, member_start: usize, depth: usize) -> Option<()> {
        let (index, start) = (self.nodes.len(), self.at);
        let form = match self.peek()? {
            b'{' => Form::Object,
            b'[' => Form::List,
            b'"' => Form::Text,
            b'-' | b'0'..=b'9' => Form::Number,
            b't' | b'f' | b'n' => Form::Literal,
            _ => return None,
        };
        self.nodes.push(Node { name, form, at: member_start as u32, start: start as u32, end: 0, next: 0 });
        match form {
            Form::Object | Form::List => self.inner(form, depth)?,
            Form::Text => {
                self.quoted()?;
            }
            Form::Number => {
                while let Some(b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9') = self.peek() {
                    self.at += 1;
                }
            }
            Form::Literal => {
                let rest = &self.bytes[start..];
                let word =
                    [&b"true"[..], b"false", b"null"].into_iter().find(|word| rest.starts_with(word))?;
                self.at += word.len();
            }
        }
        let next = self.nodes.len() as u32;
        let node = self.nodes.get_mut(index)?;
        (node.end, node.next) = (self.at as u32, next);
        Some(())
    }

    fn inner(&mut self, form: Form, depth: usize) -> Option<()> {
        if depth >= MAX_DEPTH {
            return None;
        }
        let close = if form == Form::Object { b'}' } else { b']' };
        self.at += 1;
        self.skip_space();
        if self.peek()? == close {
            self.at += 1;
            return Some(());
        }
        loop {
            self.skip_space();
            let start = self.at;
            let mut name = "";
            if form == Form::Object {
                if self.peek()? != b'"' {
                    return None;
                }
                name = self.quoted()?;
                self.skip_space();
                if self.peek()? != b':' {
                    return None;
                }
                self.at += 1;
                self.skip_space();
            }
            self.value(name, start, depth + 1)?;
            self.skip_space();
            match self.peek()? {
                b',' => self.at += 1,
                end if end == close => break,
                _ => return None,
            }
        }
        self.at += 1;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    fn rebuilt(outline: &Outline<'_>, at: At) -> String {
        let inner: Vec<String> = outline.children(at).map(|child| rebuilt(outline, child)).collect();
        let value = match outline.form(at) {
            Form::Object => format!("{{{}}}", inner.join(",")),
            Form::List => format!("[{}]", inner.join(",")),
            _ => outline.text(at).to_owned(),
        };
        match outline.name(at) {
            "" => value,
            name => format!("\"{name}\":{value}"),
        }
    }

    fn objects() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[a-z\"\\\\ü ]{0,6}".prop_map(Value::from),
        ];
        let value = leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map("[a-z\"]{1,3}", inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        });
        prop::collection::btree_map("[a-z\"]{1,3}", value, 0..5)
            .prop_map(|map| Value::Object(map.into_iter().collect()))
    }

    proptest! {
        #[test]
        fn an_outline_has_all_of_a_text(object in objects()) {
            let text = object.to_string();
            let outline = Outline::read(&text).unwrap();
            prop_assert_eq!(rebuilt(&outline, outline.root()), text.clone());
            let pretty = serde_json::to_string_pretty(&object).unwrap();
            let spaced = Outline::read(&pretty).unwrap();
            prop_assert_eq!(rebuilt(&spaced, spaced.root()), text.clone());
            prop_assert!(outline.same(outline.root(), &spaced, spaced.root()));
        }

        #[test]
        fn values_that_differ_are_not_the_same(a in objects(), b in objects()) {
            let (x, y) = (a.to_string(), b.to_string());
            let (x, y) = (Outline::read(&x).unwrap(), Outline::read(&y).unwrap());
            prop_assert_eq!(x.same(x.root(), &y, y.root()), a == b);
        }

        #[test]
        fn no_text_makes_it_panic(text in "[\\[\\]{}\",:\\\\a1 ü-]{0,40}") {
            Outline::read(&text);
        }
    }

    #[test]
    fn damaged_texts_have_no_outline() {
        for text in [
            "",
            "1",
            "[]",
            "{",
            "{}}",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{\"a\":tru}",
            "{\"a\":\"\\",
            "{a:1}",
        ] {
            assert!(Outline::read(text).is_none(), "{text}");
        }
        assert!(Outline::read(&format!("{{\"a\":{}", "[".repeat(100_000))).is_none());
    }
}

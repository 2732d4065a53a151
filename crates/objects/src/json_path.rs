//! The part of JSONPath that printer columns, scale paths and selectable fields use:
//! `.a.b`, `['a']`, `[0]`, `[-1]`, `[*]`, `[1:3]`, `[?(@.type=="Ready")]` and `..a`.

use serde_json::Value;

/// A parsed path.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPath(Vec<Step>);

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    Every,
    Index(i64),
    Slice(Option<i64>, Option<i64>),
    Descend(String),
    Filter(Vec<Step>, Option<(Comparison, Value)>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Results beyond this are not looked for.
const MAX_RESULTS: usize = 1_000;

impl JsonPath {
    /// Reads a path. A leading `$` and braces around it are allowed.
    pub fn parse(text: &str) -> Result<JsonPath, String> {
        let text = text.trim();
        let text = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')).unwrap_or(text);
        let text = text.strip_prefix('$').unwrap_or(text);
        Ok(JsonPath(steps(text)?))
    }

    /// All values the path finds, in order.
    pub fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        follow(&self.0, value)
    }

    /// The first value the path finds.
    pub fn first<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        self.find(value).into_iter().next()
    }

    /// The names of a path of fields only.
    pub fn fields(&self) -> Option<Vec<&str>> {
        self.0
            .iter()
            .map(|step| match step {
                Step::Field(name) => Some(name.as_str()),
                _ => None,
            })
            .collect()
    }
}

fn follow<'a>(steps: &[Step], value: &'a Value) -> Vec<&'a Value> {
    let mut found = vec![value];
    for step in steps {
        let mut next = Vec::new();
        for value in found {
            take(step, value, &mut next);
        }
        next.truncate(MAX_RESULTS);
        found = next;
    }
    found
}

fn take<'a>(step: &Step, value: &'a Value, out: &mut Vec<&'a Value>) {
    let items = value.as_array().map_or(&[][..], Vec::as_slice);
    match step {
        Step::Field(name) => out.extend(value.get(name)),
        Step::Every => match value {
            Value::Object(members) => out.extend(members.values()),
            _ => out.extend(items),
        },
        Step::Index(index) => out.extend(position(*index, items.len()).and_then(|i| items.get(i))),
        Step::Slice(from, to) => {
            let bound = |at: Option<i64>, default: usize| match at {
                None => default,
                Some(n) if n < 0 => items.len().saturating_sub(n.unsigned_abs() as usize),
                Some(n) => (n as usize).min(items.len()),
            };
            let (from, to) = (bound(*from, 0), bound(*to, items.len()));
            out.extend(items.get(from..to).unwrap_or_default());
        }
        Step::Descend(name) => descend(name, value, 0, out),
        Step::Filter(path, test) => out.extend(items.iter().filter(|item| {
            let found = follow(path, item);
            match test {
                None => !found.is_empty(),
                Some((comparison, wanted)) => found.iter().any(|v| compare(v, *comparison, wanted)),
            }
        })),
    }
}

fn position(index: i64, length: usize) -> Option<usize> {
    if index < 0 { length.checked_sub(index.unsigned_abs() as usize) } else { usize::try_from(index).ok() }
}

fn descend<'a>(name: &str, value: &'a Value, depth: usize, out: &mut Vec<&'a Value>) {
    if depth > 200 || out.len() > MAX_RESULTS {
        return;
    }
    match value {
        Value::Object(members) => {
            out.extend(members.get(name));
            members.values().for_each(|v| descend(name, v, depth + 1, out));
        }
        Value::Array(items) => items.iter().for_each(|v| descend(name, v, depth + 1, out)),
        _ => {}
    }
}

fn compare(value: &Value, comparison: Comparison, wanted: &Value) -> bool {
    let order = match (value, wanted) {
        (Value::Number(a), Value::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        _ => None,
    };
    match (comparison, order) {
        (Comparison::NotEqual, None) => true,
        (_, None) => false,
        (Comparison::Equal, Some(order)) => order.is_eq(),
        (Comparison::NotEqual, Some(order)) => order.is_ne(),
        (Comparison::Less, Some(order)) => order.is_lt(),
        (Comparison::LessOrEqual, Some(order)) => order.is_le(),
        (Comparison::Greater, Some(order)) => order.is_gt(),
        (Comparison::GreaterOrEqual, Some(order)) => order.is_ge(),
    }
}

fn steps(mut rest: &str) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix("..") {
            let (name, after) = name(after);
            steps.push(Step::Descend(name));
            rest = after;
        } else if let Some(after) = rest.strip_prefix('[') {
            let end = closing(after).ok_or_else(|| format!("unterminated array in {rest:?}"))?;
            steps.push(bracket(after[..end].trim())?);
            rest = &after[end + 1..];
        } else {
            let after = rest.strip_prefix('.').unwrap_or(rest);
            if after.starts_with('[') || after.is_empty() {
                rest = after;
                continue;
            }
            let (name, after) = name(after);
            if name.is_empty() {
                return Err(format!("unexpected character in {rest:?}"));
            }
            steps.push(if name == "*" { Step::Every } else { Step::Field(name) });
            rest = after;
        }
    }
    Ok(steps)
}

/// A name up to the next dot or bracket; a backslash takes the next character as it is.
fn name(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => name.extend(chars.next().map(|(_, c)| c)),
            '.' | '[' => return (name, &text[at..]),
            c => name.push(c),
        }
    }
    (name, "")
}

/// Where the bracket ends, quotes and inner brackets aside.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0usize, None);
    for (at, c) in text.char_indices() {
        match (c, quote) {
            (c, Some(q)) if c == q => quote = None,
            (_, Some(_)) => {}
            ('\'' | '"', None) => quote = Some(c),
            ('[', None) => depth += 1,
            (']', None) if depth == 0 => return Some(at),
            (']', None) => depth -= 1,
            _ => {}
        }
    }
    None
}

fn bracket(inside: &str) -> Result<Step, String> {
    if inside == "*" {
        return Ok(Step::Every);
    }
    if let Some(filter) = inside.strip_prefix("?(").and_then(|f| f.strip_suffix(')')) {
        return self::filter(filter.trim());
    }
    if let Some(Value::String(name)) = literal(inside).filter(|_| inside.starts_with(['\'', '"'])) {
        return Ok(Step::Field(name));
    }
    let number = |s: &str| -> Result<Option<i64>, String> {
        match s.trim() {
            "" => Ok(None),
            s => s.parse().map(Some).map_err(|_| format!("invalid array index {inside}")),
        }
    };
    match inside.split_once(':') {
        Some((from, to)) => Ok(Step::Slice(number(from)?, number(to)?)),
        None => number(inside)?.map(Step::Index).ok_or_else(|| "empty array index".to_owned()),
    }
}

fn filter(text: &str) -> Result<Step, String> {
    const OPERATORS: [(&str, Comparison); 6] = [
        ("==", Comparison::Equal),
        ("!=", Comparison::NotEqual),
        ("<=", Comparison::LessOrEqual),
        (">=", Comparison::GreaterOrEqual),
        ("<", Comparison::Less),
        (">", Comparison::Greater),
    ];
    let path = |text: &str| -> Result<Vec<Step>, String> {
        let text = text.trim();
        steps(text.strip_prefix('@').ok_or_else(|| format!("unrecognized filter {text:?}"))?)
    };
    let found =
        OPERATORS.iter().filter_map(|(sign, comparison)| Some((text.find(sign)?, *sign, *comparison)));
    // The first operator; of two at one place the longer.
    match found.min_by_key(|(at, sign, _)| (*at, 2 - sign.len())) {
        None => Ok(Step::Filter(path(text)?, None)),
        Some((at, sign, comparison)) => {
            let right = text[at + sign.len()..].trim();
            let wanted = literal(right).ok_or_else(|| format!("unrecognized value {right:?} in a filter"))?;
            Ok(Step::Filter(path(&text[..at])?, Some((comparison, wanted))))
        }
    }
}

fn literal(text: &str) -> Option<Value> {
    let quoted = |q: char| text.strip_prefix(q).and_then(|t| t.strip_suffix(q));
    if let Some(inner) = quoted('\'').or_else(|| quoted('"')) {
        return Some(Value::String(inner.replace("\\'", "'").replace("\\\"", "\"")));
    }
    serde_json::from_str(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_find_what_they_name() {
        let object = json!({"spec": {"n": 3, "list": ["x", "y", "z"], "a.b": 1},
            "status": {"conditions": [{"type": "A", "status": "False"}, {"type": "Ready", "status": "True"}]}});
        for (path, found) in [
            (".spec.n", json!([3])),
            ("$.spec.n", json!([3])),
            ("{.spec.n}", json!([3])),
            (".spec.list[0]", json!(["x"])),
            (".spec.list[-1]", json!(["z"])),
            (".spec.list[*]", json!(["x", "y", "z"])),
            (".spec.list[1:]", json!(["y", "z"])),
            (".spec['a.b']", json!([1])),
            (".spec.a\\.b", json!([1])),
            (".status.conditions[?(@.type==\"Ready\")].status", json!(["True"])),
            (".status.conditions[?(@.type == 'Ready')].status", json!(["True"])),
            (".status.conditions[?(@.type!='Ready')].status", json!(["False"])),
            ("..type", json!(["A", "Ready"])),
            (".spec.none.deep", json!([])),
            (".spec.list[9]", json!([])),
        ] {
            let parsed = JsonPath::parse(path).unwrap_or_else(|e| unreachable!("{path}: {e}"));
            assert_eq!(json!(parsed.find(&object)), found, "{path}");
        }
    }

    #[test]
    fn broken_paths_are_refused() {
        for path in [".a[", ".a[x]", ".a[?(x)]", ".a[]", ".a[?(@.b==)]"] {
            assert!(JsonPath::parse(path).is_err(), "{path}");
        }
    }
}

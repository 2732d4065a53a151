//! `fieldPath`: the field a rule complains about, relative to where the rule stands.

use serde_json::Value;

/// Reads `.a.b['c']` and follows it through the schema. Gives the path as error messages write it.
pub fn resolve(text: &str, schema: &Value) -> Result<String, String> {
    if text.trim() != text {
        return Err("must not contain leading or trailing spaces".to_owned());
    }
    let mut out = String::new();
    let mut schema = schema;
    let mut rest = text;
    while !rest.is_empty() {
        let (name, after) = segment(rest).ok_or_else(|| format!("unexpected text {rest:?}"))?;
        let property = schema.get("properties").and_then(|properties| properties.get(&name));
        let values = schema.get("additionalProperties").filter(|values| values.is_object());
        match (property, values) {
            (Some(property), _) => {
                out.push('.');
                out.push_str(&name);
                schema = property;
            }
            (None, Some(values)) => {
                out.push_str(&format!("[{name}]"));
                schema = values;
            }
            (None, None) => return Err("does not refer to a valid field".to_owned()),
        }
        rest = after;
    }
    Ok(out)
}

/// The first name and what follows it.
fn segment(text: &str) -> Option<(String, &str)> {
    if let Some(rest) = text.strip_prefix("['") {
        let mut name = String::new();
        let mut chars = rest.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => name.push(chars.next()?.1),
                '\'' => return Some((name, rest.get(at + 1..)?.strip_prefix(']')?)),
                c => name.push(c),
            }
        }
        return None;
    }
    let rest = text.strip_prefix('.')?;
    let length = rest.find(['.', '[']).unwrap_or(rest.len());
    let (name, after) = rest.split_at(length);
    let plain = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    plain.then(|| (name.to_owned(), after))
}

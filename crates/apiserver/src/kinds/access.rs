//! Reading and filling fields of an object, so that rules read like the fields they are about.
//! An absent field, a field of another type and a field of something that is no object all read as "not there".

use shoal_objects::{Map, Value};

/// The field, unless absent or null.
pub fn field<'a>(v: &'a Value, name: &str) -> Option<&'a Value> {
    v.get(name).filter(|f| !f.is_null())
}

/// The field, or null: a part of an object that may be left out altogether.
pub fn part<'a>(v: &'a Value, name: &str) -> &'a Value {
    v.get(name).unwrap_or(&Value::Null)
}

/// The value at a path of field names.
pub fn at<'a>(v: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(v, |v, name| field(v, name))
}

/// The text of a field, `""` when there is none.
pub fn str_at<'a>(v: &'a Value, name: &str) -> &'a str {
    v.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// The whole number of a field.
pub fn int_at(v: &Value, name: &str) -> Option<i64> {
    v.get(name).and_then(Value::as_i64)
}

/// Whether a field is `true`.
pub fn bool_at(v: &Value, name: &str) -> bool {
    v.get(name).and_then(Value::as_bool).unwrap_or_default()
}

/// The items of a list, none when there is no list.
pub fn list_at<'a>(v: &'a Value, name: &str) -> &'a [Value] {
    v.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The object in a field.
pub fn object_at<'a>(v: &'a Value, name: &str) -> Option<&'a Map> {
    v.get(name).and_then(Value::as_object)
}

/// The entries of an object or map, none when there is none.
pub fn entries_at<'a>(v: &'a Value, name: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    object_at(v, name).into_iter().flatten()
}

/// Whether the field holds something: an absent, empty or zero value is what Go's zero value is in JSON.
pub fn is_set(v: &Value, name: &str) -> bool {
    match v.get(name) {
        None | Some(Value::Null) => false,
        Some(Value::String(s)) => !s.is_empty(),
        Some(Value::Array(a)) => !a.is_empty(),
        Some(Value::Bool(b)) => *b,
        Some(Value::Number(n)) => n.as_f64() != Some(0.0),
        Some(Value::Object(_)) => true,
    }
}

/// The field for writing, when it is there.
pub fn existing_mut<'a>(v: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    v.get_mut(name).filter(|f| !f.is_null())
}

/// The object in a field for writing, made when absent. `None` when `v` is no object or the field holds something else.
pub fn child_mut<'a>(v: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    let child = v.as_object_mut()?.entry(name).or_insert_with(|| Value::Object(Map::new()));
    if child.is_null() {
        *child = Value::Object(Map::new());
    }
    child.is_object().then_some(child)
}

/// The items of a list for writing, none when there is no list.
pub fn list_mut<'a>(v: &'a mut Value, name: &str) -> &'a mut [Value] {
    v.get_mut(name).and_then(Value::as_array_mut).map_or(&mut [], Vec::as_mut_slice)
}

/// Sets a field that is absent (or null).
pub fn set_default(v: &mut Value, name: &str, value: impl Into<Value>) {
    if let Some(object) = v.as_object_mut()
        && object.get(name).is_none_or(Value::is_null)
    {
        object.insert(name.to_owned(), value.into());
    }
}

/// Sets a text field that is absent or empty: most enumerations have no meaning for `""`.
pub fn set_default_str(v: &mut Value, name: &str, value: &str) {
    if str_at(v, name).is_empty() {
        set(v, name, value);
    }
}

/// Sets a field.
pub fn set(v: &mut Value, name: &str, value: impl Into<Value>) {
    if let Some(object) = v.as_object_mut() {
        object.insert(name.to_owned(), value.into());
    }
}

/// Removes a field and gives what it held.
pub fn remove(v: &mut Value, name: &str) -> Option<Value> {
    v.as_object_mut().and_then(|object| object.remove(name))
}

/// Makes the field of `new` what it is in `old`: set, or absent.
pub fn carry_over(new: &mut Value, old: &Value, name: &str) {
    match old.get(name) {
        Some(value) => set(new, name, value.clone()),
        None => {
            remove(new, name);
        }
    }
}

/// Whether two values are equal but for some of their members.
pub fn equal_but(a: &Value, b: &Value, except: &[&str]) -> bool {
    let (Value::Object(a), Value::Object(b)) = (a, b) else { return a == b };
    let counts = |member: &(&String, &Value)| !except.contains(&member.0.as_str());
    a.iter().filter(counts).eq(b.iter().filter(counts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn some_members_may_differ() {
        let (a, b) = (json!({"x": 1, "y": 2}), json!({"x": 1, "y": 3, "z": 4}));
        assert!(equal_but(&a, &b, &["y", "z"]) && equal_but(&b, &a, &["y", "z"]));
        assert!(!equal_but(&a, &b, &["y"]) && !equal_but(&b, &a, &["y"]) && !equal_but(&a, &b, &["z"]));
        assert!(equal_but(&a, &json!({"x": 1}), &["y"]) && !equal_but(&a, &json!({}), &["y"]));
        assert!(!equal_but(&json!({}), &Value::Null, &["y"]) && equal_but(&json!([1]), &json!([1]), &["y"]));
    }

    #[test]
    fn wrong_types_read_as_absent() {
        let v = json!({"a": 1, "b": [1], "c": null});
        assert_eq!(str_at(&v, "a"), "");
        assert_eq!(list_at(&v, "a").len(), 0);
        assert_eq!(int_at(&json!("x"), "a"), None);
        assert!(field(&v, "c").is_none());
        assert!(at(&v, &["a", "x"]).is_none());
    }

    #[test]
    fn defaults_fill_only_what_is_absent() {
        let mut v = json!({"a": 0, "b": ""});
        set_default(&mut v, "a", 5);
        set_default(&mut v, "c", 5);
        set_default_str(&mut v, "b", "x");
        child_mut(&mut v, "d").map(|d| set(d, "e", true)).unwrap();
        assert_eq!(v, json!({"a": 0, "b": "x", "c": 5, "d": {"e": true}}));
        assert!(child_mut(&mut v, "a").is_none());
    }
}

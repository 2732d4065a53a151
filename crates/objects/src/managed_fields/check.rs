//! Whether an applied configuration has the form its type wants.

use serde_json::Value;

use super::element::{Element, keyed_item, set_item};
use super::place::Schema;
use crate::schema::{ListType, Shape, Type};

/// No more complaints than these are gathered.
const MAX_FAULTS: usize = 50;
/// Nothing sensible is nested this deep.
const MAX_DEPTH: usize = 200;

/// Refuses fields the type does not have, values of the wrong form, and list items without or with equal keys.
pub fn check(schema: Schema<'_>, object: &Value) -> Result<(), String> {
    let Some(root) = schema.root else { return Ok(()) };
    let mut walk = Walk { schema, faults: Vec::new(), depth: 0 };
    walk.object(schema.types.get(root), object);
    match walk.faults.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        many => Err(format!("errors:\n  {}", many.join("\n  "))),
    }
}

struct Walk<'t> {
    schema: Schema<'t>,
    /// Each begins with its path, which grows on the way out.
    faults: Vec<String>,
    depth: usize,
}

impl<'t> Walk<'t> {
    fn say(&mut self, why: impl AsRef<str>) {
        if self.faults.len() < MAX_FAULTS {
            self.faults.push(format!(": {}", why.as_ref()));
        }
    }

    /// Checks a part and puts its name before what is found there.
    fn inside(&mut self, element: &Element<'_>, step: impl FnOnce(&mut Self)) {
        let noted = self.faults.len();
        if self.depth >= MAX_DEPTH {
            self.say("nested too deep");
        } else {
            self.depth += 1;
            step(self);
            self.depth -= 1;
        }
        if self.faults.len() > noted {
            let mut name = String::new();
            element.show(&mut name);
            self.faults[noted..].iter_mut().for_each(|fault| fault.insert_str(0, &name));
        }
    }

    fn object(&mut self, described: &'t Type, value: &Value) {
        let members = match value {
            Value::Object(members) => members,
            Value::Null => return,
            other => return self.wrong("map", other),
        };
        let mut cursor = 0;
        for (name, value) in members {
            let element = Element::field(name);
            match described.field_after(&mut cursor, name) {
                Some(field) => self.inside(&element, |walk| walk.value(&field.shape, &field.list, value)),
                None if described.preserves_unknown => {}
                None => self.inside(&element, |walk| walk.say("field not declared in schema")),
            }
        }
    }

    fn value(&mut self, shape: &'t Shape, list: &'t ListType, value: &Value) {
        let scalar = !matches!(value, Value::Object(_) | Value::Array(_));
        let good = match (shape, value) {
            (_, Value::Null) => true,
            (Shape::Any | Shape::ObjectOr(..), _) => true,
            (Shape::String | Shape::Bytes | Shape::Duration, _) => value.is_string(),
            (Shape::Int32 | Shape::Int64 | Shape::Double, _) => value.is_number(),
            (Shape::Boolean, _) => value.is_boolean(),
            (Shape::Time | Shape::MicroTime | Shape::Quantity | Shape::IntOrString, _) => scalar,
            (Shape::Object(id), _) => {
                self.object(self.schema.types.get(*id), value);
                true
            }
            (Shape::Map(item), Value::Object(members)) => {
                for (name, value) in members {
                    self.inside(&Element::field(name), |walk| walk.value(item, &ListType::Atomic, value));
                }
                true
            }
            (Shape::List(item), Value::Array(items)) => {
                self.items(item, list, items);
                true
            }
            _ => false,
        };
        if !good {
            self.wrong(expected(shape), value);
        }
    }

    fn items(&mut self, shape: &'t Shape, list: &'t ListType, items: &[Value]) {
        let mut seen: Vec<Element<'static>> = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let element = match list {
                ListType::Atomic => Element::index(index),
                ListType::Set => set_item(item),
                ListType::Map(keys) => match keyed_item(self.schema.types, shape, keys, item) {
                    Ok(element) => element,
                    Err((why, _)) => {
                        self.say(format!("element {index}: {why}"));
                        continue;
                    }
                },
            };
            self.inside(&element, |walk| walk.value(shape, &ListType::Atomic, item));
            if *list != ListType::Atomic {
                seen.push(element);
            }
        }
        seen.sort();
        for (first, second) in seen.iter().zip(seen.iter().skip(1)) {
            if first == second {
                let mut name = String::new();
                first.show(&mut name);
                self.say(format!("duplicate entries for key {name}"));
            }
        }
    }

    fn wrong(&mut self, wanted: &str, value: &Value) {
        self.say(format!("expected {wanted}, got &value.valueUnstructured{{Value:{value}}}"));
    }
}

fn expected(shape: &Shape) -> &'static str {
    match shape {
        Shape::String | Shape::Bytes | Shape::Duration => "string",
        Shape::Int32 | Shape::Int64 | Shape::Double => "numeric (int or float)",
        Shape::Boolean => "boolean",
        Shape::List(_) => "list",
        Shape::Map(_) | Shape::Object(_) => "map",
        _ => "scalar",
    }
}

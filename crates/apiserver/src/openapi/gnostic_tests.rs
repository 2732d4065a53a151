//! Reads the protobuf form back with tables of its own, and compares it with the JSON form.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::document;
use crate::registry::Registry;

/// Messages in a short form of their definition: `number name kind`. Kinds: `s` text, `b` bool, `i` int64, `d` double,
/// `any` text in YAML, `x` extensions, `map:T` a message of named `T`s, or the name of a message; a `*` repeats.
const MESSAGES: &str = "
Document: 1 swagger s, 2 info Info, 8 paths Paths, 9 definitions map:Schema, 12 security *map:Strings,
 13 securityDefinitions map:SecurityItem, 16 - x
Info: 1 title s, 2 version s, 3 description s, 7 - x
SecurityItem: 2 = ApiKey
ApiKey: 1 type s, 2 name s, 3 in s, 4 description s, 5 - x
Strings: 1 = *s
Paths: 1 - x, 2 = *entry:PathItem
PathItem: 2 get Operation, 3 put Operation, 4 post Operation, 5 delete Operation, 6 options Operation,
 7 head Operation, 8 patch Operation, 9 parameters *ParametersItem, 10 - x
Operation: 1 tags *s, 2 summary s, 3 description s, 5 operationId s, 6 produces *s, 7 consumes *s,
 8 parameters *ParametersItem, 9 responses map:ResponseValue, 10 schemes *s, 11 deprecated b, 13 - x
ParametersItem: 1 = Parameter
Parameter: 1 = BodyParameter, 2 = NonBodyParameter
BodyParameter: 1 description s, 2 name s, 3 in s, 4 required b, 5 schema Schema, 6 - x
NonBodyParameter: 3 = QueryParameter, 4 = PathParameter
QueryParameter: 1 required b, 2 in s, 3 description s, 4 name s, 6 type s, 7 format s, 10 default any, 20 uniqueItems b, 23 - x
PathParameter: 1 required b, 2 in s, 3 description s, 4 name s, 5 type s, 6 format s, 9 default any, 19 uniqueItems b, 22 - x
ResponseValue: 1 = Response
Response: 1 description s, 2 schema SchemaItem, 5 - x
SchemaItem: 1 = Schema
Schema: 1 $ref s, 2 format s, 3 title s, 4 description s, 5 default any, 6 multipleOf d, 7 maximum d, 8 exclusiveMaximum b,
 9 minimum d, 10 exclusiveMinimum b, 11 maxLength i, 12 minLength i, 13 pattern s, 14 maxItems i, 15 minItems i, 16 uniqueItems b,
 17 maxProperties i, 18 minProperties i, 19 required *s, 20 enum *any, 21 additionalProperties AdditionalProperties,
 22 type TypeItem, 23 items ItemsItem, 24 allOf *Schema, 25 properties map:Schema, 27 readOnly b, 30 example any, 31 - x
AdditionalProperties: 1 = Schema, 2 = b
TypeItem: 1 = s
ItemsItem: 1 = Schema
";

type Fields = HashMap<u64, (&'static str, &'static str)>;

fn tables() -> HashMap<&'static str, Fields> {
    let mut tables: HashMap<&str, Fields> = HashMap::new();
    let mut current = "";
    for line in MESSAGES.lines().filter(|line| !line.is_empty()) {
        let rest = match line.split_once(": ") {
            Some((name, rest)) if !line.starts_with(' ') => {
                current = name;
                rest
            }
            _ => line,
        };
        for field in rest.split(',').map(str::trim).filter(|field| !field.is_empty()) {
            let mut words = field.split(' ');
            let mut next = || words.next().unwrap();
            let number = next().parse().unwrap();
            tables.entry(current).or_default().insert(number, (next(), next()));
        }
    }
    tables
}

struct Decoder(HashMap<&'static str, Fields>);

enum Wire<'a> {
    Number(u64),
    Double(f64),
    Bytes(&'a [u8]),
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, Wire<'_>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let end = bytes.iter().position(|byte| byte & 0x80 == 0).unwrap();
        let value = bytes[..=end].iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f));
        *bytes = &bytes[end + 1..];
        value
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let value = match key & 7 {
            0 => Wire::Number(varint(&mut bytes)),
            1 => {
                let (double, rest) = bytes.split_first_chunk::<8>().unwrap();
                bytes = rest;
                Wire::Double(f64::from_le_bytes(*double))
            }
            2 => {
                let length = usize::try_from(varint(&mut bytes)).unwrap();
                let (inner, rest) = bytes.split_at(length);
                bytes = rest;
                Wire::Bytes(inner)
            }
            other => unreachable!("wire type {other}"),
        };
        found.push((key >> 3, value));
    }
    found
}

impl Decoder {
    fn value(&self, kind: &str, wire: &Wire<'_>) -> Value {
        match (kind, wire) {
            ("s", Wire::Bytes(bytes)) => String::from_utf8(bytes.to_vec()).unwrap().into(),
            ("b", Wire::Number(flag)) => (*flag != 0).into(),
            ("i", Wire::Number(number)) => (*number as i64).into(),
            ("d", Wire::Double(number)) => (*number).into(),
            ("any", Wire::Bytes(bytes)) => {
                let [(2, Wire::Bytes(yaml))] = fields(bytes)[..] else { unreachable!("an Any has yaml") };
                serde_json::from_slice(yaml).unwrap()
            }
            (kind, Wire::Bytes(bytes)) => match kind.split_once(':') {
                Some(("map", item)) => {
                    let entries = fields(bytes).into_iter().map(|(number, wire)| {
                        assert_eq!(number, 1);
                        self.entry(item, &wire)
                    });
                    Value::Object(entries.collect())
                }
                _ => self.message(kind, bytes),
            },
            (kind, _) => unreachable!("wire type of {kind}"),
        }
    }

    fn entry(&self, kind: &str, wire: &Wire<'_>) -> (String, Value) {
        let Wire::Bytes(bytes) = wire else { unreachable!("an entry is a message") };
        let [(1, Wire::Bytes(name)), (2, ref value)] = fields(bytes)[..] else {
            unreachable!("name and value")
        };
        (String::from_utf8(name.to_vec()).unwrap(), self.value(kind, value))
    }

    fn message(&self, name: &str, bytes: &[u8]) -> Value {
        let table = &self.0[name];
        let mut object = Map::new();
        // A message that stands for its only member.
        let mut alone = if name == "Strings" { Some(json!([])) } else { None };
        for (number, wire) in fields(bytes) {
            let (field, kind) =
                *table.get(&number).unwrap_or_else(|| unreachable!("{name} has no field {number}"));
            match (field, kind.strip_prefix('*')) {
                ("-", _) => object.extend([self.entry("any", &wire)]),
                ("=", Some(item)) => match item.strip_prefix("entry:") {
                    Some(item) => object.extend([self.entry(item, &wire)]),
                    None => {
                        let list = alone.get_or_insert(json!([]));
                        list.as_array_mut().unwrap().push(self.value(item, &wire));
                    }
                },
                ("=", None) => alone = Some(self.value(kind, &wire)),
                (field, Some(item)) => {
                    let list = object.entry(field).or_insert(json!([]));
                    list.as_array_mut().unwrap().push(self.value(item, &wire));
                }
                (field, None) => {
                    assert!(
                        object.insert(field.to_owned(), self.value(kind, &wire)).is_none(),
                        "{name}.{field}"
                    );
                }
            }
        }
        alone.unwrap_or(Value::Object(object))
    }
}

/// proto3 does not tell what is empty from what is absent.
fn without_empty(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.values_mut().for_each(without_empty);
            members.retain(|name, value| {
                let is_empty = *value == json!(false) || *value == json!("") || *value == json!([]);
                !is_empty || name == "default" || name == "BearerToken" || name.starts_with("x-")
            });
        }
        Value::Array(items) => items.iter_mut().for_each(without_empty),
        _ => {}
    }
}

#[test]
fn the_protobuf_form_says_the_same_as_the_json_form() {
    let subject = document::everything(&Registry::builtin());
    let (mut text, mut binary) = (Vec::new(), Vec::new());
    document::write(&subject, &mut text).unwrap();
    document::write_protobuf(&subject, &mut binary).unwrap();
    let mut wanted: Value = serde_json::from_slice(&text).unwrap();
    without_empty(&mut wanted);
    let mut found = Decoder(tables()).message("Document", &binary);
    without_empty(&mut found);
    for part in ["paths", "definitions"] {
        let wanted = wanted[part].as_object().unwrap();
        assert!(wanted.len() > 100);
        for (name, wanted) in wanted {
            assert_eq!(&found[part][name], wanted, "{name}");
        }
    }
    assert_eq!(found, wanted);
}

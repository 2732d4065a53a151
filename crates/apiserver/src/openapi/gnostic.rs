//! The Swagger 2 document in protobuf: the `openapi.v2.Document` message of the gnostic library, which Go clients ask
//! for first.
//!
//! Every table below is one message: JSON name, field number and kind of its fields. Whatever has no type of its own
//! (defaults, extensions) is text in YAML, which JSON is.

use serde_json::{Map, Value};

use crate::protobuf::wire::{nested, put_bytes, put_double, put_number};

type Write = fn(u32, &Value, &mut Vec<u8>);

/// JSON name, field number, and how the value is written.
type Field = (&'static str, u32, Write);

struct Message {
    fields: &'static [Field],
    /// Field number of members that start with `x-`.
    extensions: u32,
}

const DOCUMENT: Message = Message {
    fields: &[
        ("swagger", 1, text),
        ("info", 2, |tag, value, out| message(tag, &INFO, value, out)),
        ("security", 12, |tag, value, out| each(tag, value, out, security_requirement)),
        ("securityDefinitions", 13, |tag, value, out| named(tag, value, out, security_definition)),
    ],
    extensions: 16,
};
const INFO: Message =
    Message { fields: &[("title", 1, text), ("version", 2, text), ("description", 3, text)], extensions: 7 };
const API_KEY: Message = Message {
    fields: &[("type", 1, text), ("name", 2, text), ("in", 3, text), ("description", 4, text)],
    extensions: 5,
};
const PATH_ITEM: Message = Message {
    fields: &[
        ("get", 2, operation),
        ("put", 3, operation),
        ("post", 4, operation),
        ("delete", 5, operation),
        ("options", 6, operation),
        ("head", 7, operation),
        ("patch", 8, operation),
        ("parameters", 9, |tag, value, out| each(tag, value, out, parameter)),
    ],
    extensions: 10,
};
const OPERATION: Message = Message {
    fields: &[
        ("tags", 1, texts),
        ("summary", 2, text),
        ("description", 3, text),
        ("operationId", 5, text),
        ("produces", 6, texts),
        ("consumes", 7, texts),
        ("parameters", 8, |tag, value, out| each(tag, value, out, parameter)),
        ("responses", 9, |tag, value, out| named(tag, value, out, response)),
        ("schemes", 10, texts),
        ("deprecated", 11, flag),
    ],
    extensions: 13,
};
const RESPONSE: Message = Message {
    fields: &[
        ("description", 1, text),
        ("schema", 2, |tag, value, out| nested(out, tag, |out| schema(1, value, out))),
    ],
    extensions: 5,
};
const BODY_PARAMETER: Message = Message {
    fields: &[
        ("description", 1, text),
        ("name", 2, text),
        ("in", 3, text),
        ("required", 4, flag),
        ("schema", 5, schema),
    ],
    extensions: 6,
};
const QUERY_PARAMETER: Message = Message {
    fields: &[
        ("required", 1, flag),
        ("in", 2, text),
        ("description", 3, text),
        ("name", 4, text),
        ("type", 6, text),
        ("format", 7, text),
        ("default", 10, any),
        ("uniqueItems", 20, flag),
    ],
    extensions: 23,
};
const PATH_PARAMETER: Message = Message {
    fields: &[
        ("required", 1, flag),
        ("in", 2, text),
        ("description", 3, text),
        ("name", 4, text),
        ("type", 5, text),
        ("format", 6, text),
        ("default", 9, any),
        ("uniqueItems", 19, flag),
    ],
    extensions: 22,
};
const SCHEMA: Message = Message {
    fields: &[
        ("$ref", 1, text),
        ("format", 2, text),
        ("title", 3, text),
        ("description", 4, text),
        ("default", 5, any),
        ("multipleOf", 6, double),
        ("maximum", 7, double),
        ("exclusiveMaximum", 8, flag),
        ("minimum", 9, double),
        ("exclusiveMinimum", 10, flag),
        ("maxLength", 11, integer),
        ("minLength", 12, integer),
        ("pattern", 13, text),
        ("maxItems", 14, integer),
        ("minItems", 15, integer),
        ("uniqueItems", 16, flag),
        ("maxProperties", 17, integer),
        ("minProperties", 18, integer),
        ("required", 19, texts),
        ("enum", 20, |tag, value, out| each(tag, value, out, any_members)),
        ("additionalProperties", 21, additional_properties),
        ("type", 22, |tag, value, out| nested(out, tag, |out| one_or_many(value, out, text))),
        ("items", 23, |tag, value, out| nested(out, tag, |out| one_or_many(value, out, schema))),
        ("allOf", 24, |tag, value, out| each(tag, value, out, schema_members)),
        ("properties", 25, |tag, value, out| named(tag, value, out, schema_members)),
        ("readOnly", 27, flag),
        ("example", 30, any),
    ],
    extensions: 31,
};

/// Writes a document piece by piece, as JSON is written. Repeated fields of the same message may stand in pieces.
pub struct Document {
    out: Vec<u8>,
    paths: Vec<u8>,
    definitions: Vec<u8>,
}

impl Document {
    /// Begins with what is neither a path nor a definition.
    pub fn new(head: &Value) -> Document {
        let mut out = Vec::new();
        members(&DOCUMENT, head, &mut out);
        Document { out, paths: Vec::new(), definitions: Vec::new() }
    }

    /// Adds a path.
    pub fn path(&mut self, name: &str, item: &Value) {
        entry(2, name, &mut self.paths, |out| members(&PATH_ITEM, item, out));
    }

    /// Adds a model.
    pub fn definition(&mut self, name: &str, model: &Value) {
        entry(1, name, &mut self.definitions, |out| members(&SCHEMA, model, out));
    }

    /// The whole message.
    pub fn finish(mut self) -> Vec<u8> {
        put_bytes(&mut self.out, 8, &self.paths);
        put_bytes(&mut self.out, 9, &self.definitions);
        self.out
    }
}

fn members(message: &Message, value: &Value, out: &mut Vec<u8>) {
    let empty = Map::new();
    let object = value.as_object().unwrap_or(&empty);
    for (name, tag, write) in message.fields {
        if let Some(value) = object.get(*name) {
            write(*tag, value, out);
        }
    }
    for (name, value) in object.iter().filter(|(name, _)| name.starts_with("x-")) {
        entry(message.extensions, name, out, |out| any_members(value, out));
    }
}

fn message(tag: u32, kind: &Message, value: &Value, out: &mut Vec<u8>) {
    nested(out, tag, |out| members(kind, value, out));
}

/// A name and a value: how maps are written.
fn entry(tag: u32, name: &str, out: &mut Vec<u8>, value: impl FnOnce(&mut Vec<u8>)) {
    nested(out, tag, |out| {
        put_bytes(out, 1, name.as_bytes());
        nested(out, 2, value);
    });
}

/// A message that is nothing but a map; extensions do not occur in those.
fn named(tag: u32, value: &Value, out: &mut Vec<u8>, write: fn(&Value, &mut Vec<u8>)) {
    nested(out, tag, |out| {
        for (name, value) in value.as_object().into_iter().flatten() {
            entry(1, name, out, |out| write(value, out));
        }
    });
}

fn each(tag: u32, value: &Value, out: &mut Vec<u8>, write: fn(&Value, &mut Vec<u8>)) {
    for item in value.as_array().into_iter().flatten() {
        nested(out, tag, |out| write(item, out));
    }
}

fn one_or_many(value: &Value, out: &mut Vec<u8>, write: Write) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| write(1, item, out)),
        one => write(1, one, out),
    }
}

fn text(tag: u32, value: &Value, out: &mut Vec<u8>) {
    if let Some(text) = value.as_str().filter(|text| !text.is_empty()) {
        put_bytes(out, tag, text.as_bytes());
    }
}

fn texts(tag: u32, value: &Value, out: &mut Vec<u8>) {
    for text in value.as_array().into_iter().flatten().filter_map(Value::as_str) {
        put_bytes(out, tag, text.as_bytes());
    }
}

fn flag(tag: u32, value: &Value, out: &mut Vec<u8>) {
    if value == &Value::Bool(true) {
        put_number(out, tag, 1);
    }
}

fn integer(tag: u32, value: &Value, out: &mut Vec<u8>) {
    if let Some(number) = value.as_i64().filter(|number| *number != 0) {
        put_number(out, tag, number);
    }
}

fn double(tag: u32, value: &Value, out: &mut Vec<u8>) {
    if let Some(number) = value.as_f64().filter(|number| *number != 0.0) {
        put_double(out, tag, number);
    }
}

fn any(tag: u32, value: &Value, out: &mut Vec<u8>) {
    nested(out, tag, |out| any_members(value, out));
}

fn any_members(value: &Value, out: &mut Vec<u8>) {
    put_bytes(out, 2, format!("{value}\n").as_bytes());
}

fn schema(tag: u32, value: &Value, out: &mut Vec<u8>) {
    message(tag, &SCHEMA, value, out);
}

fn schema_members(value: &Value, out: &mut Vec<u8>) {
    members(&SCHEMA, value, out);
}

fn additional_properties(tag: u32, value: &Value, out: &mut Vec<u8>) {
    nested(out, tag, |out| match value {
        // One of two: false must be seen.
        Value::Bool(allowed) => put_number(out, 2, i64::from(*allowed)),
        value => schema(1, value, out),
    });
}

fn operation(tag: u32, value: &Value, out: &mut Vec<u8>) {
    message(tag, &OPERATION, value, out);
}

fn parameter(value: &Value, out: &mut Vec<u8>) {
    nested(out, 1, |out| match value.get("in").and_then(Value::as_str) {
        Some("body") => message(1, &BODY_PARAMETER, value, out),
        Some("path") => nested(out, 2, |out| message(4, &PATH_PARAMETER, value, out)),
        _ => nested(out, 2, |out| message(3, &QUERY_PARAMETER, value, out)),
    });
}

fn response(value: &Value, out: &mut Vec<u8>) {
    message(1, &RESPONSE, value, out);
}

fn security_definition(value: &Value, out: &mut Vec<u8>) {
    message(2, &API_KEY, value, out);
}

fn security_requirement(value: &Value, out: &mut Vec<u8>) {
    for (name, scopes) in value.as_object().into_iter().flatten() {
        entry(1, name, out, |out| texts(1, scopes, out));
    }
}

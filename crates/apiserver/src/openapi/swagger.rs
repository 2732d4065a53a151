//! Models of Swagger 2 in protobuf, by the numbers of `openapi.v2.Document` from the gnostic project.

use serde_json::{Map, Value};

use crate::protobuf::wire::{nested, put_bytes, put_double, put_number};

const DOCUMENT_SWAGGER: u32 = 1;
const DOCUMENT_INFO: u32 = 2;
const DOCUMENT_PATHS: u32 = 8;
const DOCUMENT_DEFINITIONS: u32 = 9;

/// Schemas are nested as deep as their authors like, and definitions of custom kinds are bounded elsewhere.
const MAX_DEPTH: usize = 100;

/// How a keyword of a schema is written.
enum Form {
    Text,
    Double,
    Number,
    Flag,
    /// YAML text in an `Any`; JSON is YAML.
    Any,
    Texts,
    Anys,
    /// A schema, or whether there may be any.
    SchemaOrFlag,
    /// `TypeItem`: one name or several.
    Type,
    /// `ItemsItem`: one schema or several.
    Items,
    Schemas,
    /// `Properties`: schemas by name.
    Named,
}

/// Keywords of a schema with their numbers.
const KEYWORDS: &[(&str, u32, Form)] = &[
    ("$ref", 1, Form::Text),
    ("format", 2, Form::Text),
    ("title", 3, Form::Text),
    ("description", 4, Form::Text),
    ("default", 5, Form::Any),
    ("multipleOf", 6, Form::Double),
    ("maximum", 7, Form::Double),
    ("exclusiveMaximum", 8, Form::Flag),
    ("minimum", 9, Form::Double),
    ("exclusiveMinimum", 10, Form::Flag),
    ("maxLength", 11, Form::Number),
    ("minLength", 12, Form::Number),
    ("pattern", 13, Form::Text),
    ("maxItems", 14, Form::Number),
    ("minItems", 15, Form::Number),
    ("uniqueItems", 16, Form::Flag),
    ("maxProperties", 17, Form::Number),
    ("minProperties", 18, Form::Number),
    ("required", 19, Form::Texts),
    ("enum", 20, Form::Anys),
    ("additionalProperties", 21, Form::SchemaOrFlag),
    ("type", 22, Form::Type),
    ("items", 23, Form::Items),
    ("allOf", 24, Form::Schemas),
    ("properties", 25, Form::Named),
    ("readOnly", 27, Form::Flag),
    ("example", 30, Form::Any),
];
const VENDOR_EXTENSION: u32 = 31;

/// A whole document of these models, which [`put_model`] has written.
pub fn document(title: &str, version: &str, models: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(models.len() + 100);
    put_bytes(&mut out, DOCUMENT_SWAGGER, b"2.0");
    nested(&mut out, DOCUMENT_INFO, |out| {
        put_bytes(out, 1, title.as_bytes());
        put_bytes(out, 2, version.as_bytes());
    });
    put_bytes(&mut out, DOCUMENT_PATHS, b"");
    put_bytes(&mut out, DOCUMENT_DEFINITIONS, models);
    out
}

/// Adds one model.
pub fn put_model(out: &mut Vec<u8>, name: &str, schema: &Value) {
    put_named(out, name, schema, 0);
}

fn put_named(out: &mut Vec<u8>, name: &str, schema: &Value, depth: usize) {
    nested(out, 1, |out| {
        put_bytes(out, 1, name.as_bytes());
        nested(out, 2, |out| put_schema(out, schema, depth));
    });
}

fn put_schema(out: &mut Vec<u8>, schema: &Value, depth: usize) {
    let Some(schema) = schema.as_object().filter(|_| depth < MAX_DEPTH) else { return };
    for (keyword, tag, form) in KEYWORDS {
        if let Some(value) = schema.get(*keyword) {
            put_keyword(out, *tag, form, value, depth + 1);
        }
    }
    for (name, value) in extensions(schema) {
        nested(out, VENDOR_EXTENSION, |out| {
            put_bytes(out, 1, name.as_bytes());
            put_any(out, 2, value);
        });
    }
}

fn extensions(schema: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    schema.iter().filter(|(name, _)| name.starts_with("x-"))
}

fn put_keyword(out: &mut Vec<u8>, tag: u32, form: &Form, value: &Value, depth: usize) {
    match (form, value) {
        (Form::Text, Value::String(text)) => put_bytes(out, tag, text.as_bytes()),
        (Form::Double, _) => put_double(out, tag, value.as_f64().unwrap_or_default()),
        (Form::Number, _) => put_number(out, tag, value.as_i64().unwrap_or_default()),
        (Form::Flag, Value::Bool(flag)) => put_number(out, tag, i64::from(*flag)),
        (Form::Any, _) => put_any(out, tag, value),
        (Form::Texts, Value::Array(texts)) => {
            texts.iter().filter_map(Value::as_str).for_each(|text| put_bytes(out, tag, text.as_bytes()));
        }
        (Form::Anys, Value::Array(values)) => values.iter().for_each(|value| put_any(out, tag, value)),
        (Form::SchemaOrFlag, Value::Bool(flag)) => {
            nested(out, tag, |out| put_number(out, 2, i64::from(*flag)));
        }
        (Form::SchemaOrFlag, _) => {
            nested(out, tag, |out| nested(out, 1, |out| put_schema(out, value, depth)));
        }
        (Form::Type | Form::Items, Value::Array(several)) => {
            nested(out, tag, |out| several.iter().for_each(|one| put_type_or_item(out, one, depth)));
        }
        (Form::Type | Form::Items, one) => nested(out, tag, |out| put_type_or_item(out, one, depth)),
        (Form::Schemas, Value::Array(schemas)) => {
            schemas.iter().for_each(|schema| nested(out, tag, |out| put_schema(out, schema, depth)));
        }
        (Form::Named, Value::Object(schemas)) => nested(out, tag, |out| {
            schemas.iter().for_each(|(name, schema)| put_named(out, name, schema, depth));
        }),
        _ => {}
    }
}

fn put_type_or_item(out: &mut Vec<u8>, value: &Value, depth: usize) {
    match value {
        Value::String(name) => put_bytes(out, 1, name.as_bytes()),
        schema => nested(out, 1, |out| put_schema(out, schema, depth)),
    }
}

fn put_any(out: &mut Vec<u8>, tag: u32, value: &Value) {
    nested(out, tag, |out| put_bytes(out, 2, value.to_string().as_bytes()));
}

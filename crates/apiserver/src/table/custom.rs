//! Tables of custom kinds: the columns are in the definition.

use serde_json::{Value, json};
use shoal_objects::{Timestamp, meta};

use super::{Options, assemble, duration, row};
use crate::registry::custom::{CustomKind, PrinterColumn};

/// A `Table` of objects of a custom kind.
pub fn table(
    kind: &CustomKind,
    objects: &[Value],
    metadata: Value,
    options: Options,
    now: Timestamp,
) -> Value {
    let rows = objects
        .iter()
        .map(|object| {
            let mut cells = vec![Value::from(meta::name(object))];
            cells.extend(kind.columns.iter().map(|column| cell(column, object, now)));
            row(cells, None, object, options)
        })
        .collect();
    let definitions = options.headers.then(|| {
        let name = super::cells::NAME.definition();
        std::iter::once(name).chain(kind.columns.iter().map(definition)).collect()
    });
    assemble(definitions, rows, metadata, options)
}

fn definition(column: &PrinterColumn) -> Value {
    json!({
        "name": column.name, "type": column.kind, "format": column.format, "description": column.description,
        "priority": column.priority,
    })
}

/// The first value of the column's path; null when there is none or it is of another type.
fn cell(column: &PrinterColumn, object: &Value, now: Timestamp) -> Value {
    let Some(value) = column.path.as_ref().and_then(|path| path.first(object)) else { return Value::Null };
    match (column.kind.as_str(), value) {
        ("integer", Value::Number(n)) => {
            n.as_i64().or_else(|| n.as_f64().map(|n| n as i64)).map_or(Value::Null, Value::from)
        }
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) | ("string", Value::String(_)) => {
            value.clone()
        }
        ("string", Value::Null) => Value::Null,
        ("string", other) => other.to_string().into(),
        ("date", Value::String(_)) => match duration::micros(value) {
            Some(_) => duration::since(Some(value), now).into(),
            None => "<invalid>".into(),
        },
        _ => Value::Null,
    }
}

//! Removes what the schema does not know.

use serde_json::Value;

use super::metadata::{META_FIELDS, TYPE_FIELDS};
use super::{Additional, MAX_DEPTH, Schema};

/// The real server stops counting unknown fields here.
const MAX_REPORTED: usize = 100;

/// Removes unknown fields of a resource; its apiVersion, kind and metadata are not looked at.
pub fn prune(schema: &Schema, object: &mut Value) {
    prune_noting(schema, object, &mut Vec::new());
}

/// [`prune`], with the paths of what was removed.
pub fn prune_noting(schema: &Schema, object: &mut Value, unknown: &mut Vec<String>) {
    let mut walk = Walk { unknown, path: String::new() };
    walk.value(schema, object, true, 0);
}

/// Removes unknown fields of a value that is a resource itself or not.
pub(super) fn prune_value(schema: &Schema, value: &mut Value, resource: bool) {
    Walk { unknown: &mut Vec::new(), path: String::new() }.value(schema, value, resource, 1);
}

struct Walk<'a> {
    unknown: &'a mut Vec<String>,
    path: String,
}

impl Walk<'_> {
    fn value(&mut self, schema: &Schema, value: &mut Value, root: bool, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        match value {
            Value::Array(items) => {
                // A list that is not described keeps its items but not what is in them.
                let nothing = Schema::default();
                let schema = match &schema.items {
                    Some(items) => items,
                    None if schema.preserve_unknown => return,
                    None => &nothing,
                };
                for (index, item) in items.iter_mut().enumerate() {
                    let before = self.path.len();
                    self.path.push_str(&format!("[{index}]"));
                    self.value(schema, item, schema.embedded, depth + 1);
                    self.path.truncate(before);
                }
            }
            Value::Object(members) => members.retain(|name, value| {
                if root && TYPE_FIELDS.contains(&name.as_str()) {
                    return true;
                }
                let before = self.path.len();
                if !self.path.is_empty() {
                    self.path.push('.');
                }
                self.path.push_str(name);
                let keep = if root && name == "metadata" {
                    // The metadata of the resource itself has been decoded; that of embedded ones has not.
                    if depth > 0 {
                        self.metadata(value);
                    }
                    true
                } else if let Some(known) = schema.field(name) {
                    self.value(known, value, known.embedded, depth + 1);
                    true
                } else {
                    schema.preserve_unknown || matches!(schema.additional, Additional::Any)
                };
                if !keep {
                    self.note();
                }
                self.path.truncate(before);
                keep
            }),
            _ => {}
        }
    }

    fn metadata(&mut self, metadata: &mut Value) {
        let Some(members) = metadata.as_object_mut() else { return };
        members.retain(|name, _| {
            let known = META_FIELDS.contains(&name.as_str());
            if !known && self.unknown.len() < MAX_REPORTED {
                self.unknown.push(format!("{}.{name}", self.path));
            }
            known
        });
    }

    fn note(&mut self) {
        if self.unknown.len() < MAX_REPORTED {
            self.unknown.push(self.path.clone());
        }
    }
}

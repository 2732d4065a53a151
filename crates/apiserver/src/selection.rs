//! Which objects of a list or watch the client wants: labels, fields, shard.

use std::cell::OnceCell;

use serde_json::Value;
use shoal_objects::json_path::JsonPath;
use shoal_objects::selector::{FieldOperator, FieldSelector, LabelSelector};
use shoal_objects::shard::ShardSelector;
use shoal_store::Object;

use crate::encode;
use crate::index::Index;
use crate::kinds::fields;
use crate::registry::Resource;
use crate::request::Query;
use crate::status::{Failure, Outcome};

/// A parsed selection. Empty selects everything.
#[derive(Debug, Default)]
pub struct Selection {
    labels: Option<LabelSelector>,
    fields: Vec<FieldTest>,
    /// The shard asked for.
    pub shard: Option<ShardSelector>,
}

#[derive(Debug)]
struct FieldTest {
    place: Place,
    equal: bool,
    value: String,
}

#[derive(Debug, Clone, PartialEq)]
enum Place {
    Name,
    Namespace,
    Field(usize),
    /// A field of a custom kind: definitions change, so it is in no index.
    Path(JsonPath),
}

impl Selection {
    /// Reads the selectors of a query.
    pub fn parse(resource: &Resource, query: &Query, shards: bool) -> Outcome<Selection> {
        let mut selection = Selection::default();
        if let Some(text) = query.get("labelSelector").filter(|t| !t.is_empty()) {
            selection.labels = Some(LabelSelector::parse(text).map_err(Failure::bad_request)?);
        }
        if let Some(text) = query.get("fieldSelector").filter(|t| !t.is_empty()) {
            let parsed = FieldSelector::parse(text).map_err(Failure::bad_request)?;
            for term in parsed.requirements {
                let place = place(resource, &term.field)?;
                let equal = term.operator == FieldOperator::Equals;
                selection.fields.push(FieldTest { place, equal, value: term.value });
            }
        }
        if shards && let Some(text) = query.get("shardSelector").filter(|t| !t.is_empty()) {
            let shard = ShardSelector::parse(text).map_err(|e| Failure::internal(e.to_string()))?;
            selection.shard = Some(shard);
        }
        Ok(selection)
    }

    /// Whether everything is selected.
    pub fn is_everything(&self) -> bool {
        self.labels.is_none() && self.fields.is_empty() && self.shard.is_none()
    }

    /// The one name that can match, if the selection says so.
    pub fn single_name(&self) -> Option<&str> {
        self.fields.iter().find(|f| f.place == Place::Name && f.equal).map(|f| f.value.as_str())
    }

    /// The one namespace that can match, if the selection says so.
    pub fn single_namespace(&self) -> Option<&str> {
        self.fields.iter().find(|f| f.place == Place::Namespace && f.equal).map(|f| f.value.as_str())
    }

    /// Whether a stored object is selected.
    pub fn matches(&self, object: &Object) -> bool {
        if self.is_everything() {
            return true;
        }
        let index = Index::new(&object.meta);
        let (namespace, name) = object.key.split_once('/').unwrap_or(("", &object.key));
        let body = OnceCell::new();
        let fields = self.fields.iter().all(|test| {
            let value = match &test.place {
                Place::Name => name,
                Place::Namespace => namespace,
                Place::Field(at) => index.field(*at),
                Place::Path(path) => {
                    let found = text_at(path, body.get_or_init(|| parse(object)));
                    return (found == test.value) == test.equal;
                }
            };
            (value == test.value) == test.equal
        });
        fields
            && self.labels.as_ref().is_none_or(|labels| labels.matches(|key| index.label(key)))
            && self.shard.as_ref().is_none_or(|shard| shard.contains(index.uid(), namespace))
    }
}

fn parse(object: &Object) -> Value {
    serde_json::from_slice(encode::object_slice(&object.value)).unwrap_or_default()
}

/// What a selectable field holds, as text.
fn text_at(path: &JsonPath, object: &Value) -> String {
    match path.first(object) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

fn selectable<'a>(resource: &'a Resource, field: &str) -> Option<&'a JsonPath> {
    resource.custom.as_ref()?.selectable.iter().find(|(name, _)| &**name == field).map(|(_, path)| path)
}

fn place(resource: &Resource, field: &str) -> Outcome<Place> {
    match field {
        "metadata.name" => Ok(Place::Name),
        "metadata.namespace" if resource.namespaced => Ok(Place::Namespace),
        _ if selectable(resource, field).is_some() => {
            Ok(selectable(resource, field).map_or(Place::Name, |path| Place::Path(path.clone())))
        }
        _ => match resource.fields.iter().position(|f| *f == field) {
            Some(at) => Ok(Place::Field(at)),
            None => Err(Failure::bad_request(fields::unsupported_message(
                &resource.group,
                &resource.plural,
                field,
            ))),
        },
    }
}

//! Custom kinds: what a CustomResourceDefinition makes the server serve, one entry per served version.

use std::cmp::Ordering;
use std::sync::{Arc, OnceLock};

use serde_json::Value;
use shoal_objects::json_path::JsonPath;
use shoal_objects::schema::{Shape, Type, TypeId, Types};
use shoal_objects::structural::{self, Schema};
use shoal_objects::{Map, Path, meta};

use super::{Conversion, READ_WRITE, Resource, Subresource, Traits, subresource};
use crate::builtin;
use crate::cel::rules::CompiledRules;
use crate::conversion::Webhook;
use crate::kinds::access::{bool_at, field, int_at, list_at, str_at};
use crate::kinds::{Rules, fields};

/// The order is that of the real server.
const VERBS: [&str; 8] = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// What is particular to a version of a custom kind.
pub struct CustomKind {
    /// Name of the CustomResourceDefinition.
    pub definition: Box<str>,
    /// The definition is being deleted: nothing new is created.
    pub terminating: bool,
    /// The revision that created the definition; nothing is older.
    pub since: u64,
    /// `GROUP/VERSION` in which objects are stored.
    pub storage_version: Box<str>,
    /// What objects of this version are like.
    pub schema: Schema,
    /// Its rules beyond keywords.
    pub rules: CompiledRules,
    /// The same as the client wrote it.
    pub open_api: Value,
    /// Columns of tables.
    pub columns: Vec<PrinterColumn>,
    /// Paths of the scale subresource.
    pub scale: Option<ScalePaths>,
    /// Fields to select by, as written and parsed.
    pub selectable: Vec<(Box<str>, JsonPath)>,
    /// What converts objects between versions; without it they are alike.
    pub webhook: Option<Arc<Webhook>>,
    /// What to warn users of this version of.
    pub deprecation: Option<String>,
    /// Objects at or after this revision were written under this very schema; `None` when other versions may differ.
    verbatim_from: Option<u64>,
    /// The revision of the definition that this was made from.
    pub revision: u64,
    types: OnceLock<(Types, TypeId)>,
}

/// A column of a custom kind.
pub struct PrinterColumn {
    /// The heading.
    pub name: String,
    /// `integer`, `number`, `string`, `boolean` or `date`.
    pub kind: String,
    /// Passed on to clients.
    pub format: String,
    /// What it shows.
    pub description: String,
    /// 0 is always shown.
    pub priority: i64,
    /// Where its value is.
    pub path: Option<JsonPath>,
}

/// Paths of the scale subresource, as names of fields.
pub struct ScalePaths {
    /// `specReplicasPath` as written.
    pub written: String,
    /// Wanted replicas.
    pub spec: Vec<String>,
    /// Present replicas.
    pub status: Vec<String>,
    /// Label selector as text.
    pub selector: Option<Vec<String>>,
}

impl CustomKind {
    /// Whether an object written at this revision can be shown as it is stored.
    pub fn is_verbatim(&self, revision: u64) -> bool {
        self.verbatim_from.is_some_and(|from| revision >= from)
    }

    /// The type table of the schema and the type of its objects.
    pub fn types(&self) -> (&Types, TypeId) {
        let (types, root) = self.types.get_or_init(|| structural::to_types(&self.schema, copy_object_meta));
        (types, *root)
    }
}

/// Whether a condition of a definition is true.
pub fn has_condition(definition: &Value, kind: &str) -> bool {
    let status = field(definition, "status").unwrap_or(&Value::Null);
    list_at(status, "conditions").iter().any(|c| str_at(c, "type") == kind && str_at(c, "status") == "True")
}

/// The resources of an established definition, best version first. `created` and `revision` are those of the stored
/// definition.
pub fn resources(definition: &Value, created: u64, revision: u64) -> Vec<Arc<Resource>> {
    if !has_condition(definition, "Established") {
        return Vec::new();
    }
    let empty = Value::Null;
    let spec = field(definition, "spec").unwrap_or(&empty);
    let names = definition.pointer("/status/acceptedNames").unwrap_or(&empty);
    let mut versions: Vec<&Value> = list_at(spec, "versions").iter().collect();
    versions.sort_by(|a, b| version_order(str_at(a, "name"), str_at(b, "name")));
    let group = str_at(spec, "group");
    let storage = versions.iter().find(|v| bool_at(v, "storage")).map_or("", |v| str_at(v, "name"));
    let namespaced = str_at(spec, "scope") == "Namespaced";
    let texts = |name: &str| list_at(names, name).iter().filter_map(Value::as_str).map(Box::from).collect();
    let plural = str_at(names, "plural");
    let table: Arc<str> = format!("{group}/{plural}").into();
    let webhook = Webhook::of(definition).map(Arc::new);
    versions
        .iter()
        .filter(|version| bool_at(version, "served"))
        .map(|version| {
            let name = str_at(version, "name");
            let subresources = subresources(version, str_at(names, "kind"));
            let custom = CustomKind {
                definition: meta::name(definition).into(),
                terminating: meta::deletion_timestamp(definition).is_some(),
                since: created,
                storage_version: format!("{group}/{storage}").into(),
                schema: Schema::parse(version.pointer("/schema/openAPIV3Schema").unwrap_or(&empty)),
                // Rules were compiled when the definition was written: they compile again.
                rules: CompiledRules::compile(
                    version.pointer("/schema/openAPIV3Schema").unwrap_or(&empty),
                    &Path::new("schema"),
                )
                .unwrap_or_default(),
                open_api: version.pointer("/schema/openAPIV3Schema").cloned().unwrap_or_default(),
                columns: columns(version),
                scale: version.pointer("/subresources/scale").and_then(scale_paths),
                selectable: selectable(version),
                webhook: webhook.clone(),
                deprecation: deprecation(group, str_at(names, "kind"), version, &versions),
                verbatim_from: (versions.len() == 1).then_some(revision),
                revision,
                types: OnceLock::new(),
            };
            Arc::new(Resource {
                group: group.into(),
                version: name.into(),
                plural: plural.into(),
                singular: str_at(names, "singular").into(),
                kind: str_at(names, "kind").into(),
                list_kind: str_at(names, "listKind").into(),
                api_version: format!("{group}/{name}").into(),
                namespaced,
                verbs: VERBS.iter().copied().map(Box::from).collect(),
                short_names: texts("shortNames"),
                categories: texts("categories"),
                traits: Traits {
                    status: subresources.iter().any(|s| &*s.name == "status"),
                    generation: true,
                    conditional_update: true,
                    ..Traits::default()
                },
                subresources,
                table: table.clone(),
                conversion: Conversion::None,
                type_id: None,
                rules: Rules::NONE,
                fields: fields::supported(group, plural),
                custom: Some(Arc::new(custom)),
            })
        })
        .collect()
}

fn subresources(version: &Value, kind: &str) -> Vec<Subresource> {
    let given = field(version, "subresources").unwrap_or(&Value::Null);
    let mut found = Vec::new();
    if field(given, "status").is_some() {
        found.push(Subresource {
            name: "status".into(),
            kind: kind.into(),
            group: "",
            version: "",
            verbs: READ_WRITE,
        });
    }
    if field(given, "scale").is_some() {
        found.push(subresource("scale", kind));
    }
    found
}

fn columns(version: &Value) -> Vec<PrinterColumn> {
    let given = list_at(version, "additionalPrinterColumns");
    if given.is_empty() {
        return vec![PrinterColumn {
            name: "Age".into(),
            kind: "date".into(),
            format: String::new(),
            description: "Time since the server created the object.".into(),
            priority: 0,
            path: JsonPath::parse(".metadata.creationTimestamp").ok(),
        }];
    }
    let column = |column: &Value| {
        let path = str_at(column, "jsonPath");
        let text = |name: &str| str_at(column, name).to_owned();
        PrinterColumn {
            name: text("name"),
            kind: text("type"),
            format: text("format"),
            description: match text("description") {
                none if none.is_empty() => {
                    format!("Custom resource definition column (in JSONPath format): {path}")
                }
                given => given,
            },
            priority: int_at(column, "priority").unwrap_or_default(),
            path: JsonPath::parse(path).ok(),
        }
    };
    given.iter().map(column).collect()
}

fn scale_paths(scale: &Value) -> Option<ScalePaths> {
    let path = |name: &str| -> Option<Vec<String>> {
        let parsed = JsonPath::parse(str_at(scale, name)).ok()?;
        let fields = parsed.fields()?.into_iter().map(str::to_owned).collect::<Vec<String>>();
        (!fields.is_empty()).then_some(fields)
    };
    Some(ScalePaths {
        written: str_at(scale, "specReplicasPath").to_owned(),
        spec: path("specReplicasPath")?,
        status: path("statusReplicasPath")?,
        selector: path("labelSelectorPath"),
    })
}

fn selectable(version: &Value) -> Vec<(Box<str>, JsonPath)> {
    let parse = |field: &Value| {
        let path = str_at(field, "jsonPath");
        Some((path.strip_prefix('.').unwrap_or(path).into(), JsonPath::parse(path).ok()?))
    };
    list_at(version, "selectableFields").iter().filter_map(parse).collect()
}

/// The warning of a deprecated version: its own, or one that names the version to use instead.
fn deprecation(group: &str, kind: &str, version: &Value, versions: &[&Value]) -> Option<String> {
    if !bool_at(version, "deprecated") {
        return None;
    }
    if let Some(text) = field(version, "deprecationWarning").and_then(Value::as_str) {
        return Some(text.to_owned());
    }
    let name = str_at(version, "name");
    let mut text = format!("{group}/{name} {kind} is deprecated");
    // Versions are in order of preference: only a better one is worth a move.
    let better = versions.iter().take_while(|v| str_at(v, "name") != name);
    if let Some(better) = better.into_iter().find(|v| bool_at(v, "served") && !bool_at(v, "deprecated")) {
        text.push_str(&format!("; use {group}/{} {kind}", str_at(better, "name")));
    }
    Some(text)
}

/// Kubernetes' order of versions: stable before beta before alpha, high numbers first, other names last.
pub fn version_order(a: &str, b: &str) -> Ordering {
    match (rank(a), rank(b)) {
        (Some(a), Some(b)) => b.cmp(&a),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// Stability, major and minor number of `v1`, `v2beta3`, `v1alpha1`.
fn rank(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let major = rest[..digits].parse().ok()?;
    let (stability, minor) = match &rest[digits..] {
        "" => return Some((3, major, 0)),
        suffix => match suffix.strip_prefix("beta") {
            Some(minor) => (2, minor),
            None => (1, suffix.strip_prefix("alpha")?),
        },
    };
    Some((stability, major, minor.parse().ok()?))
}

/// Copies `ObjectMeta` and what it refers to from the built-in types.
fn copy_object_meta(types: &mut Vec<Type>) -> Option<TypeId> {
    let source = builtin::types();
    let mut copied: Vec<(TypeId, TypeId)> = Vec::new();
    Some(copy_type(source, source.find(OBJECT_META)?, types, &mut copied))
}

fn copy_type(
    source: &Types,
    id: TypeId,
    types: &mut Vec<Type>,
    copied: &mut Vec<(TypeId, TypeId)>,
) -> TypeId {
    if let Some((_, done)) = copied.iter().find(|(from, _)| *from == id) {
        return *done;
    }
    let new = TypeId(types.len() as u32);
    copied.push((id, new));
    types.push(source.get(id).clone());
    let mut fields = source.get(id).fields.clone();
    for field in &mut fields {
        copy_shape(source, &mut field.shape, types, copied);
    }
    types[new.0 as usize].fields = fields;
    new
}

fn copy_shape(source: &Types, shape: &mut Shape, types: &mut Vec<Type>, copied: &mut Vec<(TypeId, TypeId)>) {
    match shape {
        Shape::Object(id) | Shape::ObjectOr(id, _) => *id = copy_type(source, *id, types, copied),
        Shape::List(item) | Shape::Map(item) => copy_shape(source, item, types, copied),
        _ => {}
    }
}

/// The value at a path of names, and setting it.
pub fn at_path<'a>(object: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, name| value.get(name))
}

/// Sets the value at a path of names, making objects on the way.
pub fn set_at_path(object: &mut Value, path: &[String], value: Value) {
    let Some((last, parents)) = path.split_last() else { return };
    let mut place = object;
    for name in parents {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        place = &mut place[name.as_str()];
    }
    if !place.is_object() {
        *place = Value::Object(Map::new());
    }
    place[last.as_str()] = value;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_kubernetes_orders_them() {
        let mut versions = ["foo10", "v1alpha1", "v2", "v10", "v1beta2", "v11beta1", "foo1", "v1", "v3beta1"];
        versions.sort_by(|a, b| version_order(a, b));
        assert_eq!(
            versions,
            ["v10", "v2", "v1", "v11beta1", "v3beta1", "v1beta2", "v1alpha1", "foo1", "foo10"]
        );
    }

    #[test]
    fn the_type_table_of_a_schema_knows_the_metadata() {
        let (types, root) =
            structural::to_types(&Schema::parse(&serde_json::json!({"type": "object"})), copy_object_meta);
        let Some(Shape::Object(metadata)) = types.get(root).field("metadata").map(|f| f.shape.clone()) else {
            unreachable!("metadata is an object")
        };
        assert!(types.get(metadata).field("labels").is_some());
    }
}

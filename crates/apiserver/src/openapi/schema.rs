//! Models: the types of the table as schemas.

use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

use serde_json::{Map, Value, json};
use shoal_objects::schema::{Empty, Field, ListType, Shape, Type, TypeId, Types};

use super::dialect::Dialect;
use super::scalars;
use crate::builtin::{self, Descriptions};

/// Defaults that the schema itself states, beyond the zero values of Go; without `io.k8s.api.`.
pub(super) const DEFAULTS: &[(&str, &str)] = &[
    ("core.v1.AzureDiskVolumeSource.cachingMode", "ReadWrite"),
    ("core.v1.AzureDiskVolumeSource.fsType", "ext4"),
    ("core.v1.AzureDiskVolumeSource.kind", "Shared"),
    ("core.v1.ConfigMapEnvSource.name", ""),
    ("core.v1.ConfigMapKeySelector.name", ""),
    ("core.v1.ConfigMapProjection.name", ""),
    ("core.v1.ConfigMapVolumeSource.name", ""),
    ("core.v1.ContainerPort.protocol", "TCP"),
    ("core.v1.ISCSIPersistentVolumeSource.iscsiInterface", "default"),
    ("core.v1.ISCSIVolumeSource.iscsiInterface", "default"),
    ("core.v1.LocalObjectReference.name", ""),
    ("core.v1.RBDPersistentVolumeSource.keyring", "/etc/ceph/keyring"),
    ("core.v1.RBDPersistentVolumeSource.pool", "rbd"),
    ("core.v1.RBDPersistentVolumeSource.user", "admin"),
    ("core.v1.RBDVolumeSource.keyring", "/etc/ceph/keyring"),
    ("core.v1.RBDVolumeSource.pool", "rbd"),
    ("core.v1.RBDVolumeSource.user", "admin"),
    ("core.v1.ScaleIOPersistentVolumeSource.fsType", "xfs"),
    ("core.v1.ScaleIOPersistentVolumeSource.storageMode", "ThinProvisioned"),
    ("core.v1.ScaleIOVolumeSource.fsType", "xfs"),
    ("core.v1.ScaleIOVolumeSource.storageMode", "ThinProvisioned"),
    ("core.v1.SecretEnvSource.name", ""),
    ("core.v1.SecretKeySelector.name", ""),
    ("core.v1.SecretProjection.name", ""),
    ("core.v1.ServicePort.protocol", "TCP"),
];

/// Words that fields may hold, by `Type.field` without `io.k8s.api.`.
static ENUMS: LazyLock<HashMap<&'static str, &'static str>> =
    LazyLock::new(|| read_enums(include_str!("enums.txt")));

/// A line of words, below it one indented line per field that takes them.
pub(super) fn read_enums(text: &str) -> HashMap<&str, &str> {
    let mut enums = HashMap::new();
    let mut words = "";
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        match line.strip_prefix(' ') {
            Some(field) => {
                enums.insert(field, words);
            }
            None => words = line,
        }
    }
    enums
}

/// Writes the models of documents about some group versions.
pub struct Models<'a> {
    dialect: Dialect,
    types: &'static Types,
    descriptions: &'static Descriptions,
    kinds: HashMap<TypeId, Vec<(&'a str, &'a str, &'a str)>>,
}

impl<'a> Models<'a> {
    /// Models for documents about these group versions.
    pub fn new(dialect: Dialect, group_versions: &[(&'a str, &'a str)]) -> Models<'a> {
        let mut kinds: HashMap<TypeId, Vec<(&str, &str, &str)>> = HashMap::new();
        for (group, version, kind, id) in builtin::kinds() {
            kinds.entry(id).or_default().push((group, version, kind));
        }
        // Options that are the same in all groups belong to each of them.
        for kind in ["DeleteOptions", "WatchEvent"] {
            let Some(id) = builtin::type_of("", "v1", kind) else { continue };
            let own = kinds.entry(id).or_default();
            for (group, version) in group_versions {
                if !own.contains(&(*group, *version, kind)) {
                    own.push((*group, *version, kind));
                }
            }
        }
        for all in kinds.values_mut() {
            all.sort_unstable();
        }
        Models { dialect, types: builtin::types(), descriptions: builtin::descriptions(), kinds }
    }

    /// These models and all they refer to, sorted by name.
    pub fn closure(&self, names: impl IntoIterator<Item = String>) -> BTreeSet<String> {
        let mut seen = BTreeSet::new();
        let mut open: Vec<String> = names.into_iter().collect();
        while let Some(name) = open.pop() {
            if let Some(id) = self.types.find(&name)
                && !seen.contains(&name)
            {
                let owner = self.types.get(id);
                let shapes = owner.fields.iter().map(|f| innermost(&f.shape));
                open.extend(shapes.filter_map(|s| self.model_of(s, &owner.name)).map(str::to_owned));
            }
            seen.insert(name);
        }
        seen
    }

    /// The schema of a model; nothing for names that are none.
    pub fn schema(&self, name: &str) -> Option<Value> {
        if let Some(scalar) = scalars::schema(name, self.dialect) {
            return Some(scalar);
        }
        let id = self.types.find(name)?;
        Some(self.object(id, self.types.get(id)))
    }

    fn object(&self, id: TypeId, owner: &Type) -> Value {
        let mut schema = Map::new();
        if let Some(text) = self.descriptions.of_type(&owner.name) {
            schema.insert("description".into(), text.into());
        }
        schema.insert("type".into(), "object".into());
        let properties: Map<String, Value> =
            owner.fields.iter().map(|f| (f.name.to_string(), self.property(owner, f))).collect();
        if !properties.is_empty() {
            schema.insert("properties".into(), Value::Object(properties));
        }
        let required: Vec<&str> = owner.fields.iter().filter(|f| f.required).map(|f| &*f.name).collect();
        if !required.is_empty() {
            schema.insert("required".into(), required.into());
        }
        if owner.atomic {
            schema.insert("x-kubernetes-map-type".into(), "atomic".into());
        }
        if let Some(kinds) = self.kinds.get(&id) {
            let kinds: Vec<Value> =
                kinds.iter().map(|(g, v, k)| json!({"group": g, "version": v, "kind": k})).collect();
            schema.insert("x-kubernetes-group-version-kind".into(), kinds.into());
        }
        Value::Object(schema)
    }

    fn property(&self, owner: &Type, field: &Field) -> Value {
        let full_name = format!("{}.{}", owner.name, field.name);
        let short_name = full_name.strip_prefix("io.k8s.api.").unwrap_or(&full_name);
        let mut marks = Map::new();
        if let Some(text) = self.descriptions.of_field(&owner.name, &field.name) {
            marks.insert("description".into(), text.into());
        }
        if self.dialect == Dialect::V3
            && let Some(default) = default(field, short_name)
        {
            marks.insert("default".into(), default);
        }
        merging(field, &mut marks);
        let words = ENUMS.get(short_name).map(|w| enum_words(w));
        let Some(model) = self.model_of(&field.shape, &owner.name) else {
            marks.append(&mut self.plain(&field.shape, &owner.name));
            match (words, &field.shape) {
                (Some(words), Shape::List(_)) => marks["items"]["enum"] = words,
                (Some(words), _) => {
                    marks.insert("enum".into(), words);
                }
                (None, _) => {}
            }
            return Value::Object(marks);
        };
        self.dialect.described_reference(model, marks)
    }

    /// The named model that describes a shape, if it is not a plain JSON type.
    fn model_of<'s>(&'s self, shape: &Shape, owner: &str) -> Option<&'s str> {
        match shape {
            Shape::Object(id) => Some(&self.types.get(*id).name),
            other => scalars::model_of(other, owner),
        }
    }

    /// Types of JSON itself.
    fn plain(&self, shape: &Shape, owner: &str) -> Map<String, Value> {
        let (kind, format) = match shape {
            Shape::Int32 => ("integer", "int32"),
            Shape::Int64 => ("integer", "int64"),
            Shape::Double => ("number", "double"),
            Shape::Boolean => ("boolean", ""),
            Shape::Bytes => ("string", "byte"),
            Shape::List(_) => ("array", ""),
            Shape::Map(_) => ("object", ""),
            _ => ("string", ""),
        };
        let mut schema = Map::new();
        schema.insert("type".into(), kind.into());
        if !format.is_empty() {
            schema.insert("format".into(), format.into());
        }
        match shape {
            Shape::List(item) => schema.insert("items".into(), self.element(item, owner)),
            Shape::Map(value) => schema.insert("additionalProperties".into(), self.element(value, owner)),
            _ => None,
        };
        schema
    }

    /// An item of a list or a value of a map: never absent in Go, so it has its zero value as default.
    fn element(&self, shape: &Shape, owner: &str) -> Value {
        let mut marks = Map::new();
        if self.dialect == Dialect::V3
            && let Some(zero) = zero(shape)
        {
            marks.insert("default".into(), zero);
        }
        match self.model_of(shape, owner) {
            Some(model) => self.dialect.described_reference(model, marks),
            None => {
                marks.append(&mut self.plain(shape, owner));
                Value::Object(marks)
            }
        }
    }
}

fn innermost(shape: &Shape) -> &Shape {
    match shape {
        Shape::List(inner) | Shape::Map(inner) => innermost(inner),
        other => other,
    }
}

/// What Go's zero value looks like, for shapes that OpenAPI states it for.
fn zero(shape: &Shape) -> Option<Value> {
    match shape {
        Shape::String => Some("".into()),
        Shape::Int32 | Shape::Int64 | Shape::Double => Some(0.into()),
        Shape::Boolean => Some(false.into()),
        Shape::Object(_) => Some(json!({})),
        _ => None,
    }
}

fn default(field: &Field, short_name: &str) -> Option<Value> {
    if let Some((_, text)) = DEFAULTS.iter().find(|(name, _)| *name == short_name) {
        return Some((*text).into());
    }
    match (field.empty, &field.shape) {
        (Empty::Zero, shape) => zero(shape),
        // Go writes plain structs whether or not they are marked omitempty.
        (Empty::Omitted, shape @ Shape::Object(_)) => zero(shape),
        _ => None,
    }
}

/// How apply and strategic merge patch treat the field.
fn merging(field: &Field, marks: &mut Map<String, Value>) {
    if field.list_declared {
        let list_type = match &field.list {
            ListType::Atomic => "atomic",
            ListType::Set => "set",
            ListType::Map(keys) => {
                let keys: Vec<&str> = keys.iter().map(|k| &**k).collect();
                marks.insert("x-kubernetes-list-map-keys".into(), keys.into());
                "map"
            }
        };
        marks.insert("x-kubernetes-list-type".into(), list_type.into());
    }
    if field.atomic {
        marks.insert("x-kubernetes-map-type".into(), "atomic".into());
    }
    let strategies = [(field.patch.merge, "merge"), (field.patch.retain_keys, "retainKeys")];
    let strategies: Vec<&str> = strategies.iter().filter(|(set, _)| *set).map(|(_, name)| *name).collect();
    if !strategies.is_empty() {
        marks.insert("x-kubernetes-patch-strategy".into(), strategies.join(",").into());
    }
    if let Some(key) = &field.patch.merge_key {
        marks.insert("x-kubernetes-patch-merge-key".into(), (&**key).into());
    }
}

/// `""` stands for the empty word.
fn enum_words(line: &str) -> Value {
    line.split(' ').map(|word| Value::from(if word == "\"\"" { "" } else { word })).collect()
}

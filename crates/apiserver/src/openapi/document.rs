//! A whole document. It depends on nothing but the resources it is about, so it can be made again at any time.
//!
//! Documents are written piece by piece: the largest would take several times its size as one JSON value.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::Arc;

use serde_json::{Value, json};

use super::dialect::Dialect;
use super::gnostic;
use super::paths;
use super::schema::Models;
use crate::health;
use crate::registry::{Registry, Resource};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// What a document is about.
pub struct Subject {
    /// `api/v1`, `apis/apps/v1`, `apis/apps`, `version`; empty for everything at once (Swagger 2).
    pub path: String,
    /// The group versions it describes.
    pub group_versions: Vec<(String, String)>,
    /// Their resources.
    pub resources: Vec<Arc<Resource>>,
}

/// A GET outside of group versions: document, id, meaning and model of the answer.
const SINGLE: &[(&str, &str, &str, &str)] = &[
    (
        ".well-known/openid-configuration",
        "getServiceAccountIssuerOpenIDConfiguration",
        "get issuer metadata",
        "",
    ),
    ("api", "getCoreAPIVersions", "get available API versions", "APIVersions"),
    ("apis", "getAPIVersions", "get available API versions", "APIGroupList"),
    ("openid/v1/jwks", "getServiceAccountIssuerOpenIDKeyset", "get keys that verify tokens", ""),
    ("version", "getCodeVersion", "get the version of this server", "version.Info"),
];

/// The paths of all documents, sorted.
pub fn all(registry: &Registry) -> BTreeSet<String> {
    let mut paths: BTreeSet<String> = SINGLE.iter().map(|(path, ..)| (*path).to_owned()).collect();
    for (group, version) in registry.group_versions() {
        paths.insert(paths::root(group, version)[1..].to_owned());
        if !group.is_empty() {
            paths.insert(format!("apis/{group}"));
        }
    }
    paths
}

/// The document of that path.
pub fn subject(registry: &Registry, path: &str) -> Option<Subject> {
    if !all(registry).contains(path) {
        return None;
    }
    let group_versions: Vec<(String, String)> = registry
        .group_versions()
        .iter()
        .filter(|(group, version)| paths::root(group, version)[1..] == *path)
        .map(|(group, version)| ((*group).to_owned(), (*version).to_owned()))
        .collect();
    let about = |r: &&Arc<Resource>| group_versions.iter().any(|(g, v)| **g == *r.group && **v == *r.version);
    let resources = registry.iter().filter(about).cloned().collect();
    Some(Subject { path: path.to_owned(), group_versions, resources })
}

/// Everything, for Swagger 2.
pub fn everything(registry: &Registry) -> Subject {
    let owned = |(group, version): (&str, &str)| (group.to_owned(), version.to_owned());
    Subject {
        path: String::new(),
        group_versions: registry.group_versions().into_iter().map(owned).collect(),
        resources: registry.iter().cloned().collect(),
    }
}

/// A part of a document that has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Path,
    Model,
}

/// Writes the document as JSON.
pub fn write(subject: &Subject, out: &mut dyn Write) -> io::Result<()> {
    let dialect = if subject.path.is_empty() { Dialect::V2 } else { Dialect::V3 };
    let (info, scheme) = (info(), security_scheme());
    match dialect {
        Dialect::V2 => write!(out, "{{\"swagger\":\"2.0\",\"info\":{info},\"paths\":")?,
        Dialect::V3 => write!(out, "{{\"openapi\":\"3.0.0\",\"info\":{info},\"paths\":")?,
    }
    let models = match dialect {
        Dialect::V2 => b",\"definitions\":".as_slice(),
        Dialect::V3 => b",\"components\":{\"schemas\":".as_slice(),
    };
    let mut paths = Entries::new();
    let mut entries: Option<Entries> = None;
    parts(subject, dialect, |part, name, value| match part {
        Part::Path => paths.write(out, name, value),
        Part::Model => {
            if entries.is_none() {
                paths.finish(out)?;
                out.write_all(models)?;
            }
            entries.get_or_insert_with(Entries::new).write(out, name, value)
        }
    })?;
    if entries.is_none() {
        paths.finish(out)?;
        out.write_all(models)?;
    }
    entries.unwrap_or_else(Entries::new).finish(out)?;
    match dialect {
        Dialect::V2 => {
            write!(out, ",\"securityDefinitions\":{scheme},\"security\":[{{\"BearerToken\":[]}}]}}")
        }
        Dialect::V3 => write!(out, ",\"securitySchemes\":{scheme}}}}}"),
    }
}

/// Writes the Swagger 2 document as protobuf.
pub fn write_protobuf(subject: &Subject, out: &mut dyn Write) -> io::Result<()> {
    let mut document = gnostic::Document::new(&json!({
        "swagger": "2.0", "info": info(), "security": [{"BearerToken": []}], "securityDefinitions": security_scheme(),
    }));
    parts(subject, Dialect::V2, |part, name, value| {
        match part {
            Part::Path => document.path(name, value),
            Part::Model => document.definition(name, value),
        }
        Ok(())
    })?;
    out.write_all(&document.finish())
}

fn info() -> Value {
    json!({"title": "Kubernetes", "version": health::version()["gitVersion"]})
}

fn security_scheme() -> Value {
    json!({"BearerToken": {
        "description": "Bearer Token authentication", "in": "header", "name": "authorization", "type": "apiKey",
    }})
}

/// Hands out all paths, then the models they refer to.
fn parts(
    subject: &Subject,
    dialect: Dialect,
    mut part: impl FnMut(Part, &str, &Value) -> io::Result<()>,
) -> io::Result<()> {
    let versions: Vec<(&str, &str)> = subject.group_versions.iter().map(|(g, v)| (&**g, &**v)).collect();
    let models = Models::new(dialect, &versions);
    let mut named = BTreeSet::new();
    for (path, item) in small_paths(subject, dialect) {
        part(Part::Path, &path, &item)?;
        references(&item, &mut named);
    }
    for resource in &subject.resources {
        for (path, item) in paths::of_resource(dialect, resource) {
            part(Part::Path, &path, &item)?;
            references(&item, &mut named);
        }
    }
    for resource in subject.resources.iter().filter(|r| r.type_id.is_none()) {
        for (name, schema) in untyped(resource, dialect) {
            part(Part::Model, &name, &schema)?;
            references(&schema, &mut named);
            named.remove(&name);
        }
    }
    for name in models.closure(named) {
        if let Some(schema) = models.schema(&name) {
            part(Part::Model, &name, &schema)?;
        }
    }
    Ok(())
}

/// Discovery and what else is one GET.
fn small_paths(subject: &Subject, dialect: Dialect) -> Vec<(String, Value)> {
    let whole = subject.path.is_empty();
    let mut found = Vec::new();
    for (path, id, meaning, model) in SINGLE.iter().filter(|(path, ..)| whole || *path == subject.path) {
        let answer = match *model {
            "" => None,
            "version.Info" => Some("io.k8s.apimachinery.pkg.version.Info".to_owned()),
            model => Some(format!("{META}.{model}")),
        };
        let tag = path.split('/').next().unwrap_or_default();
        found.push((format!("/{path}/"), paths::single_get(dialect, id, tag, meaning, answer)));
    }
    let mut groups: BTreeSet<&str> = subject.group_versions.iter().map(|(g, _)| &**g).collect();
    groups.remove("");
    if !whole {
        // A group has a document of its own; documents of its versions do not repeat it.
        groups = subject.path.strip_prefix("apis/").filter(|g| !g.contains('/')).into_iter().collect();
    }
    found.extend(groups.into_iter().map(|group| paths::group(dialect, group)));
    found.extend(
        subject.group_versions.iter().map(|(group, version)| paths::discovery(dialect, group, version)),
    );
    found
}

/// Models of a kind that the table of types does not have: its schema, or else that it is an object.
fn untyped(resource: &Resource, dialect: Dialect) -> [(String, Value); 2] {
    let Resource { group, version, kind, .. } = resource;
    let list_kind = &resource.list_kind;
    let (name, list_name) = (paths::model(group, version, kind), paths::model(group, version, list_kind));
    let text = json!({"type": "string"});
    let mut object = match &resource.custom {
        Some(custom) if matches!(dialect, Dialect::V3) && custom.open_api.is_object() => {
            custom.open_api.clone()
        }
        _ => json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
    };
    if !object["properties"].is_object() {
        object["properties"] = json!({});
    }
    for name in ["apiVersion", "kind"] {
        object["properties"][name] = text.clone();
    }
    object["properties"]["metadata"] = dialect.reference(&format!("{META}.ObjectMeta"));
    object["x-kubernetes-group-version-kind"] =
        json!([{"group": **group, "version": **version, "kind": **kind}]);
    let list = json!({
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": text, "kind": text, "metadata": dialect.reference(&format!("{META}.ListMeta")),
            "items": {"type": "array", "items": dialect.reference(&name)},
        },
        "x-kubernetes-group-version-kind": [{"group": **group, "version": **version, "kind": **list_kind}],
    });
    [(name, object), (list_name, list)]
}

/// The names of the models that a value refers to.
pub fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value.as_str() {
                    Some(text) if key == "$ref" => {
                        found.extend(text.rsplit('/').next().map(str::to_owned));
                    }
                    _ => references(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

/// An object written entry by entry.
struct Entries {
    started: bool,
}

impl Entries {
    fn new() -> Entries {
        Entries { started: false }
    }

    fn write(&mut self, out: &mut dyn Write, key: &str, value: &Value) -> io::Result<()> {
        out.write_all(if self.started { b"," } else { b"{" })?;
        self.started = true;
        serde_json::to_writer(&mut *out, key)?;
        out.write_all(b":")?;
        serde_json::to_writer(out, value)?;
        Ok(())
    }

    fn finish(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(if self.started { b"}" } else { b"{}" })
    }
}

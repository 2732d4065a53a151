//! A whole document. It depends on nothing but the resources it is about, so it can be made again at any time.
//!
//! Documents are written piece by piece: the largest would take several times its size as one JSON value.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::Arc;

use serde_json::{Value, json};

use super::dialect::Dialect;
use super::paths;
use super::schema::Models;
use super::swagger;
use crate::health;
use crate::registry::{Registry, Resource};

const TITLE: &str = "Kubernetes";
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

/// Writes the document as JSON.
pub fn write(subject: &Subject, out: &mut dyn Write) -> io::Result<()> {
    let dialect = if subject.path.is_empty() { Dialect::V2 } else { Dialect::V3 };
    let info = json!({"title": TITLE, "version": version()});
    match dialect {
        Dialect::V2 => write!(out, "{{\"swagger\":\"2.0\",\"info\":{info},\"paths\":")?,
        Dialect::V3 => write!(out, "{{\"openapi\":\"3.0.0\",\"info\":{info},\"paths\":")?,
    }

    let mut named = BTreeSet::new();
    let mut entries = Entries::new(out);
    for (path, item) in small_paths(subject, dialect) {
        entries.write(&path, &item)?;
        references(&item, &mut named);
    }
    for resource in &subject.resources {
        for (path, item) in paths::of_resource(dialect, resource) {
            entries.write(&path, &item)?;
            references(&item, &mut named);
        }
    }
    let out = entries.finish()?;

    out.write_all(match dialect {
        Dialect::V2 => b",\"definitions\":".as_slice(),
        Dialect::V3 => b",\"components\":{\"schemas\":".as_slice(),
    })?;
    let mut entries = Entries::new(out);
    write_models(subject, dialect, named, &mut |name, schema| entries.write(name, schema))?;
    let out = entries.finish()?;
    let scheme = json!({"BearerToken": {
        "description": "Bearer Token authentication", "in": "header", "name": "authorization", "type": "apiKey",
    }});
    match dialect {
        Dialect::V2 => {
            write!(out, ",\"securityDefinitions\":{scheme},\"security\":[{{\"BearerToken\":[]}}]}}")
        }
        Dialect::V3 => write!(out, ",\"securitySchemes\":{scheme}}}}}"),
    }
}

/// Writes the models of Swagger 2 in protobuf. Paths are left out: what reads this form, kubectl among others, looks
/// models up by group, version and kind.
pub fn write_protobuf(subject: &Subject, out: &mut dyn Write) -> io::Result<()> {
    let dialect = Dialect::V2;
    let mut named = BTreeSet::new();
    small_paths(subject, dialect).iter().for_each(|(_, item)| references(item, &mut named));
    for resource in &subject.resources {
        paths::of_resource(dialect, resource).iter().for_each(|(_, item)| references(item, &mut named));
    }
    let mut models = Vec::new();
    write_models(subject, dialect, named, &mut |name, schema| {
        swagger::put_model(&mut models, name, schema);
        Ok(())
    })?;
    out.write_all(&swagger::document(TITLE, &version(), &models))
}

fn version() -> String {
    health::version()["gitVersion"].as_str().unwrap_or_default().to_owned()
}

/// The models of the named and of all that they refer to.
fn write_models(
    subject: &Subject,
    dialect: Dialect,
    mut named: BTreeSet<String>,
    put: &mut dyn FnMut(&str, &Value) -> io::Result<()>,
) -> io::Result<()> {
    let versions: Vec<(&str, &str)> = subject.group_versions.iter().map(|(g, v)| (&**g, &**v)).collect();
    let models = Models::new(dialect, &versions);
    for resource in subject.resources.iter().filter(|r| r.type_id.is_none()) {
        for (name, schema) in untyped(resource, dialect) {
            put(&name, &schema)?;
            references(&schema, &mut named);
            named.remove(&name);
        }
    }
    for name in models.closure(named) {
        if let Some(schema) = models.schema(&name) {
            put(&name, &schema)?;
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
struct Entries<'a> {
    out: &'a mut dyn Write,
    started: bool,
}

impl<'a> Entries<'a> {
    fn new(out: &'a mut dyn Write) -> Entries<'a> {
        Entries { out, started: false }
    }

    fn write(&mut self, key: &str, value: &Value) -> io::Result<()> {
        self.out.write_all(if self.started { b"," } else { b"{" })?;
        self.started = true;
        serde_json::to_writer(&mut *self.out, key)?;
        self.out.write_all(b":")?;
        serde_json::to_writer(&mut *self.out, value)?;
        Ok(())
    }

    fn finish(self) -> io::Result<&'a mut dyn Write> {
        self.out.write_all(if self.started { b"}" } else { b"{}" })?;
        Ok(self.out)
    }
}

//! Paths and operations of a resource.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::dialect::Dialect;
use super::operation::{Operation, query, render};
use super::{parameters, scalars};
use crate::builtin;
use crate::registry::{Resource, Subresource};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const READ: &[&str] = &["application/json", "application/yaml"];
const READ_LIST: &[&str] = &["application/json", "application/json;stream=watch", "application/yaml"];
const PATCHES: &[&str] = &[
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];

/// The paths of one resource.
pub struct Paths<'a> {
    dialect: Dialect,
    resource: &'a Resource,
    /// `AppsV1`
    camel: String,
    /// `apps_v1`
    tag: String,
}

/// The name of the model of a kind: that of its type, or for kinds without one their group turned around.
pub fn model(group: &str, version: &str, kind: &str) -> String {
    if let Some(id) = builtin::type_of(group, version, kind) {
        return builtin::types().get(id).name.to_string();
    }
    let mut words: Vec<&str> = group.rsplit('.').filter(|w| !w.is_empty()).collect();
    words.extend([version, kind]);
    words.join(".")
}

/// The words of a group as in operation ids: `RbacAuthorization`, and `Core` for the unnamed group.
fn camel_group(group: &str) -> String {
    if group.is_empty() {
        return "Core".to_owned();
    }
    group.strip_suffix(".k8s.io").unwrap_or(group).split(['.', '-']).map(capital).collect()
}

fn capital(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map(|c| c.to_ascii_uppercase()).into_iter().chain(chars).collect()
}

fn small(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map(|c| c.to_ascii_lowercase()).into_iter().chain(chars).collect()
}

/// `/api/v1` or `/apis/apps/v1`
pub fn root(group: &str, version: &str) -> String {
    if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") }
}

/// `apps_v1`, the word that groups operations.
fn tag(group: &str, version: &str) -> String {
    format!("{}_{version}", small(&camel_group(group)))
}

/// A GET that answers one document: discovery, the version of the server.
pub fn single_get(dialect: Dialect, id: &str, tag: &str, description: &str, answer: Option<String>) -> Value {
    let operation = Operation {
        action: "",
        id: id.to_owned(),
        description: description.to_owned(),
        query: Vec::new(),
        body: None,
        codes: &["200"],
        answer,
        produces: READ,
        kind: None,
    };
    json!({"get": render(dialect, operation, tag)})
}

/// The list of resources of a group version.
pub fn discovery(dialect: Dialect, group: &str, version: &str) -> (String, Value) {
    let id = format!("get{}{}APIResources", camel_group(group), capital(version));
    let answer = Some(format!("{META}.APIResourceList"));
    let item = single_get(dialect, &id, &tag(group, version), "get available resources", answer);
    (format!("{}/", root(group, version)), item)
}

/// The versions of a group.
pub fn group(dialect: Dialect, group: &str) -> (String, Value) {
    let camel = camel_group(group);
    let answer = Some(format!("{META}.APIGroup"));
    let description = "get information of a group";
    (
        format!("/apis/{group}/"),
        single_get(dialect, &format!("get{camel}APIGroup"), &small(&camel), description, answer),
    )
}

/// All paths of a resource and its subresources.
pub fn of_resource(dialect: Dialect, resource: &Resource) -> BTreeMap<String, Value> {
    let Resource { group, version, .. } = resource;
    let camel = format!("{}{}", camel_group(group), capital(version));
    let paths = Paths { dialect, resource, camel, tag: tag(group, version) };
    let base = root(group, version);
    let plural = &resource.plural;
    let scope = if resource.namespaced { "/namespaces/{namespace}" } else { "" };

    let mut all = BTreeMap::new();
    all.insert(format!("{base}{scope}/{plural}"), paths.collection());
    all.insert(format!("{base}{scope}/{plural}/{{name}}"), paths.item());
    for sub in &resource.subresources {
        all.insert(format!("{base}{scope}/{plural}/{{name}}/{}", sub.name), paths.subresource(sub));
    }
    if resource.allows("list") && resource.namespaced {
        all.insert(format!("{base}/{plural}"), paths.all_namespaces());
    }
    if resource.allows("watch") {
        all.insert(format!("{base}/watch{scope}/{plural}"), paths.watch(true, "watchlist"));
        all.insert(format!("{base}/watch{scope}/{plural}/{{name}}"), paths.watch(true, "watch"));
        if resource.namespaced {
            all.insert(format!("{base}/watch/{plural}"), paths.watch(false, "watchlist"));
        }
    }
    all.retain(|_, item| item.as_object().is_some_and(|i| i.keys().any(|k| k != "parameters")));
    all
}

impl<'a> Paths<'a> {
    fn kind(&self) -> Option<(&'a str, &'a str, &'a str)> {
        Some((&self.resource.group, &self.resource.version, &self.resource.kind))
    }

    fn object(&self) -> String {
        model(&self.resource.group, &self.resource.version, &self.resource.kind)
    }

    fn list_model(&self) -> String {
        model(&self.resource.group, &self.resource.version, &self.resource.list_kind)
    }

    /// `NamespacedDeployment`
    fn scoped_kind(&self) -> String {
        let scope = if self.resource.namespaced { "Namespaced" } else { "" };
        format!("{scope}{}", self.resource.kind)
    }

    fn read(
        &self,
        action: &'static str,
        id: String,
        description: String,
        answer: Option<String>,
    ) -> Operation<'a> {
        Operation {
            action,
            id,
            description,
            query: Vec::new(),
            body: None,
            codes: &["200"],
            answer,
            produces: READ,
            kind: self.kind(),
        }
    }

    fn list(&self, id: String) -> Operation<'a> {
        let description = format!("list or watch objects of kind {}", self.resource.kind);
        let mut list = self.read("list", id, description, Some(self.list_model()));
        list.query = parameters::LIST.to_vec();
        list.produces = READ_LIST;
        list
    }

    /// A body of some model that is answered with the model.
    fn write(&self, verb: &str, name: &str, model: String) -> (&'static str, Operation<'a>) {
        let (method, action, word, codes): (_, _, _, &'static [&'static str]) = match verb {
            "create" => ("post", "post", "create", &["200", "201", "202"]),
            "patch" => ("patch", "patch", "patch", &["200", "201"]),
            _ => ("put", "put", "replace", &["200", "201"]),
        };
        let article = if verb == "patch" { "partially update the specified" } else { word };
        let mut write = self.read(
            action,
            format!("{word}{}{name}", self.camel),
            format!("{article} {}", self.resource.kind),
            Some(model.clone()),
        );
        write.codes = codes;
        if verb == "patch" {
            // Strategic merge needs types, and only built-in kinds have them.
            let formats = if self.resource.type_id.is_some() { PATCHES } else { &PATCHES[..3] };
            write.body = Some((formats, scalars::PATCH.to_owned()));
            write.query = parameters::PATCH.to_vec();
        } else {
            write.body = Some((&["*/*"], model));
            write.query = parameters::WRITE.to_vec();
        }
        (method, write)
    }

    fn delete(&self, action: &'static str, id: String) -> Operation<'a> {
        let collection = action == "deletecollection";
        let what = if collection { "delete a collection of" } else { "delete a" };
        let answer = if self.resource.traits.delete_returns_object && !collection {
            self.object()
        } else {
            format!("{META}.Status")
        };
        let mut delete = self.read(action, id, format!("{what} {}", self.resource.kind), Some(answer));
        delete.codes = if collection { &["200"] } else { &["200", "202"] };
        delete.query =
            if collection { parameters::DELETE_COLLECTION.to_vec() } else { parameters::DELETE.to_vec() };
        delete.body = Some((&["*/*"], format!("{META}.DeleteOptions")));
        delete
    }

    fn collection(&self) -> Value {
        let name = self.scoped_kind();
        let mut operations = Vec::new();
        for verb in &self.resource.verbs {
            operations.push(match &**verb {
                "list" => ("get", self.list(format!("list{}{name}", self.camel))),
                "create" => self.write("create", &name, self.object()),
                "deletecollection" => (
                    "delete",
                    self.delete("deletecollection", format!("delete{}Collection{name}", self.camel)),
                ),
                _ => continue,
            });
        }
        self.path_item(operations, false, self.resource.namespaced)
    }

    fn item(&self) -> Value {
        let name = self.scoped_kind();
        let mut operations = Vec::new();
        for verb in &self.resource.verbs {
            operations.push(match &**verb {
                "get" => {
                    let description = format!("read the specified {}", self.resource.kind);
                    let id = format!("read{}{name}", self.camel);
                    ("get", self.read("get", id, description, Some(self.object())))
                }
                "update" | "patch" => self.write(verb, &name, self.object()),
                "delete" => ("delete", self.delete("delete", format!("delete{}{name}", self.camel))),
                _ => continue,
            });
        }
        self.path_item(operations, true, self.resource.namespaced)
    }

    fn all_namespaces(&self) -> Value {
        let id = format!("list{}{}ForAllNamespaces", self.camel, self.resource.kind);
        self.path_item(vec![("get", self.list(id))], false, false)
    }

    /// The old paths for watches.
    fn watch(&self, scoped: bool, action: &'static str) -> Value {
        let single = action == "watch";
        let name = match (single, scoped) {
            (true, _) => self.scoped_kind(),
            (false, true) => format!("{}List", self.scoped_kind()),
            (false, false) => format!("{}ListForAllNamespaces", self.resource.kind),
        };
        let description =
            format!("watch changes to {}. deprecated: use list with 'watch'", self.resource.kind);
        let answer = Some(format!("{META}.WatchEvent"));
        let mut watch = self.read(action, format!("watch{}{name}", self.camel), description, answer);
        watch.query = parameters::LIST.to_vec();
        watch.produces = READ_LIST;
        self.path_item(vec![("get", watch)], single, scoped && self.resource.namespaced)
    }

    fn subresource(&self, sub: &'a Subresource) -> Value {
        let Resource { group, version, .. } = self.resource;
        // Kinds of other groups name theirs.
        let kind = match sub.version {
            "" => (&**group, &**version, &*sub.kind),
            foreign => (sub.group, foreign, &*sub.kind),
        };
        let name = format!("{}{}", self.scoped_kind(), capital(&sub.name));
        let own = parameters::of_subresource(&sub.name);
        let connect = matches!(&*sub.name, "exec" | "attach" | "portforward" | "proxy");
        let mut operations = Vec::new();
        for verb in sub.verbs {
            let (method, mut operation) = match *verb {
                verb if connect => self.connect(verb, &name),
                "get" => {
                    let description = format!("read {} of the specified {}", sub.name, self.resource.kind);
                    let answer = (&*sub.name != "log").then(|| model(kind.0, kind.1, kind.2));
                    ("get", self.read("get", format!("read{}{name}", self.camel), description, answer))
                }
                "create" | "update" | "patch" => {
                    let (method, mut write) = self.write(verb, &name, model(kind.0, kind.1, kind.2));
                    write.description = format!("{} {} of the specified {}", write.action, sub.name, kind.2);
                    (method, write)
                }
                _ => continue,
            };
            operation.query.extend(own);
            operation.kind = Some(kind);
            operations.push((method, operation));
        }
        self.path_item(operations, true, self.resource.namespaced)
    }

    fn connect(&self, verb: &str, name: &str) -> (&'static str, Operation<'a>) {
        let method = match verb {
            "create" => "post",
            "update" => "put",
            "patch" => "patch",
            "delete" => "delete",
            _ => "get",
        };
        let id = format!("connect{}{}{name}", self.camel, capital(method));
        let description = format!("connect {} requests to {}", method.to_uppercase(), self.resource.kind);
        let mut connect = self.read("connect", id, description, None);
        connect.produces = &["*/*"];
        (method, connect)
    }

    fn path_item(&self, operations: Vec<(&str, Operation<'_>)>, named: bool, namespaced: bool) -> Value {
        let mut parameters = Vec::new();
        if named {
            let text = format!("name of the {}", self.resource.kind);
            parameters.push(self.dialect.parameter("name", "path", "string", &text));
        }
        if namespaced {
            let text = "the namespace of the object";
            parameters.push(self.dialect.parameter("namespace", "path", "string", text));
        }
        parameters.push(query(self.dialect, &parameters::PRETTY));
        let mut item = Map::new();
        item.insert("parameters".into(), parameters.into());
        for (method, operation) in operations {
            item.insert(method.into(), render(self.dialect, operation, &self.tag));
        }
        Value::Object(item)
    }
}

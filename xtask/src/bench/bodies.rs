//! What is created.

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use serde_json::{Value, json};

/// How large a stored pod is made, in bytes of its JSON.
pub const POD_BYTES: usize = 3400;
/// What is applied: 3 KB of JSON.
const DEPLOYMENT: &str = include_str!("deployment.json");
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/bench/roles";
const ROLE_BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/bench/rolebindings";
const PAYLOAD_BYTES: usize = 1024;
const DIGITS: usize = 7;

/// What is applied in the course of time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Deployment {
    /// At first.
    First,
    /// The same with another image.
    NewImage,
    /// The first without one of its variables.
    WithoutVariable,
}

/// JSON with one hole for a number, so that a further body costs a copy.
#[derive(Clone)]
pub struct Template {
    before: String,
    after: String,
}

impl Template {
    /// ConfigMaps with 1 KB of data, named `PREFIX-0000001` and so on.
    pub fn config_map(prefix: &str) -> Self {
        let payload: String = ('a'..='z').cycle().take(PAYLOAD_BYTES).collect();
        Self::split(&json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": format!("{prefix}-@")},
            "data": {"payload": payload},
        }))
    }

    /// Pods as a Deployment would make them; `padding` bytes of annotation make up the wanted size.
    pub fn pod(padding: usize) -> Self {
        Self::split(&json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "web-5d8f7c9b6d-@",
                "labels": {"app": "web", "pod-template-hash": "5d8f7c9b6d", "tier": "front"},
                "annotations": {"bench/padding": "x".repeat(padding)},
            },
            "spec": {
                "containers": [{
                    "name": "web",
                    "image": "registry.example.com/team/web:1.2.3",
                    "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
                    "env": [{"name": "LOG_LEVEL", "value": "info"}, {"name": "REGION", "value": "north-1"}],
                    "resources": {
                        "requests": {"cpu": "100m", "memory": "128Mi"},
                        "limits": {"cpu": "500m", "memory": "256Mi"},
                    },
                    "readinessProbe": {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 10},
                }],
                "terminationGracePeriodSeconds": 30,
            },
        }))
    }

    /// A Deployment of 3 KB as people apply it.
    pub fn deployment(version: Deployment) -> Result<Self> {
        let mut object: Value = serde_json::from_str(DEPLOYMENT)?;
        let web = &mut object["spec"]["template"]["spec"]["containers"][0];
        match version {
            Deployment::First => {}
            Deployment::NewImage => web["image"] = "registry.example.com/shop/web:1.2.4".into(),
            Deployment::WithoutVariable => {
                web["env"].as_array_mut().context("no variables")?.remove(1);
            }
        }
        Ok(Self::split(&object))
    }

    /// Anything whose name has an `@` for the number.
    pub fn split(object: &Value) -> Self {
        let text = object.to_string();
        let (before, after) = text.split_once('@').unwrap_or((&text, ""));
        Template { before: before.to_owned(), after: after.to_owned() }
    }

    /// The body with this number in its name.
    pub fn body(&self, number: u64) -> Bytes {
        Bytes::from(format!("{}{number:0DIGITS$}{}", self.before, self.after))
    }
}

/// Custom kinds for the start of their lives: a definition, and an object of it.
pub fn definition(number: usize) -> (Bytes, String, Bytes) {
    let plural = format!("gadget{number}s");
    let rules = json!([{"rule": "self.min <= self.max", "message": "min must not exceed max"}]);
    let schema = json!({"type": "object", "properties": {"spec": {
        "type": "object", "required": ["min"], "x-kubernetes-validations": rules,
        "properties": {"min": {"type": "integer"}, "max": {"type": "integer", "default": 9}},
    }}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.bench.example.com")},
        "spec": {
            "group": "bench.example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": format!("Gadget{number}")},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    });
    let object = json!({
        "apiVersion": "bench.example.com/v1",
        "kind": format!("Gadget{number}"),
        "metadata": {"name": "first"},
        "spec": {"min": 1},
    });
    let path = format!("/apis/bench.example.com/v1/namespaces/bench/{plural}");
    (definition.to_string().into(), path, object.to_string().into())
}

/// Lets the ServiceAccount `default` create ConfigMaps in the namespace `bench`: the objects, with their folders.
pub fn creator_role() -> [(&'static str, Bytes); 2] {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "creator"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "creator"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "creator"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "bench"}],
    });
    [(ROLES, role.to_string().into()), (ROLE_BINDINGS, binding.to_string().into())]
}

/// A namespace to create.
pub fn namespace(name: &str) -> Bytes {
    Bytes::from(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}).to_string())
}

/// The ServiceAccount that pods of a namespace need.
pub fn service_account() -> Bytes {
    let object = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    Bytes::from(object.to_string())
}

/// How much padding brings a pod that was stored as `stored` bytes without any up to the wanted size.
pub fn padding(stored: usize) -> Result<usize> {
    match POD_BYTES.checked_sub(stored) {
        Some(padding) => Ok(padding),
        None => bail!("a pod without padding is already {stored} bytes, more than {POD_BYTES}"),
    }
}

/// Finds the numbers of ConfigMaps in a stream of watch events that arrives in pieces.
pub struct NumberFinder {
    finder: memchr::memmem::Finder<'static>,
    needle: usize,
    rest: Vec<u8>,
}

impl NumberFinder {
    /// For objects named `PREFIX-NUMBER`.
    pub fn new(prefix: &str) -> Self {
        let needle = format!("\"name\":\"{prefix}-");
        NumberFinder {
            finder: memchr::memmem::Finder::new(&needle).into_owned(),
            needle: needle.len(),
            rest: Vec::new(),
        }
    }

    /// Calls `found` with every number that is complete with this piece.
    pub fn push(&mut self, piece: &[u8], mut found: impl FnMut(usize)) {
        self.rest.extend_from_slice(piece);
        let mut at = 0;
        while let Some(start) = self.finder.find(&self.rest[at..]) {
            let digits = at + start + self.needle;
            let Some(number) = self.rest.get(digits..digits + DIGITS) else {
                at += start;
                break;
            };
            if let Some(number) = std::str::from_utf8(number).ok().and_then(|digits| digits.parse().ok()) {
                found(number);
            }
            at = digits + DIGITS;
        }
        // Keep what may be the start of a name.
        let keep = self.rest.len().saturating_sub(self.needle + DIGITS).max(at);
        self.rest.drain(..keep);
    }
}

#[cfg(test)]
mod tests {
    use super::{NumberFinder, Template};

    #[test]
    fn numbers_are_found_however_the_stream_is_cut() {
        let template = Template::config_map("w");
        let stream: Vec<u8> = (0..20).flat_map(|number| template.body(number).to_vec()).collect();
        for size in [1, 2, 7, 100, 1000, 5000, stream.len()] {
            let mut finder = NumberFinder::new("w");
            let mut seen = Vec::new();
            for piece in stream.chunks(size) {
                finder.push(piece, |number| seen.push(number));
            }
            assert_eq!(seen, (0..20).collect::<Vec<_>>(), "pieces of {size}");
        }
    }
}

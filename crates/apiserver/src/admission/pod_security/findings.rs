//! What was found in a pod, and how it is told.

use std::fmt;

use serde_json::Value;

use crate::kinds::access::{list_at, part, str_at};

/// One rule that a pod breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The rule, in a few words.
    pub reason: String,
    detail: String,
}

impl Finding {
    /// A broken rule and what breaks it.
    pub fn new(reason: &str, detail: String) -> Finding {
        Finding { reason: reason.to_owned(), detail }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.detail.is_empty() {
            f.write_str(&self.reason)
        } else {
            write!(f, "{} ({})", self.reason, self.detail)
        }
    }
}

/// All containers of a pod: init, ordinary, ephemeral.
pub fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(|list| list_at(spec, list))
}

/// The names of containers whose security context is such.
pub fn containers_with<'a>(spec: &'a Value, is_such: impl Fn(&'a Value) -> bool) -> Vec<&'a str> {
    containers(spec)
        .filter(|container| is_such(part(container, "securityContext")))
        .map(|container| str_at(container, "name"))
        .collect()
}

/// `container "a"` or `containers "a", "b"`.
pub fn named(one: &str, names: &[&str]) -> String {
    let plural = if names.len() == 1 { "" } else { "s" };
    format!("{one}{plural} {}", quoted(names))
}

/// `"a", "b"`
pub fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}

/// Who set something: `pod`, `container "a"` or both, joined by `and`. None when nobody did.
pub fn setters(pod: bool, containers: &[&str]) -> Option<String> {
    match (pod, containers) {
        (false, []) => None,
        (true, []) => Some("pod".to_owned()),
        (false, names) => Some(named("container", names)),
        (true, names) => Some(format!("pod and {}", named("container", names))),
    }
}

/// Sorted, each once.
pub fn distinct(mut values: Vec<&str>) -> Vec<&str> {
    values.sort_unstable();
    values.dedup();
    values
}

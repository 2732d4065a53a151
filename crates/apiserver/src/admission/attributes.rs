//! What admission is asked about: one operation on one object, in the words of webhooks and policies.

use serde_json::{Value, json};
use shoal_objects::meta;

use crate::handlers::Call;
use crate::registry::Resource;

/// An operation that wants to be admitted.
pub struct Attributes<'a> {
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub operation: &'static str,
    /// The resource.
    pub resource: &'a Resource,
    /// The subresource, empty for the object itself.
    pub subresource: &'a str,
    /// The namespace, empty at cluster scope.
    pub namespace: &'a str,
    /// The name, empty while it is not generated yet.
    pub name: String,
    /// The object before, null when there was none.
    pub old: &'a Value,
    /// Whether nothing will be stored.
    pub dry_run: bool,
}

impl<'a> Attributes<'a> {
    /// The operation of a request on an object.
    pub fn new(
        call: &'a Call<'_>,
        operation: &'static str,
        object: &Value,
        old: &'a Value,
        dry_run: bool,
    ) -> Attributes<'a> {
        let named = if meta::name(object).is_empty() { old } else { object };
        let name = if call.target.name.is_empty() { meta::name(named) } else { &call.target.name };
        Attributes {
            operation,
            resource: &call.target.resource,
            subresource: call.target.subresource.split('/').next().unwrap_or_default(),
            namespace: &call.target.namespace,
            name: name.to_owned(),
            old,
            dry_run,
        }
    }

    /// The options of the request, as webhooks are shown them.
    pub fn options(&self) -> Value {
        let kind = match self.operation {
            "CREATE" => "CreateOptions",
            "DELETE" => "DeleteOptions",
            "CONNECT" => return Value::Null,
            _ => "UpdateOptions",
        };
        let mut options = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
        if self.dry_run {
            options["dryRun"] = json!(["All"]);
        }
        options
    }
}

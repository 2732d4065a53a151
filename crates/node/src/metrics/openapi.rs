//! The OpenAPI document of the group version.

use serde_json::{Map, Value, json};

use super::{GROUP, VERSION};

const KINDS: &str = "io.k8s.metrics.pkg.apis.metrics.v1beta1";

fn reference(kind: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{KINDS}.{kind}")})
}

fn described(about: &str, mut schema: Value) -> Value {
    schema["description"] = about.into();
    schema
}

/// An operation that reads `kind`; `named` are its parameters in the path.
fn operation(id: &str, about: &str, kind: &str, action: &str, named: &[&str], is_list: bool) -> Value {
    let of_kind = kind.trim_end_matches("List");
    let path = named.iter().map(|name| {
        json!({"name": name, "in": "path", "required": true, "schema": {"type": "string", "uniqueItems": true}})
    });
    let selectors = ["labelSelector", "fieldSelector"].into_iter().filter(|_| is_list);
    let query = selectors
        .map(|name| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}}));
    let parameters: Vec<Value> = path.chain(query).collect();
    json!({"get": {
        "tags": ["metrics_v1beta1"], "description": about, "operationId": id, "parameters": parameters,
        "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": reference(kind)}}}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {"group": GROUP, "version": VERSION, "kind": of_kind},
    }})
}

fn schemas() -> Value {
    let text = |about: &str| json!({"type": "string", "description": about});
    let quantities = json!({
        "type": "object", "description": "How much is used, by resource: cpu and memory.",
        "additionalProperties": {"oneOf": [{"type": "string"}, {"type": "number"}]},
    });
    let metadata = json!({
        "type": "object", "description": "Name, namespace and labels of what was measured.",
        "properties": {
            "name": text("Name."), "namespace": text("Namespace."),
            "creationTimestamp": text("When this was asked."),
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    });
    let object = |kind: &str, about: &str, own: &[(&str, Value)]| {
        let mut properties = json!({
            "apiVersion": text("The version of this form of the object."),
            "kind": text("The kind of this object."),
            "metadata": metadata,
            "timestamp": text("The end of the time over which was measured."),
            "window": text("How long that time was."),
        });
        for (name, schema) in own {
            properties[*name] = schema.clone();
        }
        let required: Vec<&str> =
            ["timestamp", "window"].into_iter().chain(own.iter().map(|own| own.0)).collect();
        json!({
            "type": "object", "description": about, "properties": properties, "required": required,
            "x-kubernetes-group-version-kind": [{"group": GROUP, "version": VERSION, "kind": kind}],
        })
    };
    let list = |kind: &str| {
        json!({
            "type": "object", "description": format!("A list of {kind}."), "required": ["items"],
            "properties": {
                "apiVersion": text("The version of this form of the object."),
                "kind": text("The kind of this object."),
                "metadata": {"type": "object"},
                "items": {"type": "array", "items": reference(kind)},
            },
            "x-kubernetes-group-version-kind": [{"group": GROUP, "version": VERSION, "kind": format!("{kind}List")}],
        })
    };
    let container = json!({
        "type": "object", "description": "What a container uses.", "required": ["name", "usage"],
        "properties": {"name": text("Name of the container."), "usage": quantities},
    });
    let containers = described(
        "What each container uses.",
        json!({"type": "array", "items": reference("ContainerMetrics")}),
    );
    let mut all = Map::new();
    let mut add = |kind: &str, schema: Value| all.insert(format!("{KINDS}.{kind}"), schema);
    add("ContainerMetrics", container);
    add("NodeMetrics", object("NodeMetrics", "What a node uses.", &[("usage", quantities)]));
    add("NodeMetricsList", list("NodeMetrics"));
    add("PodMetrics", object("PodMetrics", "What a pod uses.", &[("containers", containers)]));
    add("PodMetricsList", list("PodMetrics"));
    all.into()
}

/// The document.
pub fn document() -> Value {
    let root = format!("/apis/{GROUP}/{VERSION}");
    let mut paths = Map::new();
    let mut add = |path: &str, operation: Value| paths.insert(format!("{root}{path}"), operation);
    let (node, pod) = ("What a node uses", "What a pod uses");
    add("/nodes", operation("listMetricsV1beta1NodeMetrics", node, "NodeMetricsList", "list", &[], true));
    add(
        "/nodes/{name}",
        operation("readMetricsV1beta1NodeMetrics", node, "NodeMetrics", "get", &["name"], false),
    );
    add(
        "/pods",
        operation("listMetricsV1beta1PodMetricsForAllNamespaces", pod, "PodMetricsList", "list", &[], true),
    );
    add(
        "/namespaces/{namespace}/pods",
        operation(
            "listMetricsV1beta1NamespacedPodMetrics",
            pod,
            "PodMetricsList",
            "list",
            &["namespace"],
            true,
        ),
    );
    add(
        "/namespaces/{namespace}/pods/{name}",
        operation(
            "readMetricsV1beta1NamespacedPodMetrics",
            pod,
            "PodMetrics",
            "get",
            &["namespace", "name"],
            false,
        ),
    );
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Resource metrics", "version": VERSION},
        "paths": paths,
        "components": {"schemas": schemas()},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Collects every `$ref` below.
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|field| references(field, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }

    #[test]
    fn everything_that_is_referred_to_is_there() {
        let document = document();
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 5);
        for reference in found {
            let pointer = reference.trim_start_matches('#');
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    }
}

//! The definition of the kind.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

use super::{GROUP, KIND, PLURAL, VERSION, schema};

/// The definition of Applications, as `shoal crds` prints it.
pub fn crd() -> CustomResourceDefinition {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{PLURAL}.{GROUP}"),
            "labels": {"app.kubernetes.io/part-of": "application-operator"},
        },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": "ApplicationList",
                "plural": PLURAL,
                "singular": "application",
                "shortNames": ["app"],
                "categories": ["all"],
            },
            "versions": [{
                "name": VERSION,
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": schema::schema()},
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                        "labelSelectorPath": ".status.selector",
                    },
                },
                "additionalPrinterColumns": columns(),
            }],
        },
    });
    // Made of constants; a test reads it.
    serde_json::from_value(definition).unwrap_or_default()
}

fn columns() -> Value {
    let column = |name: &str, kind: &str, path: &str, priority: i32, about: &str| json!({"name": name, "type": kind, "jsonPath": path, "priority": priority, "description": about});
    let ready = ".status.conditions[?(@.type=='Ready')]";
    json!([
        column("Phase", "string", ".status.phase", 0, "How it is, in a word."),
        column("Ready", "string", ".status.ready", 0, "Pods that are ready, and that are wanted."),
        column("Image", "string", ".status.image", 0, "The image that runs."),
        column("Age", "date", ".metadata.creationTimestamp", 0, "Since when it exists."),
        column("Revision", "string", ".status.currentRevision", 1, "The template that is rolled out."),
        column("Scaling", "string", ".status.scaling", 1, "Fewest and most pods of automatic scaling."),
        column("URL", "string", ".status.url", 1, "Where it is reached."),
        column("Reason", "string", &format!("{ready}.reason"), 1, "Why it is ready or not."),
        column("Message", "string", &format!("{ready}.message"), 1, "The same in a sentence."),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_complete() {
        let definition = crd();
        assert_eq!(definition.metadata.name.as_deref(), Some("applications.apps.example.com"));
        let version = &definition.spec.versions[0];
        assert!(version.schema.is_some() && version.subresources.is_some());
        assert_eq!(version.additional_printer_columns.as_ref().map(Vec::len), Some(9));
    }

    #[test]
    fn every_field_has_a_description() {
        fn missing(schema: &Value, path: &str, found: &mut Vec<String>) {
            for (name, field) in schema["properties"].as_object().into_iter().flatten() {
                let path = format!("{path}.{name}");
                if field["description"].as_str().is_none_or(str::is_empty) {
                    found.push(path.clone());
                }
                missing(field, &path, found);
            }
            if schema["items"].is_object() {
                missing(&schema["items"], &format!("{path}[]"), found);
            }
        }
        let mut found = Vec::new();
        let mut schema = schema::schema();
        schema["properties"].as_object_mut().unwrap().remove("metadata");
        missing(&schema, "", &mut found);
        assert!(found.is_empty(), "{found:#?}");
    }
}

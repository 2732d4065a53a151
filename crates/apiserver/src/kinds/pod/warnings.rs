//! What is allowed in a pod or pod template but probably not meant.

use shoal_objects::quantity::Quantity;
use shoal_objects::{Path, Value, meta, names};

use crate::kinds::access::{at, entries_at, field, int_at, list_at, part, str_at};

/// Node labels that have a newer name.
const OLD_NODE_LABELS: [(&str, &str, &str); 5] = [
    ("beta.kubernetes.io/arch", "v1.14", "kubernetes.io/arch"),
    ("beta.kubernetes.io/os", "v1.14", "kubernetes.io/os"),
    ("failure-domain.beta.kubernetes.io/region", "v1.17", "topology.kubernetes.io/region"),
    ("failure-domain.beta.kubernetes.io/zone", "v1.17", "topology.kubernetes.io/zone"),
    ("beta.kubernetes.io/instance-type", "v1.17", "node.kubernetes.io/instance-type"),
];

const NULL_SELECTOR: &str = "a null labelSelector results in matching no pod";

/// Warnings about a Pod.
pub fn of_pod(pod: &Value) -> Vec<String> {
    let mut warnings = of_spec(part(pod, "spec"), &Path::new("spec"));
    warnings.extend(of_name(pod, "the Pod's hostname"));
    warnings
}

/// Warnings about an object whose spec holds a pod template, and whose name becomes part of names of pods.
pub fn of_owner(object: &Value) -> Vec<String> {
    let mut warnings = of_name(object, "Pod names and hostnames");
    let path = Path::new("spec");
    warnings.extend(of_template(part(object, "spec"), &path));
    warnings
}

/// Warnings about the `template` of a spec.
pub fn of_template(spec: &Value, path: &Path<'_>) -> Vec<String> {
    let path = path.child("template");
    of_spec(part(part(spec, "template"), "spec"), &path.child("spec"))
}

/// Warns when a name that is used elsewhere is no DNS label.
pub fn of_name(object: &Value, used_in: &str) -> Vec<String> {
    let complaints = names::dns1123_label(meta::name(object));
    if complaints.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "metadata.name: this is used in {used_in}, which can result in surprising behavior; a DNS label is \
         recommended: [{}]",
        complaints.join(" ")
    )]
}

fn of_spec(spec: &Value, path: &Path<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    for (key, _) in entries_at(spec, "nodeSelector") {
        if let Some((_, since, new)) = OLD_NODE_LABELS.iter().find(|(old, ..)| old == key) {
            let path = path.child("nodeSelector");
            warnings.push(format!("{}: deprecated since {since}; use {new:?} instead", path.key(key)));
        }
    }
    null_selectors(spec, path, &mut warnings);
    for (i, secret) in list_at(spec, "imagePullSecrets").iter().enumerate() {
        if str_at(secret, "name").is_empty() {
            let path = path.child("imagePullSecrets");
            let path = path.index(i);
            warnings.push(format!("{}: invalid empty name \"\"", path.child("name")));
        }
    }
    if int_at(spec, "terminationGracePeriodSeconds").is_some_and(|n| n < 0) {
        let path = path.child("terminationGracePeriodSeconds");
        warnings.push(format!("{path}: must be >= 0; negative values are invalid and will be treated as 1"));
    }
    for list in ["initContainers", "containers"] {
        let path = path.child(list);
        for (i, container) in list_at(spec, list).iter().enumerate() {
            of_container(container, &path.index(i), &mut warnings);
        }
    }
    warnings
}

fn null_selectors(spec: &Value, path: &Path<'_>, warnings: &mut Vec<String>) {
    for (i, constraint) in list_at(spec, "topologySpreadConstraints").iter().enumerate() {
        if field(constraint, "labelSelector").is_none() {
            let path = path.child("topologySpreadConstraints");
            let path = path.index(i);
            warnings.push(format!("{}: {NULL_SELECTOR}", path.child("labelSelector")));
        }
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        let terms = at(spec, &["affinity", kind, required]).and_then(Value::as_array);
        for (i, term) in terms.into_iter().flatten().enumerate() {
            if field(term, "labelSelector").is_none() {
                warnings
                    .push(format!("{path}.affinity.{kind}.{required}[{i}].labelSelector: {NULL_SELECTOR}"));
            }
        }
    }
}

fn of_container(container: &Value, path: &Path<'_>, warnings: &mut Vec<String>) {
    for list in ["limits", "requests"] {
        for name in ["memory", "ephemeral-storage"] {
            let amount = at(container, &["resources", list, name]).and_then(|v| Quantity::from_json(v).ok());
            if let Some(amount) = amount.filter(|amount| amount.milli_value() % 1000 != 0) {
                warnings.push(format!(
                    "{path}.resources.{list}[{name}]: fractional byte value \"{amount}\" is invalid, must be an integer"
                ));
            }
        }
    }
    let variables = list_at(container, "env");
    for (i, variable) in variables.iter().enumerate() {
        let name = str_at(variable, "name");
        let hides = variables[..i].iter().any(|earlier| str_at(earlier, "name") == name);
        if hides && !str_at(variable, "value").contains(&format!("$({name})")) {
            warnings.push(format!(
                "{path}.env[{i}]: hides previous definition of {name:?}, which may be dropped when using apply"
            ));
        }
    }
    let ports = list_at(container, "ports");
    for (i, port) in ports.iter().enumerate() {
        let same = |other: &Value| {
            ["containerPort", "protocol", "hostIP", "hostPort"]
                .iter()
                .all(|name| part(other, name) == part(port, name))
        };
        if let Some(first) = ports[..i].iter().position(same) {
            warnings.push(format!("{path}.ports[{i}]: duplicate port definition with {path}.ports[{first}]"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_ordinary_pod_gives_no_warning() {
        let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"env": [{"name": "A"}, {"name": "B"}]}]}});
        assert!(of_pod(&pod).is_empty());
    }

    #[test]
    fn probable_mistakes_are_named() {
        let spec = json!({
            "terminationGracePeriodSeconds": -1,
            "nodeSelector": {"beta.kubernetes.io/os": "linux"},
            "topologySpreadConstraints": [{}],
            "containers": [{
                "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}, {"name": "A", "value": "3"}],
                "resources": {"limits": {"memory": "1500m"}},
                "ports": [{"containerPort": 1}, {"containerPort": 1}],
            }],
        });
        let owner = json!({"metadata": {"name": "a.b"}, "spec": {"template": {"spec": spec}}});
        assert_eq!(
            of_owner(&owner)[1..],
            [
                "spec.template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead",
                "spec.template.spec.topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod",
                "spec.template.spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1",
                "spec.template.spec.containers[0].resources.limits[memory]: fractional byte value \"1500m\" is invalid, must be an integer",
                "spec.template.spec.containers[0].env[2]: hides previous definition of \"A\", which may be dropped when using apply",
                "spec.template.spec.containers[0].ports[1]: duplicate port definition with spec.template.spec.containers[0].ports[0]",
            ]
        );
        assert!(of_owner(&owner)[0].starts_with("metadata.name: this is used in Pod names and hostnames"));
    }
}

//! The roles and bindings every cluster starts with.

use serde_json::{Value, json};

const READ: [&str; 3] = ["get", "list", "watch"];
const WRITE: [&str; 5] = ["create", "delete", "deletecollection", "patch", "update"];

/// ClusterRoles and ClusterRoleBindings, in the order in which they are made.
pub fn objects() -> Vec<Value> {
    let all = ["*"];
    let mut objects = vec![
        role(
            "cluster-admin",
            json!([
                {"apiGroups": all, "resources": all, "verbs": all}, {"nonResourceURLs": all, "verbs": all},
            ]),
        ),
        role(
            "system:discovery",
            json!([{"verbs": ["get"], "nonResourceURLs": [
                "/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz", "/version", "/version/",
            ]}]),
        ),
        role(
            "system:public-info-viewer",
            json!([
                {"verbs": ["get"], "nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"]},
            ]),
        ),
        role(
            "system:monitoring",
            json!([{"verbs": ["get"], "nonResourceURLs": [
                "/healthz", "/healthz/*", "/livez", "/livez/*", "/metrics", "/metrics/slis", "/readyz", "/readyz/*",
            ]}]),
        ),
        role(
            "system:basic-user",
            json!([
                {"apiGroups": ["authorization.k8s.io"], "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"], "verbs": ["create"]},
                {"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["create"]},
            ]),
        ),
        role(
            "system:service-account-issuer-discovery",
            json!([
                {"verbs": ["get"], "nonResourceURLs": ["/.well-known/openid-configuration", "/openid/v1/jwks"]},
            ]),
        ),
        role(
            "system:auth-delegator",
            json!([
                {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
                {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
            ]),
        ),
        aggregated("admin"),
        aggregated("edit"),
        aggregated("view"),
        part("system:aggregate-to-admin", "admin", admin()),
        part("system:aggregate-to-edit", "edit", edit()),
        part("system:aggregate-to-view", "view", view()),
        binding("cluster-admin", "cluster-admin", &["system:masters"]),
        binding("system:discovery", "system:discovery", &["system:authenticated"]),
        binding("system:basic-user", "system:basic-user", &["system:authenticated"]),
        binding(
            "system:public-info-viewer",
            "system:public-info-viewer",
            &["system:authenticated", "system:unauthenticated"],
        ),
        binding("system:monitoring", "system:monitoring", &["system:monitoring"]),
        binding(
            "system:service-account-issuer-discovery",
            "system:service-account-issuer-discovery",
            &["system:serviceaccounts"],
        ),
    ];
    // What may be edited may be administered, what may be viewed may be edited.
    for (name, into) in [("system:aggregate-to-edit", "admin"), ("system:aggregate-to-view", "edit")] {
        for object in objects.iter_mut().filter(|o| o["metadata"]["name"] == name) {
            object["metadata"]["labels"][format!("rbac.authorization.k8s.io/aggregate-to-{into}")] =
                "true".into();
        }
    }
    for object in objects.iter_mut().filter(|o| o["metadata"]["name"] == "system:aggregate-to-view") {
        object["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-admin"] = "true".into();
    }
    objects
}

fn metadata(name: &str) -> Value {
    json!({
        "name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    })
}

fn role(name: &str, rules: Value) -> Value {
    let mut role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata(name)});
    role["rules"] = rules;
    role
}

fn part(name: &str, into: &str, rules: Value) -> Value {
    let mut role = role(name, rules);
    role["metadata"]["labels"][format!("rbac.authorization.k8s.io/aggregate-to-{into}")] = "true".into();
    role
}

fn aggregated(name: &str) -> Value {
    let mut role = role(name, json!([]));
    let label = format!("rbac.authorization.k8s.io/aggregate-to-{name}");
    role["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]});
    role
}

fn binding(name: &str, role: &str, groups: &[&str]) -> Value {
    let subjects: Vec<Value> = groups
        .iter()
        .map(|group| json!({"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": group}))
        .collect();
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": metadata(name),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}, "subjects": subjects,
    })
}

fn admin() -> Value {
    let both: Vec<&str> = WRITE.iter().chain(&READ).copied().collect();
    json!([
        {"apiGroups": ["authorization.k8s.io"], "resources": ["localsubjectaccessreviews"], "verbs": ["create"]},
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["rolebindings", "roles"], "verbs": both},
    ])
}

fn edit() -> Value {
    json!([
        {"apiGroups": [""], "resources": ["pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "secrets", "services/proxy"], "verbs": READ},
        {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"]},
        {"apiGroups": [""], "resources": ["pods", "pods/attach", "pods/exec", "pods/portforward", "pods/proxy"], "verbs": WRITE},
        {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": [
            "configmaps", "events", "persistentvolumeclaims", "replicationcontrollers", "replicationcontrollers/scale",
            "secrets", "serviceaccounts", "services", "services/proxy",
        ], "verbs": WRITE},
        {"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]},
        {"apiGroups": ["apps"], "resources": [
            "daemonsets", "deployments", "deployments/rollback", "deployments/scale", "replicasets", "replicasets/scale",
            "statefulsets", "statefulsets/scale",
        ], "verbs": WRITE},
        {"apiGroups": ["autoscaling"], "resources": ["horizontalpodautoscalers"], "verbs": WRITE},
        {"apiGroups": ["batch"], "resources": ["cronjobs", "jobs"], "verbs": WRITE},
        {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": WRITE},
        {"apiGroups": ["networking.k8s.io"], "resources": ["ingresses", "networkpolicies"], "verbs": WRITE},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]},
    ])
}

fn view() -> Value {
    json!([
        {"apiGroups": [""], "resources": [
            "bindings", "configmaps", "endpoints", "events", "limitranges", "namespaces", "namespaces/status", "persistentvolumeclaims",
            "persistentvolumeclaims/status", "pods", "pods/log", "pods/status", "replicationcontrollers",
            "replicationcontrollers/scale", "replicationcontrollers/status", "resourcequotas", "resourcequotas/status",
            "serviceaccounts", "services", "services/status",
        ], "verbs": READ},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": READ},
        {"apiGroups": ["apps"], "resources": [
            "controllerrevisions", "daemonsets", "daemonsets/status", "deployments", "deployments/scale", "deployments/status",
            "replicasets", "replicasets/scale", "replicasets/status", "statefulsets", "statefulsets/scale", "statefulsets/status",
        ], "verbs": READ},
        {"apiGroups": ["autoscaling"], "resources": ["horizontalpodautoscalers", "horizontalpodautoscalers/status"], "verbs": READ},
        {"apiGroups": ["batch"], "resources": ["cronjobs", "cronjobs/status", "jobs", "jobs/status"], "verbs": READ},
        {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets", "poddisruptionbudgets/status"], "verbs": READ},
        {"apiGroups": ["networking.k8s.io"], "resources": ["ingresses", "ingresses/status", "networkpolicies"], "verbs": READ},
    ])
}

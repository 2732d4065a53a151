//! Objects that every cluster has: the first namespaces, the default roles, the `kubernetes` Service, the system priority
//! classes, and what extension API servers need to believe this one.

use http::header::USER_AGENT;
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};
use shoal_objects::meta;

use crate::access::UserInfo;
use crate::access::pki::{FRONT_PROXY_CLIENT, FrontProxy};
use crate::authorize::bootstrap_objects;
use crate::own_service;
use crate::server::Server;

/// Makes what is missing, through the API like any other client.
pub async fn run(server: &Server) {
    for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        create(server, "/api/v1/namespaces", &namespace).await;
    }
    for object in bootstrap_objects() {
        create(server, rbac_path(&object), &object).await;
    }
    let service = own_service::service(own_service::USUAL_PORT);
    create(server, "/api/v1/namespaces/default/services", &service).await;
    for (name, value, about) in [
        (
            "system-cluster-critical",
            2_000_000_000,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
        (
            "system-node-critical",
            2_000_001_000,
            "Used for system critical pods that must not be moved from their current node.",
        ),
    ] {
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
            "value": value, "description": about,
        });
        create(server, "/apis/scheduling.k8s.io/v1/priorityclasses", &class).await;
    }
    if let Some(front_proxy) = server.front_proxy() {
        extension_authentication(server, front_proxy).await;
    }
}

/// Tells extension API servers whose certificates to trust. Keys may be new since the last start.
async fn extension_authentication(server: &Server, front_proxy: &FrontProxy) {
    let name = "extension-apiserver-authentication";
    let path = "/api/v1/namespaces/kube-system/configmaps";
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "kube-system"},
        "data": {
            "client-ca-file": front_proxy.client_ca_pem,
            "requestheader-allowed-names": format!("[{FRONT_PROXY_CLIENT:?}]"),
            "requestheader-client-ca-file": front_proxy.request_header_ca_pem,
            "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
            "requestheader-group-headers": "[\"X-Remote-Group\"]",
            "requestheader-uid-headers": "[\"X-Remote-Uid\"]",
            "requestheader-username-headers": "[\"X-Remote-User\"]",
        },
    });
    create(server, path, &map).await;
    send(server, Method::PUT, &format!("{path}/{name}"), map.to_string()).await;
    let role = "extension-apiserver-authentication-reader";
    let rule = json!({
        "apiGroups": [""], "resources": ["configmaps"], "resourceNames": [name], "verbs": ["get", "list", "watch"],
    });
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {
            "name": role, "namespace": "kube-system", "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
            "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
        },
        "rules": [rule],
    });
    create(server, "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/roles", &role).await;
}

fn rbac_path(object: &Value) -> &'static str {
    match object["kind"].as_str() {
        Some("ClusterRole") => "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        _ => "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    }
}

async fn create(server: &Server, path: &str, object: &Value) {
    let existing = format!("{path}/{}", meta::name(object));
    if send(server, Method::GET, &existing, String::new()).await.is_some_and(|status| status.is_success()) {
        return;
    }
    let status = send(server, Method::POST, path, object.to_string()).await;
    if !status.is_some_and(|status| status.is_success()) {
        tracing::warn!(path, ?status, "a system object could not be made");
    }
}

async fn send(server: &Server, method: Method, path: &str, body: String) -> Option<StatusCode> {
    let user = UserInfo::authenticated("system:apiserver", &["system:masters"]);
    let request =
        Request::builder().method(method).header(USER_AGENT, "kube-apiserver").uri(path).extension(user);
    let request = request.body(Full::<bytes::Bytes>::from(body)).ok()?;
    Some(server.handle(request).await.status())
}

//! Requests as the typed clients of client-go send them: protobuf bodies, their Accept lists, their patches.
//!
//! `go_clients/requests.json` holds what client-go 0.36 sent, byte for byte, when `tests/clients/go/record.go` used it;
//! nothing of it was made by our own encoder. Requests build on each other and are replayed in their order. A uid or
//! resource version in a body is replaced by that of the object at hand, which has the same length.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use shoal_testkit::{Cluster, Http};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Written by hand in client-go rather than generated: these still send JSON.
const IN_JSON: [&str; 3] = ["event create", "pod bind", "pod evict"];

/// A request's name, the status it is answered with, and what is true afterwards.
type Expected = (&'static str, u16, After);

/// What to look at, with a part that must be there.
enum After {
    /// The object at this path.
    Object(&'static str, &'static str),
    /// The answer itself, asked for in JSON: what is made is not kept.
    Answer(&'static str),
    /// Nothing at this path.
    Gone(&'static str),
}
use After::{Answer, Gone, Object};

const MAP: &str = "/api/v1/namespaces/go/configmaps/a";
const APPLIED: &str = "/api/v1/namespaces/go/configmaps/applied";
const SECRET: &str = "/api/v1/namespaces/go/secrets/s";
const POD: &str = "/api/v1/namespaces/go/pods/p";
const NODE: &str = "/api/v1/nodes/n1";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/go/deployments/web";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/go/leases/lock";

const EXPECTED: &[Expected] = &[
    ("namespace create", 201, Object("/api/v1/namespaces/go", r#"{"status": {"phase": "Active"}}"#)),
    (
        "configmap create",
        201,
        Object(
            MAP,
            r#"{"metadata": {"labels": {"l": "1"}, "annotations": {"n": "é"}}, "data": {"k": "1"}, "binaryData": {"b": "AP8="}}"#,
        ),
    ),
    ("configmap update", 200, Object(MAP, r#"{"data": {"k": "2"}}"#)),
    ("configmap get", 200, Answer(r#"{"data": {"k": "2"}}"#)),
    ("configmap list", 200, Answer(r#"{"items": [{"metadata": {"name": "a"}, "data": {"k": "2"}}]}"#)),
    ("configmap patch json", 200, Object(MAP, r#"{"data": {"j": "x"}}"#)),
    ("configmap patch merge", 200, Object(MAP, r#"{"data": {"m": "y"}}"#)),
    ("configmap patch strategic", 200, Object(MAP, r#"{"data": {"s": "z", "k": "2"}}"#)),
    ("configmap apply", 201, Object(APPLIED, r#"{"data": {"k": "v"}}"#)),
    ("secret create", 201, Object(SECRET, r#"{"type": "Opaque", "data": {"k": "dg==", "t": "dGV4dA=="}}"#)),
    (
        "serviceaccount create",
        201,
        Object("/api/v1/namespaces/go/serviceaccounts/default", r#"{"kind": "ServiceAccount"}"#),
    ),
    ("token request", 201, Answer(r#"{"spec": {"expirationSeconds": 3600}, "kind": "TokenRequest"}"#)),
    (
        "service create",
        201,
        Object(
            "/api/v1/namespaces/go/services/web",
            r#"{"spec": {"type": "ClusterIP", "ports": [{"targetPort": "web", "protocol": "TCP"}, {"targetPort": 8443}]}}"#,
        ),
    ),
    (
        "persistentvolumeclaim create",
        201,
        Object(
            "/api/v1/namespaces/go/persistentvolumeclaims/data",
            r#"{"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}"#,
        ),
    ),
    (
        "resourcequota create",
        201,
        Object("/api/v1/namespaces/go/resourcequotas/quota", r#"{"spec": {"hard": {"pods": "50"}}}"#),
    ),
    (
        "node create",
        201,
        Object(
            NODE,
            r#"{"spec": {"taints": [{"key": "t", "value": "v", "effect": "NoSchedule"}, {"key": "node.kubernetes.io/not-ready"}]}}"#,
        ),
    ),
    (
        "node update status",
        200,
        Object(
            NODE,
            r#"{"status": {"capacity": {"cpu": "4", "memory": "8Gi"}, "conditions": [{"type": "Ready", "lastHeartbeatTime": "2023-11-14T22:13:20Z"}]}}"#,
        ),
    ),
    (
        "node patch status",
        200,
        Object(NODE, r#"{"status": {"nodeInfo": {"kubeletVersion": "v1.36.0"}, "capacity": {"cpu": "4"}}}"#),
    ),
    (
        "event create",
        201,
        Object(
            "/api/v1/namespaces/go/events/a.1",
            r#"{"reason": "Tested", "count": 1, "firstTimestamp": "2023-11-14T22:13:20Z", "involvedObject": {"name": "a"}}"#,
        ),
    ),
    ("event patch", 200, Object("/api/v1/namespaces/go/events/a.1", r#"{"count": 2}"#)),
    (
        "event create in events.k8s.io",
        201,
        Object(
            "/apis/events.k8s.io/v1/namespaces/go/events/a.2",
            r#"{"eventTime": "2023-11-14T22:13:20.123456Z", "note": "by a recorder"}"#,
        ),
    ),
    (
        "pod create",
        201,
        Object(
            POD,
            r#"{"spec": {"containers": [{"image": "nginx:1.29", "env": [{"name": "A"}, {"valueFrom": {"fieldRef": {"fieldPath": "status.podIP", "apiVersion": "v1"}}}],
                "readinessProbe": {"httpGet": {"port": "web", "scheme": "HTTP"}, "periodSeconds": 10}}],
                "volumes": [{"name": "settings", "configMap": {"name": "a", "defaultMode": 420}}]}}"#,
        ),
    ),
    ("pod bind", 201, Object(POD, r#"{"spec": {"nodeName": "n1"}}"#)),
    ("pod update status", 200, Object(POD, r#"{"status": {"phase": "Running", "podIP": "10.0.0.7"}}"#)),
    (
        "pod update ephemeralcontainers",
        200,
        Object(POD, r#"{"spec": {"ephemeralContainers": [{"name": "debug"}], "nodeName": "n1"}}"#),
    ),
    ("pod evict", 201, Gone(POD)),
    (
        "deployment create",
        201,
        Object(
            DEPLOYMENT,
            r#"{"spec": {"replicas": 2, "strategy": {"rollingUpdate": {"maxSurge": "50%", "maxUnavailable": "25%"}}}}"#,
        ),
    ),
    (
        "deployment update",
        200,
        Object(DEPLOYMENT, r#"{"spec": {"replicas": 3}, "metadata": {"generation": 2}}"#),
    ),
    (
        "deployment update status",
        200,
        Object(
            DEPLOYMENT,
            r#"{"status": {"replicas": 1, "observedGeneration": 2, "conditions": [{"reason": "Waiting"}]}, "metadata": {"generation": 2}}"#,
        ),
    ),
    (
        "deployment get scale",
        200,
        Answer(r#"{"kind": "Scale", "spec": {"replicas": 3}, "status": {"selector": "app=web"}}"#),
    ),
    ("deployment update scale", 200, Object(DEPLOYMENT, r#"{"spec": {"replicas": 5}}"#)),
    (
        "statefulset create",
        201,
        Object(
            "/apis/apps/v1/namespaces/go/statefulsets/db",
            r#"{"spec": {"serviceName": "db", "replicas": 2}}"#,
        ),
    ),
    (
        "daemonset create",
        201,
        Object(
            "/apis/apps/v1/namespaces/go/daemonsets/agent",
            r#"{"spec": {"updateStrategy": {"type": "RollingUpdate"}}}"#,
        ),
    ),
    (
        "job create",
        201,
        Object(
            "/apis/batch/v1/namespaces/go/jobs/once",
            r#"{"spec": {"completions": 2, "backoffLimit": 6}}"#,
        ),
    ),
    (
        "cronjob create",
        201,
        Object(
            "/apis/batch/v1/namespaces/go/cronjobs/nightly",
            r#"{"spec": {"schedule": "0 3 * * *", "suspend": false}}"#,
        ),
    ),
    (
        "horizontalpodautoscaler create",
        201,
        Object(
            "/apis/autoscaling/v2/namespaces/go/horizontalpodautoscalers/web",
            r#"{"spec": {"minReplicas": 1, "maxReplicas": 9, "metrics": [{"resource": {"name": "cpu", "target": {"averageUtilization": 80}}}]}}"#,
        ),
    ),
    (
        "lease create",
        201,
        Object(LEASE, r#"{"spec": {"holderIdentity": "one", "renewTime": "2023-11-14T22:13:20.123456Z"}}"#),
    ),
    (
        "lease update",
        200,
        Object(LEASE, r#"{"spec": {"holderIdentity": "two", "leaseDurationSeconds": 15}}"#),
    ),
    (
        "poddisruptionbudget create",
        201,
        Object("/apis/policy/v1/namespaces/go/poddisruptionbudgets/web", r#"{"spec": {"minAvailable": 1}}"#),
    ),
    (
        "ingress create",
        201,
        Object(
            "/apis/networking.k8s.io/v1/namespaces/go/ingresses/web",
            r#"{"spec": {"rules": [{"host": "example.com", "http": {"paths": [{"pathType": "Prefix", "backend": {"service": {"port": {"number": 80}}}}]}}]}}"#,
        ),
    ),
    (
        "role create",
        201,
        Object(
            "/apis/rbac.authorization.k8s.io/v1/namespaces/go/roles/reader",
            r#"{"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]}"#,
        ),
    ),
    (
        "rolebinding create",
        201,
        Object(
            "/apis/rbac.authorization.k8s.io/v1/namespaces/go/rolebindings/jane",
            r#"{"subjects": [{"name": "jane"}]}"#,
        ),
    ),
    ("selfsubjectaccessreview create", 201, Answer(r#"{"status": {"allowed": true}}"#)),
    (
        "subjectaccessreview create",
        201,
        Answer(r#"{"status": {"allowed": true}, "spec": {"extra": {"e": ["1", "2"]}}}"#),
    ),
    ("selfsubjectreview create", 201, Answer(r#"{"kind": "SelfSubjectReview"}"#)),
    ("tokenreview create", 201, Answer(r#"{"kind": "TokenReview", "spec": {"token": "nonsense"}}"#)),
    ("configmap delete with another uid", 409, Object(MAP, r#"{"data": {"k": "2"}}"#)),
    ("configmap delete with its uid", 200, Gone(MAP)),
    (
        "deployment delete in the foreground",
        200,
        Object(DEPLOYMENT, r#"{"metadata": {"finalizers": ["foregroundDeletion"]}}"#),
    ),
    ("configmap deletecollection", 200, Gone(APPLIED)),
    ("secret delete without options", 200, Gone(SECRET)),
];

#[tokio::test]
async fn what_client_go_sends_has_the_effect_that_it_wants() {
    let cluster = Cluster::start().await;
    let http = cluster.http();
    let requests = requests();
    let names: Vec<&str> = requests.iter().map(|request| text(request, "name")).collect();
    assert_eq!(names, EXPECTED.iter().map(|(name, ..)| *name).collect::<Vec<_>>());
    for (request, (name, status, after)) in requests.iter().zip(EXPECTED) {
        let accept = match after {
            Answer(_) => "application/json",
            _ => text(request, "accept"),
        };
        let headers = [("accept", accept), ("content-type", text(request, "contentType"))];
        let headers = if headers[1].1.is_empty() { &headers[..1] } else { &headers[..] };
        let body = body(request, &http).await;
        let answer = http.send(text(request, "method"), text(request, "path"), headers, body).await;
        let said = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(answer.status, *status, "{name}: {said}");
        match after {
            Object(path, part) => contains(name, &http.get(path).await.json(), part),
            Answer(part) => contains(name, &answer.json(), part),
            Gone(path) => assert_eq!(http.get(path).await.status, 404, "{name}"),
        }
        // Refusals are told in JSON, which these clients read as well.
        if accept.starts_with(PROTOBUF) && answer.status.is_success() {
            assert_eq!(answer.headers["content-type"], PROTOBUF, "{name}: the client likes it best");
            assert!(answer.body.starts_with(b"k8s\0"), "{name}: {said}");
        }
    }
}

#[test]
fn the_recording_is_of_protobuf_bodies() {
    for request in requests() {
        let (method, content) = (text(&request, "method"), text(&request, "contentType"));
        let plain = matches!(method, "GET" | "PATCH") || IN_JSON.contains(&text(&request, "name"));
        assert_eq!(content == PROTOBUF, !plain, "{}", request["name"]);
        let body = STANDARD.decode(text(&request, "body")).expect("base64");
        assert_eq!(body.starts_with(b"k8s\0"), !plain, "{}", request["name"]);
    }
}

fn requests() -> Vec<Value> {
    serde_json::from_str(include_str!("go_clients/requests.json")).expect("the recording")
}

fn text<'a>(request: &'a Value, field: &str) -> &'a str {
    request[field].as_str().unwrap_or_default()
}

/// The recorded body, about the objects of this cluster.
async fn body(request: &Value, http: &Http) -> Vec<u8> {
    let mut body = STANDARD.decode(text(request, "body")).expect("base64");
    for replacement in request["replace"].as_array().into_iter().flatten() {
        let (old, field) = (text(replacement, "text"), text(replacement, "field"));
        let object = http.get(text(replacement, "of")).await.json();
        let new = format!("{:0>length$}", text(&object["metadata"], field), length = old.len());
        let at = body.windows(old.len()).position(|window| window == old.as_bytes()).expect(old);
        body[at..at + old.len()].copy_from_slice(new.as_bytes());
    }
    body
}

/// Objects must have these fields, lists must begin with these items; what else there is does not matter.
fn contains(name: &str, whole: &Value, part: &str) {
    let part: Value = serde_json::from_str(part).expect(name);
    assert!(is_in(&part, whole), "{name}: {part:#} is not in {whole:#}");
}

fn is_in(part: &Value, whole: &Value) -> bool {
    match (part, whole) {
        (Value::Object(part), Value::Object(_)) => part.iter().all(|(key, value)| is_in(value, &whole[key])),
        (Value::Array(part), Value::Array(whole)) => {
            part.len() <= whole.len() && part.iter().zip(whole).all(|(part, whole)| is_in(part, whole))
        }
        _ => part == whole,
    }
}

#[test]
fn a_part_is_found_only_where_it_is() {
    let whole = json!({"a": {"b": [1, {"c": 2, "d": 3}]}});
    assert!(is_in(&json!({"a": {"b": [1, {"c": 2}]}}), &whole));
    assert!(is_in(&json!({"a": {"b": [1]}}), &whole));
    assert!(!is_in(&json!({"a": {"b": [2]}}), &whole));
    assert!(!is_in(&json!({"a": {"x": 1}}), &whole));
}

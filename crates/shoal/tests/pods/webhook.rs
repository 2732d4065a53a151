//! The API server calls pods: webhooks, extension API servers, proxies.

use rcgen::{CertificateParams, KeyPair};
use serde_json::json;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::kubectl::{World, python};

/// Judges ConfigMaps, and serves a group of its own.
const PROGRAM: &str = r"
import http.server, json, ssl
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def say(self, value):
        body = json.dumps(value).encode()
        self.send_response(200); self.send_header('content-type', 'application/json')
        self.send_header('content-length', str(len(body))); self.end_headers(); self.wfile.write(body)
    def do_POST(self):
        review = json.loads(self.rfile.read(int(self.headers['content-length'])))
        request = review['request']
        allowed = 'forbidden' not in (request['object'].get('data') or {})
        self.say({'apiVersion': review['apiVersion'], 'kind': review['kind'], 'response': {
            'uid': request['uid'], 'allowed': allowed, 'status': {'message': 'not in this cluster'}}})
    def do_GET(self):
        path = self.path.split('?')[0]
        if path == '/apis/demo.example/v1':
            self.say({'kind': 'APIResourceList', 'apiVersion': 'v1', 'groupVersion': 'demo.example/v1', 'resources': [
                {'name': 'things', 'singularName': 'thing', 'namespaced': False, 'kind': 'Thing', 'verbs': ['get', 'list']}]})
        elif path == '/apis/demo.example/v1/things':
            self.say({'kind': 'ThingList', 'apiVersion': 'demo.example/v1', 'metadata': {}, 'items': [
                {'kind': 'Thing', 'apiVersion': 'demo.example/v1', 'metadata': {'name': 'from-a-pod'}}]})
        else: self.say({'path': self.path})
server = http.server.ThreadingHTTPServer(('0.0.0.0', 8443), Handler)
tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER); tls.load_cert_chain('/etc/tls/tls.crt', '/etc/tls/tls.key')
server.socket = tls.wrap_socket(server.socket, server_side=True)
server.serve_forever()
";

fn service(name: &str, port: u16, target: u16) -> serde_json::Value {
    let ports = json!([{"port": port, "targetPort": target}]);
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"selector": {"app": name}, "ports": ports}})
}

#[test]
fn webhooks_and_extension_servers_run_as_pods() {
    let world = World::start();
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec!["hook.default.svc".to_owned()]).unwrap().self_signed(&key).unwrap();
    let bundle = BASE64.encode(certificate.pem());
    let mut container = python(PROGRAM);
    container["volumeMounts"] = json!([{"name": "tls", "mountPath": "/etc/tls"}]);
    container["readinessProbe"] = json!({"httpGet": {"scheme": "HTTPS", "port": 8443}, "periodSeconds": 1});
    let volumes = json!([{"name": "tls", "secret": {"secretName": "hook"}}]);
    world.apply(&[
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hook"}, "type": "kubernetes.io/tls",
            "stringData": {"tls.crt": certificate.pem(), "tls.key": key.serialize_pem()}}),
        service("hook", 443, 8443),
    ]);
    world.pod("hook", json!({"containers": [container], "volumes": volumes}));
    world.until_ready("hook");
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io/service-name%3Dhook";
    world.until_get(slices, "an endpoint", |list| {
        list["items"][0]["endpoints"][0]["conditions"]["ready"] == true
    });

    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]});
    let client =
        json!({"service": {"namespace": "default", "name": "hook", "path": "/judge"}, "caBundle": bundle});
    world.apply(&[
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "hook"}, "webhooks": [{
                "name": "hook.demo.example", "rules": [rule], "clientConfig": client, "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
        }]}),
        json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1.demo.example"},
            "spec": {"group": "demo.example", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 10,
                "service": {"namespace": "default", "name": "hook"}, "caBundle": bundle}}),
    ]);
    world.ok(&["create", "configmap", "good", "--from-literal=a=b"]);
    let said = world.run(&["create", "configmap", "bad", "--from-literal=forbidden=yes"], "");
    assert!(said.code == Some(1) && said.err.contains("not in this cluster"), "{said:?}");
    world.ok(&["wait", "--for=condition=Available", "apiservice/v1.demo.example", "--timeout=60s"]);
    world.until_prints(&["get", "things"], |text| text.contains("from-a-pod"));
    let answer =
        world.ok(&["get", "--raw", "/api/v1/namespaces/default/services/https:hook:443/proxy/a/b?c=d"]);
    assert_eq!(answer, r#"{"path": "/a/b?c=d"}"#);
}

#[test]
fn programs_are_reached_through_the_api_server() {
    let world = World::start();
    let container = json!({"name": "main", "image": "echo", "ports": [{"containerPort": 8080}],
        "readinessProbe": {"httpGet": {"port": 8080, "path": "/"}, "periodSeconds": 1}});
    world.apply(&[service("web", 80, 8080)]);
    world.pod("web", json!({"containers": [container]}));
    world.until_ready("web");
    let prefix = "/api/v1/namespaces/default";
    world.until_prints(&["get", "--raw", &format!("{prefix}/services/web/proxy/")], |text| {
        text.contains("Hostname: web")
    });
    for path in ["services/web:80/proxy/a%20b/", "pods/web/proxy/a%20b/", "pods/web:8080/proxy/a%20b/"] {
        let answer = world.ok(&["get", "--raw", &format!("{prefix}/{path}")]);
        assert!(answer.contains("GET /a%20b/\n"), "{path}: {answer}");
        assert!(!answer.to_lowercase().contains("authorization"), "{answer}");
    }
    let said = world.run(&["get", "--raw", &format!("{prefix}/services/web:81/proxy/")], "");
    assert!(said.err.contains("no service port 81 found for service \"web\""), "{said:?}");
    world.ok(&["delete", "pod", "web", "--now"]);
    world.until_gone("web");
    world.until_prints(&["get", "endpoints", "web"], |text| text.contains("<none>"));
    let said = world.run(&["get", "--raw", &format!("{prefix}/services/web/proxy/")], "");
    assert!(said.err.contains("no endpoints available for service \"web\""), "{said:?}");
}

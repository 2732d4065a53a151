//! Group versions that others serve: behind a Service, over TLS, and inside this process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod extension;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use extension::Extension;
use futures::FutureExt as _;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::{Value, json};
use shoal_apiserver::access::UserInfo;
use shoal_apiserver::access::pki::Pki;
use shoal_apiserver::serve::{self, Limits};
use shoal_apiserver::{Body, GroupHandler};
use shoal_objects::Clock;
use shoal_testkit::{Cluster, Http, eventually};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

const MY_SERVICES: &str = "/api/v1/namespaces/default/services";
const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const FLUNDERS: &str = "/apis/ext.test/v1/namespaces/default/flunders";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

struct World {
    pki: Pki,
    cluster: Cluster,
    http: Http,
    extension: Extension,
}

impl World {
    /// A cluster and an extension API server that are not yet introduced to each other.
    async fn start() -> World {
        let pki = Pki::in_memory(&[], Clock::system().now()).unwrap();
        let cluster = Cluster::builder().front_proxy(pki.front_proxy().clone()).start().await;
        let extension = Extension::start(&pki.front_proxy().request_header_ca_pem).await;
        World { pki, http: cluster.http(), cluster, extension }
    }

    /// The same with the extension registered and found available.
    async fn introduced() -> World {
        let world = World::start().await;
        world.add_service().await;
        world.create(SERVICES, &world.extension.api_service()).await;
        world.awaits("True", "Passed").await;
        world
    }

    async fn create(&self, path: &str, object: &Value) {
        let answer = self.http.post(path, object).await;
        assert_eq!(answer.status, 201, "{}", answer.json());
    }

    /// The Service leads to this machine: endpoints cannot be loopback addresses.
    async fn add_service(&self) {
        let service = json!({"metadata": {"name": "ext"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
        self.create(MY_SERVICES, &service).await;
    }

    /// A change of the Service leads to a new look at it.
    async fn touch_service(&self) {
        let patch = json!({"metadata": {"annotations": {"touched": "yes"}}});
        assert_eq!(self.http.merge(&format!("{MY_SERVICES}/ext"), &patch).await.status, 200);
    }

    /// Lets the Service lead to another program.
    async fn move_to(&self, address: SocketAddr) {
        let patch = json!({"spec": {"service": {"port": address.port()}}});
        assert_eq!(self.http.merge(&format!("{SERVICES}/v1.ext.test"), &patch).await.status, 200);
    }

    /// Waits for a condition and gives its message.
    async fn awaits(&self, status: &str, reason: &str) -> String {
        let path = format!("{SERVICES}/v1.ext.test");
        eventually(&format!("{status} {reason}"), async || {
            let condition = self.http.get(&path).await.json()["status"]["conditions"][0].clone();
            (condition["status"] == status && condition["reason"] == reason)
                .then(|| condition["message"].as_str().unwrap_or_default().to_owned())
        })
        .await
    }
}

fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn local_groups_are_registered_and_custom_ones_come_and_go() {
    let http = Cluster::start().await.http();
    let all = names(&http.get(SERVICES).await.json());
    for name in ["v1.", "v1.apps", "v2.autoscaling", "v1.apiextensions.k8s.io"] {
        assert!(all.iter().any(|n| n == name), "{name} in {all:?}");
    }
    assert!(!all.iter().any(|name| name.contains("apiregistration")), "{all:?}");
    let table = http.send("GET", SERVICES, &[("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")], "");
    let table = table.await.json();
    let columns = table["columnDefinitions"].as_array().unwrap();
    let columns: Vec<&str> = columns.iter().filter_map(|column| column["name"].as_str()).collect();
    assert_eq!(columns, ["Name", "Service", "Available", "Age"]);
    let core = table["rows"].as_array().unwrap().iter().find(|row| row["cells"][0] == "v1.").unwrap();
    assert_eq!((&core["cells"][1], &core["cells"][2]), (&json!("Local"), &json!("True")));

    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let definition = json!({"metadata": {"name": "widgets.x.test"}, "spec": {
        "group": "x.test", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
    }});
    assert_eq!(http.post(definitions, &definition).await.status, 201);
    let path = format!("{SERVICES}/v1.x.test");
    let made = http.get(&path).await.json();
    assert_eq!(made["metadata"]["labels"]["kube-aggregator.kubernetes.io/automanaged"], "true");
    assert_eq!(made["spec"]["groupPriorityMinimum"], 1000);
    assert_eq!(made["status"]["conditions"][0]["reason"], "Local");
    // What stands for a served group is put right when someone takes it away.
    assert_eq!(http.delete(&path).await.status, 200);
    assert_eq!(http.get(&path).await.status, 200);
    http.delete(&format!("{definitions}/widgets.x.test")).await;
    eventually("the APIService goes with the group", async || {
        (http.get(&path).await.status == 404).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_condition_says_what_is_missing() {
    let world = World::start().await;
    world.create(SERVICES, &world.extension.api_service()).await;
    assert_eq!(world.awaits("False", "ServiceNotFound").await, "service/ext in \"default\" is not present");
    let refused = world.http.get(FLUNDERS).await;
    assert_eq!((refused.status.as_u16(), &refused.json()["reason"]), (503, &json!("ServiceUnavailable")));
    let port = world.extension.address.port();
    let mut service = json!({"metadata": {"name": "ext"}, "spec": {"ports": [{"name": "https", "port": 1}]}});
    world.create(MY_SERVICES, &service).await;
    let text = world.awaits("False", "ServicePortError").await;
    assert_eq!(text, format!("service/ext in \"default\" is not listening on port {port}"));
    world.http.delete(&format!("{MY_SERVICES}/ext")).await;
    service["spec"]["ports"][0]["port"] = port.into();
    world.create(MY_SERVICES, &service).await;
    let text = world.awaits("False", "EndpointsNotFound").await;
    assert_eq!(text, "cannot find endpointslices for service/ext in \"default\"");
    let slice = json!({
        "metadata": {"name": "ext-1", "labels": {"kubernetes.io/service-name": "ext"}}, "addressType": "IPv4",
        "ports": [{"name": "https", "port": port}],
        "endpoints": [{"addresses": ["192.0.2.1"], "conditions": {"ready": false}}],
    });
    world.create("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", &slice).await;
    let text = world.awaits("False", "MissingEndpoints").await;
    assert!(text.ends_with("have no addresses with port name \"https\""), "{text}");
    world.http.delete(&format!("{MY_SERVICES}/ext")).await;
    world.add_service().await;
    assert_eq!(world.awaits("True", "Passed").await, "all checks passed");
    assert_eq!(world.http.get(FLUNDERS).await.status, 200);
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    world.move_to(closed).await;
    let text = world.awaits("False", "FailedDiscoveryCheck").await;
    let url = format!("https://localhost:{}/apis/ext.test/v1", closed.port());
    assert!(
        text.starts_with(&format!("failing or missing response from {url}: Get \"{url}\": dial tcp")),
        "{text}"
    );
}

#[tokio::test]
async fn the_extension_learns_who_calls_and_nobody_can_pretend() {
    let world = World::introduced().await;
    let headers = [
        ("x-remote-user", "root"),
        ("X-Remote-Group", "system:masters"),
        ("x-remote-extra-scopes", "all"),
        ("authorization", "Basic c2VjcmV0"),
        ("content-type", "application/json"),
        ("connection", "x-hop"),
        ("x-hop", "1"),
        ("x-own", "kept"),
    ];
    let path = format!("{FLUNDERS}?fieldManager=a%20b");
    let answer = world.http.send("POST", &path, &headers, "{\"a\":1}").await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["sent"], json!({"a": 1}));
    let seen = world.extension.state.seen.lock().clone();
    let header = |name: &str| seen.get(name).cloned().unwrap_or_default();
    assert_eq!(header("path"), [path]);
    assert_eq!(header("x-remote-user"), ["shoal:test"]);
    assert_eq!(header("x-remote-group"), ["system:masters", "system:authenticated"]);
    assert_eq!(header("x-own"), ["kept"]);
    assert_eq!(header("host"), ["ext.default.svc"]);
    for absent in ["authorization", "x-remote-extra-scopes", "x-hop"] {
        assert!(header(absent).is_empty(), "{absent}");
    }
}

#[tokio::test]
async fn roles_decide_before_anything_is_passed_on() {
    let world = World::introduced().await;
    let jane = world.cluster.http_as("jane", &[]);
    let refused = jane.get(FLUNDERS).await;
    assert_eq!(refused.status, 403);
    let text = refused.json()["message"].as_str().unwrap().to_owned();
    let wanted = "cannot list resource \"flunders\" in API group \"ext.test\" in the namespace \"default\"";
    assert!(text.contains(wanted), "{text}");
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let rules = json!([{"apiGroups": ["ext.test"], "resources": ["flunders"], "verbs": ["list"]}]);
    world.create(&format!("{rbac}/roles"), &json!({"metadata": {"name": "r"}, "rules": rules})).await;
    let binding = json!({"metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}]});
    world.create(&format!("{rbac}/rolebindings"), &binding).await;
    assert_eq!(jane.get(FLUNDERS).await.status, 200);
    assert_eq!(jane.delete(&format!("{FLUNDERS}/a")).await.status, 403);
    assert_eq!(jane.get("/apis/ext.test/v1").await.status, 200, "discovery is for everyone");
}

#[tokio::test]
async fn discovery_and_open_api_show_what_the_extension_serves() {
    let world = World::introduced().await;
    let accept = [("accept", AGGREGATED)];
    let version = async || {
        let all = world.http.send("GET", "/apis", &accept, "").await.json();
        let groups = all["items"].as_array().unwrap().clone();
        let group = groups.into_iter().find(|group| group["metadata"]["name"] == "ext.test").unwrap();
        group["versions"][0].clone()
    };
    let shown = version().await;
    assert_eq!((&shown["version"], &shown["freshness"]), (&json!("v1"), &json!("Current")));
    let flunders = &shown["resources"][0];
    assert_eq!(flunders["resource"], "flunders");
    assert_eq!(flunders["responseKind"], json!({"group": "ext.test", "version": "v1", "kind": "Flunder"}));
    assert_eq!(flunders["subresources"][0]["subresource"], "status");
    let group = world.http.get("/apis/ext.test").await.json();
    assert_eq!(group["preferredVersion"]["groupVersion"], "ext.test/v1");
    let groups = world.http.get("/apis").await.json()["groups"].clone();
    let order: Vec<&str> = groups.as_array().unwrap().iter().filter_map(|g| g["name"].as_str()).collect();
    assert_eq!(order.first(), Some(&"apiregistration.k8s.io"));
    assert_eq!(order.last(), Some(&"ext.test"));
    assert_eq!(world.http.get("/apis/ext.test/v1").await.json()["resources"][0]["name"], "flunders");

    let index = world.http.get("/openapi/v3").await.json()["paths"].clone();
    assert_eq!(index["apis/ext.test/v1"]["serverRelativeURL"], "/openapi/v3/apis/ext.test/v1?hash=ABC");
    assert!(
        index["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap().starts_with("/openapi/v3/apis/apps/v1")
    );
    let document = world.http.get("/openapi/v3/apis/ext.test/v1?hash=ABC").await;
    assert_eq!(document.json()["openapi"], "3.0.0");

    world.extension.state.is_broken.store(true, Ordering::Relaxed);
    world.touch_service().await;
    let text = world.awaits("False", "FailedDiscoveryCheck").await;
    assert!(text.contains("bad status from https://localhost:") && text.ends_with(": 500"), "{text}");
    let shown = version().await;
    assert_eq!(
        (&shown["freshness"], &shown["resources"][0]["resource"]),
        (&json!("Stale"), &json!("flunders"))
    );
    assert_eq!(world.http.delete(&format!("{SERVICES}/v1.ext.test")).await.status, 200);
    assert_eq!(world.http.get("/apis/ext.test").await.status, 404);
    assert_eq!(world.http.get(FLUNDERS).await.status, 404);
}

#[tokio::test]
async fn watches_are_passed_on_event_by_event() {
    let world = World::introduced().await;
    let events = world.extension.state.watch();
    let mut watch = world.http.watch(&format!("{FLUNDERS}?watch=true")).await;
    for name in ["a", "b"] {
        let event = json!({"type": "ADDED", "object": {"metadata": {"name": name}}});
        events.send(Bytes::from(format!("{event}\n"))).unwrap();
        assert_eq!(watch.next().await, Some(event));
    }
    drop(events);
    assert_eq!(watch.next().await, None);
}

#[tokio::test]
async fn redirects_rubbish_and_strangers_are_clean_errors() {
    let world = World::introduced().await;
    let redirected = world.http.get("/apis/ext.test/v1/redirects").await;
    assert_eq!((redirected.status.as_u16(), &redirected.json()["kind"]), (502, &json!("Status")));
    assert!(!redirected.headers.contains_key("location"));

    // Someone else at the same address, who has not the right certificate.
    let stranger = Extension::start(&world.pki.front_proxy().request_header_ca_pem).await;
    world.move_to(stranger.address).await;
    let refused = world.http.get(FLUNDERS).await;
    assert_eq!((refused.status.as_u16(), &refused.json()["reason"]), (503, &json!("ServiceUnavailable")));
    assert!(stranger.state.seen.lock().is_empty());

    let (address, bundle) = Extension::babbling(&world.pki.front_proxy().request_header_ca_pem).await;
    world.move_to(address).await;
    world.awaits("False", "FailedDiscoveryCheck").await;
    let patch = json!({"spec": {"caBundle": bundle}});
    assert_eq!(world.http.merge(&format!("{SERVICES}/v1.ext.test"), &patch).await.status, 200);
    // As if it had been well a moment ago.
    let status = json!({"status": {"conditions": [{"type": "Available", "status": "True"}]}});
    world.http.merge(&format!("{SERVICES}/v1.ext.test/status"), &status).await;
    let refused = world.http.get(FLUNDERS).await;
    assert_eq!((refused.status.as_u16(), &refused.json()["kind"]), (503, &json!("Status")));
}

#[tokio::test]
async fn what_never_answers_is_given_up() {
    let world = World::introduced().await;
    let answer = {
        let http = world.http.clone();
        tokio::spawn(async move { http.get("/apis/ext.test/v1/slow").await })
    };
    world.extension.state.asked.notified().await;
    // From here on time flies while everybody waits.
    tokio::time::pause();
    let answer = answer.await.unwrap();
    assert_eq!((answer.status.as_u16(), &answer.json()["reason"]), (504, &json!("Timeout")));
}

#[tokio::test]
async fn half_an_answer_is_an_error() {
    let world = World::introduced().await;
    let response = world.http.open("GET", "/apis/ext.test/v1/cut", &[], "").await;
    assert_eq!(response.status(), 200);
    tokio::time::pause();
    assert!(response.into_body().collect().await.is_err());
}

#[tokio::test]
async fn upgraded_connections_are_copied_both_ways() {
    let world = World::introduced().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tls = serve::server_config(&world.pki).unwrap();
    let server = world.cluster.server().clone();
    tokio::spawn(serve::serve(listener, tls, server, Limits::default(), std::future::pending()));

    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(world.pki.ca_pem().as_bytes()).unwrap()).unwrap();
    let admin = world.pki.admin();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(
            vec![CertificateDer::from_pem_slice(admin.certificate_pem.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(admin.key_pem.as_bytes()).unwrap(),
        )
        .unwrap();
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection.with_upgrades());
    let request = Request::get("/apis/ext.test/v1/echo").header("host", "localhost");
    let request = request.header("connection", "Upgrade").header("upgrade", "echo");
    let response = sender.send_request(request.body(Full::<Bytes>::default()).unwrap()).await.unwrap();
    assert_eq!(response.status(), 101);
    assert_eq!(response.headers()["upgrade"], "echo");
    let mut io = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    io.write_all(b"ping").await.unwrap();
    let mut back = Vec::new();
    io.read_to_end(&mut back).await.unwrap();
    assert_eq!(back, b"ping");
}

#[tokio::test]
async fn extension_servers_find_whom_to_trust() {
    let world = World::start().await;
    let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let data = world.http.get(path).await.json()["data"].clone();
    assert_eq!(data["client-ca-file"], world.pki.ca_pem());
    assert_eq!(data["requestheader-client-ca-file"], world.pki.front_proxy().request_header_ca_pem.as_str());
    assert_eq!(data["requestheader-allowed-names"], "[\"front-proxy-client\"]");
    assert_eq!(data["requestheader-username-headers"], "[\"X-Remote-User\"]");
}

/// Serves `metrics.k8s.io/v1beta1`, and tells who asked for what.
fn metrics() -> GroupHandler {
    Arc::new(|request: Request<Bytes>| {
        async move {
            let path = request.uri().path().to_owned();
            let user = request.extensions().get::<UserInfo>().map(|user| user.username.clone());
            let document = match path.as_str() {
                "/apis/metrics.k8s.io/v1beta1" => json!({
                    "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "metrics.k8s.io/v1beta1",
                    "resources": [{"name": "nodes", "singularName": "", "namespaced": false, "kind": "NodeMetrics",
                        "verbs": ["get", "list"]}],
                }),
                _ => json!({"path": path, "user": user, "claimed": request.headers().contains_key("x-remote-user")}),
            };
            let response = Response::builder().header("content-type", "application/json");
            response.body(Body::Full(document.to_string().into())).unwrap()
        }
        .boxed()
    })
}

#[tokio::test]
async fn code_of_this_process_can_serve_a_group() {
    let cluster = Cluster::start().await;
    let http = cluster.http();
    cluster.server().mount_group("metrics.k8s.io", "v1beta1", metrics()).await.unwrap();
    let answer =
        http.send("GET", "/apis/metrics.k8s.io/v1beta1/nodes/n", &[("x-remote-user", "root")], "").await;
    let path = "/apis/metrics.k8s.io/v1beta1/nodes/n";
    assert_eq!(answer.json(), json!({"path": path, "user": "shoal:test", "claimed": false}));
    assert_eq!(cluster.http_as("jane", &[]).get("/apis/metrics.k8s.io/v1beta1/nodes").await.status, 403);
    let service = http.get(&format!("{SERVICES}/v1beta1.metrics.k8s.io")).await.json();
    assert_eq!(service["status"]["conditions"][0]["reason"], "Local");
    assert_eq!(service["spec"].get("service"), None);
    let all = http.send("GET", "/apis", &[("accept", AGGREGATED)], "").await.json();
    let group = all["items"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(group["metadata"]["name"], "metrics.k8s.io");
    assert_eq!(group["versions"][0]["resources"][0]["resource"], "nodes");
    assert!(cluster.server().mount_group("apps", "v1", metrics()).await.is_err());
    assert!(
        cluster.server().mount_group("other.test", "v1", metrics()).await.is_err(),
        "it knows no such group"
    );
}

//! Admission webhooks that are really called, over TLS, and what becomes of those that misbehave.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use parking_lot::Mutex;
use serde_json::{Value, json};
use shoal_apiserver::access::pki::Pki;
use shoal_apiserver::serve::{self, Limits};
use shoal_objects::Clock;
use shoal_testkit::{Answer, Cluster, Http};
use tokio::net::TcpListener;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";

/// A program outside that answers by path.
#[derive(Clone, Default)]
struct Program {
    asked: Arc<Mutex<Vec<(String, Value)>>>,
}

impl tower_service::Service<Request<Incoming>> for Program {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let asked = self.asked.clone();
        Box::pin(async move {
            let path = request.uri().path().to_owned();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let review: Value = serde_json::from_slice(&body).unwrap();
            asked.lock().push((path.clone(), review["request"].clone()));
            let uid = review["request"]["uid"].clone();
            let patch = |operations: Value| {
                let patch = BASE64_STANDARD.encode(operations.to_string());
                json!({"uid": uid, "allowed": true, "patchType": "JSONPatch", "patch": patch})
            };
            let response = match path.as_str() {
                "/allow" => json!({"uid": uid, "allowed": true, "warnings": ["mind the gap"]}),
                "/deny" => {
                    json!({"uid": uid, "allowed": false, "status": {"code": 418, "message": "not today"}})
                }
                "/label-a" => patch(json!([{"op": "add", "path": "/data/a", "value": "1"}])),
                "/label-b" => patch(json!([{"op": "add", "path": "/data/b", "value": "1"}])),
                "/rename" => patch(json!([{"op": "replace", "path": "/metadata/name", "value": "other"}])),
                "/misfit" => patch(json!([{"op": "remove", "path": "/not/there"}])),
                "/wrong-type" => patch(json!([{"op": "add", "path": "/data", "value": [1]}])),
                "/stranger" => json!({"uid": "another", "allowed": true}),
                "/garbage" => return Ok(Response::new(Full::new(Bytes::from_static(b"<html>")))),
                "/large" => return Ok(Response::new(Full::new(Bytes::from(vec![b' '; 2 << 20])))),
                "/redirect" => {
                    let moved = Response::builder().status(302).header("location", "/allow");
                    return Ok(moved.body(Full::default()).unwrap());
                }
                _ => std::future::pending().await,
            };
            let review =
                json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response});
            Ok(Response::new(Full::new(Bytes::from(review.to_string()))))
        })
    }
}

struct World {
    http: Http,
    program: Program,
    address: SocketAddr,
    bundle: String,
}

impl World {
    async fn start() -> World {
        let pki = Pki::in_memory(&["far.default.svc".to_owned()], Clock::system().now()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let program = Program::default();
        let tls = serve::server_config(&pki).unwrap();
        tokio::spawn(serve::serve(listener, tls, program.clone(), Limits::default(), std::future::pending()));
        let bundle = BASE64_STANDARD.encode(pki.ca_pem());
        World { http: Cluster::start().await.http(), program, address, bundle }
    }

    /// A webhook about ConfigMaps at this path.
    fn webhook(&self, name: &str, path: &str) -> Value {
        json!({
            "name": format!("{name}.hook.test"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 1,
            "clientConfig": {"url": format!("https://{}{path}", self.address), "caBundle": self.bundle},
            "rules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"],
            }],
        })
    }

    async fn configure(&self, kind: &str, name: &str, webhooks: Vec<Value>) {
        let object = json!({"metadata": {"name": name}, "webhooks": webhooks});
        let answer = self.http.post(&format!("{REGISTRATION}/{kind}webhookconfigurations"), &object).await;
        assert_eq!(answer.status, 201, "{}", answer.json());
    }

    async fn create(&self, name: &str) -> Answer {
        self.http.post(MAPS, &json!({"metadata": {"name": name}, "data": {"k": "v"}})).await
    }

    fn paths(&self) -> Vec<String> {
        self.program.asked.lock().iter().map(|(path, _)| path.clone()).collect()
    }
}

#[tokio::test]
async fn a_validating_webhook_sees_the_request_and_can_refuse_it() {
    let world = World::start().await;
    world.configure("validating", "v", vec![world.webhook("yes", "/allow")]).await;
    let made = world.create("a").await;
    assert_eq!(made.status, 201);
    assert!(made.headers["warning"].to_str().unwrap().contains("mind the gap"));
    let (_, request) = world.program.asked.lock()[0].clone();
    assert_eq!(request["operation"], "CREATE");
    assert_eq!(request["kind"], json!({"group": "", "version": "v1", "kind": "ConfigMap"}));
    assert_eq!((&request["name"], &request["namespace"]), (&json!("a"), &json!("default")));
    assert_eq!(request["object"]["data"]["k"], "v");
    assert_eq!(request["oldObject"], Value::Null);
    assert_eq!(request["userInfo"]["username"], "shoal:test");

    world.configure("validating", "w", vec![world.webhook("no", "/deny")]).await;
    let refused = world.http.delete(&format!("{MAPS}/a")).await;
    assert_eq!(refused.status, 418);
    let message = refused.json()["message"].clone();
    assert_eq!(message, "admission webhook \"no.hook.test\" denied the request: not today");
    assert_eq!(world.http.get(&format!("{MAPS}/a")).await.status, 200);
    // Webhooks are not asked about webhooks: a bad one can be removed.
    let removed = world.http.delete(&format!("{REGISTRATION}/validatingwebhookconfigurations/w")).await;
    assert_eq!(removed.status, 200);
    assert_eq!(world.http.delete(&format!("{MAPS}/a")).await.status, 200);
    let (_, request) = world.program.asked.lock().last().cloned().unwrap();
    assert_eq!((&request["operation"], &request["object"]), (&json!("DELETE"), &Value::Null));
    assert_eq!(request["oldObject"]["data"]["k"], "v");
}

#[tokio::test]
async fn mutating_webhooks_patch_in_order_and_are_asked_again_if_they_want() {
    let world = World::start().await;
    let mut first = world.webhook("first", "/label-a");
    first["reinvocationPolicy"] = "IfNeeded".into();
    world.configure("mutating", "m", vec![first, world.webhook("second", "/label-b")]).await;
    let made = world.create("a").await;
    assert_eq!(made.status, 201, "{}", made.json());
    assert_eq!(made.json()["data"], json!({"k": "v", "a": "1", "b": "1"}));
    assert_eq!(world.paths(), ["/label-a", "/label-b", "/label-a"]);
    let changed = world.http.merge(&format!("{MAPS}/a"), &json!({"data": {"a": null}})).await;
    assert_eq!(changed.json()["data"], json!({"k": "v", "a": "1", "b": "1"}));
}

#[tokio::test]
async fn webhooks_that_misbehave_fail_the_request_or_are_ignored() {
    let world = World::start().await;
    let bad = ["/hang", "/garbage", "/large", "/redirect", "/stranger", "/rename", "/misfit", "/wrong-type"];
    for (i, path) in bad.into_iter().enumerate() {
        let name = format!("bad-{i}");
        world.configure("mutating", &name, vec![world.webhook("bad", path)]).await;
        let failed = world.create("a").await;
        let status = failed.json();
        assert_eq!(
            (failed.status.as_u16(), &status["reason"]),
            (500, &json!("InternalError")),
            "{path} {status}"
        );
        let told = status["message"].as_str().unwrap();
        assert!(told.contains("failed calling webhook \"bad.hook.test\""), "{told}");
        let configuration = format!("{REGISTRATION}/mutatingwebhookconfigurations/{name}");
        let ignore = json!([{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]);
        let json_patch = [("content-type", "application/json-patch+json")];
        let patched = world.http.send("PATCH", &configuration, &json_patch, ignore.to_string()).await;
        assert_eq!(patched.status, 200);
        let made = world.create(&format!("a-{i}")).await;
        assert_eq!((made.status.as_u16(), &made.json()["data"]), (201, &json!({"k": "v"})), "{path}");
        assert_eq!(world.http.delete(&configuration).await.status, 200);
    }
    assert!(!world.paths().contains(&"/allow".to_owned()), "redirects are not followed");
}

#[tokio::test]
async fn a_webhook_without_trust_or_listener_fails() {
    let world = World::start().await;
    let other = Pki::in_memory(&[], Clock::system().now()).unwrap();
    let mut stranger = world.webhook("stranger", "/allow");
    stranger["clientConfig"]["caBundle"] = BASE64_STANDARD.encode(other.ca_pem()).into();
    let mut absent = world.webhook("absent", "/allow");
    absent["clientConfig"]["url"] = "https://127.0.0.1:1/allow".into();
    for (i, webhook) in [stranger, absent].into_iter().enumerate() {
        let name = format!("w-{i}");
        world.configure("validating", &name, vec![webhook]).await;
        assert_eq!(world.create("a").await.status, 500);
        let configuration = format!("{REGISTRATION}/validatingwebhookconfigurations/{name}");
        assert_eq!(world.http.delete(&configuration).await.status, 200);
    }
    assert!(world.paths().is_empty());
}

#[tokio::test]
async fn match_conditions_decide_who_is_asked() {
    let world = World::start().await;
    let conditional = |name: &str, expression: &str| {
        let mut webhook = world.webhook(name, "/deny");
        webhook["matchConditions"] = json!([{"name": "c", "expression": expression}]);
        webhook
    };
    let mine = "object.metadata.name == 'mine' && request.userInfo.username != ''";
    world.configure("validating", "v", vec![conditional("mine", mine)]).await;
    assert_eq!(world.create("other").await.status, 201);
    assert_eq!(world.create("mine").await.status, 418);
    // An expression that cannot be evaluated fails by the webhook's policy.
    let mut lenient = conditional("lenient", "object.data.absent == 'x'");
    lenient["failurePolicy"] = "Ignore".into();
    world.configure("validating", "w", vec![lenient]).await;
    assert_eq!(world.create("third").await.status, 201);
    world.configure("validating", "x", vec![conditional("strict", "object.data.absent == 'x'")]).await;
    assert_eq!(world.create("fourth").await.status, 500);
    assert_eq!(world.paths(), ["/deny"]);
}

#[tokio::test]
async fn selectors_and_equivalent_versions_decide_who_is_asked() {
    let world = World::start().await;
    let mut labelled = world.webhook("labelled", "/deny");
    labelled["objectSelector"] = json!({"matchLabels": {"judge": "me"}});
    let mut elsewhere = world.webhook("elsewhere", "/deny");
    elsewhere["namespaceSelector"] = json!({"matchLabels": {"kubernetes.io/metadata.name": "elsewhere"}});
    let mut scaler = world.webhook("scaler", "/allow");
    scaler["rules"] = json!([{
        "apiGroups": ["autoscaling"], "apiVersions": ["v2"], "operations": ["CREATE"],
        "resources": ["horizontalpodautoscalers"],
    }]);
    world.configure("validating", "v", vec![labelled, elsewhere, scaler]).await;
    assert_eq!(world.create("a").await.status, 201);
    let judged = json!({"metadata": {"name": "b", "labels": {"judge": "me"}}});
    assert_eq!(world.http.post(MAPS, &judged).await.status, 418);

    let hpa = json!({"metadata": {"name": "h"}, "spec": {
        "maxReplicas": 3, "targetCPUUtilizationPercentage": 50,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
    }});
    let path = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
    let made = world.http.post(path, &hpa).await;
    assert_eq!(made.status, 201, "{}", made.json());
    let (_, request) = world.program.asked.lock().last().cloned().unwrap();
    assert_eq!(request["kind"]["version"], "v2");
    assert_eq!(request["requestKind"]["version"], "v1");
    assert_eq!(request["object"]["spec"]["metrics"][0]["resource"]["name"], "cpu");
}

#[tokio::test]
async fn a_service_is_found_by_what_stands_behind_it() {
    let world = World::start().await;
    let service = json!({"metadata": {"name": "hook"}, "spec": {"ports": [{"port": 443}]}});
    assert_eq!(world.http.post("/api/v1/namespaces/default/services", &service).await.status, 201);
    let mut webhook = world.webhook("service", "/allow");
    webhook["clientConfig"] = json!({
        "service": {"namespace": "default", "name": "hook", "path": "/allow"}, "caBundle": world.bundle,
    });
    world.configure("validating", "v", vec![webhook]).await;
    let failed = world.create("a").await.json();
    assert!(failed["message"].as_str().unwrap().contains("no endpoints available for service \"hook\""));
    let elsewhere =
        json!({"metadata": {"name": "far"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
    assert_eq!(world.http.post("/api/v1/namespaces/default/services", &elsewhere).await.status, 201);
    let mut webhook = world.webhook("far", "/allow");
    webhook["clientConfig"] = json!({
        "service": {"namespace": "default", "name": "far", "path": "/allow", "port": world.address.port()},
        "caBundle": world.bundle,
    });
    let configurations = format!("{REGISTRATION}/validatingwebhookconfigurations");
    assert_eq!(world.http.delete(&format!("{configurations}/v")).await.status, 200);
    world.configure("validating", "w", vec![webhook]).await;
    let made = world.create("a").await;
    assert_eq!(made.status, 201, "{}", made.json());
    assert_eq!(world.paths(), ["/allow"]);
}

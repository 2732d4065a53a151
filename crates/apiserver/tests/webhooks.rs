//! Admission webhooks that are really called, over TLS, and what becomes of those that misbehave.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod program;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use program::{Program, Reaction};
use serde_json::{Value, json};
use shoal_apiserver::access::pki::Pki;
use shoal_objects::Clock;
use shoal_testkit::{Answer, Cluster, Http};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";

/// The program outside answers by path.
fn react(path: &str, review: &Value) -> Reaction {
    let uid = review["request"]["uid"].clone();
    let patch = |operations: Value| {
        let patch = BASE64_STANDARD.encode(operations.to_string());
        json!({"uid": uid, "allowed": true, "patchType": "JSONPatch", "patch": patch})
    };
    let response = match path {
        "/allow" => json!({"uid": uid, "allowed": true, "warnings": ["mind the gap"]}),
        "/deny" => json!({"uid": uid, "allowed": false, "status": {"code": 418, "message": "not today"}}),
        "/label-a" => patch(json!([{"op": "add", "path": "/data/a", "value": "1"}])),
        "/label-b" => patch(json!([{"op": "add", "path": "/data/b", "value": "1"}])),
        "/rename" => patch(json!([{"op": "replace", "path": "/metadata/name", "value": "other"}])),
        "/kind" => patch(json!([{"op": "replace", "path": "/kind", "value": "Secret"}])),
        "/uid" => patch(json!([{"op": "add", "path": "/metadata/uid", "value": "mine"}])),
        "/version" => patch(json!([{"op": "add", "path": "/metadata/resourceVersion", "value": "1"}])),
        "/misfit" => patch(json!([{"op": "remove", "path": "/not/there"}])),
        "/wrong-type" => patch(json!([{"op": "add", "path": "/data", "value": [1]}])),
        "/replicas" => patch(json!([{"op": "replace", "path": "/spec/replicas", "value": 4}])),
        "/stranger" => json!({"uid": "another", "allowed": true}),
        "/garbage" => return Reaction::Bytes(b"<html>".to_vec()),
        "/large" => return Reaction::Bytes(vec![b' '; 2 << 20]),
        "/redirect" => return Reaction::Redirect("/allow"),
        _ => return Reaction::Hang,
    };
    Reaction::Json(
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response}),
    )
}

struct World {
    http: Http,
    program: Program,
}

impl World {
    async fn start() -> World {
        let program = Program::start(&["far.default.svc"], react).await;
        World { http: Cluster::start().await.http(), program }
    }

    /// A webhook about ConfigMaps at this path.
    fn webhook(&self, name: &str, path: &str) -> Value {
        json!({
            "name": format!("{name}.hook.test"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 1,
            "clientConfig": {"url": format!("https://{}{path}", self.program.address), "caBundle": self.program.bundle},
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

    /// What was asked last.
    fn last(&self) -> Value {
        self.program.asked.lock().last().unwrap().1["request"].clone()
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
    let request = world.program.asked.lock()[0].1["request"].clone();
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
    let request = world.last();
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
    let bad = [
        "/hang",
        "/garbage",
        "/large",
        "/redirect",
        "/stranger",
        "/rename",
        "/kind",
        "/uid",
        "/version",
        "/misfit",
        "/wrong-type",
    ];
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
    let request = world.last();
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
        "service": {"namespace": "default", "name": "hook", "path": "/allow"}, "caBundle": world.program.bundle,
    });
    world.configure("validating", "v", vec![webhook]).await;
    let failed = world.create("a").await.json();
    assert!(failed["message"].as_str().unwrap().contains("no endpoints available for service \"hook\""));
    let elsewhere =
        json!({"metadata": {"name": "far"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
    assert_eq!(world.http.post("/api/v1/namespaces/default/services", &elsewhere).await.status, 201);
    let mut webhook = world.webhook("far", "/allow");
    webhook["clientConfig"] = json!({
        "service": {"namespace": "default", "name": "far", "path": "/allow", "port": world.program.address.port()},
        "caBundle": world.program.bundle,
    });
    let configurations = format!("{REGISTRATION}/validatingwebhookconfigurations");
    assert_eq!(world.http.delete(&format!("{configurations}/v")).await.status, 200);
    world.configure("validating", "w", vec![webhook]).await;
    let made = world.create("a").await;
    assert_eq!(made.status, 201, "{}", made.json());
    assert_eq!(world.paths(), ["/allow"]);
}

#[tokio::test]
async fn one_connection_serves_many_requests() {
    let world = World::start().await;
    world.configure("validating", "v", vec![world.webhook("yes", "/allow")]).await;
    world.configure("mutating", "m", vec![world.webhook("add", "/label-a")]).await;
    for i in 0..10 {
        assert_eq!(world.create(&format!("a-{i}")).await.status, 201);
    }
    assert_eq!(world.paths().len(), 20);
    assert_eq!(world.program.connections(), 1);
}

#[tokio::test]
async fn webhooks_see_scale_eviction_token_and_connections() {
    let world = World::start().await;
    let http = &world.http;
    let about = |name: &str, path: &str, group: &str, resources: &[&str]| {
        let mut webhook = world.webhook(name, path);
        webhook["rules"] = json!([{
            "apiGroups": [group], "apiVersions": ["v1"], "operations": ["*"], "resources": resources,
        }]);
        webhook
    };
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    http.post(accounts, &json!({"metadata": {"name": "default"}})).await;
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({"metadata": {"name": "d"}, "spec": {
        "replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template,
    }});
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    assert_eq!(http.post(deployments, &deployment).await.status, 201);
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "p"}, "spec": template["spec"]});
    assert_eq!(http.post(pods, &pod).await.status, 201);

    world.configure("mutating", "m", vec![about("scale", "/replicas", "apps", &["deployments/scale"])]).await;
    let scaled = http.merge(&format!("{deployments}/d/scale"), &json!({"spec": {"replicas": 9}})).await;
    assert_eq!(scaled.json()["spec"]["replicas"], 4, "{}", scaled.json());
    assert_eq!(world.last()["kind"], json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}));

    let denied = ["pods/eviction", "pods/exec", "serviceaccounts/token", "pods/ephemeralcontainers"];
    world.configure("validating", "v", vec![about("no", "/deny", "", &denied)]).await;
    let evicted = http.post(&format!("{pods}/p/eviction"), &json!({"metadata": {"name": "p"}})).await;
    assert_eq!(evicted.status, 418);
    let token = http.post(&format!("{accounts}/default/token"), &json!({"spec": {}})).await;
    assert_eq!((token.status.as_u16(), world.last()["subResource"].clone()), (418, json!("token")));
    let debug = json!({"spec": {"ephemeralContainers": [{"name": "e", "image": "i"}]}});
    let debugged = http
        .send(
            "PATCH",
            &format!("{pods}/p/ephemeralcontainers"),
            &[("content-type", "application/strategic-merge-patch+json")],
            debug.to_string(),
        )
        .await;
    assert_eq!(debugged.status, 418, "{}", debugged.json());
    let connected =
        http.post(&format!("{pods}/p/exec?command=ls&command=-l&container=c"), &Value::Null).await;
    assert_eq!(connected.status, 418);
    let request = world.last();
    assert_eq!(
        (&request["operation"], &request["kind"]["kind"]),
        (&json!("CONNECT"), &json!("PodExecOptions"))
    );
    assert_eq!(request["object"]["command"], json!(["ls", "-l"]));
}

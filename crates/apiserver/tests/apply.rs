//! Ownership of fields over the wire: every write keeps `managedFields`, applies merge, subresources have owners of
//! their own.

use serde_json::{Value, json};
use shoal_testkit::{Answer, Cluster, Http};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

async fn apply(http: &Http, path: &str, config: &Value) -> Answer {
    http.send("PATCH", path, &[("content-type", "application/apply-patch+yaml")], config.to_string()).await
}

fn map(data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})
}

fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "i:1", "ports": [{"containerPort": 80}]}]},
            },
        },
    })
}

/// `manager operation subresource` of every entry.
fn owners(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let text = |entry: &Value, name: &str| entry[name].as_str().unwrap_or_default().to_owned();
    let line =
        |e: &Value| format!("{} {} {}", text(e, "manager"), text(e, "operation"), text(e, "subresource"));
    // Their order depends on the second they were written in.
    let mut lines: Vec<String> = entries.iter().map(|e| line(e).trim_end().to_owned()).collect();
    lines.sort();
    lines
}

fn fields(object: &Value, manager: &str) -> Value {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    entries.iter().find(|e| e["manager"] == manager).map_or(Value::Null, |e| e["fieldsV1"].clone())
}

#[tokio::test]
async fn defaults_belong_to_the_creator_and_what_the_server_adds_to_nobody() {
    let http = Cluster::start().await.http();
    let made = http.post(&format!("{DEPLOYMENTS}?fieldManager=me"), &deployment()).await.json();
    assert_eq!(
        fields(&made, "me"),
        json!({"f:spec": {
            "f:progressDeadlineSeconds": {}, "f:replicas": {}, "f:revisionHistoryLimit": {}, "f:selector": {},
            "f:strategy": {"f:rollingUpdate": {".": {}, "f:maxSurge": {}, "f:maxUnavailable": {}}, "f:type": {}},
            "f:template": {
                "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
                "f:spec": {
                    "f:containers": {"k:{\"name\":\"c\"}": {
                        ".": {}, "f:image": {}, "f:imagePullPolicy": {}, "f:name": {}, "f:resources": {},
                        "f:ports": {".": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {
                            ".": {}, "f:containerPort": {}, "f:protocol": {}}},
                        "f:terminationMessagePath": {}, "f:terminationMessagePolicy": {},
                    }},
                    "f:dnsPolicy": {}, "f:restartPolicy": {}, "f:schedulerName": {}, "f:securityContext": {},
                    "f:terminationGracePeriodSeconds": {},
                },
            },
        }})
    );
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    let made = http.post("/api/v1/namespaces/default/services?fieldManager=me", &service).await.json();
    assert!(made["spec"]["clusterIP"].is_string());
    assert_eq!(fields(&made, "me")["f:spec"].get("f:clusterIP"), None);
}

#[tokio::test]
async fn status_and_scale_have_owners_of_their_own() {
    let http = Cluster::start().await.http();
    let one = format!("{DEPLOYMENTS}/d");
    assert_eq!(apply(&http, &format!("{one}?fieldManager=me"), &deployment()).await.status, 201);
    let status = json!({"status": {"replicas": 1}});
    http.merge(&format!("{one}/status?fieldManager=ctl"), &status).await;
    let scaled =
        http.merge(&format!("{one}/scale?fieldManager=hpa"), &json!({"spec": {"replicas": 5}})).await;
    assert_eq!(scaled.json()["spec"]["replicas"], 5);
    let now = http.get(&one).await.json();
    assert_eq!(owners(&now), ["ctl Update status", "hpa Update scale", "me Apply"]);
    assert_eq!(fields(&now, "hpa"), json!({"f:spec": {"f:replicas": {}}}));
    assert_eq!(fields(&now, "ctl"), json!({"f:status": {"f:replicas": {}}}));

    let refused = apply(&http, &format!("{one}?fieldManager=me"), &deployment()).await;
    assert_eq!(refused.status, 409);
    assert_eq!(
        refused.json()["message"],
        "Apply failed with 1 conflict: conflict with \"hpa\" with subresource \"scale\" using apps/v1: .spec.replicas"
    );
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": 7}});
    let path = format!("{one}/scale?fieldManager=applier");
    assert_eq!(apply(&http, &path, &scale).await.status, 409);
    let forced = apply(&http, &format!("{path}&force=true"), &scale).await;
    assert_eq!(forced.json()["spec"]["replicas"], 7);
    let now = http.get(&one).await.json();
    assert_eq!(owners(&now), ["applier Apply scale", "ctl Update status", "me Apply"]);

    // An apply to the status owns the status only.
    let mut both = deployment();
    both["status"] = json!({"observedGeneration": 1});
    assert_eq!(apply(&http, &format!("{one}/status?fieldManager=st"), &both).await.status, 200);
    assert_eq!(fields(&http.get(&one).await.json(), "st"), json!({"f:status": {"f:observedGeneration": {}}}));
    assert_eq!(apply(&http, &format!("{DEPLOYMENTS}/none/status?fieldManager=st"), &both).await.status, 404);
}

#[tokio::test]
async fn clients_can_edit_and_forget_entries() {
    let http = Cluster::start().await.http();
    http.post(&format!("{MAPS}?fieldManager=me"), &map(&json!({"k": "1"}))).await;
    let one = format!("{MAPS}/a");
    let mut object = http.get(&one).await.json();
    object["metadata"]["managedFields"][0]["manager"] = "other".into();
    let put = http.put(&one, &object).await.json();
    assert_eq!(owners(&put), ["other Update"]);
    let forgotten = http.merge(&one, &json!({"metadata": {"managedFields": [{}]}})).await.json();
    assert_eq!(owners(&forgotten), Vec::<String>::new());
    let untracked = http.merge(&one, &json!({"data": {"k": "2"}})).await.json();
    assert_eq!(owners(&untracked), Vec::<String>::new());
    let applied = apply(&http, &format!("{one}?fieldManager=me&force=true"), &map(&json!({"k": "3"}))).await;
    assert_eq!(owners(&applied.json()), ["before-first-apply Update", "me Apply"]);
}

#[tokio::test]
async fn writes_without_effect_write_nothing() {
    let http = Cluster::start().await.http();
    let one = format!("{DEPLOYMENTS}/d?fieldManager=me");
    let first = apply(&http, &one, &deployment()).await.json();
    assert_eq!(apply(&http, &one, &deployment()).await.json(), first);
    assert_eq!(http.put(&one, &first).await.json(), first);
    assert_eq!(http.merge(&one, &json!({"spec": {"replicas": 2}})).await.json(), first);
    let dry = apply(&http, &format!("{one}2&dryRun=All"), &deployment()).await.json();
    assert_eq!(owners(&dry), ["me Apply", "me2 Apply"]);
    assert_eq!(http.get(&format!("{DEPLOYMENTS}/d")).await.json(), first);
}

#[tokio::test]
async fn both_versions_of_an_autoscaler_share_its_owners() {
    let http = Cluster::start().await.http();
    let path =
        |version: &str| format!("/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers");
    let old = json!({
        "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
        "spec": {
            "maxReplicas": 3, "targetCPUUtilizationPercentage": 50,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
        },
    });
    let made = apply(&http, &format!("{}/h?fieldManager=old", path("v1")), &old).await;
    assert_eq!(made.status, 201, "{made:?}");
    let new = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
        "spec": {
            "maxReplicas": 9,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
        },
    });
    let refused = apply(&http, &format!("{}/h?fieldManager=new", path("v2")), &new).await.json();
    assert_eq!(refused["message"], "Apply failed with 1 conflict: conflict with \"old\": .spec.maxReplicas");
    let forced = apply(&http, &format!("{}/h?fieldManager=new&force=true", path("v2")), &new).await.json();
    assert_eq!(owners(&forced), ["new Apply", "old Apply"]);
    assert_eq!(forced["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 50);
    assert_eq!(fields(&forced, "old")["f:spec"].get("f:maxReplicas"), None);
}

#[tokio::test]
async fn whoever_applies_something_new_needs_the_right_to_create_it() {
    let cluster = Cluster::start().await;
    let admin = cluster.http();
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "patch"]}]});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "r"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"kind": "User", "name": "eve", "apiGroup": "rbac.authorization.k8s.io"}]});
    assert_eq!(admin.post(&format!("{rbac}/roles"), &role).await.status, 201);
    assert_eq!(admin.post(&format!("{rbac}/rolebindings"), &binding).await.status, 201);
    let eve = cluster.http_as("eve", &[]);
    let path = format!("{MAPS}/a?fieldManager=eve");
    assert_eq!(apply(&eve, &path, &map(&json!({}))).await.status, 403);
    admin.post(MAPS, &map(&json!({}))).await;
    assert_eq!(apply(&eve, &path, &map(&json!({"k": "1"}))).await.status, 200);
}

#[tokio::test]
async fn what_cannot_be_applied_is_refused() {
    let http = Cluster::start().await.http();
    let yaml = "application/apply-patch+yaml";
    let path = format!("{MAPS}/a?fieldManager=me");
    let type_ = "apiVersion: v1\nkind: ConfigMap\n";
    for (body, code) in [
        (String::new(), 400),
        ("[]".to_owned(), 400),
        ("{".to_owned(), 400),
        ("a: [b".to_owned(), 400),
        (type_.to_owned(), 400),
        (format!("{type_}metadata: 5\n"), 500),
        (format!("{type_}metadata: {{name: a}}\ndata: [1]\n"), 500),
        (format!("{type_}metadata: {{name: a, managedFields: []}}\n"), 400),
        (format!("{type_}metadata: {{name: a, namespace: other}}\n"), 400),
        (format!("{type_}metadata: {{name: a, uid: x}}\n"), 409),
        (format!("{type_}metadata: {{name: a}}\ndata: {{k: {}}}\n", "[".repeat(10_000)), 400),
    ] {
        let answer = http.send("PATCH", &path, &[("content-type", yaml)], body.clone()).await;
        assert_eq!(answer.status, code, "{body:.80}: {}", String::from_utf8_lossy(&answer.body));
        assert_eq!(answer.json()["kind"], "Status");
    }
    let body = format!("{type_}metadata: {{name: a}}\ndata:\n  k: first\n  k: second\n");
    let strict = format!("{path}&fieldValidation=Strict");
    assert_eq!(http.send("PATCH", &strict, &[("content-type", yaml)], body.clone()).await.status, 400);
    let made = http.send("PATCH", &path, &[("content-type", yaml)], body).await;
    assert_eq!((made.status.as_u16(), made.headers.contains_key("warning")), (201, true));
    assert_eq!(made.json()["data"]["k"], "second");
}

#[tokio::test]
async fn binding_and_deleting_leave_the_owners_alone() {
    let http = Cluster::start().await.http();
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    http.post("/api/v1/namespaces/default/serviceaccounts", &account).await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let made = http.post(&format!("{pods}?fieldManager=me"), &pod).await;
    assert_eq!(made.status, 201, "{made:?}");
    let before = made.json()["metadata"]["managedFields"].clone();
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    assert_eq!(http.post(&format!("{pods}/p/binding?fieldManager=sched"), &binding).await.status, 201);
    let deleted = http.delete(&format!("{pods}/p")).await.json();
    assert_eq!(deleted["spec"]["nodeName"], "n");
    assert_eq!(deleted["metadata"]["managedFields"], before);
}

#[tokio::test]
async fn a_repeated_apply_sees_what_happened_in_between() {
    let http = Cluster::start().await.http();
    let one = format!("{DEPLOYMENTS}/d?fieldManager=me");
    // A variable whose reference is one value with a default inside: applying it again looks like a change at first.
    let mut config = deployment();
    let variable = json!({"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}});
    config["spec"]["template"]["spec"]["containers"][0]["env"] = json!([variable]);
    let first = apply(&http, &one, &config).await.json();
    for _ in 0..3 {
        assert_eq!(apply(&http, &one, &config).await.json(), first);
    }
    // Somebody else owns the same values from now on.
    let shared = apply(&http, &format!("{DEPLOYMENTS}/d?fieldManager=other"), &deployment()).await.json();
    assert_eq!(owners(&shared), ["me Apply", "other Apply"]);
    assert_eq!(apply(&http, &one, &config).await.json(), shared);
    http.merge(&format!("{DEPLOYMENTS}/d?fieldManager=third"), &json!({"spec": {"replicas": 9}})).await;
    assert_eq!(apply(&http, &one, &config).await.status, 409);
    let forced = apply(&http, &format!("{one}&force=true"), &config).await.json();
    assert_eq!(forced["spec"]["replicas"], first["spec"]["replicas"]);
    http.delete(&format!("{DEPLOYMENTS}/d?propagationPolicy=Background")).await;
    assert_eq!(apply(&http, &one, &config).await.status, 201);
}

#[tokio::test]
async fn a_repeated_apply_is_shown_to_policies() {
    let http = Cluster::start().await.http();
    let one = format!("{MAPS}/a?fieldManager=me");
    let config = map(&json!({"k": "1"}));
    for status in [201, 200, 200] {
        assert_eq!(apply(&http, &one, &config).await.status, status);
    }
    let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["configmaps"]}]);
    let group = "/apis/admissionregistration.k8s.io/v1";
    let policy = json!({"metadata": {"name": "frozen"}, "spec": {
        "matchConstraints": {"resourceRules": rules}, "validations": [{"expression": "false"}]}});
    let binding = json!({"metadata": {"name": "frozen"}, "spec": {
        "policyName": "frozen", "validationActions": ["Deny"]}});
    for (kinds, object) in
        [("validatingadmissionpolicies", policy), ("validatingadmissionpolicybindings", binding)]
    {
        let made = http.post(&format!("{group}/{kinds}"), &object).await;
        assert_eq!(made.status, 201, "{:?}", made.json());
    }
    assert_eq!(apply(&http, &one, &config).await.status, 422);
    http.delete(&format!("{group}/validatingadmissionpolicybindings/frozen")).await;
    assert_eq!(apply(&http, &one, &config).await.status, 200);
}

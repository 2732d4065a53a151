//! Applies that are answered by editing the stored text lead to the same bytes as those that go the long way.

use serde_json::{Value, json};
use shoal_apiserver::builtin;
use shoal_apiserver::kinds::edits::KNOWLEDGE;
use shoal_objects::Timestamp;
use shoal_objects::managed_fields::{Reach, Schema, Writer, edits};
use shoal_objects::outline::Outline;
use shoal_testkit::{Cluster, Http};

const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/default/deployments/web";
const MAP: &str = "/api/v1/namespaces/default/configmaps/conf";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";

fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "labels": {"app": "web"}, "annotations": {"owner": "a", "notes": "b \"c\""}},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "web"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {
                "metadata": {"labels": {"app": "web"}, "annotations": {"scrape": "true"}},
                "spec": {
                    "securityContext": {"runAsNonRoot": true},
                    "volumes": [{"name": "tmp", "emptyDir": {}}],
                    "containers": [
                        {
                            "name": "web", "image": "web:1", "args": ["--a", "--b"],
                            "ports": [{"name": "http", "containerPort": 80}, {"containerPort": 53, "protocol": "UDP"}],
                            "env": [
                                {"name": "A", "value": "1"}, {"name": "B", "value": "2"},
                                {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                            ],
                            "resources": {"limits": {"cpu": "500m"}},
                            "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
                            "livenessProbe": {"httpGet": {"path": "/", "port": "http"}},
                        },
                        {"name": "side", "image": "side:1", "securityContext": {"allowPrivilegeEscalation": false}},
                    ],
                },
            },
        },
    })
}

/// Two clusters alike, but one has somebody who may want to see what is written: it takes the long way.
async fn clusters() -> (Http, Http) {
    let (quick, slow) =
        (Cluster::builder().seed(7).start().await.http(), Cluster::builder().seed(7).start().await.http());
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "of-nothing"}, "spec": {"policyName": "none", "validationActions": ["Deny"]},
    });
    assert_eq!(slow.post(BINDINGS, &binding).await.status, 201);
    (quick, slow)
}

/// What an answer says but for what differs between clusters.
async fn sent(http: &Http, method: &str, path: &str, body: &Value) -> String {
    let kind = if method == "PATCH" { "application/apply-patch+yaml" } else { "application/json" };
    let answer = http.send(method, path, &[("content-type", kind)], body.to_string()).await;
    let mut value = answer.json();
    let warnings: Vec<String> = answer
        .headers
        .get_all("warning")
        .iter()
        .map(|w| String::from_utf8_lossy(w.as_bytes()).into_owned())
        .collect();
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["resourceVersion", "uid", "creationTimestamp"] {
            metadata.remove(field);
        }
    }
    format!("{} {warnings:?} {value:#}", answer.status)
}

async fn all_agree(steps: &[(&str, &str, Value)]) {
    let (quick, slow) = clusters().await;
    for (number, (method, path, body)) in steps.iter().enumerate() {
        // Later ones do not fall into the same second.
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        let (edited, made) = (sent(&quick, method, path, body).await, sent(&slow, method, path, body).await);
        assert_eq!(edited, made, "step {number}");
    }
}

fn with(pointer: &str, value: Value) -> Value {
    let mut object = deployment();
    *object.pointer_mut(pointer).expect(pointer) = value;
    object
}

#[tokio::test(start_paused = true)]
async fn edits_of_a_deployment_leave_what_an_apply_leaves() {
    const WEB: &str = "/spec/template/spec/containers/0";
    let apply = format!("{DEPLOYMENT}?fieldManager=me");
    let other = format!("{DEPLOYMENT}?fieldManager=other");
    let configs = [
        deployment(),
        deployment(),
        with(&format!("{WEB}/image"), "web:2".into()),
        with(&format!("{WEB}/image"), "".into()),
        with(&format!("{WEB}/image"), " web:2".into()),
        with(&format!("{WEB}/image"), "web:latest".into()),
        with(&format!("{WEB}/args"), json!(["--a"])),
        with(&format!("{WEB}/args"), json!(["--a", ""])),
        with(&format!("{WEB}/env"), json!([{"name": "A", "value": "x"}, {"name": "B", "value": "2"}])),
        with(&format!("{WEB}/env"), json!([{"name": "B", "value": "2"}])),
        with(&format!("{WEB}/env"), json!([])),
        deployment(),
        with("/spec/replicas", 5.into()),
        with("/spec/replicas", 0.into()),
        with("/spec/replicas", (-1).into()),
        with("/spec/replicas", 3_000_000_000_u64.into()),
        with("/metadata/annotations", json!({"notes": "x"})),
        with("/spec/template/metadata/annotations/scrape", "false".into()),
        with("/spec/template/metadata/labels/app", "other".into()),
        with("/spec/selector/matchLabels/app", "other".into()),
        with(&format!("{WEB}/resources/limits/cpu"), "1".into()),
        with(&format!("{WEB}/volumeMounts/0/name"), "none".into()),
        with(&format!("{WEB}/ports/0/name"), "https".into()),
        deployment(),
    ];
    let mut steps: Vec<(&str, &str, Value)> =
        configs.iter().map(|c| ("PATCH", apply.as_str(), c.clone())).collect();
    // Others come in between.
    let status = format!("{DEPLOYMENT}/status?fieldManager=ctl");
    let status_body = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "status": {"replicas": 2}});
    steps.push(("PATCH", &status, status_body));
    let theirs = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 2, "minReadySeconds": 3}});
    steps.push(("PATCH", &other, theirs));
    steps.extend(configs.iter().map(|c| ("PATCH", apply.as_str(), c.clone())));
    all_agree(&steps).await;
}

#[tokio::test(start_paused = true)]
async fn edits_of_a_config_map_leave_what_an_apply_leaves() {
    let apply = format!("{MAP}?fieldManager=me");
    let map = |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "conf"}, "data": data});
    let mut sealed = map(json!({"a": "3", "b": "2"}));
    sealed["immutable"] = true.into();
    let bodies = [
        map(json!({"a": "1", "b": "2", "c": "3"})),
        map(json!({"a": "2", "b": "2", "c": "3"})),
        map(json!({"a": "ü\n\"", "b": "2", "c": "3"})),
        map(json!({"b": "2", "a": "2"})),
        map(json!({"b": ""})),
        map(json!({"a": "3", "b": "2"})),
        sealed.clone(),
        sealed,
        map(json!({"a": "4", "b": "2"})),
    ];
    let steps: Vec<(&str, &str, Value)> = bodies.into_iter().map(|b| ("PATCH", apply.as_str(), b)).collect();
    all_agree(&steps).await;
}

#[tokio::test(start_paused = true)]
async fn warnings_are_not_lost() {
    let apply = format!("{DEPLOYMENT}?fieldManager=me");
    let mut config = deployment();
    config["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = (-1).into();
    let mut next = config.clone();
    next["spec"]["template"]["spec"]["containers"][0]["image"] = "web:2".into();
    let mut steps = vec![("PATCH", apply.as_str(), config), ("PATCH", apply.as_str(), next)];
    // Labels of the namespace may come at any time.
    let namespace = "/api/v1/namespaces/default?fieldManager=me";
    let labels = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default",
        "labels": {"pod-security.kubernetes.io/warn": "restricted"}}});
    steps.push(("PATCH", apply.as_str(), deployment()));
    steps.push(("PATCH", namespace, labels));
    steps.push(("PATCH", apply.as_str(), with("/spec/template/spec/containers/0/image", "web:3".into())));
    all_agree(&steps).await;
}

/// Whether what is stored would be edited, and how much.
async fn is_edited(http: &Http, config: &Value) -> Option<bool> {
    let stored = http.get(DEPLOYMENT).await.body;
    let (stored, config) = (std::str::from_utf8(&stored).expect("text"), config.to_string());
    let writer = Writer {
        manager: "me",
        api_version: "apps/v1",
        subresource: "",
        reach: Reach::Body,
        now: Timestamp(i64::MAX / 1_000_000),
        schema: Schema { types: builtin::types(), root: builtin::type_of("apps", "v1", "Deployment") },
        convert: &|_, _| None,
    };
    let (stored, config) = (Outline::read(stored.trim())?, Outline::read(&config)?);
    let found = edits(&writer, &stored, &config, true, KNOWLEDGE)?;
    let nothing = found.is_empty();
    found.apply().map(|_| !nothing)
}

#[tokio::test]
async fn what_is_changed_most_is_edited() {
    const WEB: &str = "/spec/template/spec/containers/0";
    let http = Cluster::start().await.http();
    sent(&http, "PATCH", &format!("{DEPLOYMENT}?fieldManager=me"), &deployment()).await;
    assert_eq!(is_edited(&http, &deployment()).await, Some(false), "in effect");
    for (pointer, value) in [
        (format!("{WEB}/image"), json!("web:2")),
        (format!("{WEB}/args"), json!(["--a", "--c"])),
        (format!("{WEB}/env/0/value"), json!("2")),
        ("/spec/replicas".to_owned(), json!(3)),
        ("/metadata/annotations".to_owned(), json!({"owner": "b"})),
        ("/spec/template/metadata/annotations/scrape".to_owned(), json!("false")),
    ] {
        assert_eq!(is_edited(&http, &with(&pointer, value)).await, Some(true), "{pointer}");
    }
    let mut fewer = deployment();
    fewer.pointer_mut(&format!("{WEB}/env")).unwrap().as_array_mut().unwrap().remove(1);
    assert_eq!(is_edited(&http, &fewer).await, Some(true));
    for (pointer, value) in [
        (format!("{WEB}/resources/limits/cpu"), json!("1")),
        ("/spec/template/metadata/labels/app".to_owned(), json!("x")),
        ("/metadata/labels/app".to_owned(), json!("x")),
        ("/spec/strategy/rollingUpdate/maxSurge".to_owned(), json!(2)),
    ] {
        assert_eq!(is_edited(&http, &with(&pointer, value)).await, None, "{pointer} has rules");
    }
}

//! The kind on a whole API server: what is refused and in which words, what is filled in.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use shoal_application::api::rules::RULES;
use shoal_application::api::{self, install};
use shoal_application::{Application, ApplicationSpec};
use shoal_testkit::Cluster;

/// A cluster with the kind, and its objects as they are written.
async fn start() -> (Cluster, Api<DynamicObject>) {
    let cluster = Cluster::start().await;
    install(&cluster.client()).await.unwrap();
    let resource = ApiResource::erase::<Application>(&());
    let all = Api::default_namespaced_with(cluster.client(), &resource);
    (cluster, all)
}

fn object(name: &str, spec: &Value) -> DynamicObject {
    let version = format!("{}/{}", api::GROUP, api::VERSION);
    serde_json::from_value(
        json!({"apiVersion": version, "kind": "Application", "metadata": {"name": name}, "spec": spec}),
    )
    .unwrap()
}

/// What the server says to it; `None`: it is accepted.
async fn refusal(all: &Api<DynamicObject>, name: &str, spec: &Value) -> Option<String> {
    let params = PostParams { dry_run: true, ..PostParams::default() };
    match all.create(&params, &object(name, spec)).await {
        Ok(_) => None,
        Err(kube::Error::Api(status)) if status.code == 422 => Some(status.message.clone()),
        Err(error) => panic!("{spec}: {error}"),
    }
}

/// `base` with these fields.
fn with(base: &Value, more: &Value) -> Value {
    let mut spec = base.clone();
    for (name, value) in more.as_object().unwrap() {
        spec[name] = value.clone();
    }
    spec
}

fn base() -> Value {
    json!({"image": "nginx:1.27", "port": 8080})
}

/// Specifications that break a rule, with words of its message.
fn impossible() -> Vec<(Value, &'static str)> {
    let claim = |more: &Value| json!({"persistentVolumeClaims": [with(&json!({"name": "data", "size": "1Gi"}), more)]});
    let cpu = json!({"requests": {"cpu": "100m"}});
    vec![
        (json!({"ports": [{"name": "http", "port": 80}]}), "port and ports exclude each other: keep ports"),
        (json!({"port": null, "network": {}}), "network needs a port: set spec.port"),
        (
            json!({"replicas": 3, "storage": claim(&json!({}))}),
            "use accessModes [ReadWriteMany], or replicas 1",
        ),
        (
            json!({"scaling": {"maxReplicas": 2}, "resources": cpu, "storage": claim(&json!({}))}),
            "or set allowShared: true if all replicas may run on one node",
        ),
        (
            json!({"replicas": 2, "storage": claim(&json!({"accessModes": ["ReadWriteOncePod"], "allowShared": true}))}),
            "use other accessModes than ReadWriteOncePod",
        ),
        (json!({"scaling": {"maxReplicas": 2}}), "set resources.requests.cpu"),
        (
            json!({"scaling": {"maxReplicas": 2, "targetMemoryUtilizationPercentage": 80}, "resources": cpu}),
            "set resources.requests.memory",
        ),
        (
            json!({"port": null, "healthCheck": {"readinessProbe": {"tcpSocket": {}}}}),
            "set spec.port or the probe's port",
        ),
        (
            json!({"minReadySeconds": 60, "progressDeadlineSeconds": 60}),
            "progressDeadlineSeconds must be greater than minReadySeconds",
        ),
        (json!({"podLabels": {"app": "other"}}), "by which the pods are found: use other labels"),
        (
            json!({"port": null, "ports": [{"name": "a", "port": 1}, {"name": "b", "port": 1}]}),
            "two ports have the same number and protocol",
        ),
        (
            json!({"scaling": {"minReplicas": 3, "maxReplicas": 2}, "resources": cpu}),
            "raise maxReplicas or lower minReplicas",
        ),
        (
            json!({"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "500m"}}}),
            "lower the request or raise the limit",
        ),
        (
            json!({"network": {"loadBalancer": {"sourceRanges": ["10.0.0.0/8"]}}}),
            "set serviceType: LoadBalancer, or use networkPolicy",
        ),
        (
            json!({"security": {"securityContext": {"runAsNonRoot": true, "runAsUser": 0}}}),
            "choose another runAsUser, such as 1000",
        ),
        (
            json!({"environment": [{"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}),
            "value and valueFrom exclude each other",
        ),
        (json!({"environment": [{"name": "A", "valueFrom": {}}]}), "a value comes from exactly one place"),
        (json!({"environmentFrom": [{"prefix": "A"}]}), "set one of configMapRef and secretRef"),
        (
            json!({"healthCheck": {"startupProbe": {"periodSeconds": 1}}}),
            "set one of httpGet, tcpSocket, exec and grpc",
        ),
        (
            json!({"healthCheck": {"livenessProbe": {"httpGet": {}, "tcpSocket": {}}}}),
            "set one of httpGet, tcpSocket, exec and grpc",
        ),
        (
            json!({"healthCheck": {"livenessProbe": {"httpGet": {}, "successThreshold": 2}}}),
            "remove successThreshold or set it to 1",
        ),
        (
            json!({"strategy": {"type": "Recreate", "rollingUpdate": {}}}),
            "remove it, or set type: RollingUpdate",
        ),
        (
            json!({"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}}}),
            "raise maxSurge or maxUnavailable",
        ),
        (json!({"podDisruptionBudget": {}}), "set one of minAvailable and maxUnavailable"),
        (
            json!({"storage": {"persistentVolumeClaims": [
                {"name": "a", "size": "1Gi", "mountPath": "/x"}, {"name": "b", "size": "1Gi", "mountPath": "/x"}]}}),
            "two volumes have the same mountPath",
        ),
        (json!({"storage": claim(&json!({"size": "0"}))}), "a volume must have a size"),
    ]
}

#[tokio::test]
async fn impossible_combinations_are_refused_with_their_remedy() {
    let (_cluster, all) = start().await;
    let mut told = std::collections::BTreeSet::new();
    for (more, words) in impossible() {
        let spec = with(&base(), &more);
        let refused = refusal(&all, "a", &spec).await.unwrap_or_else(|| panic!("{more} is accepted"));
        assert!(refused.contains(words), "{more}: {refused}");
        // The same specification, stored before the rule was made, is found to be wrong by the operator.
        let mut bare = spec;
        bare.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        let spec: ApplicationSpec = serde_json::from_value(bare).unwrap();
        let messages = api::rules::broken(&spec);
        assert!(messages.iter().any(|message| message.contains(words)), "{more}: {messages:?}");
        told.extend(messages);
    }
    for rule in RULES.iter().filter(|rule| rule.broken.is_some()) {
        assert!(told.contains(rule.message), "no specification breaks the rule {:?}", rule.message);
    }
}

#[tokio::test]
async fn values_out_of_bounds_are_refused() {
    let (_cluster, all) = start().await;
    for (more, words) in [
        (json!({"image": ""}), "spec.image"),
        (json!({"image": "two words"}), "spec.image"),
        (json!({"image": null}), "spec.image: Required value"),
        (json!({"replicas": -1}), "should be greater than or equal to 0"),
        (json!({"replicas": 1001}), "should be less than or equal to 1000"),
        (json!({"port": 0}), "spec.port"),
        (json!({"port": 65536}), "spec.port"),
        (json!({"port": null, "ports": [{"name": "Upper", "port": 1}]}), "spec.ports[0].name"),
        (
            json!({"port": null, "ports": [{"name": "a", "port": 1}, {"name": "a", "port": 2}]}),
            "Duplicate value",
        ),
        (
            json!({"environment": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}),
            "Duplicate value",
        ),
        (json!({"resources": {"requests": {"cpu": "much"}}}), "spec.resources.requests.cpu"),
        (json!({"scaling": {}}), "spec.scaling.maxReplicas: Required value"),
        (json!({"network": {"serviceType": "ExternalName"}}), "Unsupported value"),
        (
            json!({"network": {"serviceType": "LoadBalancer", "loadBalancer": {"sourceRanges": ["10.0.0.0"]}}}),
            "write it as ADDRESS/BITS",
        ),
        (json!({"storage": {"persistentVolumeClaims": [{"name": "a"}]}}), "size: Required value"),
        (
            json!({"storage": {"persistentVolumeClaims": [{"name": "a", "size": "1Gi", "mountPath": "data"}]}}),
            "mountPath",
        ),
        (json!({"configFiles": [{"path": "/etc/"}]}), "spec.configFiles[0].path"),
        (json!({"deletionPolicy": "Forget"}), "Unsupported value"),
    ] {
        let refused = refusal(&all, "a", &with(&base(), &more)).await;
        let refused = refused.unwrap_or_else(|| panic!("{more} is accepted"));
        assert!(refused.contains(words), "{more}: {refused}");
    }
    for name in ["1st", "a.b"] {
        let refused = refusal(&all, name, &base()).await.unwrap();
        assert!(refused.contains("begin with a letter"), "{refused}");
    }
    let refused = refusal(&all, &"a".repeat(64), &base()).await.unwrap();
    assert!(refused.contains("metadata.name"), "{refused}");
}

#[tokio::test]
async fn volumes_grow_but_do_not_shrink_or_change() {
    let (_cluster, all) = start().await;
    let claim = json!({"name": "data", "size": "2Gi", "storageClassName": "fast"});
    let spec = with(&base(), &json!({"storage": {"persistentVolumeClaims": [claim]}}));
    all.create(&PostParams::default(), &object("a", &spec)).await.unwrap();
    for (field, value, words) in [
        ("size", json!("1Gi"), Some("a volume can grow but not shrink")),
        ("accessModes", json!(["ReadWriteMany"]), Some("accessModes of a volume cannot be changed")),
        ("storageClassName", json!("slow"), Some("storageClassName of a volume cannot be changed")),
        ("size", json!("3Gi"), None),
    ] {
        let claim = with(&claim, &json!({field: value}));
        let patch = json!({"spec": {"storage": {"persistentVolumeClaims": [claim]}}});
        let answer = all.patch("a", &PatchParams::default(), &Patch::Merge(patch)).await;
        match (answer, words) {
            (Ok(_), None) => {}
            (Err(error), Some(words)) => assert!(error.to_string().contains(words), "{error}"),
            (answer, _) => panic!("{field}: {answer:?}"),
        }
    }
}

#[tokio::test]
async fn what_is_left_out_is_filled_in_as_the_types_read_it() {
    let (_cluster, all) = start().await;
    let spec = json!({
        "image": "nginx:1.27",
        "port": 80,
        "resources": {"requests": {"cpu": 1}},
        "scaling": {"maxReplicas": 5},
        "network": {},
        "storage": {"persistentVolumeClaims": [{"name": "a", "size": "1Gi", "accessModes": ["ReadWriteMany"]}]},
    });
    let made = all.create(&PostParams::default(), &object("a", &spec)).await.unwrap();
    let stored = &made.data["spec"];
    assert_eq!(stored["replicas"], 1);
    assert_eq!(stored["progressDeadlineSeconds"], 600);
    assert_eq!(stored["rollback"], json!({"enabled": true, "crashLoopRestarts": 3}));
    assert_eq!(stored["scaling"]["minReplicas"], 1);
    assert_eq!(stored["network"]["serviceType"], "ClusterIP");
    assert_eq!(stored["storage"]["persistentVolumeClaims"][0]["retention"], "Retain");
    assert_eq!(stored["deletionPolicy"], "Delete");
    let from_server: ApplicationSpec = serde_json::from_value(stored.clone()).unwrap();
    let from_user: ApplicationSpec = serde_json::from_value(spec).unwrap();
    assert_eq!(from_server, from_user, "defaults of the schema and of the types are the same");
    assert_eq!(api::rules::broken(&from_server), Vec::<&str>::new());
}

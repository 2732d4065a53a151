//! Admission policies that change and judge requests, bound and put to work over the API.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use serde_json::{Value, json};
use shoal_testkit::{Answer, Cluster, Http};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";

fn rules(group: &str, resources: &[&str]) -> Value {
    json!({"resourceRules": [{
        "apiGroups": [group], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE", "CONNECT"], "resources": resources,
    }]})
}

fn apply(expression: &str) -> Value {
    json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
}

fn json_patch(expression: &str) -> Value {
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

fn mutating(constraints: &Value, mutations: &[Value]) -> Value {
    json!({"matchConstraints": constraints, "mutations": mutations, "reinvocationPolicy": "Never"})
}

async fn post_policy(http: &Http, kind: &str, name: &str, spec: &Value) -> Answer {
    let policy = json!({"metadata": {"name": name}, "spec": spec});
    http.post(&format!("{REGISTRATION}/{kind}admissionpolicies"), &policy).await
}

async fn bind(http: &Http, kind: &str, name: &str, mut spec: Value) {
    spec["policyName"] = name.into();
    let binding = json!({"metadata": {"name": name}, "spec": spec});
    let answer = http.post(&format!("{REGISTRATION}/{kind}admissionpolicybindings"), &binding).await;
    assert_eq!(answer.status, 201, "{}", answer.json());
}

/// A mutating policy in force everywhere.
async fn mutate(http: &Http, name: &str, spec: &Value) {
    let answer = post_policy(http, "mutating", name, spec).await;
    assert_eq!(answer.status, 201, "{}", answer.json());
    bind(http, "mutating", name, json!({})).await;
}

async fn create(http: &Http, name: &str) -> Answer {
    http.post(MAPS, &json!({"metadata": {"name": name}, "data": {"k": "v"}})).await
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "main", "image": "i"}]}})
}

#[tokio::test]
async fn a_configuration_is_merged_and_a_json_patch_applied_in_order() {
    let http = Cluster::start().await.http();
    let sidecar = apply(
        "Object{metadata: Object.metadata{labels: Object.metadata.labels{touched: 'yes'}}, spec: Object.spec{initContainers: \
         [Object.spec.initContainers{name: 'proxy', image: 'proxy:1', restartPolicy: 'Always'}]}}",
    );
    let annotate = json_patch(
        "[JSONPatch{op: 'test', path: '/metadata/labels/touched', value: 'yes'}, JSONPatch{op: 'add', path: \
         '/metadata/annotations', value: Object.metadata.annotations{made: 'by-' + object.metadata.name}}, \
         JSONPatch{op: 'add', path: '/metadata/annotations/' + jsonpatch.escapeKey('a.test/b'), value: 'c'}]",
    );
    mutate(&http, "sidecar", &mutating(&rules("", &["pods"]), &[sidecar, annotate])).await;
    http.post("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "default"}})).await;
    let made = http.post(PODS, &pod("p")).await;
    let shown = made.json();
    assert_eq!(made.status, 201, "{shown}");
    assert_eq!(shown["spec"]["containers"][0]["name"], "main");
    let proxy = &shown["spec"]["initContainers"][0];
    assert_eq!((&proxy["name"], &proxy["imagePullPolicy"]), (&json!("proxy"), &json!("IfNotPresent")));
    assert_eq!(shown["metadata"]["labels"], json!({"touched": "yes"}));
    assert_eq!(shown["metadata"]["annotations"], json!({"made": "by-p", "a.test/b": "c"}));
    // A second time changes nothing more.
    let again = http.merge(&format!("{PODS}/p"), &json!({"metadata": {"labels": {"x": "y"}}})).await.json();
    assert_eq!(again["spec"]["initContainers"].as_array().unwrap().len(), 1);
    assert_eq!(again["metadata"]["labels"], json!({"touched": "yes", "x": "y"}));
}

#[tokio::test]
async fn what_is_replaced_as_a_whole_may_not_be_applied() {
    let http = Cluster::start().await.http();
    let atomic = apply("Object{spec: Object.spec{selector: Object.spec.selector{matchLabels: {'a': 'b'}}}}");
    mutate(&http, "atomic", &mutating(&rules("apps", &["deployments"]), &[atomic])).await;
    let deployment = json!({"metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }});
    let refused = http.post("/apis/apps/v1/namespaces/default/deployments", &deployment).await;
    let status = refused.json();
    assert_eq!((refused.status.as_u16(), &status["reason"]), (403, &json!("Invalid")));
    let told = status["message"].as_str().unwrap();
    let wanted = "policy 'atomic' with binding 'atomic' denied request: error applying patch: invalid \
                  ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.selector";
    assert_eq!(told, wanted);
}

#[tokio::test]
async fn mutations_that_fail_follow_the_failure_policy() {
    let http = Cluster::start().await.http();
    let bad = [
        apply("Object{nothing: 1}"),
        apply("Object{data: Object.data{a: 1}}"),
        apply("Object{data: Object.data{a: object.data.missing}}"),
        json_patch("[JSONPatch{op: 'remove', path: '/not/there'}]"),
        json_patch("[JSONPatch{op: 'replace', path: '/metadata/name', value: 'other'}]"),
        json_patch("[JSONPatch{op: 'replace', path: '/kind', value: 'Secret'}]"),
        json_patch("[JSONPatch{op: 'add', path: '/data', value: [1]}]"),
    ];
    for (i, mutation) in bad.into_iter().enumerate() {
        let name = format!("bad-{i}");
        let mut spec = mutating(&rules("", &["configmaps"]), &[mutation]);
        mutate(&http, &name, &spec).await;
        let refused = create(&http, "a").await;
        assert_eq!(refused.status, 403, "{spec} {}", refused.json());
        let policy = format!("{REGISTRATION}/mutatingadmissionpolicies/{name}");
        spec["failurePolicy"] = "Ignore".into();
        assert_eq!(http.merge(&policy, &json!({"spec": spec})).await.status, 200);
        let made = create(&http, &format!("a-{i}")).await;
        assert_eq!((made.status.as_u16(), &made.json()["data"]), (201, &json!({"k": "v"})), "{spec}");
        assert_eq!(http.delete(&policy).await.status, 200);
    }
}

#[tokio::test]
async fn policies_that_want_it_are_asked_again_after_others() {
    let http = Cluster::start().await.http();
    let count = json_patch("[JSONPatch{op: 'add', path: '/data/keys', value: string(size(object.data))}]");
    let mut counting = mutating(&rules("", &["configmaps"]), &[count]);
    counting["reinvocationPolicy"] = "IfNeeded".into();
    mutate(&http, "a-counting", &counting).await;
    let adding = apply("Object{data: Object.data{added: 'x'}}");
    mutate(&http, "b-adding", &mutating(&rules("", &["configmaps"]), &[adding])).await;
    // 1 key at first; then with `keys` and `added` there are 3.
    assert_eq!(create(&http, "a").await.json()["data"], json!({"k": "v", "keys": "3", "added": "x"}));
}

#[tokio::test]
async fn parameters_conditions_and_variables_are_known() {
    let http = Cluster::start().await.http();
    for (name, value) in [("one", "1"), ("two", "2")] {
        let param = json!({"metadata": {"name": name, "labels": {"params": "yes"}}, "data": {"value": value, "key": name}});
        assert_eq!(http.post(MAPS, &param).await.status, 201);
    }
    let set = json_patch("[JSONPatch{op: 'add', path: '/data/' + variables.key, value: params.data.value}]");
    let mut spec = mutating(&rules("", &["configmaps"]), &[set]);
    spec["paramKind"] = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    spec["variables"] = json!([{"name": "key", "expression": "params.data.key"}]);
    spec["matchConditions"] = json!([
        {"name": "mine", "expression": "object.metadata.name.startsWith('mine') && authorizer.requestResource.check('create').allowed()"},
    ]);
    assert_eq!(post_policy(&http, "mutating", "p", &spec).await.status, 201);
    let selector = json!({"selector": {"matchLabels": {"params": "yes"}}, "parameterNotFoundAction": "Deny"});
    bind(&http, "mutating", "p", json!({"paramRef": selector})).await;
    assert_eq!(create(&http, "other").await.json()["data"], json!({"k": "v"}));
    assert_eq!(create(&http, "mine").await.json()["data"], json!({"k": "v", "one": "1", "two": "2"}));
    for name in ["one", "two"] {
        assert_eq!(http.delete(&format!("{MAPS}/{name}")).await.status, 200);
    }
    let refused = create(&http, "mine-too").await;
    assert_eq!(refused.status, 403);
    let told = refused.json()["message"].as_str().unwrap().to_owned();
    assert!(told.contains("failed to configure binding: no params found"), "{told}");
}

#[tokio::test]
async fn bad_policies_are_refused_when_they_are_written() {
    let http = Cluster::start().await.http();
    let constraints = rules("", &["configmaps"]);
    let good = apply("Object{}");
    let mut deleting = mutating(&constraints, std::slice::from_ref(&good));
    deleting["matchConstraints"]["resourceRules"][0]["operations"] = json!(["DELETE"]);
    let cases = [
        (mutating(&constraints, &[apply("{}")]), "spec.mutations[0].applyConfiguration.expression"),
        (
            mutating(&constraints, &[apply("Object{spec: Object.other{}}")]),
            "spec.mutations[0].applyConfiguration.expression",
        ),
        (
            mutating(&constraints, &[good.clone(), json_patch("JSONPatch{}")]),
            "spec.mutations[1].jsonPatch.expression",
        ),
        (mutating(&constraints, &[]), "spec.mutations"),
        (deleting, "spec.matchConstraints.resourceRules[0].operations[0]"),
    ];
    for (spec, field) in cases {
        let refused = post_policy(&http, "mutating", "p", &spec).await;
        let status = refused.json();
        assert_eq!(refused.status, 422, "{status}");
        assert_eq!(status["details"]["causes"][0]["field"], field, "{status}");
    }
}

#[tokio::test]
async fn policies_see_scale_binding_eviction_token_and_connections() {
    let http = Cluster::start().await.http();
    http.post("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "default"}})).await;
    let deployment = json!({"metadata": {"name": "d"}, "spec": {
        "replicas": 1, "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }});
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    assert_eq!(http.post(deployments, &deployment).await.status, 201);
    assert_eq!(http.post(PODS, &pod("p")).await.status, 201);

    let cap =
        apply("Object{spec: Object.spec{replicas: object.spec.replicas > 5 ? 5 : object.spec.replicas}}");
    mutate(&http, "cap", &mutating(&rules("apps", &["deployments/scale"]), &[cap])).await;
    let scaled = http.merge(&format!("{deployments}/d/scale"), &json!({"spec": {"replicas": 9}})).await;
    assert_eq!(scaled.json()["spec"]["replicas"], 5, "{}", scaled.json());
    let shorten = json_patch("[JSONPatch{op: 'replace', path: '/spec/expirationSeconds', value: 600}]");
    mutate(&http, "shorten", &mutating(&rules("", &["serviceaccounts/token"]), &[shorten])).await;
    let token = json!({"spec": {"expirationSeconds": 7200}});
    let issued = http.post("/api/v1/namespaces/default/serviceaccounts/default/token", &token).await;
    assert_eq!(issued.json()["spec"]["expirationSeconds"], 600, "{}", issued.json());

    let resources = ["pods/binding", "pods/eviction", "pods/exec", "pods/proxy"];
    let spec = json!({"matchConstraints": rules("", &resources), "validations": [{
        "expression": "false", "messageExpression": "request.operation + ' ' + request.subResource + ' ' + request.name",
    }]});
    let scale = json!({"matchConstraints": rules("apps", &["deployments/scale"]), "validations": [
        {"expression": "object.spec.replicas != 3 && object.kind == 'Scale' && oldObject.spec.replicas == 5"},
    ]});
    for (name, spec) in [("no", spec), ("not-three", scale)] {
        let made = post_policy(&http, "validating", name, &spec).await;
        assert_eq!(made.status, 201, "{}", made.json());
        bind(&http, "validating", name, json!({"validationActions": ["Deny"]})).await;
    }
    let refused = http.merge(&format!("{deployments}/d/scale"), &json!({"spec": {"replicas": 3}})).await;
    assert_eq!(refused.status, 422);
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    let eviction = json!({"metadata": {"name": "p"}});
    let asked = [
        (http.post(&format!("{PODS}/p/binding"), &binding).await, "CREATE binding p"),
        (http.post(&format!("{PODS}/p/eviction"), &eviction).await, "CREATE eviction p"),
        (http.get(&format!("{PODS}/p/exec?command=ls&stdout=true")).await, "CONNECT exec p"),
        (http.get(&format!("{PODS}/p/proxy/some/path")).await, "CONNECT proxy p"),
    ];
    for (answer, told) in asked {
        assert_eq!(answer.status, 422, "{told} {}", answer.json());
        assert!(answer.json()["message"].as_str().unwrap().ends_with(told), "{}", answer.json());
    }
}

#[tokio::test]
async fn an_apply_that_changes_nothing_is_asked_about_all_the_same() {
    let http = Cluster::start().await.http();
    let path = format!("{MAPS}/a?fieldManager=m");
    let config =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
    let apply_it =
        || http.send("PATCH", &path, &[("content-type", "application/apply-patch+yaml")], config.to_string());
    assert_eq!(apply_it().await.status, 201);
    let before = apply_it().await.json();
    let add = apply("Object{data: Object.data{added: 'x'}}");
    mutate(&http, "add", &mutating(&rules("", &["configmaps"]), &[add])).await;
    let after = apply_it().await;
    assert_eq!((after.status.as_u16(), &after.json()["data"]), (200, &json!({"k": "v", "added": "x"})));
    assert_ne!(after.json()["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"]);
    assert_eq!(
        apply_it().await.json()["metadata"]["resourceVersion"],
        after.json()["metadata"]["resourceVersion"]
    );
    let deny =
        json!({"matchConstraints": rules("", &["configmaps"]), "validations": [{"expression": "false"}]});
    assert_eq!(post_policy(&http, "validating", "deny", &deny).await.status, 201);
    bind(&http, "validating", "deny", json!({"validationActions": ["Deny"]})).await;
    assert_eq!(apply_it().await.status, 422);
}

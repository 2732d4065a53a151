//! CustomResourceDefinitions and what they define, over the life of a server.

use serde_json::{Value, json};
use shoal_apiserver::access::tokens;
use shoal_apiserver::{Options, Server};
use shoal_store::Store;
use shoal_testkit::{Cluster, Http, eventually};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/x.test/v1/namespaces/default/widgets";

fn definition(plural: &str, kind: &str, mut version: Value) -> Value {
    for (name, value) in [("name", json!("v1")), ("served", json!(true)), ("storage", json!(true))] {
        if version.get(name).is_none() {
            version[name] = value;
        }
    }
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.x.test")},
        "spec": {"group": "x.test", "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": [version]}})
}

fn spec_schema(properties: impl Into<Value>) -> Value {
    let properties = properties.into();
    json!({"openAPIV3Schema": {"type": "object", "properties": {
        "spec": {"type": "object", "properties": properties}}}})
}

fn widget(name: &str, spec: impl Into<Value>) -> Value {
    let spec = spec.into();
    json!({"apiVersion": "x.test/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

async fn post(http: &Http, path: &str, object: &Value, code: u16) -> Value {
    let answer = http.post(path, object).await;
    assert_eq!(answer.status, code, "{path}: {}", String::from_utf8_lossy(&answer.body));
    answer.json()
}

#[tokio::test]
async fn a_kind_is_served_in_the_request_after_its_definition() {
    let http = Cluster::start().await.http();
    let schema = spec_schema(json!({"a": {"type": "string"}}));
    post(&http, DEFINITIONS, &definition("widgets", "Widget", json!({"schema": schema})), 201).await;
    let made = post(&http, WIDGETS, &widget("w", json!({"a": "1", "b": 2})), 201).await;
    assert_eq!(made["spec"], json!({"a": "1"}));
}

#[tokio::test]
async fn a_changed_schema_counts_from_the_next_request_and_for_old_objects() {
    let http = Cluster::start().await.http();
    let old = definition(
        "widgets",
        "Widget",
        json!({"schema": spec_schema(json!({"a": {"type": "string"}, "gone": {"type": "string"}}))}),
    );
    post(&http, DEFINITIONS, &old, 201).await;
    post(&http, WIDGETS, &widget("w", json!({"a": "1", "gone": "x"})), 201).await;
    let versions = json!([{"name": "v1", "served": true, "storage": true, "schema": spec_schema(json!({
        "a": {"type": "string"}, "b": {"type": "string", "default": "new"}}))}]);
    let path = format!("{DEFINITIONS}/widgets.x.test");
    let answer = http.merge(&path, &json!({"spec": {"versions": versions}})).await;
    assert_eq!(answer.status, 200);
    let wanted = json!({"a": "1", "b": "new"});
    assert_eq!(http.get(&format!("{WIDGETS}/w")).await.json()["spec"], wanted);
    assert_eq!(http.get(WIDGETS).await.json()["items"][0]["spec"], wanted);
    let made = post(&http, WIDGETS, &widget("v", json!({"a": "1", "gone": "x"})), 201).await;
    assert_eq!(made["spec"], wanted);
}

#[tokio::test]
async fn names_that_are_taken_are_not_accepted_until_they_are_free() {
    let http = Cluster::start().await.http();
    let schema = spec_schema(json!({}));
    post(&http, DEFINITIONS, &definition("widgets", "Widget", json!({"schema": schema})), 201).await;
    post(&http, DEFINITIONS, &definition("gadgets", "Widget", json!({"schema": schema})), 201).await;
    let path = format!("{DEFINITIONS}/gadgets.x.test");
    let established = async || {
        let definition = http.get(&path).await.json();
        let conditions = definition["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let status = |kind: &str| {
            conditions.iter().find(|c| c["type"] == kind).map(|c| (c["status"].clone(), c["reason"].clone()))
        };
        (status("NamesAccepted"), status("Established"))
    };
    let (names, ready) = established().await;
    // The later of two conflicts is told.
    assert_eq!(names, Some((json!("False"), json!("ListKindConflict"))));
    assert_eq!(ready, Some((json!("False"), json!("NotAccepted"))));
    assert_eq!(http.get("/apis/x.test/v1/namespaces/default/gadgets").await.status, 404);
    http.delete(&format!("{DEFINITIONS}/widgets.x.test")).await;
    eventually("the names are accepted", async || {
        (established().await.1 == Some((json!("True"), json!("InitialNamesAccepted")))).then_some(())
    })
    .await;
    assert_eq!(http.get("/apis/x.test/v1/namespaces/default/gadgets").await.status, 200);
}

#[tokio::test]
async fn a_restarted_server_serves_what_was_defined_and_finishes_deletions() {
    let store = Store::memory(shoal_store::Options::default());
    let key = tokens::new_signing_key().unwrap();
    let start = async || Server::start(Options::new(store.clone(), key.clone())).await.unwrap();
    let first = Cluster::of(start().await).http();
    let schema = spec_schema(json!({"a": {"type": "string"}}));
    post(&first, DEFINITIONS, &definition("widgets", "Widget", json!({"schema": schema})), 201).await;
    let mut held = widget("held", json!({"a": "1"}));
    held["metadata"]["finalizers"] = json!(["x.test/f"]);
    post(&first, WIDGETS, &held, 201).await;

    let second = Cluster::of(start().await).http();
    assert_eq!(second.get(&format!("{WIDGETS}/held")).await.json()["spec"], json!({"a": "1"}));
    second.delete(&format!("{DEFINITIONS}/widgets.x.test")).await;
    post(&second, WIDGETS, &widget("late", json!({})), 403).await;

    let third = Cluster::of(start().await).http();
    post(&third, WIDGETS, &widget("later", json!({})), 403).await;
    let answer = third.merge(&format!("{WIDGETS}/held"), &json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(answer.status, 200);
    eventually("the definition is gone", async || {
        (third.get(&format!("{DEFINITIONS}/widgets.x.test")).await.status == 404).then_some(())
    })
    .await;
    assert_eq!(third.get(WIDGETS).await.status, 404);
    assert_eq!(third.get("/apis/x.test").await.status, 404);
}

#[tokio::test]
async fn objects_are_found_by_selectable_fields() {
    let http = Cluster::start().await.http();
    let version = json!({"schema": spec_schema(json!({"color": {"type": "string"}, "n": {"type": "integer"}})),
        "selectableFields": [{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.n"}]});
    post(&http, DEFINITIONS, &definition("widgets", "Widget", version), 201).await;
    for (name, color, n) in [("a", "red", 1), ("b", "blue", 1), ("c", "red", 2)] {
        post(&http, WIDGETS, &widget(name, json!({"color": color, "n": n})), 201).await;
    }
    let found = async |selector: &str| {
        let list = http.get(&format!("{WIDGETS}?fieldSelector={selector}")).await.json();
        let names = list["items"].as_array().cloned().unwrap_or_default();
        names
            .iter()
            .map(|i| i["metadata"]["name"].as_str().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(found("spec.color%3Dred").await, ["a", "c"]);
    assert_eq!(found("spec.color%3Dred,spec.n%3D2").await, ["c"]);
    assert_eq!(found("spec.color!%3Dred").await, ["b"]);
    assert_eq!(http.get(&format!("{WIDGETS}?fieldSelector=spec.other%3D1")).await.status, 400);
}

#[tokio::test]
async fn hostile_definitions_are_refused_or_bounded() {
    let http = Cluster::start().await.http();
    let mut deep = json!({"type": "string"});
    for _ in 0..100 {
        deep = json!({"type": "object", "properties": {"a": deep}});
    }
    let any = json!([{"minimum": 1}]);
    let wide: Value = (0..20_000).map(|i| (format!("f{i}"), json!({"type": "string"}))).collect();
    for (schema, code) in [
        (json!({"a": {"type": "string", "pattern": "(a+)+$"}}), 201),
        (json!({"a": {"type": "string", "pattern": "(?=a)"}}), 422),
        (json!({"a": {"type": "string", "pattern": "((a{1000}){1000}){1000}"}}), 422),
        (json!({"a": {"type": "object", "$ref": "#/definitions/a"}}), 422),
        (json!({"a": {"type": "integer", "allOf": any, "anyOf": any, "multipleOf": 0}}), 201),
        (wide, 201),
    ] {
        let version = json!({"schema": spec_schema(schema)});
        post(&http, DEFINITIONS, &definition("widgets", "Widget", version), code).await;
        if code == 201 {
            let long = format!("{}!", "a".repeat(100_000));
            let answer = http.post(WIDGETS, &widget("w", json!({"a": long}))).await;
            assert!(answer.status == 201 || answer.status == 422, "{}", answer.status);
            http.delete(&format!("{DEFINITIONS}/widgets.x.test")).await;
            eventually("the definition is gone", async || {
                (http.get(&format!("{DEFINITIONS}/widgets.x.test")).await.status == 404).then_some(())
            })
            .await;
        }
    }
    let answer = http
        .post(DEFINITIONS, &definition("widgets", "Widget", json!({"schema": {"openAPIV3Schema": deep}})))
        .await;
    assert!(answer.status == 201 || answer.status == 422 || answer.status == 400);
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_ends_with_the_definition_of_its_kind() {
    let http = Cluster::start().await.http();
    let schema = spec_schema(json!({}));
    post(&http, DEFINITIONS, &definition("widgets", "Widget", json!({"schema": schema})), 201).await;
    let mut watch = http.watch(&format!("{WIDGETS}?watch=true")).await;
    let started = tokio::time::Instant::now();
    let ends = tokio::spawn(async move { watch.next().await });
    tokio::task::yield_now().await;
    // Other kinds that come and go are none of its business.
    post(&http, DEFINITIONS, &definition("gadgets", "Gadget", json!({"schema": schema})), 201).await;
    tokio::task::yield_now().await;
    assert!(!ends.is_finished());
    http.delete(&format!("{DEFINITIONS}/widgets.x.test")).await;
    assert_eq!(ends.await.ok(), Some(None));
    assert!(started.elapsed().as_secs() < 1, "no timer was needed");
}

#[tokio::test]
async fn groups_of_the_project_need_its_approval() {
    let http = Cluster::start().await.http();
    let mut wanted = definition("widgets", "Widget", json!({"schema": spec_schema(json!({}))}));
    wanted["metadata"]["name"] = "widgets.x.k8s.io".into();
    wanted["spec"]["group"] = "x.k8s.io".into();
    let refused = post(&http, DEFINITIONS, &wanted, 422).await;
    let text = refused["message"].as_str().unwrap_or_default();
    assert!(text.contains("metadata.annotations[api-approved.kubernetes.io]: Required value"), "{text}");
    wanted["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": "unapproved, a test"});
    post(&http, DEFINITIONS, &wanted, 201).await;
    let path = format!("{DEFINITIONS}/widgets.x.k8s.io");
    let condition = async || {
        let conditions = http.get(&path).await.json()["status"]["conditions"].clone();
        let all = conditions.as_array().cloned().unwrap_or_default();
        all.into_iter().find(|c| c["type"] == "KubernetesAPIApprovalPolicyConformant").unwrap_or_default()
    };
    let found = condition().await;
    assert_eq!((&found["status"], &found["reason"]), (&json!("False"), &json!("UnapprovedAnnotation")));
    let patch =
        json!({"metadata": {"annotations": {"api-approved.kubernetes.io": "https://example.test/1"}}});
    assert_eq!(http.merge(&path, &patch).await.status, 200);
    let found = condition().await;
    assert_eq!(
        (&found["status"], &found["message"]),
        (&json!("True"), &json!("approved in https://example.test/1"))
    );
    let patch = json!({"metadata": {"annotations": {"api-approved.kubernetes.io": null}}});
    assert_eq!(http.merge(&path, &patch).await.status, 422);
}

//! Custom kinds whose versions a webhook converts.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod program;

use program::{Program, Reaction};
use serde_json::{Value, json};
use shoal_testkit::{Cluster, Http};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const V1: &str = "/apis/convert.test/v1/namespaces/default/hosts";
const V2: &str = "/apis/convert.test/v2/namespaces/default/hosts";

/// In v1 there is `hostPort`, in v2 `host` and `port`.
fn converted(object: &Value, to: &str) -> Value {
    let mut object = object.clone();
    object["apiVersion"] = to.into();
    let spec = object["spec"].clone();
    object["spec"] = match (to, spec["hostPort"].as_str().and_then(|text| text.split_once(':'))) {
        ("convert.test/v2", Some((host, port))) => json!({"host": host, "port": port}),
        ("convert.test/v1", None) => {
            let text = |name: &str| spec[name].as_str().unwrap_or_default().to_owned();
            json!({"hostPort": format!("{}:{}", text("host"), text("port"))})
        }
        _ => spec,
    };
    object["metadata"]["annotations"]["converted-to"] = to.into();
    object
}

fn react(path: &str, review: &Value) -> Reaction {
    let request = &review["request"];
    let to = request["desiredAPIVersion"].as_str().unwrap();
    let mut objects: Vec<Value> =
        request["objects"].as_array().unwrap().iter().map(|object| converted(object, to)).collect();
    let mut response = json!({"uid": request["uid"], "result": {"status": "Success"}});
    match path {
        "/good" => {}
        "/rename" => objects[0]["metadata"]["name"] = "other".into(),
        "/uid" => objects[0]["metadata"]["uid"] = "other".into(),
        "/kind" => objects[0]["kind"] = "Other".into(),
        "/version" => objects[0]["apiVersion"] = "convert.test/v9".into(),
        "/label" => objects[0]["metadata"]["labels"] = json!({"not a label": "x"}),
        "/fewer" => objects.clear(),
        "/refuse" => response["result"] = json!({"status": "Failed", "message": "no way"}),
        "/stranger" => response["uid"] = "another".into(),
        "/garbage" => return Reaction::Bytes(b"<html>".to_vec()),
        "/large" => return Reaction::Bytes(vec![b' '; 17 << 20]),
        "/hang" => return Reaction::Hang,
        _ => return Reaction::Redirect("/good"),
    }
    response["convertedObjects"] = objects.into();
    Reaction::Json(
        json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "response": response}),
    )
}

fn version(name: &str, storage: bool, properties: &Value) -> Value {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": properties},
        "status": {"type": "object", "properties": {"seen": {"type": "string"}}},
    }});
    json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}})
}

fn versions(stored: &str) -> Value {
    let text = json!({"type": "string"});
    json!([
        version("v1", stored == "v1", &json!({"hostPort": text})),
        version(
            "v2",
            stored == "v2",
            &json!({"host": text, "port": text, "protocol": {"type": "string", "default": "tcp"}})
        ),
    ])
}

struct World {
    http: Http,
    program: Program,
}

impl World {
    async fn start() -> World {
        let world = World { http: Cluster::start().await.http(), program: Program::start(&[], react).await };
        let definition = json!({"metadata": {"name": "hosts.convert.test"}, "spec": {
            "group": "convert.test", "scope": "Namespaced", "names": {"plural": "hosts", "kind": "Host"},
            "versions": versions("v1"), "conversion": world.conversion("/good"),
        }});
        let made = world.http.post(CRDS, &definition).await;
        assert_eq!(made.status, 201, "{}", made.json());
        world
    }

    fn conversion(&self, path: &str) -> Value {
        let url = format!("https://{}{path}", self.program.address);
        json!({"strategy": "Webhook", "webhook": {
            "conversionReviewVersions": ["v1"], "clientConfig": {"url": url, "caBundle": self.program.bundle},
        }})
    }

    async fn change(&self, spec: &Value) {
        let changed = self.http.merge(&format!("{CRDS}/hosts.convert.test"), &json!({"spec": spec})).await;
        assert_eq!(changed.status, 200, "{}", changed.json());
    }

    async fn create(&self, path: &str, name: &str, spec: Value) -> Value {
        let version = if path == V1 { "v1" } else { "v2" };
        let object = json!({
            "apiVersion": format!("convert.test/{version}"), "kind": "Host", "metadata": {"name": name}, "spec": spec,
        });
        let made = self.http.post(path, &object).await;
        assert_eq!(made.status, 201, "{}", made.json());
        made.json()
    }

    fn asked(&self) -> usize {
        self.program.asked.lock().len()
    }
}

#[tokio::test]
async fn objects_are_written_and_read_in_every_version() {
    let world = World::start().await;
    world.create(V1, "a", json!({"hostPort": "x:1"})).await;
    assert_eq!(world.asked(), 0, "nothing to convert in the stored version");
    let shown = world.http.get(&format!("{V2}/a")).await.json();
    assert_eq!(shown["apiVersion"], "convert.test/v2");
    assert_eq!(shown["spec"], json!({"host": "x", "port": "1", "protocol": "tcp"}));
    assert_eq!(shown["metadata"]["annotations"]["converted-to"], "convert.test/v2");

    let made = world.create(V2, "b", json!({"host": "y", "port": "2"})).await;
    assert_eq!(made["spec"], json!({"host": "y", "port": "2", "protocol": "tcp"}));
    let stored = world.http.get(&format!("{V1}/b")).await.json();
    assert_eq!(stored["spec"], json!({"hostPort": "y:2"}));

    let patched = world.http.merge(&format!("{V2}/a"), &json!({"spec": {"port": "9"}})).await;
    assert_eq!(patched.json()["spec"]["port"], "9", "{}", patched.json());
    let mut whole = world.http.get(&format!("{V2}/a")).await.json();
    whole["spec"]["host"] = "z".into();
    assert_eq!(world.http.put(&format!("{V2}/a"), &whole).await.status, 200);
    let status = world.http.merge(&format!("{V2}/a/status"), &json!({"status": {"seen": "yes"}})).await;
    assert_eq!(status.json()["status"]["seen"], "yes", "{}", status.json());
    let in_first = world.http.get(&format!("{V1}/a")).await.json();
    assert_eq!(
        (&in_first["spec"], &in_first["status"]),
        (&json!({"hostPort": "z:9"}), &json!({"seen": "yes"}))
    );
    assert_eq!(in_first["metadata"]["generation"], 3);

    let deleted = world.http.delete(&format!("{V2}/a")).await;
    assert_eq!(deleted.status, 200, "{}", deleted.json());
    assert_eq!(world.http.get(&format!("{V1}/a")).await.status, 404);
}

#[tokio::test]
async fn a_list_is_converted_in_one_review() {
    let world = World::start().await;
    for i in 0..20 {
        world.create(V1, &format!("a-{i:02}"), json!({"hostPort": format!("h:{i}")})).await;
    }
    let list = world.http.get(V2).await.json();
    assert_eq!(world.asked(), 1);
    assert_eq!(list["items"].as_array().unwrap().len(), 20);
    assert_eq!(list["items"][7]["spec"]["port"], "7");
    // After a change of the stored version, only what is stored in the old one is sent.
    world.change(&json!({"versions": versions("v2")})).await;
    world.create(V2, "new", json!({"host": "n", "port": "0"})).await;
    let before = world.asked();
    assert_eq!(world.http.get(V2).await.json()["items"].as_array().unwrap().len(), 21);
    let (_, review) = world.program.asked.lock().last().cloned().unwrap();
    assert_eq!((world.asked() - before, review["request"]["objects"].as_array().unwrap().len()), (1, 20));
    let stored = world.http.get(&format!("{CRDS}/hosts.convert.test")).await.json();
    assert_eq!(stored["status"]["storedVersions"], json!(["v1", "v2"]));
    assert_eq!(world.http.get(&format!("{V1}/new")).await.json()["spec"], json!({"hostPort": "n:0"}));
}

#[tokio::test]
async fn a_watch_shows_converted_objects() {
    let world = World::start().await;
    world.create(V1, "a", json!({"hostPort": "x:1"})).await;
    let mut events =
        world.http.watch(&format!("{V2}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")).await;
    let first = events.next().await.unwrap();
    assert_eq!((&first["type"], &first["object"]["spec"]["host"]), (&json!("ADDED"), &json!("x")));
    let end = events.next().await.unwrap();
    assert_eq!(end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    world.create(V2, "b", json!({"host": "y", "port": "2"})).await;
    let added = events.next().await.unwrap();
    assert_eq!((&added["type"], &added["object"]["spec"]["port"]), (&json!("ADDED"), &json!("2")));
    assert_eq!(world.http.delete(&format!("{V1}/b")).await.status, 200);
    let gone = events.next().await.unwrap();
    assert_eq!(
        (&gone["type"], &gone["object"]["apiVersion"]),
        (&json!("DELETED"), &json!("convert.test/v2"))
    );
    // A watch that cannot convert says so and ends.
    world.change(&json!({"conversion": world.conversion("/refuse")})).await;
    world.create(V1, "c", json!({"hostPort": "z:3"})).await;
    let error = events.next().await.unwrap();
    assert_eq!((&error["type"], &error["object"]["code"]), (&json!("ERROR"), &json!(500)), "{error}");
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn managers_own_fields_in_several_versions() {
    let world = World::start().await;
    let apply = |path: &str, manager: &str, config: Value| {
        let path = format!("{path}/a?fieldManager={manager}");
        let http = world.http.clone();
        async move {
            let content = [("content-type", "application/apply-patch+yaml")];
            http.send("PATCH", &path, &content, config.to_string()).await
        }
    };
    let config = |version: &str, spec: Value| json!({"apiVersion": format!("convert.test/{version}"), "kind": "Host", "metadata": {"name": "a"}, "spec": spec});
    let made = apply(V1, "one", config("v1", json!({"hostPort": "x:1"}))).await;
    assert_eq!(made.status, 201, "{}", made.json());
    let again = apply(V1, "one", config("v1", json!({"hostPort": "x:1"}))).await.json();
    assert_eq!(again["metadata"]["resourceVersion"], made.json()["metadata"]["resourceVersion"]);
    // What the other version calls `port` is part of what the first manager owns.
    let conflict = apply(V2, "two", config("v2", json!({"port": "2"}))).await;
    assert_eq!(conflict.status, 409, "{}", conflict.json());
    let forced = world
        .http
        .send(
            "PATCH",
            &format!("{V2}/a?fieldManager=two&force=true"),
            &[("content-type", "application/apply-patch+yaml")],
            config("v2", json!({"port": "2"})).to_string(),
        )
        .await;
    assert_eq!(forced.status, 200, "{}", forced.json());
    assert_eq!(forced.json()["spec"], json!({"host": "x", "port": "2", "protocol": "tcp"}));
    let entries = forced.json()["metadata"]["managedFields"].clone();
    let two = entries.as_array().unwrap().iter().find(|e| e["manager"] == "two").unwrap();
    assert_eq!(
        (&two["apiVersion"], &two["fieldsV1"]),
        (&json!("convert.test/v2"), &json!({"f:spec": {"f:port": {}}}))
    );
    assert_eq!(world.http.get(&format!("{V1}/a")).await.json()["spec"], json!({"hostPort": "x:2"}));
}

#[tokio::test]
async fn webhooks_that_misbehave_fail_the_request() {
    let world = World::start().await;
    world.create(V1, "a", json!({"hostPort": "x:1"})).await;
    for (path, told) in [
        ("/rename", "must have the same name: a != other"),
        ("/uid", "must have the same UID"),
        ("/kind", "invalid kind (expected Host, received Other)"),
        ("/version", "invalid groupVersion (expected convert.test/v2, received convert.test/v9)"),
        ("/label", "metadata.labels"),
        ("/fewer", "returned 0 objects, expected 1"),
        ("/refuse", "conversion webhook for convert.test/v1, Kind=Host failed: no way"),
        ("/stranger", "expected response.uid="),
        ("/garbage", "not JSON"),
        ("/large", "the answer is above"),
        ("/redirect", "302"),
    ] {
        world.change(&json!({"conversion": world.conversion(path)})).await;
        for failed in [world.http.get(&format!("{V2}/a")).await, world.http.get(V2).await] {
            let status = failed.json();
            assert_eq!((failed.status.as_u16(), &status["reason"]), (500, &json!("InternalError")), "{path}");
            assert!(status["message"].as_str().unwrap().contains(told), "{path}: {status}");
        }
        assert_eq!(
            world.http.get(&format!("{V1}/a")).await.status,
            200,
            "the stored version needs no webhook"
        );
    }
    world.change(&json!({"conversion": world.conversion("/hang")})).await;
    // From here on, waiting takes no time.
    tokio::time::pause();
    let failed = world.http.get(&format!("{V2}/a")).await;
    assert_eq!(failed.status, 500);
    assert!(failed.json()["message"].as_str().unwrap().contains("deadline exceeded"), "{}", failed.json());
    world.change(&json!({"conversion": {"strategy": "None", "webhook": null}})).await;
    assert_eq!(world.http.get(&format!("{V2}/a")).await.json()["spec"], json!({"protocol": "tcp"}));
}

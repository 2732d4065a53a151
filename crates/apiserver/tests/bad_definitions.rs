//! Definitions and expressions that want to break the server, and changes of definitions that would orphan objects.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use serde_json::{Value, json};
use shoal_testkit::{Answer, Cluster, Http, eventually};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const THINGS: &str = "/apis/x.test/v1/namespaces/default/things";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";
/// Nothing that a client sends may keep the server busy for longer, even in a build for tests.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long this thread has been computing, server included: other work on the machine does not count.
fn busy() -> Duration {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(times.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or_default())
}

fn version(name: &str, storage: bool, schema: &Value) -> Value {
    json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema}})
}

fn definition(versions: &Value) -> Value {
    json!({"metadata": {"name": "things.x.test"}, "spec": {
        "group": "x.test", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"}, "versions": versions,
    }})
}

fn with_spec(spec: &Value) -> Value {
    json!({"type": "object", "properties": {"spec": spec}})
}

fn thing(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "x.test/v1", "kind": "Thing", "metadata": {"name": name}, "spec": spec})
}

/// Defines things with this schema of their spec.
async fn define(http: &Http, spec: &Value) -> Answer {
    http.post(CRDS, &definition(&json!([version("v1", true, &with_spec(spec))]))).await
}

async fn undefine(http: &Http) {
    http.delete(&format!("{CRDS}/things.x.test")).await;
    eventually("the definition is gone", async || {
        (http.get(&format!("{CRDS}/things.x.test")).await.status == 404).then_some(())
    })
    .await;
}

#[tokio::test]
async fn large_and_recursive_schemas_are_bounded() {
    let http = Cluster::start().await.http();
    let begun = busy();
    let field = json!({"type": "string", "description": "d".repeat(100)});
    let wide: Value = (0..8_000).map(|i| (format!("field{i}"), field.clone())).collect();
    let wide = json!({"type": "object", "properties": wide});
    assert!(wide.to_string().len() > 1_000_000);
    let made = define(&http, &wide).await;
    assert_eq!(made.status, 201);
    assert_eq!(http.post(THINGS, &thing("a", &json!({"field7": "x", "unknown": "y"}))).await.status, 201);
    assert_eq!(http.get("/openapi/v3/apis/x.test/v1").await.status, 200);
    undefine(&http).await;
    for recursive in [
        json!({"type": "object", "$ref": "#/properties/spec"}),
        json!({"type": "object", "properties": {"a": {"$ref": "#"}}}),
        json!({"type": "array", "items": {"$ref": "#/definitions/x"}}),
    ] {
        assert_eq!(define(&http, &recursive).await.status, 422, "{recursive}");
    }
    assert!(busy() - begun < PATIENCE);
}

#[tokio::test]
async fn patterns_cannot_keep_the_server_busy() {
    let http = Cluster::start().await.http();
    let begun = busy();
    let long = format!("{}!", "a".repeat(1_000_000));
    for pattern in ["^(a+)+$", "^(a|a)*$", "^(a|aa)+$", "(.*a){20}$", "^([a-zA-Z]+)*$"] {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}});
        let made = define(&http, &schema).await;
        assert!(made.status == 201 || made.status == 422, "{pattern}: {}", made.status);
        if made.status == 201 {
            let answer = http.post(THINGS, &thing("a", &json!({"a": long}))).await;
            assert!(answer.status == 422 || answer.status == 201, "{pattern}: {}", answer.status);
            undefine(&http).await;
        }
    }
    assert!(busy() - begun < PATIENCE, "{:?}", busy() - begun);
}

#[tokio::test]
async fn rules_that_cost_too_much_are_refused_when_written_or_when_they_run() {
    let http = Cluster::start().await.http();
    let begun = busy();
    let text = json!({"type": "string"});
    let list = json!({"type": "array", "items": text});
    let properties = json!({"l": list, "s": text, "p": text});
    let bombs = [
        "self.l.all(a, self.l.all(b, self.l.all(c, self.l.all(d, a + b + c + d != 'x'))))",
        "self.l.map(a, self.l.map(b, self.l.map(c, a + b + c))).size() > 0",
        "self.l.map(a, self.s + self.s + self.s + self.s).map(a, a + a + a + a).map(a, a + a + a + a).size() > 0",
        "self.s.matches('^(a+)+$')",
        "self.s.matches(self.p)",
        "self.l.all(a, self.s.matches(a))",
        "self.s.split('').map(c, self.s.split('').map(d, c + d)).size() > 0",
        "self.s.replace('a', self.s).size() > 0",
        "self.l.all(a, self.s.replace('a', self.s).contains(a))",
    ];
    let spec = json!({"l": vec!["aaaaaaaaaa"; 2_000], "s": "a".repeat(20_000), "p": "(a{1000}){1000}"});
    for rule in bombs {
        let schema =
            json!({"type": "object", "properties": properties, "x-kubernetes-validations": [{"rule": rule}]});
        let made = define(&http, &schema).await;
        assert!(made.status == 201 || made.status == 422, "{rule}: {}", made.json());
        if made.status == 201 {
            let one = busy();
            let answer = http.post(THINGS, &thing("a", &spec)).await;
            assert!(answer.status == 422 || answer.status == 201, "{rule}: {}", answer.status);
            assert!(busy() - one < PATIENCE / 4, "{rule}: {:?}", busy() - one);
            undefine(&http).await;
        }
    }
    let deep = format!("{}true{}", "(".repeat(5_000), ")".repeat(5_000));
    let long = vec!["true"; 30_000].join(" && ");
    let nested = format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000));
    for rule in [deep, long, nested, "!".repeat(50_000)] {
        let schema = json!({"type": "object", "x-kubernetes-validations": [{"rule": rule}]});
        let answer = define(&http, &schema).await;
        assert!(answer.status == 422 || answer.status == 201, "{rule:.40}: {}", answer.status);
        if answer.status == 201 {
            undefine(&http).await;
        }
    }
    assert!(busy() - begun < PATIENCE * 2, "{:?}", busy() - begun);
}

#[tokio::test]
async fn policies_that_cost_too_much_end_by_their_failure_policy() {
    let http = Cluster::start().await.http();
    let begun = busy();
    let constraints = json!({"resourceRules": [{
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"],
    }]});
    // Each variable is twice as long as the one before.
    let mut variables = vec![json!({"name": "v0", "expression": "'aaaaaaaaaaaaaaaa'"})];
    for i in 1..60 {
        let expression = format!("variables.v{} + variables.v{}", i - 1, i - 1);
        variables.push(json!({"name": format!("v{i}"), "expression": expression}));
    }
    let numbers: Vec<String> = (0..500).map(|i| i.to_string()).collect();
    let range = format!("[{}]", numbers.join(","));
    let nested = format!("{range}.all(a, {range}.all(b, {range}.all(c, a + b + c >= 0)))");
    for (name, expression) in [
        ("concat", "variables.v59.size() > 0"),
        ("nested", nested.as_str()),
        ("regex", "object.data.s.matches('(x+x+)+y')"),
    ] {
        let spec = json!({"matchConstraints": constraints, "variables": variables, "validations": [{"expression": expression}]});
        let policy = json!({"metadata": {"name": name}, "spec": spec});
        let made = http.post(&format!("{REGISTRATION}/validatingadmissionpolicies"), &policy).await;
        assert_eq!(made.status, 201, "{}", made.json());
        let binding =
            json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}});
        let bindings = format!("{REGISTRATION}/validatingadmissionpolicybindings");
        assert_eq!(http.post(&bindings, &binding).await.status, 201);
        let map = json!({"metadata": {"name": "m"}, "data": {"s": "x".repeat(100_000)}});
        let refused = http.post(MAPS, &map).await;
        assert_eq!((refused.status.as_u16(), &refused.json()["kind"]), (422, &json!("Status")), "{name}");
        assert_eq!(http.delete(&format!("{bindings}/{name}")).await.status, 200);
    }
    // The same for what would grow an object without bound.
    let grow = "[JSONPatch{op: 'add', path: '/data/big', value: variables.v59}]";
    let spec = json!({
        "matchConstraints": constraints, "variables": variables, "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": grow}}],
    });
    let policy = json!({"metadata": {"name": "grow"}, "spec": spec});
    assert_eq!(http.post(&format!("{REGISTRATION}/mutatingadmissionpolicies"), &policy).await.status, 201);
    let binding = json!({"metadata": {"name": "grow"}, "spec": {"policyName": "grow"}});
    assert_eq!(
        http.post(&format!("{REGISTRATION}/mutatingadmissionpolicybindings"), &binding).await.status,
        201
    );
    assert_eq!(http.post(MAPS, &json!({"metadata": {"name": "m"}, "data": {}})).await.status, 403);
    assert!(busy() - begun < PATIENCE, "{:?}", busy() - begun);
}

#[tokio::test]
async fn changes_that_would_orphan_objects_are_refused() {
    let http = Cluster::start().await.http();
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let versions = json!([version("v1", true, &with_spec(&open)), version("v2", false, &with_spec(&open))]);
    assert_eq!(http.post(CRDS, &definition(&versions)).await.status, 201);
    assert_eq!(http.post(THINGS, &thing("a", &json!({"x": 1}))).await.status, 201);
    let path = format!("{CRDS}/things.x.test");
    let refuse = async |patch: Value, field: &str| {
        let refused = http.merge(&path, &patch).await;
        let status = refused.json();
        assert_eq!(refused.status, 422, "{status}");
        let causes = status["details"]["causes"].as_array().unwrap().clone();
        assert!(causes.iter().any(|c| c["field"].as_str().unwrap().starts_with(field)), "{field}: {status}");
    };
    let only = |name: &str| json!({"spec": {"versions": [version(name, true, &with_spec(&open))]}});
    refuse(only("v2"), "status.storedVersions").await;
    refuse(json!({"spec": {"scope": "Cluster"}}), "spec.scope").await;
    refuse(json!({"spec": {"group": "y.test"}}), "spec.group").await;
    refuse(json!({"spec": {"names": {"plural": "others"}}}), "spec.names.plural").await;
    refuse(json!({"spec": {"names": {"kind": "Other"}}}), "spec.names.kind").await;
    refuse(json!({"spec": {"versions": []}}), "spec.versions").await;
    refuse(json!({"status": {"storedVersions": []}, "spec": {"versions": []}}), "spec.versions").await;
    // Once what is stored in it has been moved, a version can go.
    let moved = json!([version("v1", false, &with_spec(&open)), version("v2", true, &with_spec(&open))]);
    assert_eq!(http.merge(&path, &json!({"spec": {"versions": moved}})).await.status, 200);
    refuse(only("v2"), "status.storedVersions").await;
    let shown = http.get(&format!("{THINGS}/a")).await.json();
    assert_eq!(http.put(&format!("{THINGS}/a"), &shown).await.status, 200);
    let stored = json!({"status": {"storedVersions": ["v2"]}});
    assert_eq!(http.merge(&format!("{path}/status"), &stored).await.status, 200);
    assert_eq!(http.merge(&path, &only("v2")).await.status, 200);
    let other = "/apis/x.test/v2/namespaces/default/things/a";
    assert_eq!(http.get(other).await.json()["spec"], json!({"x": 1}));
    assert_eq!(http.get(&format!("{THINGS}/a")).await.status, 404);
}

#[tokio::test]
async fn a_stricter_schema_leaves_old_faults_alone_until_they_are_touched() {
    let http = Cluster::start().await.http();
    let any = json!({"type": "string"});
    let schema = json!({"type": "object", "properties": {"a": any, "b": any}});
    assert_eq!(define(&http, &schema).await.status, 201);
    assert_eq!(http.post(THINGS, &thing("a", &json!({"a": "long value", "b": "x"}))).await.status, 201);
    let strict = json!({"type": "object", "properties": {"a": {"type": "string", "maxLength": 3}, "b": any}});
    let patch = json!({"spec": {"versions": [version("v1", true, &with_spec(&strict))]}});
    assert_eq!(http.merge(&format!("{CRDS}/things.x.test"), &patch).await.status, 200);
    let path = format!("{THINGS}/a");
    assert_eq!(
        http.merge(&path, &json!({"spec": {"b": "y"}})).await.status,
        200,
        "the fault was there before"
    );
    assert_eq!(http.merge(&path, &json!({"spec": {"a": "another long value"}})).await.status, 422);
    assert_eq!(http.post(THINGS, &thing("b", &json!({"a": "long value"}))).await.status, 422);
    assert_eq!(http.merge(&path, &json!({"spec": {"a": "ok"}})).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_object_outlives_its_definition() {
    let http = Cluster::start().await.http();
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    for round in 0..10 {
        assert_eq!(define(&http, &open).await.status, 201, "round {round}");
        let writers: Vec<_> = (0..8)
            .map(|writer| {
                let http = http.clone();
                tokio::spawn(async move {
                    for i in 0..10_000 {
                        // Requests within the process never wait, so others would never have their turn.
                        tokio::task::yield_now().await;
                        let made = http.post(THINGS, &thing(&format!("t-{writer}-{i}"), &json!({}))).await;
                        match made.status.as_u16() {
                            201 => {}
                            403 | 404 => return,
                            other => unreachable!("{other} {}", made.json()),
                        }
                    }
                })
            })
            .collect();
        eventually("something is written", async || {
            (http.get(THINGS).await.json()["items"].as_array()?.len() > 20).then_some(())
        })
        .await;
        undefine(&http).await;
        for writer in writers {
            writer.await.unwrap();
        }
        assert_eq!(define(&http, &open).await.status, 201);
        let left = http.get(THINGS).await.json();
        assert_eq!(left["items"].as_array().unwrap().len(), 0, "round {round}: {left}");
        undefine(&http).await;
    }
}

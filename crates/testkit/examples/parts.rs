//! Measures parts of the server by themselves, for `cargo xtask bench apiserver`: prints `name value` lines.
//!
//! The argument is a file with a Deployment. Times are CPU times of this thread; of several runs the best one counts,
//! because others use the machine too. With a second argument only that part is run, for profilers.

use std::hint::black_box;
use std::time::Duration;

use serde_json::{Value, json};
use shoal_apiserver::cel::rules::{CompiledRules, validate_rules};
use shoal_apiserver::{builtin, decode, protobuf};
use shoal_objects::managed_fields::{self, Config, Reach, Schema, Writer, read_object};
use shoal_objects::{Errors, Path, Timestamp};
use shoal_testkit::Cluster;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const RUNS: usize = 15;
const REQUESTS: usize = 2_000;
const WARM_UP: usize = 20;
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/default/deployments/web-1?fieldManager=bench";
const WIDGETS: &str = "/apis/shop.example.com/v1/namespaces/default/widgets/web?fieldManager=bench";
const APPLY: (&str, &str) = ("content-type", "application/apply-patch+yaml");

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().expect("the file of a Deployment");
    let text = std::fs::read_to_string(file).expect("a readable file");
    let deployment: Value = serde_json::from_str(&text.replace('@', "1")).expect("JSON");
    let only = arguments.next().unwrap_or_default();
    let wanted = |part: &str| only.is_empty() || only == part;
    if wanted("cel") {
        cel();
    }
    if wanted("protobuf") {
        transcode(&deployment);
    }
    if wanted("algebra") {
        algebra(&deployment).await;
    }
    if ["unchanged", "changed", "removed"].contains(&only.as_str()) {
        let bodies = [deployment.clone(), next(&deployment, &only)];
        println!("{only} {:.1}", requests(&Cluster::start().await, DEPLOYMENT, &bodies).await);
    }
    if only == "labelled" {
        labelled(&deployment).await;
    }
}

/// The best time of one call in microseconds.
fn best(calls: u32, mut call: impl FnMut()) -> f64 {
    let mut run = || {
        let before = cpu();
        (0..calls).for_each(|_| call());
        (cpu() - before).as_secs_f64() * 1e6 / f64::from(calls)
    };
    (0..RUNS).map(|_| run()).fold(f64::INFINITY, f64::min)
}

/// CPU time of this thread.
fn cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
    Duration::from_nanos(nanos)
}

/// A schema with one rule for its spec.
fn compiled(rule: &str) -> CompiledRules {
    let schema = json!({"type": "object", "properties": {"spec": {
        "type": "object",
        "x-kubernetes-validations": [{"rule": rule}],
        "properties": {
            "replicas": {"type": "integer"}, "min": {"type": "integer"}, "max": {"type": "integer"},
            "mode": {"type": "string"}, "host": {"type": "string"},
            "numbers": {"type": "array", "items": {"type": "integer"}},
            "ports": {"type": "array", "items": {"type": "object", "properties": {"port": {"type": "integer"}}}},
        },
    }}});
    CompiledRules::compile(&schema, &Path::new("openAPIV3Schema")).expect(rule)
}

fn cel() {
    let typical = [
        "self.min <= self.replicas && self.replicas <= self.max",
        "!has(self.mode) || self.mode in ['Active', 'Standby']",
        "has(self.host) ? self.host.endsWith('.example.com') : self.mode == 'Standby'",
        "self.ports.all(p, p.port > 0 && p.port < 65536)",
    ];
    let object = json!({"spec": {"min": 1, "replicas": 3, "max": 9, "mode": "Active", "host": "a.example.com",
        "ports": [{"port": 80}, {"port": 443}]}});
    let mut sum = 0.0;
    for rule in typical {
        let rules = compiled(rule);
        sum += best(20_000, || {
            let mut errors = Errors::new();
            validate_rules(black_box(&rules), black_box(&object), None, &mut errors);
            assert!(errors.is_empty(), "{rule}: {errors}");
        });
    }
    println!("cel_rule_us {:.3}", sum / typical.len() as f64);

    let hostile = [
        "self.numbers.all(a, self.numbers.all(b, self.numbers.all(c, a + b + c >= 0)))",
        "self.numbers.all(x, (self.host + self.host).size() > 0)",
        "self.numbers.all(x, !self.host.matches('(a*)*b' + string(x)))",
    ];
    let numbers: Vec<u32> = (0..2_000).collect();
    let object = json!({"spec": {"numbers": numbers, "host": "a".repeat(50_000)}});
    let mut worst: f64 = 0.0;
    for rule in hostile {
        let rules = compiled(rule);
        let time = best(1, || {
            let mut errors = Errors::new();
            validate_rules(black_box(&rules), black_box(&object), None, &mut errors);
            assert!(errors.to_string().contains("cost exceeds limit"), "{rule}: {errors}");
        });
        worst = worst.max(time);
    }
    println!("cel_hostile_ms {:.3}", worst / 1e3);
}

/// From a whole request body in protobuf to the JSON value that all further steps work on.
fn transcode(deployment: &Value) {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": deployment["metadata"],
        "spec": deployment["spec"]["template"]["spec"]});
    pod["metadata"]["name"] = "web-5d8f7c9b6d-x2x4z".into();
    let (mut bytes, mut time) = (0.0, 0.0);
    for object in [&pod, deployment] {
        let text = |field: &str| object[field].as_str().unwrap_or_default();
        let body =
            protobuf::encode_response(text("apiVersion"), text("kind"), object).expect("a built-in kind");
        time += best(2_000, || {
            black_box(protobuf::decode_request(black_box(&body)).expect("a body"));
        });
        bytes += body.len() as f64;
    }
    println!("protobuf_mb_s {:.1}", bytes / time);
}

/// What is applied next: another image, or one variable less.
fn next(deployment: &Value, part: &str) -> Value {
    let mut next = deployment.clone();
    let web = &mut next["spec"]["template"]["spec"]["containers"][0];
    if part == "changed" {
        web["image"] = "registry.example.com/shop/web:1.2.4".into();
    } else if part == "removed"
        && let Some(variables) = web["env"].as_array_mut()
    {
        variables.remove(1);
    }
    next
}

/// Applies to a Deployment as it is stored, without request, defaults, validation and store.
async fn algebra(deployment: &Value) {
    let cluster = Cluster::start().await;
    let stored = cluster.http().send("PATCH", DEPLOYMENT, &[APPLY], deployment.to_string()).await;
    let stored = stored.json().to_string();
    let (mut live, entries) = read_object(stored.as_bytes()).expect("an object");
    let root = builtin::type_of("apps", "v1", "Deployment");
    let types = builtin::types();
    decode::conform(types, root.expect("a type"), &mut live).expect("a Deployment");
    let writer = Writer {
        manager: "bench",
        api_version: "apps/v1",
        subresource: "",
        reach: Reach::Body,
        now: Timestamp(0),
        schema: Schema { types, root },
        convert: &|_, _| None,
    };
    for part in ["unchanged", "changed", "removed"] {
        let config = next(deployment, part);
        let time = best(500, || {
            let config = Config::new(&writer, &config).expect("a configuration");
            if !config.is_in_effect(&writer, &entries, &live) {
                let applied = managed_fields::apply(&writer, &entries, &live, config, false);
                black_box(applied.expect("no conflict"));
            }
        });
        println!("{part}_us {time:.1}");
    }
}

/// Whole requests, without sockets: microseconds for each.
async fn requests(cluster: &Cluster, path: &str, bodies: &[Value; 2]) -> f64 {
    let http = cluster.http();
    let bodies = bodies.each_ref().map(Value::to_string);
    let mut before = cpu();
    for turn in 0..WARM_UP + REQUESTS {
        if turn == WARM_UP {
            before = cpu();
        }
        let answer = http.send("PATCH", path, &[APPLY], bodies[turn % 2].clone()).await;
        assert!(answer.status.is_success(), "{:?}", answer.json());
    }
    (cpu() - before).as_secs_f64() * 1e6 / REQUESTS as f64
}

/// What operators apply, with a label that comes and goes: the long way.
async fn labelled(deployment: &Value) {
    let cluster = Cluster::start().await;
    let labels = &deployment["metadata"]["labels"];
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "labels": labels}, "spec": {
        "selector": {"app.kubernetes.io/name": "web"},
        "ports": [{"name": "http", "port": 80, "targetPort": "http"}, {"name": "metrics", "port": 9090}],
    }});
    let spec = &deployment["spec"];
    let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "web", "labels": labels},
        "spec": {"replicas": 3, "serviceName": "web", "selector": spec["selector"], "template": spec["template"]}});
    let widget = json!({"apiVersion": "shop.example.com/v1", "kind": "Widget",
        "metadata": {"name": "web", "labels": labels}, "spec": {"template": spec["template"], "replicas": 3}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.shop.example.com"}, "spec": {
        "group": "shop.example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"spec": {"type": "object", "properties": {
                "replicas": {"type": "integer"},
                "template": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            }}},
        }}}],
    }});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    cluster.http().send("POST", definitions, &[], definition.to_string()).await;
    let cases = [
        ("service", "/api/v1/namespaces/default/services/web?fieldManager=bench", service),
        ("stateful_set", "/apis/apps/v1/namespaces/default/statefulsets/web?fieldManager=bench", set),
        ("widget", WIDGETS, widget),
    ];
    for (name, path, object) in cases {
        let mut next = object.clone();
        next["metadata"]["labels"]["shop.example.com/stage"] = "canary".into();
        println!("labelled_{name} {:.1}", requests(&cluster, path, &[object, next]).await);
    }
}

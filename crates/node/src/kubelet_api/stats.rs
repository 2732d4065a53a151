//! What pods use: `/stats/summary`, `/metrics/resource`, `/pods`.

use std::fmt::Write as _;
use std::sync::Arc;

use http::{Response, StatusCode};
use serde_json::{Value, json};
use shoal_objects::Timestamp;

use super::answer::{Answer, json as json_answer, typed};
use crate::agent::Node;
use crate::limits::cgroup::Cgroup;
use crate::pod::status::time;
use crate::pod::worker::View;
use crate::usage::{Processes, Usage, machine};

/// A container that runs, since when, and what it uses.
struct Measured {
    name: String,
    since: Timestamp,
    usage: Usage,
}

fn measured(node: &Node) -> Vec<(Arc<View>, Vec<Measured>)> {
    let all = Processes::look();
    let mut views: Vec<Arc<View>> = node.pods.lock().values().cloned().collect();
    views.sort_by_key(|view| view.pod.borrow().metadata.name.clone());
    let of_view = |view: Arc<View>| {
        let of_run = |(name, run): (&String, &Arc<crate::pod::container::Run>)| Measured {
            name: name.clone(),
            since: run.since,
            usage: run.cgroup.as_ref().and_then(Cgroup::usage).unwrap_or_else(|| all.below(run.pid)),
        };
        let mut usages: Vec<Measured> = view.runs.lock().iter().map(of_run).collect();
        usages.sort_by(|a, b| a.name.cmp(&b.name));
        (view, usages)
    };
    views.into_iter().map(of_view).collect()
}

pub fn pods(node: &Node) -> Response<Answer> {
    let mut items: Vec<Value> = Vec::new();
    for view in node.pods.lock().values() {
        items.extend(serde_json::to_value(&**view.pod.borrow()).ok());
    }
    json_answer(&json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}))
}

fn names(view: &View) -> (String, String, String) {
    let pod = view.pod.borrow();
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    (text(&pod.metadata.namespace), text(&pod.metadata.name), text(&pod.metadata.uid))
}

pub fn summary(node: &Node) -> Response<Answer> {
    let now = time(node.clock.now());
    let shown = |since: &Value, usage: Usage| {
        json!({
            "startTime": since,
            "cpu": {"time": now, "usageCoreNanoSeconds": usage.cpu},
            "memory": {
                "time": now, "workingSetBytes": usage.memory, "usageBytes": usage.memory, "rssBytes": usage.memory,
            },
        })
    };
    let mut pods = Vec::new();
    for (view, usages) in measured(node) {
        let (namespace, name, uid) = names(&view);
        let containers = usages.iter().map(|one| {
            let mut shown = shown(&json!(time(one.since)), one.usage);
            shown["name"] = one.name.as_str().into();
            shown
        });
        let containers: Vec<Value> = containers.collect();
        let since = usages.iter().map(|one| one.since).min().map(time);
        let mut pod = shown(&json!(since), usages.iter().map(|one| one.usage).sum());
        pod["podRef"] = json!({"name": name, "namespace": namespace, "uid": uid});
        pod["containers"] = containers.into();
        pods.push(pod);
    }
    let mut whole = shown(&json!(time(node.since)), machine());
    whole["nodeName"] = node.name.as_str().into();
    json_answer(&json!({"node": whole, "pods": pods}))
}

/// As Prometheus reads it, with the names and labels of kubelets.
pub fn resource_metrics(node: &Node) -> Response<Answer> {
    let mut out = String::new();
    let all = measured(node);
    let at = node.clock.now().0 / 1000;
    let seconds = |usage: Usage| usage.cpu as f64 / 1e9;
    type Shown = fn(&Measured) -> f64;
    let kinds: [(&str, &str, Shown); 3] = [
        ("container_cpu_usage_seconds_total", "counter", |one| one.usage.cpu as f64 / 1e9),
        ("container_memory_working_set_bytes", "gauge", |one| one.usage.memory as f64),
        ("container_start_time_seconds", "gauge", |one| one.since.0 as f64 / 1e6),
    ];
    for (name, kind, shown) in kinds {
        let _ = writeln!(out, "# TYPE {name} {kind}");
        for (view, usages) in &all {
            let (namespace, pod, _) = names(view);
            for one in usages {
                let labels = format!("container={:?},namespace={namespace:?},pod={pod:?}", one.name);
                let _ = writeln!(out, "{name}{{{labels}}} {} {at}", shown(one));
            }
        }
    }
    let whole = machine();
    let _ = writeln!(out, "# TYPE node_cpu_usage_seconds_total counter");
    let _ = writeln!(out, "node_cpu_usage_seconds_total {} {at}", seconds(whole));
    let _ = writeln!(out, "# TYPE node_memory_working_set_bytes gauge");
    let _ = writeln!(out, "node_memory_working_set_bytes {} {at}", whole.memory);
    out.push_str("# TYPE resource_scrape_error gauge\nresource_scrape_error 0\n");
    typed(StatusCode::OK, "text/plain; version=0.0.4", out)
}

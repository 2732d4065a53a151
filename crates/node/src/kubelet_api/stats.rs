//! What pods use, from `/proc`: `/stats/summary`, `/metrics/resource`, `/pods`.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::answer::{Answer, json as json_answer, typed};
use crate::agent::Node;
use crate::pod::status::time;
use crate::pod::worker::View;

/// CPU time in nanoseconds and memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub cpu: u64,
    pub memory: u64,
}

/// Every process: its parent and what it uses.
fn processes() -> HashMap<i32, (i32, Usage)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
    let tick = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    numbers
        .filter_map(|pid| {
            let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            parse_stat(&text, page, tick).map(|found| (pid, found))
        })
        .collect()
}

/// The name of a command may hold anything, so fields count from its last parenthesis.
fn parse_stat(text: &str, page: u64, tick: u64) -> Option<(i32, Usage)> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
    let parent = fields.get(1)?.parse().ok()?;
    // Its own time and that of children that it has waited for.
    let ticks: u64 = (11..=14).filter_map(number).sum();
    Some((parent, Usage { cpu: ticks.saturating_mul(tick), memory: number(21)?.saturating_mul(page) }))
}

/// What a process and everything below it use.
fn below(all: &HashMap<i32, (i32, Usage)>, root: i32) -> Usage {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for (pid, (parent, _)) in all {
        children.entry(*parent).or_default().push(*pid);
    }
    let (mut total, mut left) = (Usage::default(), vec![root]);
    while let Some(pid) = left.pop() {
        if let Some((_, usage)) = all.get(&pid) {
            total.cpu += usage.cpu;
            total.memory += usage.memory;
        }
        left.extend(children.remove(&pid).unwrap_or_default());
    }
    total
}

/// A pod and what each of its containers uses.
type Measured = (Arc<View>, Vec<(String, Usage)>);

fn measured(node: &Node) -> Vec<Measured> {
    let all = processes();
    let mut views: Vec<Arc<View>> = node.pods.lock().values().cloned().collect();
    views.sort_by_key(|view| view.pod.borrow().metadata.name.clone());
    let of_view = |view: Arc<View>| {
        let mut usages: Vec<(String, Usage)> =
            view.runs.lock().iter().map(|(name, run)| (name.clone(), below(&all, run.pid))).collect();
        usages.sort_by(|a, b| a.0.cmp(&b.0));
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
    let shown = |usage: &Usage| {
        (
            json!({"time": now, "usageCoreNanoSeconds": usage.cpu}),
            json!({"time": now, "workingSetBytes": usage.memory, "usageBytes": usage.memory, "rssBytes": usage.memory}),
        )
    };
    let mut whole = Usage::default();
    let mut pods = Vec::new();
    for (view, usages) in measured(node) {
        let (namespace, name, uid) = names(&view);
        let mut total = Usage::default();
        let containers: Vec<Value> = usages
            .iter()
            .map(|(name, usage)| {
                total.cpu += usage.cpu;
                total.memory += usage.memory;
                let (cpu, memory) = shown(usage);
                json!({"name": name, "startTime": now, "cpu": cpu, "memory": memory})
            })
            .collect();
        whole.cpu += total.cpu;
        whole.memory += total.memory;
        let (cpu, memory) = shown(&total);
        let about = json!({"name": name, "namespace": namespace, "uid": uid});
        pods.push(json!({"podRef": about, "startTime": now, "containers": containers, "cpu": cpu, "memory": memory}));
    }
    let (cpu, memory) = shown(&whole);
    json_answer(
        &json!({"node": {"nodeName": node.name, "startTime": now, "cpu": cpu, "memory": memory}, "pods": pods}),
    )
}

pub fn resource_metrics(node: &Node) -> Response<Answer> {
    let mut out = String::new();
    let all = measured(node);
    let seconds = |usage: Usage| usage.cpu as f64 / 1e9;
    out.push_str("# TYPE container_cpu_usage_seconds_total counter\n");
    for (view, usages) in &all {
        let (namespace, pod, _) = names(view);
        for (name, usage) in usages {
            let labels = format!("container={name:?},namespace={namespace:?},pod={pod:?}");
            let _ = writeln!(out, "container_cpu_usage_seconds_total{{{labels}}} {}", seconds(*usage));
        }
    }
    out.push_str("# TYPE container_memory_working_set_bytes gauge\n");
    for (view, usages) in &all {
        let (namespace, pod, _) = names(view);
        for (name, usage) in usages {
            let labels = format!("container={name:?},namespace={namespace:?},pod={pod:?}");
            let _ = writeln!(out, "container_memory_working_set_bytes{{{labels}}} {}", usage.memory);
        }
    }
    let total = all.iter().flat_map(|(_, usages)| usages).fold(Usage::default(), |sum, (_, usage)| Usage {
        cpu: sum.cpu + usage.cpu,
        memory: sum.memory + usage.memory,
    });
    let _ = writeln!(
        out,
        "# TYPE node_cpu_usage_seconds_total counter\nnode_cpu_usage_seconds_total {}",
        seconds(total)
    );
    let _ = writeln!(
        out,
        "# TYPE node_memory_working_set_bytes gauge\nnode_memory_working_set_bytes {}",
        total.memory
    );
    out.push_str("# TYPE resource_scrape_error gauge\nresource_scrape_error 0\n");
    typed(StatusCode::OK, "text/plain; version=0.0.4", out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_confuse_the_fields() {
        let text = "7 (a) b (c) S 3 7 7 0 -1 0 0 0 0 0 10 20 1 2 20 0 1 0 100 4096 5 0 0";
        assert_eq!(parse_stat(text, 4096, 10), Some((3, Usage { cpu: 330, memory: 5 * 4096 })));
        assert_eq!(parse_stat("garbage", 1, 1), None);
    }

    #[test]
    fn children_count_with_their_parents() {
        let usage = |n| Usage { cpu: n, memory: n };
        let all = HashMap::from([
            (1, (0, usage(1))),
            (2, (1, usage(10))),
            (3, (2, usage(100))),
            (4, (9, usage(1000))),
        ]);
        assert_eq!(below(&all, 1), usage(111));
    }
}

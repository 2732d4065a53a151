//! How many pods a second the scheduler's decisions allow, without any requests: 1,000 nodes, one thread.
//!
//! `cargo run --release -p shoal-controllers --example placements`

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};
use shoal_controllers::scheduler::cycle::Volumes;
use shoal_controllers::scheduler::plan::{Question, place};
use shoal_controllers::scheduler::snapshot::{Placed, Snapshot};
use shoal_objects::selector::LabelSelector;
use shoal_runtime::ObjectKey;
use shoal_runtime::cache::Uid;

const NODES: usize = 1_000;
const PODS: usize = 50_000;
const ZONE: &str = "topology.kubernetes.io/zone";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let selector = json!({"matchLabels": {"app": "web"}});
    let spread = json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}]});
    let beside = json!({"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "podAffinityTerm": {"topologyKey": ZONE, "labelSelector": selector}}]}}});
    for (what, extra) in [("plain", json!({})), ("spread over zones", spread), ("beside others", beside)] {
        let (placed, seconds) = run(&extra)?;
        println!("{what}: {placed} pods, {:.0} pods/s", placed as f64 / seconds);
    }
    Ok(())
}

fn run(extra: &Value) -> Result<(usize, f64), serde_json::Error> {
    let mut snapshot = Snapshot::default();
    for index in 0..NODES {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": format!("n{index}"), "labels": {ZONE: (index % 10).to_string()}},
            "status": {"allocatable": {"cpu": "32", "memory": "256Gi", "pods": "110"}}
        }))?;
        snapshot.set_node(Arc::new(node));
    }
    let mut pod = json!({
        "metadata": {"name": "p", "namespace": "a", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}]}
    });
    for (key, value) in extra.as_object().into_iter().flatten() {
        pod["spec"][key] = value.clone();
    }
    let pod: Pod = serde_json::from_value(pod)?;
    let (volumes, mut from, mut count) = (Volumes::default(), 0, 0);
    // As pods of a ReplicaSet that do not say how they are spread.
    let kin =
        LabelSelector::parse("app=web").ok().filter(|_| extra.get("topologySpreadConstraints").is_none());
    let start = Instant::now();
    for number in 0..PODS {
        let shape = snapshot.shapes.of(&pod);
        let question = Question { pod: &shape, volumes: &volumes, from, nominated: None, kin: kin.as_ref() };
        let Ok(choice) = place(&snapshot, &question) else { continue };
        from = choice.next;
        count += 1;
        let node = snapshot.nodes()[choice.node].name.clone();
        let name = format!("p{number}");
        let placed =
            Placed { uid: Uid::parse(&name), node, shape, assumed: true, created: 0, leaving: false };
        snapshot.place(ObjectKey::new("a", &name), placed);
    }
    Ok((count, start.elapsed().as_secs_f64()))
}

//! Claims about single rules, and about all of them together on random clusters.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, NodeSelector, Pod};
use proptest::prelude::*;
use serde_json::{Value, json};
use shoal_objects::selector::LabelSelector;
use shoal_runtime::ObjectKey;
use shoal_runtime::cache::Uid;
use tokio::time::Instant;

use super::cycle::{Candidate, Cycle, Volumes, Waiting};
use super::filter;
use super::plan::{self, Question};
use super::preempt::{self, Budget};
use super::queue::{Pending, Queue};
use super::reason::{Failure, Wakes};
use super::score;
use super::shape::Shape;
use super::snapshot::{Placed, Snapshot};

fn node(name: &str, extra: Value) -> Arc<Node> {
    let mut node = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "ephemeral-storage": "10Gi", "pods": "10"}}
    });
    merge(&mut node, extra);
    Arc::new(serde_json::from_value(node).unwrap())
}

/// With what `from` says.
fn merge(into: &mut Value, from: Value) {
    shoal_objects::patch::merge_patch(into, &from).unwrap();
}

/// A pod of namespace `a` with label `app: web` that asks for one CPU.
fn pod(name: &str, spec: Value) -> Pod {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "a", "uid": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    });
    merge(&mut pod["spec"], spec);
    serde_json::from_value(pod).unwrap()
}

fn cluster(nodes: &[Arc<Node>]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for node in nodes {
        snapshot.set_node(node.clone());
    }
    snapshot
}

fn put(snapshot: &mut Snapshot, name: &str, node: &str, spec: Value) -> Arc<Shape> {
    let shape = snapshot.shapes.of(&pod(name, spec));
    let placed = Placed {
        uid: Uid::parse(name),
        node: node.into(),
        shape: shape.clone(),
        assumed: false,
        created: 0,
        leaving: false,
    };
    snapshot.place(ObjectKey::new("a", name), placed);
    shape
}

fn ask(snapshot: &mut Snapshot, spec: Value) -> Result<String, String> {
    ask_with(snapshot, spec, &Volumes::default()).map_err(|failure| failure.to_string())
}

fn ask_with(snapshot: &mut Snapshot, spec: Value, volumes: &Volumes) -> Result<String, Failure> {
    let shape = snapshot.shapes.of(&pod("new", spec));
    let question = Question { pod: &shape, volumes, from: 0, nominated: None, kin: None };
    plan::place(snapshot, &question).map(|choice| snapshot.nodes()[choice.node].name.to_string())
}

/// What a pod is told by a cluster of one node.
fn told(node_extra: Value, spec: Value) -> Option<String> {
    let mut snapshot = cluster(&[node("n", node_extra)]);
    ask(&mut snapshot, spec)
        .err()
        .map(|text| text.trim_start_matches("0/1 nodes are available: ").trim_end_matches('.').to_owned())
}

fn requests(requests: Value) -> Value {
    json!({"containers": [{"name": "c", "resources": {"requests": requests}}]})
}

#[test]
fn a_pod_fits_where_enough_is_left_of_everything() {
    for (asked, expected) in [
        (json!({"cpu": "4"}), None),
        (json!({"cpu": "4001m"}), Some("1 Insufficient cpu")),
        (json!({"memory": "9Gi"}), Some("1 Insufficient memory")),
        (json!({"cpu": "5", "memory": "9Gi"}), Some("1 Insufficient cpu, 1 Insufficient memory")),
        (json!({"ephemeral-storage": "11Gi"}), Some("1 Insufficient ephemeral-storage")),
        (json!({"example.com/gpu": "1"}), Some("1 Insufficient example.com/gpu")),
    ] {
        assert_eq!(told(json!({}), requests(asked.clone())).as_deref(), expected, "{asked}");
    }
    let mut full = cluster(&[node("n", json!({"status": {"allocatable": {"pods": "1"}}}))]);
    put(&mut full, "there", "n", json!({}));
    assert_eq!(ask(&mut full, json!({})), Err("0/1 nodes are available: 1 Too many pods.".to_owned()));
    let mut taken = cluster(&[node("n", json!({}))]);
    put(&mut taken, "there", "n", requests(json!({"cpu": "3500m"})));
    assert_eq!(ask(&mut taken, json!({})), Err("0/1 nodes are available: 1 Insufficient cpu.".to_owned()));
    assert_eq!(ask(&mut taken, requests(json!({}))), Ok("n".to_owned()), "who asks for nothing has room");
    taken.remove(&ObjectKey::new("a", "there"));
    assert_eq!(ask(&mut taken, json!({})), Ok("n".to_owned()), "room is given back");
}

#[test]
fn taints_keep_away_who_does_not_tolerate_them() {
    let tainted = |effect: &str| json!({"spec": {"taints": [{"key": "k", "value": "v", "effect": effect}]}});
    let refusal = Some("1 node(s) had untolerated taint {k: v}".to_owned());
    assert_eq!(told(tainted("NoSchedule"), json!({})), refusal);
    assert_eq!(told(tainted("NoExecute"), json!({})), refusal);
    assert_eq!(told(tainted("PreferNoSchedule"), json!({})), None);
    for (toleration, expected) in [
        (json!({"key": "k", "operator": "Exists"}), None),
        (json!({"key": "k", "value": "v", "effect": "NoSchedule"}), None),
        (json!({"operator": "Exists"}), None),
        (json!({"key": "k", "value": "other"}), refusal.clone()),
        (json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}), refusal),
    ] {
        let spec = json!({"tolerations": [toleration.clone()]});
        assert_eq!(told(tainted("NoSchedule"), spec), expected, "{toleration}");
    }
    let cordoned = json!({"spec": {"unschedulable": true}});
    assert_eq!(told(cordoned.clone(), json!({})).as_deref(), Some("1 node(s) were unschedulable"));
    let brave = json!({"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]});
    assert_eq!(told(cordoned, brave), None);
}

#[test]
fn a_pod_goes_only_to_nodes_that_it_wants() {
    let labels = json!({"metadata": {"labels": {"disk": "ssd", "cores": "8"}}});
    let refusal = Some("1 node(s) didn't match Pod's node affinity/selector".to_owned());
    assert_eq!(told(labels.clone(), json!({"nodeSelector": {"disk": "ssd"}})), None);
    assert_eq!(told(labels.clone(), json!({"nodeSelector": {"disk": "hdd"}})), refusal);
    for (expression, matches) in [
        (json!({"key": "disk", "operator": "In", "values": ["ssd", "nvme"]}), true),
        (json!({"key": "disk", "operator": "NotIn", "values": ["ssd"]}), false),
        (json!({"key": "disk", "operator": "Exists"}), true),
        (json!({"key": "gpu", "operator": "DoesNotExist"}), true),
        (json!({"key": "cores", "operator": "Gt", "values": ["4"]}), true),
        (json!({"key": "cores", "operator": "Lt", "values": ["4"]}), false),
    ] {
        let spec = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchExpressions": [expression.clone()]}]}}}});
        assert_eq!(told(labels.clone(), spec).is_none(), matches, "{expression}");
    }
}

#[test]
fn a_pod_that_names_its_node_gets_it_or_none() {
    let mut snapshot = cluster(&[node("one", json!({})), node("two", json!({}))]);
    let on = |name: &str| {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}]}}}})
    };
    assert_eq!(ask(&mut snapshot, on("two")), Ok("two".to_owned()));
    let text = "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.";
    assert_eq!(ask(&mut snapshot, on("three")), Err(text.to_owned()));
}

#[test]
fn a_port_of_the_node_is_for_one_pod() {
    let with = |port: Value| json!({"containers": [{"name": "c", "ports": [port]}]});
    let mut snapshot = cluster(&[node("n", json!({}))]);
    put(
        &mut snapshot,
        "there",
        "n",
        with(json!({"containerPort": 80, "hostPort": 80, "hostIP": "10.0.0.1"})),
    );
    for (port, free) in [
        (json!({"containerPort": 80, "hostPort": 80}), false),
        (json!({"containerPort": 80, "hostPort": 80, "hostIP": "10.0.0.2"}), true),
        (json!({"containerPort": 80, "hostPort": 80, "protocol": "UDP"}), true),
        (json!({"containerPort": 80, "hostPort": 81}), true),
        (json!({"containerPort": 80}), true),
    ] {
        assert_eq!(ask(&mut snapshot, with(port.clone())).is_ok(), free, "{port}");
    }
}

fn affinity(kind: &str, key: &str, labels: Value) -> Value {
    json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": key, "labelSelector": {"matchLabels": labels}}]}}})
}

fn zones() -> Snapshot {
    let zone = |zone: &str| json!({"metadata": {"labels": {"zone": zone}}});
    cluster(&[node("a1", zone("a")), node("a2", zone("a")), node("b1", zone("b"))])
}

#[test]
fn a_pod_goes_beside_those_it_must_be_with() {
    let mut snapshot = zones();
    let beside = affinity("podAffinity", "zone", json!({"app": "web"}));
    assert!(ask(&mut snapshot, beside.clone()).is_ok(), "the first of its kind goes anywhere");
    let others = affinity("podAffinity", "zone", json!({"app": "db"}));
    let text = "0/3 nodes are available: 3 node(s) didn't match pod affinity rules.";
    assert_eq!(ask(&mut snapshot, others), Err(text.to_owned()));
    put(&mut snapshot, "there", "b1", json!({}));
    assert_eq!(ask(&mut snapshot, beside), Ok("b1".to_owned()));
    let elsewhere = json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "zone", "namespaces": ["other"], "labelSelector": {"matchLabels": {"app": "web"}}}]}}});
    assert!(ask(&mut snapshot, elsewhere).is_err(), "pods of other namespaces are others");
}

#[test]
fn a_pod_stays_away_from_those_it_must_not_be_with_and_they_from_it() {
    let mut snapshot = zones();
    put(&mut snapshot, "there", "a1", json!({}));
    let away = affinity("podAntiAffinity", "zone", json!({"app": "web"}));
    assert_eq!(ask(&mut snapshot, away.clone()), Ok("b1".to_owned()));
    put(&mut snapshot, "shy", "b1", away.clone());
    let text = "0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules.";
    assert_eq!(ask(&mut snapshot, away), Err(text.to_owned()));
    snapshot.remove(&ObjectKey::new("a", "there"));
    let plain = ask(&mut snapshot, json!({"nodeSelector": {"zone": "b"}}));
    let text = "0/3 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules, \
                2 node(s) didn't match Pod's node affinity/selector.";
    assert_eq!(plain, Err(text.to_owned()));
}

#[test]
fn namespaces_are_chosen_by_their_labels() {
    let mut snapshot = zones();
    snapshot.namespaces.insert("a".to_owned(), BTreeMap::from([("team".to_owned(), "red".to_owned())]));
    put(&mut snapshot, "there", "b1", json!({}));
    let by = |team: &str| {
        json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "zone", "namespaceSelector": {"matchLabels": {"team": team}},
             "labelSelector": {"matchLabels": {"app": "web"}}}]}}, "nodeSelector": {"zone": "b"}})
    };
    assert!(ask(&mut snapshot, by("red")).is_err());
    assert!(ask(&mut snapshot, by("blue")).is_ok());
}

fn spread(unsatisfiable: &str, extra: Value) -> Value {
    let mut constraint = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": unsatisfiable,
        "labelSelector": {"matchLabels": {"app": "web"}}});
    merge(&mut constraint, extra);
    json!({"topologySpreadConstraints": [constraint]})
}

#[test]
fn pods_are_spread_evenly_where_they_insist() {
    let mut snapshot = zones();
    put(&mut snapshot, "one", "a1", json!({}));
    assert_eq!(ask(&mut snapshot, spread("DoNotSchedule", json!({}))), Ok("b1".to_owned()));
    put(&mut snapshot, "two", "a2", json!({}));
    assert_eq!(ask(&mut snapshot, spread("DoNotSchedule", json!({}))), Ok("b1".to_owned()));
    let only_a = |policy: &str| {
        let mut spec = spread("DoNotSchedule", json!({"nodeAffinityPolicy": policy}));
        spec["nodeSelector"] = json!({"zone": "a"});
        spec
    };
    assert!(ask(&mut snapshot, only_a("Honor")).is_ok(), "zones that it cannot be in do not count");
    assert!(ask(&mut snapshot, only_a("Ignore")).is_err());
    let missing = spread("DoNotSchedule", json!({"topologyKey": "rack"}));
    let text = "0/3 nodes are available: 3 node(s) didn't match pod topology spread constraints \
                (missing required label).";
    assert_eq!(ask(&mut snapshot, missing), Err(text.to_owned()));
    put(&mut snapshot, "three", "b1", json!({}));
    put(&mut snapshot, "four", "b1", json!({}));
    let many = spread("DoNotSchedule", json!({"minDomains": 3}));
    let text = "0/3 nodes are available: 3 node(s) didn't match pod topology spread constraints.";
    assert_eq!(ask(&mut snapshot, many), Err(text.to_owned()));
}

#[test]
fn pods_are_spread_softly_where_they_do_not_insist() {
    let mut snapshot = zones();
    put(&mut snapshot, "one", "a1", requests(json!({})));
    put(&mut snapshot, "two", "a2", requests(json!({})));
    let mut soft = spread("ScheduleAnyway", json!({}));
    merge(&mut soft, requests(json!({})));
    assert_eq!(ask(&mut snapshot, soft.clone()), Ok("b1".to_owned()));
    soft["nodeSelector"] = json!({"zone": "a"});
    assert!(ask(&mut snapshot, soft).is_ok());
}

#[test]
fn pods_of_one_template_are_spread_over_nodes_of_any_size() {
    let large = json!({"status": {"allocatable": {"cpu": "1000", "memory": "8Ti", "pods": "1000"}}});
    let nodes: Vec<Arc<Node>> = ["n1", "n2", "n3"].iter().map(|name| node(name, large.clone())).collect();
    let mut snapshot = cluster(&nodes);
    let small = requests(json!({"cpu": "1m", "memory": "1Mi"}));
    let mut chosen = Vec::new();
    for name in ["p1", "p2", "p3"] {
        let node = ask(&mut snapshot, small.clone()).unwrap();
        put(&mut snapshot, name, &node, small.clone());
        chosen.push(node);
    }
    chosen.sort();
    assert_eq!(chosen, ["n1", "n2", "n3"]);
}

#[test]
fn volumes_pull_pods_to_where_they_are() {
    let mut snapshot = zones();
    let there = Volumes { required: vec![on_host("a2")], ..Volumes::default() };
    assert_eq!(ask_with(&mut snapshot, json!({}), &there), Ok("a2".to_owned()));
    let missing =
        Volumes { problem: Some("persistentvolumeclaim \"x\" not found".to_owned()), ..Volumes::default() };
    let failure = ask_with(&mut snapshot, json!({}), &missing).unwrap_err();
    assert_eq!(failure.to_string(), "0/3 nodes are available: persistentvolumeclaim \"x\" not found.");
    assert!(failure.wakes().meets(Wakes::VOLUME));
}

fn on_host(host: &str) -> NodeSelector {
    serde_json::from_value(json!({"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [host]}]}]}))
    .unwrap()
}

fn waiting(claim: &str, volumes: &[(&str, &str)]) -> Waiting {
    let candidate = |(name, host): &(&str, &str)| Candidate {
        name: (*name).to_owned(),
        version: None,
        affinity: Some(on_host(host)),
    };
    Waiting {
        claim: ObjectKey::new("a", claim),
        uid: claim.to_owned(),
        node: None,
        volumes: volumes.iter().map(candidate).collect(),
        is_made: false,
        made_at: None,
    }
}

#[test]
fn claims_that_wait_get_volumes_where_their_pod_goes() {
    let mut snapshot = zones();
    let of = |waiting: Vec<Waiting>| Volumes { waiting, ..Volumes::default() };
    let local = of(vec![waiting("c", &[("v-b", "b1")])]);
    assert_eq!(ask_with(&mut snapshot, json!({}), &local), Ok("b1".to_owned()));
    let none = ask_with(&mut snapshot, json!({}), &of(vec![waiting("c", &[])])).unwrap_err();
    let text = "0/3 nodes are available: 3 node(s) didn't find available persistent volumes to bind.";
    assert_eq!(none.to_string(), text);
    assert!(none.wakes().meets(Wakes::VOLUME));
    // Two claims need two volumes.
    let both = [("v-a", "a1"), ("v-b", "b1"), ("w-b", "b1")];
    let two = of(vec![waiting("c", &both), waiting("d", &both)]);
    assert_eq!(ask_with(&mut snapshot, json!({}), &two), Ok("b1".to_owned()));
    let place = &snapshot.nodes()[snapshot.index("b1").unwrap()];
    let chosen = filter::volumes::choose(&two, place).unwrap();
    let names: Vec<_> = chosen.iter().map(|chosen| chosen.volume.as_ref().unwrap().name.as_str()).collect();
    assert_eq!(names, ["v-b", "w-b"]);
    // One that can be made can be made where the class allows it, and only where another pod has its claim.
    let made = Waiting { is_made: true, made_at: Some(on_host("a2")), ..waiting("c", &[]) };
    assert_eq!(ask_with(&mut snapshot, json!({}), &of(vec![made.clone()])), Ok("a2".to_owned()));
    let elsewhere = Waiting { node: Some("a1".to_owned()), ..made };
    assert!(ask_with(&mut snapshot, json!({}), &of(vec![elsewhere])).is_err());
}

#[test]
fn kin_are_spread_over_zones_and_nodes_by_default() {
    let zone = |zone: &str| {
        let large = json!({"cpu": "1000", "memory": "8Ti", "pods": "1000"});
        json!({"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}, "status": {"allocatable": large}})
    };
    // The zone with one node gets as much as the one with three.
    let names = ["a1", "a2", "a3", "b1"];
    let nodes: Vec<_> = names.iter().map(|name| node(name, zone(&name[..1]))).collect();
    let mut snapshot = cluster(&nodes);
    let kin = LabelSelector::parse("app=web").unwrap();
    let volumes = Volumes::default();
    let mut counts: BTreeMap<String, i64> = BTreeMap::new();
    for number in 0..12 {
        let mut pod = pod(&format!("p{number}"), requests(json!({"cpu": "1m"})));
        // As pods of StatefulSets: no two are alike.
        pod.metadata.labels.get_or_insert_default().insert("index".to_owned(), number.to_string());
        let shape = snapshot.shapes.of(&pod);
        let question = Question { pod: &shape, volumes: &volumes, from: 0, nominated: None, kin: Some(&kin) };
        let choice = plan::place(&snapshot, &question).unwrap();
        *counts.entry(snapshot.nodes()[choice.node].name.to_string()).or_default() += 1;
        snapshot.occupy(choice.node, &shape);
    }
    let a: i64 = names[..3].iter().map(|name| counts[*name]).sum();
    assert!((6..=8).contains(&a) && names[..3].iter().all(|name| counts[*name] >= 2), "{counts:?}");
    let in_zone =
        |snapshot: &Snapshot, zone: &str| snapshot.in_zone(zone).map(|(_, count)| count).sum::<i64>();
    assert_eq!((in_zone(&snapshot, "a"), in_zone(&snapshot, "b")), (a, counts["b1"]));
    // Counts follow a node into another zone, and go with it.
    snapshot.set_node(node("b1", zone("c")));
    assert_eq!((in_zone(&snapshot, "b"), in_zone(&snapshot, "c")), (0, counts["b1"]));
    snapshot.remove_node("b1");
    assert_eq!(in_zone(&snapshot, "c"), 0);
}

#[test]
fn the_emptier_node_is_better_and_the_balanced_one() {
    let mut snapshot = cluster(&[node("full", json!({})), node("empty", json!({}))]);
    put(&mut snapshot, "there", "full", requests(json!({"cpu": "2", "memory": "4Gi"})));
    assert_eq!(ask(&mut snapshot, json!({})), Ok("empty".to_owned()));
    let mut snapshot = cluster(&[node("skewed", json!({})), node("even", json!({}))]);
    put(&mut snapshot, "one", "skewed", requests(json!({"cpu": "3", "memory": "1Gi"})));
    put(&mut snapshot, "two", "even", requests(json!({"cpu": "1750m", "memory": "3584Mi"})));
    assert_eq!(
        ask(&mut snapshot, requests(json!({"cpu": "100m", "memory": "200Mi"}))),
        Ok("even".to_owned())
    );
}

#[test]
fn preferences_decide_between_equals() {
    let labelled = json!({"metadata": {"labels": {"disk": "ssd"}}});
    let mut snapshot = cluster(&[node("plain", json!({})), node("ssd", labelled)]);
    let preferring = json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 10, "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}}]}}});
    assert_eq!(ask(&mut snapshot, preferring), Ok("ssd".to_owned()));
    let soft = json!({"spec": {"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}});
    let mut snapshot = cluster(&[node("tainted", soft), node("clean", json!({}))]);
    assert_eq!(ask(&mut snapshot, json!({})), Ok("clean".to_owned()));
    let beside = |kind: &str| {
        json!({"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100,
            "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": {"app": "web"}}}}]}}})
    };
    for (kind, expected) in [("podAffinity", "two"), ("podAntiAffinity", "one")] {
        let mut snapshot = cluster(&[node("one", json!({})), node("two", json!({}))]);
        put(&mut snapshot, "there", "two", json!({}));
        assert_eq!(ask(&mut snapshot, beside(kind)), Ok(expected.to_owned()), "{kind}");
    }
}

#[test]
fn every_node_gets_its_turn_and_large_clusters_are_sampled() {
    let nodes: Vec<_> = (0..500).map(|index| node(&format!("n{index}"), json!({}))).collect();
    let mut snapshot = cluster(&nodes);
    let shape = snapshot.shapes.of(&pod("p", json!({})));
    let volumes = Volumes::default();
    let mut from = 0;
    for _ in 0..500 {
        let question = Question { pod: &shape, volumes: &volumes, from, nominated: None, kin: None };
        let choice = plan::place(&snapshot, &question).unwrap();
        from = choice.next;
        snapshot.occupy(choice.node, &shape);
    }
    assert!(snapshot.nodes().iter().all(|node| node.pods == 1), "pods of one template are spread");
}

#[test]
fn nodes_that_only_pods_know_of_are_no_place() {
    let mut snapshot = Snapshot::default();
    put(&mut snapshot, "there", "ghost", json!({}));
    assert_eq!(ask(&mut snapshot, json!({})), Err("no nodes available to schedule pods".to_owned()));
    snapshot.set_node(node("ghost", json!({"status": {"allocatable": {"cpu": "1500m"}}})));
    assert!(ask(&mut snapshot, json!({})).is_err(), "its pod was counted before it was known");
    snapshot.remove_node("ghost");
    snapshot.remove(&ObjectKey::new("a", "there"));
    assert!(snapshot.nodes().is_empty());
}

fn preempt(
    snapshot: &mut Snapshot,
    spec: Value,
    budgets: &[Budget],
) -> Result<(String, Vec<String>), String> {
    let shape = snapshot.shapes.of(&pod("new", spec));
    let volumes = Volumes::default();
    let question = Question { pod: &shape, volumes: &volumes, from: 0, nominated: None, kin: None };
    let failure = plan::place(snapshot, &question).unwrap_err();
    let before = format!("{:?}", snapshot.nodes().iter().map(|n| (&n.requested, n.pods)).collect::<Vec<_>>());
    let planned = preempt::plan(snapshot, &shape, &volumes, &failure, budgets);
    let after = format!("{:?}", snapshot.nodes().iter().map(|n| (&n.requested, n.pods)).collect::<Vec<_>>());
    assert_eq!(before, after, "a plan changes nothing");
    planned.map(|p| (p.node.to_string(), p.victims.iter().map(|key| key.name.to_string()).collect()))
}

fn with(cpu: &str, priority: i32) -> Value {
    let mut spec = requests(json!({"cpu": cpu}));
    spec["priority"] = json!(priority);
    spec
}

#[test]
fn the_least_important_pods_make_way_and_no_more_than_needed() {
    let mut snapshot = cluster(&[node("one", json!({})), node("two", json!({}))]);
    put(&mut snapshot, "low1", "one", with("2", 1));
    put(&mut snapshot, "low2", "one", with("2", 2));
    put(&mut snapshot, "high", "two", with("4", 100));
    assert_eq!(preempt(&mut snapshot, with("2", 50), &[]), Ok(("one".to_owned(), vec!["low1".to_owned()])));
    let mut both = preempt(&mut snapshot, with("4", 50), &[]).unwrap();
    both.1.sort();
    assert_eq!(both, ("one".to_owned(), vec!["low1".to_owned(), "low2".to_owned()]));
    let nobody = preempt(&mut snapshot, with("2", 1), &[]).unwrap_err();
    let text = "preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod.";
    assert_eq!(nobody, text);
    let mut polite = with("2", 50);
    polite["preemptionPolicy"] = json!("Never");
    let text = "preemption: not eligible due to preemptionPolicy=Never.";
    assert_eq!(preempt(&mut snapshot, polite, &[]), Err(text.to_owned()));
    let text = "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.";
    assert_eq!(preempt(&mut snapshot, with("5", 500), &[]), Err(text.to_owned()), "no node is large enough");
}

#[test]
fn pods_under_a_budget_are_spared_if_others_will_do() {
    let mut snapshot = cluster(&[node("one", json!({})), node("two", json!({}))]);
    put(&mut snapshot, "guarded", "one", with("4", 1));
    let free = snapshot.shapes.of(&{
        let mut free = pod("free", with("4", 2));
        free.metadata.labels = Some(BTreeMap::from([("app".to_owned(), "db".to_owned())]));
        free
    });
    let placed = Placed {
        uid: Uid::parse("free"),
        node: "two".into(),
        shape: free,
        assumed: false,
        created: 0,
        leaving: false,
    };
    snapshot.place(ObjectKey::new("a", "free"), placed);
    let selector = LabelSelector::parse("app=web").unwrap();
    let budget = Budget { namespace: "a".to_owned(), selector, allowed: 0 };
    let spared = preempt(&mut snapshot, with("1", 9), std::slice::from_ref(&budget));
    assert_eq!(spared, Ok(("two".to_owned(), vec!["free".to_owned()])));
    let allowed = Budget { allowed: 1, ..budget };
    assert_eq!(preempt(&mut snapshot, with("1", 9), &[allowed]).unwrap().0, "one");
}

fn pending(snapshot: &mut Snapshot, name: &str, priority: i32) -> Pending {
    let shape = snapshot.shapes.of(&pod(name, with("1", priority)));
    Pending { key: ObjectKey::new("a", name), uid: Uid::parse(name), shape, created: 0 }
}

#[tokio::test(start_paused = true)]
async fn the_important_come_first_then_those_that_waited_longest() {
    let (mut snapshot, mut queue) = (Snapshot::default(), Queue::default());
    for (name, priority) in [("low", 0), ("low2", 0), ("high", 9)] {
        queue.add(pending(&mut snapshot, name, priority));
    }
    let mut names = Vec::new();
    while let Some(pod) = queue.pop(Instant::now()) {
        names.push(pod.key.name.to_string());
    }
    assert_eq!(names, ["high", "low", "low2"]);
}

#[tokio::test(start_paused = true)]
async fn a_parked_pod_is_tried_again_only_when_something_may_help() {
    let (mut snapshot, mut queue) = (Snapshot::default(), Queue::default());
    let pod = pending(&mut snapshot, "p", 0);
    queue.add(pod.clone());
    let taken = queue.pop(Instant::now()).unwrap();
    queue.park(&taken.key, Wakes::NODE.and(Wakes::DEPARTURE), Instant::now());
    queue.add(pod.clone());
    queue.wake(Wakes::ARRIVAL, Instant::now());
    assert!(!queue.is_ready(), "neither its own status nor other events wake it");
    queue.wake(Wakes::DEPARTURE, Instant::now());
    assert!(!queue.is_ready(), "but not before a second has passed");
    tokio::time::advance(Duration::from_secs(1)).await;
    queue.tick(Instant::now());
    assert!(queue.pop(Instant::now()).is_some());
    queue.park(&pod.key, Wakes::NODE, Instant::now());
    tokio::time::advance(Duration::from_secs(301)).await;
    queue.tick(Instant::now());
    assert!(queue.pop(Instant::now()).is_some(), "after five minutes it is tried in any case");
    queue.retry(&pod.key, Instant::now());
    queue.remove(&pod.key);
    assert!(queue.is_empty() && queue.next_due().is_none());
}

/// A random pod: its CPU in tenths, and which of a few kinds it is.
fn any_pod() -> impl Strategy<Value = (i64, u8, i32)> {
    (0_i64..30, 0_u8..5, 0_i32..3)
}

fn spec_of((cpu, kind, priority): (i64, u8, i32)) -> Value {
    let mut spec = with(&format!("{}m", cpu * 100), priority);
    let more = match kind {
        1 => affinity("podAntiAffinity", "kubernetes.io/hostname", json!({"app": "web"})),
        2 => affinity("podAntiAffinity", "zone", json!({"app": "web"})),
        3 => affinity("podAffinity", "zone", json!({"app": "web"})),
        4 => spread("DoNotSchedule", json!({})),
        _ => json!({}),
    };
    merge(&mut spec, more);
    spec
}

/// No two pods on nodes are nearer than one of them allows.
fn anti_affinity_holds(snapshot: &Snapshot) -> bool {
    let place = |name: &str, key: &str| {
        snapshot.index(name).and_then(|index| snapshot.nodes()[index].label(key)).map(str::to_owned)
    };
    snapshot.pods().iter().all(|(key, pod)| {
        pod.shape.anti_affinity.iter().all(|term| {
            snapshot.pods().iter().filter(|(other, _)| *other != key).all(|(_, other)| {
                !term.matches(&other.shape, &snapshot.namespaces)
                    || place(&pod.node, &term.topology_key) != place(&other.node, &term.topology_key)
            })
        })
    })
}

proptest! {
    #[test]
    fn nodes_are_never_overcommitted_and_anti_affinity_is_never_violated(
        sizes in proptest::collection::vec(1_i64..6, 1..8),
        pods in proptest::collection::vec((any_pod(), proptest::bool::ANY), 1..60),
    ) {
        let nodes: Vec<_> = sizes.iter().enumerate().map(|(index, cpu)| {
            let extra = json!({"metadata": {"labels": {"zone": (index % 3).to_string()}},
                "status": {"allocatable": {"cpu": cpu.to_string(), "pods": "6"}}});
            node(&format!("n{index}"), extra)
        }).collect();
        let mut snapshot = cluster(&nodes);
        let volumes = Volumes::default();
        let mut from = 0;
        for (number, (kind, leaves)) in pods.into_iter().enumerate() {
            let name = format!("p{number}");
            let shape = snapshot.shapes.of(&pod(&name, spec_of(kind)));
            let question = Question { pod: &shape, volumes: &volumes, from, nominated: None, kin: None };
            match plan::place(&snapshot, &question) {
                Ok(choice) => {
                    from = choice.next;
                    let node = snapshot.nodes()[choice.node].name.clone();
                    let placed = Placed { uid: Uid::parse(&name), node, shape, assumed: true, created: 0, leaving: false };
                    snapshot.place(ObjectKey::new("a", &name), placed);
                }
                Err(failure) => {
                    if let Ok(made) = preempt::plan(&mut snapshot, &shape, &volumes, &failure, &[]) {
                        for victim in &made.victims {
                            let gone = snapshot.remove(victim);
                            prop_assert!(gone.is_some_and(|gone| gone.shape.priority < shape.priority));
                        }
                        let cycle = Cycle::new(&snapshot, &shape, &volumes);
                        let freed = &snapshot.nodes()[snapshot.index(&made.node).unwrap()];
                        prop_assert_eq!(filter::reasons(&cycle, freed), vec![]);
                        prop_assert!(score::scores(&cycle, &[freed]).len() == 1);
                    }
                }
            }
            if leaves {
                snapshot.remove(&ObjectKey::new("a", &format!("p{}", number / 2)));
            }
            for node in snapshot.nodes() {
                prop_assert!(node.requested.cpu <= node.allocatable.cpu && node.pods <= node.allowed_pods);
                prop_assert!(node.requested.cpu >= 0 && node.usual.0 >= 0);
            }
            prop_assert!(anti_affinity_holds(&snapshot));
        }
    }
}

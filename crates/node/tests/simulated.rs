//! Simulated nodes on a whole API server, with paused time.

#![allow(clippy::unwrap_used, clippy::needless_pass_by_value, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use shoal_node::simulated::{self, Options};
use shoal_objects::clock::{Clock, Timestamp};
use shoal_runtime::Manager;
use shoal_testkit::{Cluster, eventually};
use tokio::time::Instant;

async fn start(options: Options) -> Cluster {
    let cluster = Cluster::builder().seed(1).start().await;
    let accounts: Api<ServiceAccount> = Api::default_namespaced(cluster.client());
    let account = serde_json::from_value(json!({"metadata": {"name": "default"}})).unwrap();
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let begin = Instant::now();
    let clock = Clock::from_fn(move || {
        Timestamp(1_767_225_600_000_000 + i64::try_from(begin.elapsed().as_micros()).unwrap())
    });
    let client = cluster.client();
    let mut manager = Manager::builder("nodes").client(client).clock(clock).embedded().build().await.unwrap();
    simulated::add(&mut manager, options);
    tokio::spawn(manager.run());
    cluster
}

fn pod(name: &str, metadata: Value, spec: Value) -> Pod {
    let mut pod = json!({
        "metadata": metadata,
        "spec": {"nodeName": "simulated-0", "containers": [{"name": "c", "image": "i"}]}
    });
    pod["metadata"]["name"] = json!(name);
    for (key, value) in spec.as_object().unwrap() {
        pod["spec"][key] = value.clone();
    }
    serde_json::from_value(pod).unwrap()
}

async fn phase(pods: &Api<Pod>, name: &str, phase: &str) -> Pod {
    eventually(&format!("{name} is {phase}"), || async {
        let pod = pods.get(name).await.unwrap();
        (pod.status.as_ref()?.phase.as_deref()? == phase).then_some(pod)
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn nodes_register_and_their_leases_are_renewed() {
    let cluster = start(Options { nodes: 25, ..Options::default() }).await;
    let nodes: Api<Node> = Api::all(cluster.client());
    let leases: Api<Lease> = Api::namespaced(cluster.client(), "kube-node-lease");
    eventually("all nodes are there", || async {
        let count = leases.list(&ListParams::default()).await.unwrap().items.len();
        (count == 25 && nodes.list(&ListParams::default()).await.unwrap().items.len() == 25).then_some(())
    })
    .await;
    let renewed = async || {
        let leases = leases.list(&ListParams::default()).await.unwrap();
        leases.into_iter().map(|lease| lease.spec.unwrap().renew_time.unwrap().0).collect::<Vec<_>>()
    };
    for _ in 0..5 {
        let before = renewed().await;
        tokio::time::sleep(Duration::from_secs(12)).await;
        assert!(before.iter().zip(renewed().await).all(|(before, after)| *before < after));
    }
    leases.delete("simulated-3", &DeleteParams::default()).await.unwrap();
    eventually("a lost lease comes back", || async { leases.get_opt("simulated-3").await.unwrap() }).await;
}

#[tokio::test(start_paused = true)]
async fn bound_pods_run_with_addresses_of_their_own_and_go_when_deleted() {
    let cluster = start(Options::default()).await;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let mut addresses = BTreeSet::new();
    for name in ["a", "b", "c"] {
        pods.create(&PostParams::default(), &pod(name, json!({}), json!({}))).await.unwrap();
        let running = phase(&pods, name, "Running").await;
        let status = running.status.unwrap();
        addresses.insert(status.pod_ip.unwrap());
        assert_eq!(status.host_ip.as_deref(), Some("10.0.0.1"));
        assert!(status.conditions.unwrap().iter().any(|c| c.type_ == "Ready" && c.status == "True"));
        assert!(status.container_statuses.unwrap()[0].ready);
    }
    assert_eq!(addresses.len(), 3);
    pods.create(&PostParams::default(), &pod("elsewhere", json!({}), json!({"nodeName": "other"})))
        .await
        .unwrap();
    pods.delete("b", &DeleteParams::default()).await.unwrap();
    eventually("the pod is gone", || async { pods.get_opt("b").await.unwrap().is_none().then_some(()) })
        .await;
    let elsewhere = pods.get("elsewhere").await.unwrap();
    assert_eq!(elsewhere.status.unwrap().phase.as_deref(), Some("Pending"), "not our node");
}

#[tokio::test(start_paused = true)]
async fn pods_start_late_end_by_themselves_and_fail_as_they_say() {
    let options = Options { start_delay: Duration::from_secs(3), ..Options::default() };
    let cluster = start(options).await;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let begin = Instant::now();
    let notes = json!({"annotations": {"simulated.shoal.dev/run-for": "2s"}});
    let once = pod("once", notes, json!({"restartPolicy": "Never"}));
    pods.create(&PostParams::default(), &once).await.unwrap();
    let notes = json!({"annotations": {"simulated.shoal.dev/exit-code": "7"}});
    let bad = pod("bad", notes, json!({"restartPolicy": "Never"}));
    pods.create(&PostParams::default(), &bad).await.unwrap();
    phase(&pods, "once", "Running").await;
    assert!(begin.elapsed() >= Duration::from_secs(3));
    phase(&pods, "once", "Succeeded").await;
    assert!(begin.elapsed() >= Duration::from_secs(5));
    let failed = phase(&pods, "bad", "Failed").await.status.unwrap().container_statuses.unwrap();
    let ended = failed[0].state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!((ended.exit_code, ended.reason.as_deref()), (7, Some("Error")));
}

#[tokio::test(start_paused = true)]
async fn a_dead_machine_is_silent_and_one_that_was_taken_for_dead_puts_it_right() {
    let cluster = start(Options { nodes: 2, ..Options::default() }).await;
    let nodes: Api<Node> = Api::all(cluster.client());
    let leases: Api<Lease> = Api::namespaced(cluster.client(), "kube-node-lease");
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    pods.create(&PostParams::default(), &pod("a", json!({}), json!({}))).await.unwrap();
    phase(&pods, "a", "Running").await;
    let doubt = |time: &str| json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown", "lastTransitionTime": time}]}});
    let (params, time) = (PatchParams::default(), "2026-01-01T00:00:00Z");
    nodes.patch_status("simulated-0", &params, &Patch::Strategic(doubt(time))).await.unwrap();
    pods.patch_status("a", &params, &Patch::Strategic(doubt(time))).await.unwrap();
    let holds = |conditions: Option<Vec<Value>>| {
        let ready = |told: &Value| told["type"] == "Ready" && told["status"] == "True";
        conditions.unwrap_or_default().iter().any(ready).then_some(())
    };
    let told = |object: Value| object["status"]["conditions"].as_array().cloned();
    eventually("the node says that it is ready", || async {
        holds(told(serde_json::to_value(nodes.get("simulated-0").await.unwrap()).unwrap()))
    })
    .await;
    eventually("so does its pod", || async {
        holds(told(serde_json::to_value(pods.get("a").await.unwrap()).unwrap()))
    })
    .await;

    let dead = json!({"metadata": {"labels": {"simulated.shoal.dev/dead": ""}}});
    nodes.patch("simulated-1", &params, &Patch::Merge(dead)).await.unwrap();
    let renewed = async |name: &str| leases.get(name).await.unwrap().spec.unwrap().renew_time.unwrap().0;
    // The renewal that was under way.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = (renewed("simulated-0").await, renewed("simulated-1").await);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(renewed("simulated-0").await > before.0);
    assert_eq!(renewed("simulated-1").await, before.1);
}

//! Containers that want more than they may have.

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use serde_json::json;
use shoal_testkit::eventually;

use crate::cluster::{World, condition};

#[tokio::test(flavor = "multi_thread")]
async fn a_container_beyond_its_memory_limit_is_killed_and_starts_again() {
    let world = World::start().await;
    // `tail` keeps what has no end of line; the limit is reached by a child of the first process.
    let script = "head -c 2000000000 /dev/zero | tail; sleep 1000";
    let container = json!({"name": "main", "image": "busybox", "command": ["sh", "-c", script],
        "resources": {"limits": {"memory": "64Mi"}}});
    let modest = json!({"name": "modest", "image": "busybox", "command": ["sleep", "1000"],
        "resources": {"limits": {"memory": "64Mi"}}});
    world.run("greedy", json!({"containers": [container, modest]})).await;
    let is_killed = |pod: &serde_json::Value| {
        let status = &pod["status"]["containerStatuses"][0];
        let last = &status["lastState"]["terminated"];
        last["reason"] == "OOMKilled" && last["exitCode"] == 137 && status["restartCount"].as_i64() >= Some(1)
    };
    let pod = world.until("greedy", "killed and started again", is_killed).await;
    let modest = &pod["status"]["containerStatuses"][1];
    assert_eq!((&modest["name"], &modest["restartCount"]), (&json!("modest"), &json!(0)));
    let nodes: Api<Node> = Api::all(world.client.clone());
    let node = serde_json::to_value(nodes.get("n1").await.unwrap()).unwrap();
    assert_eq!(condition(&node, "LimitsEnforced"), "False", "the node says that it only watches");
    world.delete("greedy").await;
    world.until_gone("greedy").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_fills_its_empty_dir_is_evicted() {
    let world = World::start().await;
    let script = "head -c 3000000 /dev/zero > /cache/file; sleep 1000";
    let container = json!({"name": "main", "image": "busybox", "command": ["sh", "-c", script],
        "volumeMounts": [{"name": "cache", "mountPath": "/cache"}]});
    let volumes = json!([{"name": "cache", "emptyDir": {"sizeLimit": "2Mi"}}]);
    world.run("full", json!({"containers": [container], "volumes": volumes})).await;
    let pod = world.until_phase("full", "Failed").await;
    assert_eq!(pod["status"]["reason"], "Evicted");
    let message = "Usage of EmptyDir volume \"cache\" exceeds the limit \"2Mi\". ";
    assert_eq!(pod["status"]["message"], message);
    eventually("an event", || async {
        world.event_reasons("full").await.contains(&"Evicted".to_owned()).then_some(())
    })
    .await;
    let ended =
        |pod: &serde_json::Value| pod["status"]["containerStatuses"][0]["state"]["terminated"].is_object();
    world.until("full", "ended", ended).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_writes_beyond_its_storage_limit_is_evicted() {
    let world = World::start().await;
    let script = "head -c 3000000 /dev/zero > /tmp/file; sleep 1000";
    let container = json!({"name": "main", "image": "busybox", "command": ["sh", "-c", script],
        "resources": {"limits": {"ephemeral-storage": "2Mi"}}});
    world.run("writer", json!({"containers": [container]})).await;
    let pod = world.until_phase("writer", "Failed").await;
    assert_eq!(
        pod["status"]["message"],
        "Container main exceeded its local ephemeral storage limit \"2Mi\". "
    );
}

/// So much takes a while.
async fn eventually_over(world: &World, pod: &str) -> serde_json::Value {
    for _ in 0..1800 {
        let pod = world.pod(pod).await;
        if pod["status"]["phase"] == "Succeeded" {
            return pod;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("it prints for too long")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_prints_a_gigabyte_has_a_bounded_log() {
    let world = World::start().await;
    world.shell("talker", "head -c 1000000000 /dev/zero; echo; echo the end", "Never").await;
    let pod = eventually_over(&world, "talker").await;
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    let folder = world.dir.path().join("pods").join(uid).join("containers/main");
    let files = std::fs::read_dir(folder).unwrap().flatten();
    let logs = files.filter(|file| file.file_name().to_string_lossy().contains(".log"));
    let size: u64 = logs.map(|file| file.metadata().unwrap().len()).sum();
    assert!((1 << 20..60 << 20).contains(&size), "{size}");
    let path = shoal_node::pod::container::log_path(&world.dir.path().join("pods").join(uid), "main", 0);
    let tail = shoal_node::logs::Options { tail: Some(1), ..Default::default() };
    let mut reader = shoal_node::logs::Reader::open(&path, tail).unwrap();
    assert_eq!(reader.read(1 << 20).unwrap(), b"the end\n");
}

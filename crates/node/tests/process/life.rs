//! From the first start to the last.

use std::path::Path;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use serde_json::{Value, json};
use shoal_testkit::eventually;

use crate::cluster::{World, condition};

#[tokio::test(flavor = "multi_thread")]
async fn a_node_registers_and_renews_its_lease() {
    let world = World::start().await;
    let nodes: Api<Node> = Api::all(world.client.clone());
    let node = eventually("a node", || async {
        let node = nodes.get_opt("n1").await.unwrap()?;
        node.status.clone()?.conditions?;
        Some(serde_json::to_value(node).unwrap())
    })
    .await;
    assert_eq!(condition(&node, "Ready"), "True");
    assert_eq!(node["status"]["capacity"]["pods"], "110");
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], "n1");
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), "kube-node-lease");
    eventually("a lease", || async { leases.get_opt("n1").await.unwrap()?.spec?.renew_time }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_runs_is_ready_and_is_gone_after_its_deletion() {
    let world = World::start().await;
    world.run("web", json!({"containers": [{"name": "web", "image": "sleeper"}]})).await;
    let pod = world.until_ready("web").await;
    assert_eq!(pod["status"]["phase"], "Running");
    let status = &pod["status"]["containerStatuses"][0];
    assert!(status["containerID"].as_str().unwrap().starts_with("shoal://"));
    assert_eq!((&status["ready"], &status["restartCount"]), (&json!(true), &json!(0)));
    assert!(pod["status"]["podIP"].as_str().unwrap().starts_with("10."));
    for type_ in ["PodReadyToStartContainers", "Initialized", "ContainersReady", "PodScheduled"] {
        assert_eq!(condition(&pod, type_), "True", "{type_}");
    }
    world.delete("web").await;
    world.until_gone("web").await;
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    let dir = world.dir.path().join("pods").join(uid);
    eventually("an empty directory", || async { (!dir.exists()).then_some(()) }).await;
    let reasons = eventually("events", || async {
        let reasons = world.event_reasons("web").await;
        reasons.contains(&"Killing".to_owned()).then_some(reasons)
    })
    .await;
    for reason in ["Pulled", "Created", "Started"] {
        assert!(reasons.iter().any(|known| known == reason), "{reason}: {reasons:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_codes_make_a_pod_succeed_or_fail() {
    let world = World::start().await;
    world.shell("good", "echo out; echo err >&2; echo bye > /dev/termination-log", "Never").await;
    world.shell("bad", "exit 3", "Never").await;
    let good = world.until_phase("good", "Succeeded").await;
    let ended = &good["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!((&ended["reason"], &ended["message"]), (&json!("Completed"), &json!("bye\n")));
    let log = world.log(&good, "main", 0);
    assert!(log.contains("out\n") && log.contains("err\n"), "{log}");
    let bad = world.until_phase("bad", "Failed").await;
    let ended = &bad["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!((&ended["exitCode"], &ended["reason"]), (&json!(3), &json!("Error")));
}

#[tokio::test(flavor = "multi_thread")]
async fn init_containers_and_sidecars_run_in_order() {
    let world = World::start().await;
    let shell = |name: &str, script: &str| json!({"name": name, "image": "busybox", "command": ["sh", "-c", script], "volumeMounts": [{"name": "work", "mountPath": "/work-dir"}]});
    let mut sidecar = shell("side", "echo side >> /work-dir/order; exec sleep 1000");
    sidecar["restartPolicy"] = "Always".into();
    let spec = json!({
        "restartPolicy": "Never",
        "initContainers": [
            shell("first", "echo first >> /work-dir/order"),
            sidecar,
            shell("second", "until grep -q side /work-dir/order; do :; done; echo second >> /work-dir/order"),
        ],
        "containers": [shell("main", "cat /work-dir/order")],
        "volumes": [{"name": "work", "emptyDir": {}}],
    });
    world.run("ordered", spec).await;
    let pod = world.until_phase("ordered", "Succeeded").await;
    assert_eq!(world.log(&pod, "main", 0), "first\nside\nsecond\n");
    world
        .until("ordered", "without sidecar", |pod| {
            !pod["status"]["initContainerStatuses"][1]["state"]["terminated"].is_null()
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_dies_at_once_backs_off() {
    let world = World::start().await;
    world.shell("crash", "echo once; exit 1", "Always").await;
    let is_waiting = |pod: &Value| {
        pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    };
    let pod = world.until("crash", "backing off", is_waiting).await;
    let status = &pod["status"]["containerStatuses"][0];
    assert_eq!(status["restartCount"], 1);
    assert_eq!(status["lastState"]["terminated"]["exitCode"], 1);
    assert_eq!(pod["status"]["phase"], "Running");
    assert_eq!(
        (world.log(&pod, "main", 0), world.log(&pod, "main", 1)),
        ("once\n".to_owned(), "once\n".to_owned())
    );
    eventually("a BackOff event", || async {
        world.event_reasons("crash").await.contains(&"BackOff".to_owned()).then_some(())
    })
    .await;
    world.delete("crash").await;
    world.until_gone("crash").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_image_names_the_table() {
    let world = World::start().await;
    world.run("unknown", json!({"containers": [{"name": "c", "image": "example.com/unknown:1"}]})).await;
    let backs_off = |pod: &Value| {
        pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "ImagePullBackOff"
    };
    let pod = world.until("unknown", "waiting for its image", backs_off).await;
    let message = pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"].as_str().unwrap();
    assert!(message.contains("image table"), "{message}");
    assert_eq!(pod["status"]["phase"], "Pending");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_command_is_a_start_error() {
    let world = World::start().await;
    let container = json!({"name": "c", "image": "busybox", "command": ["no-such-command"]});
    world.run("missing", json!({"restartPolicy": "Never", "containers": [container]})).await;
    let pod = world.until_phase("missing", "Failed").await;
    let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!((&ended["reason"], &ended["exitCode"]), (&json!("StartError"), &json!(128)));
    assert!(ended["message"].as_str().unwrap().contains("executable file not found in $PATH"));
}

/// Whether some process of this machine has this text in its command line.
fn is_running(text: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .any(|line| String::from_utf8_lossy(&line).contains(text))
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_outlives_a_container_whatever_it_forks() {
    let world = World::start().await;
    let script =
        "setsid sleep 98761 & (trap '' TERM; setsid sleep 98762 &) ; trap '' TERM; while :; do sleep 1; done";
    let container = json!({"name": "main", "image": "busybox", "command": ["sh", "-c", script]});
    world.run("forker", json!({"terminationGracePeriodSeconds": 1, "containers": [container]})).await;
    world.until_ready("forker").await;
    eventually("children", || async { (is_running("98761") && is_running("98762")).then_some(()) }).await;
    world.delete("forker").await;
    world.until_gone("forker").await;
    eventually("nobody left", || async { (!is_running("98761") && !is_running("98762")).then_some(()) })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_outlives_the_agent_and_the_next_one_starts_pods_again() {
    let mut world = World::start().await;
    world.shell("stays", "setsid sleep 98763 & exec sleep 98764", "Always").await;
    world.until_ready("stays").await;
    eventually("children", || async { (is_running("98763") && is_running("98764")).then_some(()) }).await;
    world.stop_agent().await;
    eventually("nobody left", || async { (!is_running("98763") && !is_running("98764")).then_some(()) })
        .await;
    assert!(Path::new(world.dir.path()).exists());
    world.start_agent();
    world
        .until("stays", "started again", |pod| pod["status"]["containerStatuses"][0]["restartCount"] == 1)
        .await;
    world.until_ready("stays").await;
}

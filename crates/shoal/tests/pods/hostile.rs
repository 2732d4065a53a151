//! Pods that misbehave, as `kubectl get pods` shows them.

use serde_json::json;

use crate::kubectl::{World, processes, restarts, shell, until};

#[test]
fn a_pod_that_forks_and_ignores_signals_is_gone_after_its_grace_period() {
    let world = World::start();
    let script = "trap '' TERM INT HUP; for i in 1 2 3 4 5 6 7 8 9 10; do (trap '' TERM; setsid sh -c 'trap \"\" TERM; while :; do sleep 98774; done') & done; while :; do sleep 98774; done";
    world.pod("forks", json!({"terminationGracePeriodSeconds": 1, "containers": [shell(script)]}));
    world.until_ready("forks");
    until("many", || processes("sleep 98774") > 10).unwrap();
    world.ok(&["delete", "pod", "forks"]);
    world.until_gone("forks");
    until("nothing left", || processes("sleep 98774") == 0).unwrap();
}

#[test]
fn a_pod_that_dies_at_once_backs_off_and_says_so() {
    let world = World::start();
    world.pod("dies", json!({"containers": [shell("echo why; exit 4")]}));
    let line =
        world.until_prints(&["get", "pod", "dies", "--no-headers"], |line| line.contains("CrashLoopBackOff"));
    assert_eq!(line.split_whitespace().nth(1), Some("0/1"), "{line}");
    let pod = world.until_pod("dies", "counted", |pod| restarts(pod) >= 1);
    let status = &pod["status"]["containerStatuses"][0];
    assert_eq!(status["lastState"]["terminated"]["exitCode"], 4);
    let message = status["state"]["waiting"]["message"].as_str().unwrap();
    assert!(message.starts_with("back-off 10s restarting failed container=main"), "{message}");
    world.until_event("dies", "BackOff", |message| message.contains("restarting failed container main"));
    assert_eq!(world.ok(&["logs", "dies"]), "why\n");
}

#[test]
fn an_unknown_image_is_told_with_the_remedy() {
    let world = World::start();
    world.ok(&["run", "odd", "--image=registry.example/odd:1"]);
    world.until_prints(&["get", "pod", "odd"], |line| {
        line.contains("ErrImagePull") || line.contains("ImagePullBackOff")
    });
    world.until_prints(&["get", "pod", "odd"], |line| line.contains("ImagePullBackOff"));
    let told =
        world.until_prints(&["describe", "pod", "odd"], |text| text.contains("Back-off pulling image"));
    assert!(told.contains("shoal up --images FILE"), "{told}");
    let said = world.run(&["logs", "odd"], "");
    assert!(said.err.contains("waiting to start: trying and failing to pull image"), "{said:?}");
}

#[test]
fn a_missing_command_is_told() {
    let world = World::start();
    let container = json!({"name": "main", "image": "busybox", "command": ["no-such-command"]});
    world.pod("missing", json!({"containers": [container]}));
    world.until_event("missing", "Failed", |message| message.contains("executable file not found in $PATH"));
    world.until_prints(&["get", "pod", "missing"], |line| line.contains("CrashLoopBackOff"));
    let pod = world.until_pod("missing", "there", |_| true);
    let ended = &pod["status"]["containerStatuses"][0]["lastState"]["terminated"];
    assert_eq!((&ended["reason"], &ended["exitCode"]), (&json!("StartError"), &json!(128)));
    let mut elsewhere = shell("true");
    elsewhere["workingDir"] = "/no/such/folder".into();
    world.pod("lost", json!({"restartPolicy": "Never", "containers": [elsewhere]}));
    world.until_event("lost", "Failed", |message| message.contains("/no/such/folder"));
}

#[test]
fn nothing_is_left_when_the_cluster_is_killed() {
    let mut world = World::start();
    world.pod("stays", json!({"containers": [shell("setsid sleep 98775 & exec sleep 98775")]}));
    world.until_ready("stays");
    until("running", || processes("sleep 98775") == 2).unwrap();
    world.cluster.kill();
    until("nothing left", || processes("sleep 98775") == 0).unwrap();
}

//! Pods that outlive `shoal up`, because it was asked to keep them.

use std::path::Path;

use serde_json::{Value, json};

use crate::kubectl::{World, processes, restarts, shell, until};

/// Counts, one line each tenth of a second.
const COUNT: &str = "i=0; while :; do i=$((i+1)); echo line $i; sleep 0.1; done # 98776";

fn start(data: &Path, keep: bool) -> World {
    let data = data.to_str().unwrap();
    let arguments = ["--data-dir", data, "--keep-pods"];
    World::with(if keep { &arguments } else { &arguments[..2] })
}

fn container_id(pod: &Value) -> String {
    pod["status"]["containerStatuses"][0]["containerID"].as_str().unwrap_or_default().to_owned()
}

/// Numbers of lines; none may be missing.
fn lines(world: &World) -> usize {
    let log = world.ok(&["logs", "counts"]);
    for (index, line) in log.lines().enumerate() {
        assert_eq!(line, format!("line {}", index + 1));
    }
    log.lines().count()
}

#[test]
fn containers_go_on_when_the_process_is_killed_and_the_next_one_takes_them_over() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = start(dir.path(), true);
    let mut container = shell(COUNT);
    container["livenessProbe"] =
        json!({"exec": {"command": ["test", "!", "-e", "/tmp/dead"]}, "periodSeconds": 1});
    world.pod("counts", json!({"containers": [container]}));
    let before = world.until_ready("counts");
    until("counted", || lines(&world) > 5).unwrap();
    let count = lines(&world);
    world.cluster.kill();
    assert_eq!(processes("98776"), 1, "it goes on");

    let mut world = start(dir.path(), true);
    until("counted on", || lines(&world) > count + 20).unwrap();
    let after = world.until_ready("counts");
    assert_eq!((container_id(&after), restarts(&after)), (container_id(&before), 0));
    assert_eq!(after["status"]["podIP"], before["status"]["podIP"]);
    assert_eq!(processes("98776"), 1, "there is one of it");
    // Commands join it, its probes go on, and its end is seen.
    world.ok(&["exec", "counts", "--", "touch", "/tmp/dead"]);
    let again = world.until_pod("counts", "restarted", |pod| restarts(pod) == 1);
    assert_eq!(
        again["status"]["containerStatuses"][0]["lastState"]["terminated"]["containerID"],
        container_id(&before).as_str()
    );

    // In good order, too; and whoever does not keep pods ends what is left.
    assert_eq!(world.cluster.stop(), Some(0));
    assert_eq!(processes("98776"), 1);
    let world = start(dir.path(), false);
    world.until_pod("counts", "started again", |pod| restarts(pod) == 2);
    assert_eq!(processes("98776"), 1);
    drop(world);
    until("nothing left", || processes("98776") == 0).unwrap();
}

#[test]
fn what_ended_meanwhile_is_told_and_what_nobody_knows_is_ended() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = start(dir.path(), true);
    let go = dir.path().join("go");
    let script = format!("until test -e {}; do sleep 0.1; done; exit 6 # 98777", go.display());
    let volumes = json!([{"name": "here", "hostPath": {"path": dir.path().to_str().unwrap()}}]);
    let mut ends = shell(&script);
    ends["volumeMounts"] = json!([{"name": "here", "mountPath": dir.path().to_str().unwrap()}]);
    world.pod("ends", json!({"restartPolicy": "Never", "containers": [ends], "volumes": volumes}));
    world.pod("stays", json!({"containers": [shell("exec sleep 98778")]}));
    let stays = world.until_ready("stays");
    world.until_ready("ends");
    world.cluster.kill();
    std::fs::write(&go, "").unwrap();
    until("ended", || processes("98777") == 0).unwrap();
    // As if the pod had never been: nobody will ever ask for it.
    let nodes = dir.path().join("nodes/shoal/pods");
    let uid = stays["metadata"]["uid"].as_str().unwrap();
    std::fs::rename(nodes.join(uid), nodes.join("unknown")).unwrap();
    let world = start(dir.path(), true);
    let pod = world.until_phase("ends", "Failed");
    assert_eq!(pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 6);
    world.until_pod("stays", "started again", |pod| restarts(pod) == 1);
    until("one of it", || processes("sleep 98778") == 1).unwrap();
    assert!(!nodes.join("unknown").exists());
    world.ok(&["delete", "pod", "stays", "--now"]);
    until("nothing left", || processes("sleep 98778") == 0).unwrap();
}

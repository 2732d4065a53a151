//! Ephemeral containers, and pods that are for one look.

use serde_json::json;

use crate::kubectl::{World, finish, processes};

#[test]
fn a_debug_container_joins_a_pod_and_ends_alone() {
    let world = World::start();
    world.pod("web", json!({"containers": [{"name": "main", "image": "echo"}]}));
    world.until_ready("web");
    let script = "echo in $(hostname); exit 3";
    let arguments = ["debug", "web", "--image=busybox", "-c", "look", "--", "sh", "-c", script];
    world.ok(&arguments);
    let pod = world.until_pod("web", "debugged", |pod| {
        !pod["status"]["ephemeralContainerStatuses"][0]["state"]["terminated"].is_null()
    });
    let status = &pod["status"]["ephemeralContainerStatuses"][0];
    assert_eq!(status["state"]["terminated"]["exitCode"], 3);
    assert_eq!(status["restartCount"], 0);
    assert_eq!(world.ok(&["logs", "web", "-c", "look"]), "in web\n");
    let pod = world.until_ready("web");
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0);
}

#[test]
fn a_debug_container_sees_the_processes_of_its_target() {
    let world = World::start();
    world.pod("web", json!({"containers": [{"name": "main", "image": "echo"}]}));
    world.until_ready("web");
    let script = "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; (setsid sleep 98779 &); exit 0";
    world.ok(&["debug", "web", "--image=busybox", "-c", "look", "--target=main", "--", "sh", "-c", script]);
    world.until_pod("web", "debugged", |pod| {
        pod["status"]["ephemeralContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    });
    let log = world.ok(&["logs", "web", "-c", "look"]);
    assert!(log.contains("image echo"), "{log}");
    assert_eq!(processes("sleep 98779"), 0, "what it leaves behind ends with it");
    assert_eq!(world.until_ready("web")["status"]["containerStatuses"][0]["restartCount"], 0);
}

#[test]
fn a_debug_container_is_used_in_a_terminal() {
    let world = World::start();
    world.idle("box");
    let command = world.terminal("debug -it box --image=busybox -c look -- sh");
    let said = finish(command, "echo is-$((6*7)) $(hostname)\nexit\n");
    assert!(said.out.contains("is-42 box"), "{said:?}");
}

#[test]
fn a_pod_runs_in_a_terminal_and_is_removed() {
    let world = World::start();
    let command = world.terminal("run once -it --rm --image=busybox --restart=Never -- sh");
    let said = finish(command, "echo is-$((6*7))\nexit\n");
    assert!(said.out.contains("is-42"), "{said:?}");
    assert!(said.out.contains("pod \"once\" deleted"), "{said:?}");
    world.until_gone("once");
}

#[test]
fn a_pod_takes_its_input_once_and_is_removed() {
    let world = World::start();
    let said = world.run(
        &["run", "once", "-i", "--rm", "--quiet", "--image=busybox", "--restart=Never", "--", "cat"],
        "through the pod\n",
    );
    assert!(said.out.contains("through the pod"), "{said:?}");
    world.until_gone("once");
}

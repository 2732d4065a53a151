//! Hooks after the start and before the end.

use serde_json::json;

use crate::kubectl::{World, restarts, shell};

#[test]
fn hooks_run_after_the_start_and_before_the_end() {
    let world = World::start();
    let notes = world.home.path().join("notes");
    std::fs::create_dir(&notes).unwrap();
    let mut container = shell("trap 'echo signal >> /notes/order; exit 0' TERM; while :; do sleep 0.1; done");
    let note =
        |text: &str| json!({"exec": {"command": ["sh", "-c", format!("echo {text} >> /notes/order")]}});
    container["lifecycle"] = json!({"postStart": note("started"), "preStop": note("stopping")});
    container["volumeMounts"] = json!([{"name": "notes", "mountPath": "/notes"}]);
    let volumes = json!([{"name": "notes", "hostPath": {"path": notes.to_str().unwrap()}}]);
    world.pod(
        "hooked",
        json!({"terminationGracePeriodSeconds": 20, "containers": [container], "volumes": volumes}),
    );
    world.until_ready("hooked");
    let order = || std::fs::read_to_string(notes.join("order")).unwrap_or_default();
    crate::kubectl::until("noted", || order() == "started\n").unwrap();
    world.ok(&["delete", "pod", "hooked"]);
    world.until_gone("hooked");
    assert_eq!(order(), "started\nstopping\nsignal\n");
}

#[test]
fn a_container_whose_first_hook_fails_starts_again() {
    let world = World::start();
    let mut container = shell("exec sleep 100000");
    container["lifecycle"] = json!({"postStart": {"exec": {"command": ["sh", "-c", "echo no; exit 3"]}}});
    world.pod("hooked", json!({"containers": [container]}));
    world.until_event("hooked", "FailedPostStartHook", |message| message.contains("exited with 3: no"));
    world.until_pod("hooked", "restarted", |pod| restarts(pod) >= 1);
}

#[test]
fn a_hook_that_hangs_costs_no_more_than_the_grace_period() {
    let world = World::start();
    let mut container = shell("exec sleep 98773");
    container["lifecycle"] = json!({"preStop": {"exec": {"command": ["sleep", "100000"]}}});
    world.pod("hooked", json!({"terminationGracePeriodSeconds": 1, "containers": [container]}));
    world.until_ready("hooked");
    let began = std::time::Instant::now();
    world.ok(&["delete", "pod", "hooked"]);
    world.until_gone("hooked");
    assert!(began.elapsed() < std::time::Duration::from_secs(30));
    assert_eq!(crate::kubectl::processes("sleep 98773"), 0);
}

//! Logs as they grow, of the last run, and parts of them.

use serde_json::json;

use crate::kubectl::{Running, World, restarts, shell};

#[test]
fn a_log_is_followed_to_its_end() {
    let world = World::start();
    let script = "for i in 1 2 3; do echo line $i; done; until test -e /tmp/go; do sleep 0.1; done; echo last; echo oops >&2";
    world.pod("talker", json!({"restartPolicy": "Never", "containers": [shell(script)]}));
    world.until_ready("talker");
    let mut following = Running::start(world.kubectl(&["logs", "-f", "talker"]));
    for number in 1..=3 {
        assert_eq!(following.line().unwrap(), format!("line {number}"));
    }
    world.ok(&["exec", "talker", "--", "touch", "/tmp/go"]);
    let mut rest = [following.line().unwrap(), following.line().unwrap()];
    rest.sort();
    assert_eq!(rest, ["last", "oops"]);
    assert_eq!(following.line(), None, "the container has ended, and so does its log");
    assert_eq!(following.child.wait().unwrap().code(), Some(0));
    assert_eq!(world.ok(&["logs", "talker", "--tail=4"]).lines().next().unwrap(), "line 2");
    assert_eq!(world.ok(&["logs", "talker", "--limit-bytes=6"]), "line 1");
    let stamped = world.ok(&["logs", "talker", "--timestamps", "--since=1h"]);
    assert!(stamped.lines().all(|line| line.starts_with("20") && line.contains("Z ")), "{stamped}");
    assert_eq!(world.ok(&["logs", "talker", "--since-time=2999-01-01T00:00:00Z"]), "");
}

#[test]
fn the_log_of_the_run_before_is_kept() {
    let world = World::start();
    let script = "if test -e /state/ran; then echo second; exec sleep 100000; fi; touch /state/ran; echo first; exit 1";
    let mut main = shell(script);
    main["volumeMounts"] = json!([{"name": "state", "mountPath": "/state"}]);
    let mut init = shell("echo prepared");
    init["name"] = "init".into();
    let volumes = json!([{"name": "state", "emptyDir": {}}]);
    world.pod("twice", json!({"containers": [main], "initContainers": [init], "volumes": volumes}));
    world.until_pod("twice", "restarted", |pod| {
        restarts(pod) == 1 && pod["status"]["containerStatuses"][0]["ready"] == true
    });
    world.until_prints(&["logs", "twice"], |log| log == "second\n");
    assert_eq!(world.ok(&["logs", "twice", "--previous"]), "first\n");
    assert_eq!(world.ok(&["logs", "twice", "-c", "init"]), "prepared\n");
    let all = world.ok(&["logs", "twice", "--all-containers", "--prefix"]);
    assert!(all.contains("[pod/twice/main] second") && all.contains("[pod/twice/init] prepared"), "{all}");
    let said = world.run(&["logs", "twice", "-c", "init", "--previous"], "");
    assert!(said.code == Some(1) && said.err.contains("previous terminated container"), "{said:?}");
}

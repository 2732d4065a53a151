//! exec, attach, cp.

use serde_json::json;

use crate::kubectl::{Running, World, finish, processes, shell, until};

#[test]
fn exec_passes_streams_and_the_exit_code() {
    let world = World::start();
    world.idle("box");
    let said = world.run(&["exec", "box", "--", "sh", "-c", "echo out; echo err >&2; exit 7"], "");
    assert_eq!((said.code, said.out.as_str()), (Some(7), "out\n"), "{said:?}");
    assert!(said.err.contains("err\n") && said.err.contains("exit code 7"), "{said:?}");
    let said = world.run(&["exec", "-i", "box", "--", "cat"], "through the pod");
    assert_eq!((said.code, said.out.as_str()), (Some(0), "through the pod"), "{said:?}");
    let much = "0123456789abcdef".repeat(128 * 1024);
    let said = world.run(&["exec", "-i", "box", "--", "wc", "-c"], &much);
    assert_eq!(said.out.trim(), (2 * 1024 * 1024).to_string(), "{:?}", said.err);
    let said = world.run(&["exec", "box", "--", "no-such-command"], "");
    assert_eq!(said.code, Some(127), "{said:?}");
    assert!(said.err.contains("executable file not found"), "{said:?}");
    let said = world.run(&["exec", "box", "-c", "other", "--", "true"], "");
    assert!(
        said.code == Some(1) && said.err.contains("container other is not valid for pod box"),
        "{said:?}"
    );
}

#[test]
fn exec_in_a_terminal_has_one() {
    let world = World::start();
    world.idle("box");
    let said =
        finish(world.terminal("exec box -it -- sh -c 'test -t 0 && test -t 1 && echo is-$((6*7))'"), "");
    assert!(said.code == Some(0) && said.out.contains("is-42"), "{said:?}");
    // A terminal shows what is typed, so what is computed tells that it was run.
    let said = finish(world.terminal("exec box -it -- sh"), "echo is-$((6*7))\nexit 5\n");
    assert!(said.code == Some(5) && said.out.contains("is-42"), "{said:?}");
}

#[test]
fn a_command_ends_when_its_client_has_gone() {
    let world = World::start();
    world.idle("box");
    let command = world.kubectl(&["exec", "box", "--", "sh", "-c", "echo begun; exec sleep 98771"]);
    let mut running = Running::start(command);
    assert_eq!(running.line().unwrap(), "begun");
    until("running", || processes("sleep 98771") > 0).unwrap();
    drop(running);
    until("ended", || processes("sleep 98771") == 0).unwrap();
}

#[test]
fn attach_shows_output_and_passes_input_more_than_once() {
    let world = World::start();
    let mut container = shell("while read line; do echo got $line; done");
    container["stdin"] = true.into();
    world.pod("reader", json!({"containers": [container]}));
    world.until_ready("reader");
    for text in ["one", "two"] {
        use std::io::Write as _;
        let mut running = Running::start(world.kubectl(&["attach", "-i", "reader"]));
        writeln!(running.child.stdin.as_ref().unwrap(), "{text}").unwrap();
        running.until_line(|line| line == format!("got {text}"));
    }
    assert_eq!(world.ok(&["logs", "reader"]), "got one\ngot two\n");
}

#[test]
fn files_are_copied_to_a_pod_and_back() {
    let world = World::start();
    world.idle("box");
    let local = world.home.path().join("local");
    std::fs::create_dir(&local).unwrap();
    let bytes: Vec<u8> = (0..200_000_u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
    std::fs::write(local.join("data.bin"), &bytes).unwrap();
    std::fs::write(local.join("text"), "hello\n").unwrap();
    let back = world.home.path().join("back");
    world.ok(&["cp", local.to_str().unwrap(), "box:/tmp/copied"]);
    assert_eq!(world.ok(&["exec", "box", "--", "cat", "/tmp/copied/text"]), "hello\n");
    world.ok(&["cp", "box:/tmp/copied", back.to_str().unwrap()]);
    assert_eq!(std::fs::read(back.join("data.bin")).unwrap(), bytes);
}

#[test]
fn older_clients_and_real_api_servers_speak_spdy() {
    let world = World::start();
    world.idle("box");
    let spdy = |mut command: std::process::Command| {
        command.env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false");
        command.env("KUBECTL_PORT_FORWARD_WEBSOCKETS", "false");
        command
    };
    let run = |arguments: &[&str], input: &str| finish(spdy(world.kubectl(arguments)), input);
    let said = run(&["exec", "box", "--", "sh", "-c", "echo out; echo err >&2; exit 7"], "");
    assert_eq!((said.code, said.out.as_str()), (Some(7), "out\n"), "{said:?}");
    assert!(said.err.contains("err\n") && said.err.contains("exit code 7"), "{said:?}");
    let much = "0123456789abcdef".repeat(64 * 1024);
    let said = run(&["exec", "-i", "box", "--", "cat"], &much);
    assert!(said.code == Some(0) && said.out == much, "{} bytes, {:?}", said.out.len(), said.err);
    let said = finish(spdy(world.terminal("exec box -it -- sh")), "echo is-$((6*7))\nexit 5\n");
    assert!(said.code == Some(5) && said.out.contains("is-42"), "{said:?}");
    world.pod("web", json!({"containers": [{"name": "main", "image": "echo"}]}));
    world.until_ready("web");
    world.until_prints(&["logs", "web"], |log| log.contains("listening"));
    let mut running = Running::start(spdy(world.kubectl(&["port-forward", "pod/web", ":8080"])));
    let line = running.until_line(|line| line.starts_with("Forwarding from 127.0.0.1:"));
    let address = line.trim_start_matches("Forwarding from ").split(' ').next().unwrap();
    assert!(crate::ports::http(address, "/asked").unwrap().contains("GET /asked"));
}

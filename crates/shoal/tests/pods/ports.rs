//! port-forward and ports of the node.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use serde_json::json;

use crate::kubectl::{Running, World, until};

/// What a plain HTTP server answers.
pub fn http(address: &str, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn web() -> serde_json::Value {
    json!({"name": "main", "image": "echo", "ports": [{"containerPort": 8080, "name": "http"}],
        "readinessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 1}})
}

#[test]
fn port_forward_leads_to_the_program_in_the_pod() {
    let world = World::start();
    world.pod("web", json!({"containers": [web()]}));
    world.until_ready("web");
    let mut running = Running::start(world.kubectl(&["port-forward", "pod/web", ":8080"]));
    let line = running.until_line(|line| line.starts_with("Forwarding from 127.0.0.1:"));
    let address = line.trim_start_matches("Forwarding from ").split(' ').next().unwrap().to_owned();
    let asking: Vec<_> = (0..8)
        .map(|number| {
            let address = address.clone();
            std::thread::spawn(move || http(&address, &format!("/asked/{number}")).unwrap())
        })
        .collect();
    for (number, asked) in asking.into_iter().enumerate() {
        let answer = asked.join().unwrap();
        assert!(answer.contains("Hostname: web"), "{answer}");
        assert!(answer.contains(&format!("GET /asked/{number}")), "{answer}");
    }
}

#[test]
fn a_host_port_leads_to_the_pod_and_one_that_is_taken_is_told() {
    let world = World::start();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let mut container = web();
    container["ports"][0]["hostPort"] = port.into();
    world.pod("web", json!({"containers": [container]}));
    world.until_event("web", "FailedCreatePodSandBox", |message| {
        message.contains(&format!("127.0.0.1:{port}")) && message.contains("choose another hostPort")
    });
    assert!(world.ok(&["get", "pod", "web"]).contains("ContainerCreating"));
    drop(taken);
    world.until_ready("web");
    assert!(http(&format!("127.0.0.1:{port}"), "/").unwrap().contains("Hostname: web"));
    world.ok(&["delete", "pod", "web", "--now"]);
    until("free again", || TcpListener::bind(("127.0.0.1", port)).is_ok()).unwrap();
}

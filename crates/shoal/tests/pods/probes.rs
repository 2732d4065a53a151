//! Probes of every kind, and what follows from them.

use serde_json::{Value, json};

use crate::kubectl::{World, processes, python, restarts, shell, until};

fn probe(check: Value, failures: i32) -> Value {
    let mut probe = check;
    probe["periodSeconds"] = 1.into();
    probe["failureThreshold"] = failures.into();
    probe
}

fn exec(script: &str, failures: i32) -> Value {
    probe(json!({"exec": {"command": ["sh", "-c", script]}}), failures)
}

/// A server for HTTP/2 that answers every request as a gRPC service that serves.
const GRPC: &str = r"
import socket, struct
def frame(kind, flags, stream, data): return struct.pack('>I', len(data))[1:] + bytes([kind, flags]) + struct.pack('>I', stream) + data
def header(name, value): return b'\0' + bytes([len(name)]) + name + bytes([len(value)]) + value
def read(c, n):
    data = b''
    while len(data) < n:
        more = c.recv(n - len(data))
        if not more: raise EOFError
        data += more
    return data
s = socket.socket(); s.bind(('0.0.0.0', 9000)); s.listen()
while True:
    c, _ = s.accept()
    try:
        read(c, 24); c.sendall(frame(4, 0, 0, b''))
        while True:
            h = read(c, 9); body = read(c, int.from_bytes(h[:3], 'big')); stream = int.from_bytes(h[5:], 'big')
            if h[3] == 4 and not h[4] & 1: c.sendall(frame(4, 1, 0, b''))
            if h[3] == 0 and h[4] & 1:
                c.sendall(frame(1, 4, stream, b'\x88' + header(b'content-type', b'application/grpc'))
                    + frame(0, 0, stream, b'\0\0\0\0\2\x08\1')
                    + frame(1, 5, stream, header(b'grpc-status', b'0')))
    except (EOFError, OSError): pass
    c.close()
";

#[test]
fn every_kind_of_probe_is_asked() {
    let world = World::start();
    let named = |mut container: Value, name: &str, check: Value| {
        container["name"] = name.into();
        container["readinessProbe"] = probe(check, 1);
        container
    };
    let headers = json!([{"name": "X-Asked-By", "value": "probe"}]);
    // The API server speaks TLS with a certificate that nobody told the node about.
    let api =
        json!({"scheme": "HTTPS", "host": "127.0.0.1", "port": world.cluster.port(), "path": "/readyz"});
    let echo = json!({"image": "echo", "ports": [{"name": "http", "containerPort": 8080}]});
    let sleeper = || json!({"image": "sleeper"});
    world.pod(
        "all",
        json!({"containers": [
            named(sleeper(), "exec", json!({"exec": {"command": ["true"]}})),
            named(echo, "http", json!({"httpGet": {"path": "/ready", "port": "http", "httpHeaders": headers}})),
            named(sleeper(), "https", json!({"httpGet": api})),
            named(sleeper(), "tcp", json!({"tcpSocket": {"port": 8080}})),
            named(python(GRPC), "grpc", json!({"grpc": {"port": 9000}})),
        ]}),
    );
    world.until_ready("all");
    assert!(world.ok(&["logs", "all", "-c", "http"]).contains("GET /ready"));
}

#[test]
fn probes_that_fail_say_why() {
    let world = World::start();
    let named = |name: &str, check: Value| json!({"name": name, "image": "sleeper", "readinessProbe": probe(check, 1)});
    let api =
        json!({"scheme": "HTTPS", "host": "127.0.0.1", "port": world.cluster.port(), "path": "/nothing"});
    world.pod(
        "bad",
        json!({"containers": [
            named("exec", json!({"exec": {"command": ["sh", "-c", "echo not yet; exit 1"]}})),
            named("https", json!({"httpGet": api})),
            named("tcp", json!({"tcpSocket": {"port": 9}})),
            named("grpc", json!({"grpc": {"port": 9}})),
        ]}),
    );
    for reason in [
        "Readiness probe failed: not yet",
        "HTTP probe failed with statuscode: 40",
        "dial tcp 127.",
        "Readiness probe failed: ",
    ] {
        world.until_event("bad", "Unhealthy", |message| message.contains(reason));
    }
    assert!(world.ok(&["get", "pod", "bad"]).contains("0/4"));
}

#[test]
fn readiness_takes_a_pod_out_of_its_service() {
    let world = World::start();
    let mut container = shell("exec sleep 100000");
    container["readinessProbe"] = exec("test -e /tmp/ready", 1);
    world.pod("web", json!({"containers": [container]}));
    world.ok(&["expose", "pod", "web", "--port=80", "--target-port=8080"]);
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io/service-name%3Dweb";
    let until = |ready: bool| {
        world.until_get(slices, &format!("ready: {ready}"), |list| {
            list["items"][0]["endpoints"][0]["conditions"]["ready"] == ready
        });
    };
    until(false);
    world.ok(&["exec", "web", "--", "touch", "/tmp/ready"]);
    until(true);
    world.ok(&["exec", "web", "--", "rm", "/tmp/ready"]);
    until(false);
    assert_eq!(restarts(&world.until_pod("web", "there", |_| true)), 0);
}

#[test]
fn a_container_that_is_not_alive_starts_again() {
    let world = World::start();
    let mut container = shell("rm -f /tmp/dead; exec sleep 100000");
    container["livenessProbe"] = exec("test ! -e /tmp/dead", 2);
    world.pod("sick", json!({"containers": [container]}));
    world.until_ready("sick");
    world.ok(&["exec", "sick", "--", "touch", "/tmp/dead"]);
    world.until_pod("sick", "restarted", |pod| restarts(pod) == 1);
    world.until_event("sick", "Unhealthy", |message| message.starts_with("Liveness probe failed"));
    world.until_event("sick", "Killing", |message| {
        message == "Container main failed liveness probe, will be restarted"
    });
    let line = world.until_prints(&["get", "pod", "sick", "--no-headers"], |line| line.contains("Running"));
    assert_eq!(line.split_whitespace().nth(3), Some("1"), "{line}");
}

#[test]
fn a_startup_probe_holds_the_others_back() {
    let world = World::start();
    let mut container = shell("exec sleep 100000");
    container["startupProbe"] = exec("test -e /tmp/started", 1000);
    container["livenessProbe"] = exec("false", 1);
    world.pod("slow", json!({"containers": [container]}));
    // Far more often than liveness would have had patience.
    let events = "/api/v1/namespaces/default/events?fieldSelector=reason%3DUnhealthy";
    world.until_get(events, "asked several times", |list| {
        list["items"].as_array().is_some_and(|items| items.iter().any(|e| e["count"].as_i64() > Some(3)))
    });
    let pod = world.until_pod("slow", "there", |_| true);
    assert_eq!(restarts(&pod), 0);
    assert_eq!(pod["status"]["containerStatuses"][0]["started"], false);
    assert!(world.events("slow", "Unhealthy").iter().all(|message| message.starts_with("Startup probe")));
    world.ok(&["exec", "slow", "--", "touch", "/tmp/started"]);
    world.until_pod("slow", "restarted", |pod| restarts(pod) >= 1);
}

#[test]
fn a_probe_that_hangs_is_a_failure_and_leaves_nothing_behind() {
    let world = World::start();
    let mut container = python(
        "import socket\ns=socket.socket();s.bind(('0.0.0.0',8080));s.listen();kept=[]\nwhile True: kept.append(s.accept())",
    );
    container["readinessProbe"] = exec("sleep 98772; true", 1);
    // It is connected to, but never answered.
    container["livenessProbe"] = probe(json!({"httpGet": {"port": 8080}}), 3);
    world.pod("hangs", json!({"containers": [container]}));
    world.until_event("hangs", "Unhealthy", |message| message.contains("timed out after 1s"));
    world.until_event("hangs", "Unhealthy", |message| message.contains("Client.Timeout exceeded"));
    world.until_pod("hangs", "restarted", |pod| restarts(pod) >= 1);
    assert!(world.ok(&["get", "pod", "hangs"]).contains("0/1"));
    // One may be under way, the others have been ended.
    assert!(processes("sleep 98772") <= 2);
    world.ok(&["delete", "pod", "hangs", "--now"]);
    until("nothing left", || processes("sleep 98772") == 0).unwrap();
}

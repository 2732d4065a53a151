//! What programs in pods see of the cluster: the API server, names, addresses.

use serde_json::json;

use crate::kubectl::{World, python};

fn admin(world: &World) {
    world.ok(&[
        "create",
        "clusterrolebinding",
        "inside",
        "--clusterrole=cluster-admin",
        "--serviceaccount=default:default",
    ]);
}

#[test]
fn a_client_in_a_pod_reaches_the_api_server_by_its_account() {
    let world = World::start();
    admin(&world);
    let program = r"
import json, os, ssl, urllib.request
home = '/var/run/secrets/kubernetes.io/serviceaccount/'
token, namespace = open(home + 'token').read(), open(home + 'namespace').read()
trust = ssl.create_default_context(cafile=home + 'ca.crt')
for host in [os.environ['KUBERNETES_SERVICE_HOST'] + ':' + os.environ['KUBERNETES_SERVICE_PORT'], 'kubernetes', 'kubernetes.default.svc', 'kubernetes.default.svc.cluster.local']:
    request = urllib.request.Request(f'https://{host}/api/v1/namespaces/{namespace}/pods/inside', headers={'Authorization': 'Bearer ' + token})
    pod = json.load(urllib.request.urlopen(request, context=trust))
    print(host, pod['metadata']['name'], pod['spec']['nodeName'])
";
    world.pod("inside", json!({"restartPolicy": "Never", "containers": [python(program)]}));
    world.until_phase("inside", "Succeeded");
    let log = world.ok(&["logs", "inside"]);
    assert_eq!(log.lines().filter(|line| line.ends_with(" inside shoal")).count(), 4, "{log}");
}

#[test]
fn a_rust_client_in_a_pod_finds_its_cluster() {
    let world = World::start();
    admin(&world);
    let container = json!({"name": "main", "image": "shoal", "args": ["shards", "status"]});
    world.pod("inside", json!({"restartPolicy": "Never", "containers": [container]}));
    world.until_pod("inside", "over", |pod| {
        matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
    });
    let log = world.ok(&["logs", "inside"]);
    // It was answered: nothing is sharded here.
    assert!(log.contains("this cluster has no ShardMaps"), "{log}");
}

/// Asks the name server as resolvers do, over a connected socket: for addresses, then for a port.
const ASK: &str = r"
import socket, struct, sys, time
def ask(name, kind):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5); s.connect(('10.96.0.10', 53))
    s.send(struct.pack('>6H', 7, 0x100, 1, 0, 0, 0) + b''.join(bytes([len(l)]) + l.encode() for l in name.split('.')) + b'\0' + struct.pack('>2H', kind, 1))
    answer = s.recv(4096)
    return answer[3] & 15, int.from_bytes(answer[6:8], 'big'), answer
def until(name, kind, wanted):
    while True:
        code, count, answer = ask(name, kind)
        if count == wanted: return answer
        time.sleep(0.1)
answer = until('db-0.db.default.svc.cluster.local', 1, 1)
print('address', socket.inet_ntoa(answer[-4:]))
until('db.default.svc.cluster.local', 1, 2)
answer = until('_http._tcp.db.default.svc.cluster.local', 33, 2)
print('port', b'db-0' in answer and b'db-1' in answer and (8080).to_bytes(2, 'big') in answer)
print('missing', ask('no.db.default.svc.cluster.local', 1)[0])
print('same', socket.gethostbyname('db-0.db') == socket.gethostbyname('db-0.db.default.svc.cluster.local'))
";

#[test]
fn hosts_of_a_headless_service_have_names() {
    let world = World::start();
    let ports = json!([{"name": "http", "port": 80, "targetPort": 8080}]);
    let selector = json!({"app": "db"});
    let container = json!({"name": "main", "image": "echo", "ports": [{"containerPort": 8080}]});
    world.apply(&[
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "db"}, "spec": {"clusterIP": "None", "selector": selector, "ports": ports}}),
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": {
            "serviceName": "db", "replicas": 2, "selector": {"matchLabels": selector},
            "template": {"metadata": {"labels": selector}, "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}},
        }}),
    ]);
    world.until_ready("db-1");
    world.pod("asks", json!({"restartPolicy": "Never", "containers": [python(ASK)]}));
    world.until_phase("asks", "Succeeded");
    let ip = world.until_ready("db-0")["status"]["podIP"].as_str().unwrap().to_owned();
    assert_eq!(world.ok(&["logs", "asks"]), format!("address {ip}\nport True\nmissing 3\nsame True\n"));
    let conf = world.ok(&["exec", "db-0", "--", "cat", "/etc/resolv.conf"]);
    assert!(conf.starts_with("nameserver 10.96.0.10\n"), "{conf}");
    assert!(conf.contains("search default.svc.cluster.local svc.cluster.local cluster.local"), "{conf}");
}

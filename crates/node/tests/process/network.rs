//! Addresses of pods and Services.

use serde_json::json;

use crate::cluster::World;

const SERVER: &str = "import socket,os\ns=socket.socket();s.setsockopt(socket.SOL_SOCKET,socket.SO_REUSEADDR,1)\n\
    s.bind(('0.0.0.0',18080));s.listen();print(s.getsockname()[0],flush=True)\nwhile True:\n c,_=s.accept();c.sendall(os.environ['HOSTNAME'].encode());c.close()";

fn python(script: &str) -> serde_json::Value {
    json!({"name": "main", "image": "python", "command": ["python3", "-c", script]})
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_that_bind_every_address_do_not_collide_and_a_service_leads_to_them() {
    let world = World::start().await;
    let service = json!({"metadata": {"name": "web"}, "spec": {"clusterIP": "10.96.7.7", "ports": [{"port": 80, "targetPort": 18080}]}});
    world.create("v1", "Service", "services", service).await;
    let mut endpoints = Vec::new();
    for name in ["one", "two"] {
        world.run(name, json!({"containers": [python(SERVER)]})).await;
        let pod = world.until_ready(name).await;
        let ip = pod["status"]["podIP"].as_str().unwrap().to_owned();
        let own = ip.replacen("10.", "127.", 1);
        world.until_log(name, "main", |log| log.trim() == own).await;
        endpoints.push(json!({"addresses": [ip], "conditions": {"ready": true}}));
    }
    let slice = json!({
        "metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4", "endpoints": endpoints, "ports": [{"name": "", "port": 18080, "protocol": "TCP"}],
    });
    world.create("discovery.k8s.io/v1", "EndpointSlice", "endpointslices", slice).await;
    let client = "import socket,time\nseen=set()\nwhile len(seen)<2:\n try:\n  seen.add(socket.create_connection(('web',80)).recv(100))\n except OSError as e:\n  print(e,flush=True);time.sleep(0.1)\nprint(sorted(seen))";
    world.run("client", json!({"restartPolicy": "Never", "containers": [python(client)]})).await;
    world.until_phase("client", "Succeeded").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_of_a_pod_meet_on_localhost() {
    let world = World::start().await;
    let client = "import socket,time\nwhile True:\n try:\n  print(socket.create_connection(('127.0.0.1',18080)).recv(100).decode());break\n except OSError:\n  time.sleep(0.1)";
    let mut server = python(SERVER);
    server["name"] = "server".into();
    server["restartPolicy"] = "Always".into();
    world
        .run(
            "local",
            json!({"restartPolicy": "Never", "initContainers": [server], "containers": [python(client)]}),
        )
        .await;
    let pod = world.until_phase("local", "Succeeded").await;
    assert_eq!(world.log(&pod, "main", 0), "local\n");
}

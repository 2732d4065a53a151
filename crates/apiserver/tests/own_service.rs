//! Where the Service `kubernetes` leads.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use serde_json::{Value, json};
use shoal_testkit::Cluster;

const SERVICE: &str = "/api/v1/namespaces/default/services/kubernetes";
const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints/kubernetes";
const SLICE: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";

async fn all(cluster: &Cluster) -> [Value; 3] {
    let get = async |path: &str| {
        let answer = cluster.http().get(path).await;
        assert_eq!(answer.status, 200, "{path}");
        answer.json()
    };
    [get(SERVICE).await, get(ENDPOINTS).await, get(SLICE).await]
}

fn leads_to_7443([service, endpoints, slice]: &[Value; 3]) {
    let ports = json!([{"name": "https", "port": 7443, "protocol": "TCP"}]);
    assert_eq!(service["spec"]["ports"][0]["targetPort"], 7443);
    assert_eq!(service["spec"]["clusterIP"], "10.96.0.1");
    assert_eq!(endpoints["metadata"]["labels"]["endpointslice.kubernetes.io/skip-mirror"], "true");
    assert_eq!(endpoints["subsets"], json!([{"addresses": [{"ip": "192.0.2.7"}], "ports": ports}]));
    assert_eq!(slice["metadata"]["labels"]["kubernetes.io/service-name"], "kubernetes");
    assert_eq!((&slice["addressType"], &slice["ports"]), (&json!("IPv4"), &ports));
    assert_eq!(slice["endpoints"], json!([{"addresses": ["192.0.2.7"], "conditions": {"ready": true}}]));
}

#[tokio::test(start_paused = true)]
async fn the_server_tells_where_it_is_and_puts_it_right() {
    let cluster = Cluster::start().await;
    cluster.server().advertise("192.0.2.7:7443".parse().unwrap()).await;
    let before = all(&cluster).await;
    leads_to_7443(&before);
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert_eq!(all(&cluster).await, before, "what is right is left alone");

    let http = cluster.http();
    for path in [SERVICE, ENDPOINTS] {
        assert_eq!(http.delete(path).await.status, 200);
    }
    let mut wrong = before[2].clone();
    wrong["metadata"]["labels"]["kubernetes.io/service-name"] = json!("other");
    wrong["endpoints"] = json!([]);
    assert_eq!(http.put(SLICE, &wrong).await.status, 200);
    tokio::time::sleep(Duration::from_secs(11)).await;
    leads_to_7443(&all(&cluster).await);

    // The next life listens elsewhere.
    cluster.server().advertise("[2001:db8::1]:6443".parse().unwrap()).await;
    let [service, _, slice] = all(&cluster).await;
    assert_eq!(service["spec"]["ports"][0]["targetPort"], 6443);
    let address = &slice["endpoints"][0]["addresses"][0];
    assert_eq!((&slice["addressType"], address), (&json!("IPv6"), &json!("2001:db8::1")));
}

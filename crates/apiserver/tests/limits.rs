//! What a namespace allows: limit ranges, quotas and the levels of pod security.

#![allow(clippy::needless_pass_by_value, reason = "tests read better with literals")]

use serde_json::{Value, json};
use shoal_testkit::{Cluster, Http};

const PODS: &str = "/api/v1/namespaces/default/pods";
const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";

async fn start() -> Http {
    let http = Cluster::start().await.http();
    let account = json!({"metadata": {"name": "default"}});
    http.post("/api/v1/namespaces/default/serviceaccounts", &account).await;
    http
}

fn pod(name: &str, resources: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "automountServiceAccountToken": false,
        "containers": [{"name": "app", "image": "img.test/app:1", "resources": resources}],
    }})
}

async fn quota(http: &Http, spec: Value) {
    let answer = http.post(QUOTAS, &json!({"metadata": {"name": "q"}, "spec": spec})).await;
    assert_eq!(answer.status, 201, "{}", answer.json());
}

async fn used(http: &Http) -> Value {
    http.get(&format!("{QUOTAS}/q")).await.json()["status"]["used"].clone()
}

#[tokio::test]
async fn a_quota_is_charged_by_creates_and_freed_by_deletes() {
    let http = start().await;
    quota(&http, json!({"hard": {"pods": "2", "requests.cpu": "1", "configmaps": "100"}})).await;
    let cpu = |amount: &str| json!({"requests": {"cpu": amount}});
    assert_eq!(http.post(PODS, &pod("a", cpu("600m"))).await.status, 201);
    let used_by_one = used(&http).await;
    assert_eq!((&used_by_one["pods"], &used_by_one["requests.cpu"]), (&json!("1"), &json!("600m")));
    assert!(used_by_one["configmaps"].is_string(), "all resources of the quota are counted: {used_by_one}");

    let refused = http.post(PODS, &pod("b", cpu("500m"))).await;
    assert_eq!(refused.status, 403);
    assert_eq!(
        refused.json()["message"],
        "pods \"b\" is forbidden: exceeded quota: q, requested: requests.cpu=500m, used: requests.cpu=600m, \
         limited: requests.cpu=1"
    );
    let silent = http.post(PODS, &pod("c", json!({}))).await.json();
    assert_eq!(
        silent["message"],
        "pods \"c\" is forbidden: failed quota: q: must specify requests.cpu for: app"
    );
    assert_eq!(http.delete(&format!("{PODS}/a")).await.status, 200);
    assert_eq!(http.post(PODS, &pod("b", cpu("500m"))).await.status, 201);
    assert_eq!(used(&http).await["requests.cpu"], "500m");
}

#[tokio::test]
async fn writers_at_once_cannot_exceed_a_quota() {
    let http = start().await;
    quota(&http, json!({"hard": {"count/leases.coordination.k8s.io": "5"}})).await;
    let writes = (0..20).map(|i| {
        let http = http.clone();
        let lease = json!({"metadata": {"name": format!("l{i}")}});
        tokio::spawn(async move {
            http.post("/apis/coordination.k8s.io/v1/namespaces/default/leases", &lease).await.status.as_u16()
        })
    });
    let mut codes = Vec::new();
    for write in writes.collect::<Vec<_>>() {
        codes.push(write.await.unwrap());
    }
    assert_eq!(codes.iter().filter(|c| **c == 201).count(), 5, "{codes:?}");
    assert_eq!(codes.iter().filter(|c| **c == 403).count(), 15, "{codes:?}");
    assert_eq!(used(&http).await, json!({"count/leases.coordination.k8s.io": "5"}));
}

#[tokio::test]
async fn a_dry_run_is_refused_alike_and_charges_nothing() {
    let http = start().await;
    quota(&http, json!({"hard": {"secrets": "1"}})).await;
    let secrets = "/api/v1/namespaces/default/secrets";
    let secret = |name: &str| json!({"metadata": {"name": name}});
    assert_eq!(http.post(&format!("{secrets}?dryRun=All"), &secret("a")).await.status, 201);
    assert_eq!(used(&http).await, Value::Null);
    assert_eq!(http.post(secrets, &secret("a")).await.status, 201);
    let refused = http.post(&format!("{secrets}?dryRun=All"), &secret("b")).await;
    assert_eq!(refused.status, 403, "{}", refused.json());
}

#[tokio::test]
async fn an_update_is_charged_what_it_adds() {
    let http = start().await;
    quota(&http, json!({"hard": {"services.nodeports": "1"}})).await;
    let services = "/api/v1/namespaces/default/services";
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    assert_eq!(http.post(services, &service).await.status, 201);
    let path = format!("{services}/s");
    assert_eq!(http.merge(&path, &json!({"spec": {"type": "NodePort"}})).await.status, 200);
    let two = json!({"spec": {"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]}});
    assert_eq!(http.merge(&path, &two).await.status, 403);
    assert_eq!(http.merge(&path, &json!({"metadata": {"labels": {"a": "b"}}})).await.status, 200);
    assert_eq!(used(&http).await, json!({"services.nodeports": "1"}));
}

#[tokio::test]
async fn limit_ranges_fill_and_bound_pods_and_claims() {
    let http = start().await;
    let range = json!({"metadata": {"name": "l"}, "spec": {"limits": [
        {"type": "Container", "default": {"cpu": "500m"}, "max": {"cpu": "2"}},
        {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}},
    ]}});
    assert_eq!(http.post("/api/v1/namespaces/default/limitranges", &range).await.status, 201);
    let filled = http.post(PODS, &pod("a", json!({}))).await.json();
    assert_eq!(filled["spec"]["containers"][0]["resources"]["limits"]["cpu"], "500m");
    assert_eq!(filled["status"]["qosClass"], "Burstable");
    let refused = http.post(PODS, &pod("b", json!({"limits": {"cpu": "3"}}))).await.json();
    assert_eq!(
        refused["message"],
        "pods \"b\" is forbidden: maximum cpu usage per Container is 2, but limit is 3"
    );
    let claim = json!({"metadata": {"name": "c"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}},
    }});
    let refused = http.post("/api/v1/namespaces/default/persistentvolumeclaims", &claim).await;
    assert_eq!(refused.status, 403);
}

#[tokio::test]
async fn pod_security_refuses_pods_and_warns_of_what_makes_them() {
    let http = start().await;
    http.post(PODS, &pod("before", json!({}))).await;
    let labels = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    let labelled = http.merge("/api/v1/namespaces/default", &labels).await;
    assert_eq!(labelled.status, 200);
    let warnings = labelled.headers.get_all("warning").iter().count();
    assert_eq!(warnings, 2, "of the pod that is there: {:?}", labelled.headers);
    let refused = http.post(PODS, &pod("after", json!({}))).await;
    assert_eq!(refused.status, 403);
    let message = refused.json()["message"].as_str().unwrap().to_owned();
    assert!(
        message.starts_with(
            "pods \"after\" is forbidden: violates PodSecurity \"restricted:latest\": allowPriv"
        ),
        "{message}"
    );
    let deployment = json!({"metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }});
    let warned = http.post("/apis/apps/v1/namespaces/default/deployments", &deployment).await;
    assert_eq!(warned.status, 201);
    assert!(warned.headers["warning"].to_str().unwrap().contains("would violate PodSecurity"));
    let wrong = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "loose"}}});
    assert_eq!(http.merge("/api/v1/namespaces/default", &wrong).await.status, 422);
    // A pod that was there before can still be labelled.
    let touch = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(http.merge(&format!("{PODS}/before"), &touch).await.status, 200);
}

//! Every request leaves a line in the audit log, and secrets never do.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;

use serde_json::{Value, json};
use shoal_apiserver::audit::{AuditOptions, AuditPolicy, Level};
use shoal_testkit::{Cluster, Http};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn start(dir: &Path, level: Level) -> Cluster {
    Cluster::builder().audit(AuditOptions::new(dir.join("audit.log"), level)).start().await
}

/// The lines of the test's own requests: the log is complete once the server is gone.
fn lines(dir: &Path, cluster: Cluster, http: Http) -> Vec<Value> {
    drop((cluster, http));
    let text = std::fs::read_to_string(dir.join("audit.log")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["user"]["username"] == "shoal:test").collect()
}

#[tokio::test]
async fn a_request_leaves_one_line_with_who_what_and_the_outcome() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = start(dir.path(), Level::Metadata).await;
    let http = cluster.http();
    let lease = json!({"metadata": {"generateName": "l-"}});
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let headers =
        [("content-type", "application/json"), ("user-agent", "test/1"), ("impersonate-user", "jane")];
    let refused = http.send("POST", path, &headers, lease.to_string()).await;
    assert_eq!(refused.status, 403);
    let made = http.post(path, &lease).await;
    let id = made.headers["audit-id"].to_str().unwrap().to_owned();
    let name = made.json()["metadata"]["name"].clone();

    let lines = lines(dir.path(), cluster, http);
    let of = |id: &str| lines.iter().find(|l| l["auditID"] == id).unwrap();
    let line = of(&id);
    assert_eq!(line["kind"], "Event");
    assert_eq!((&line["verb"], &line["stage"]), (&json!("create"), &json!("ResponseComplete")));
    assert_eq!(line["user"]["username"], "shoal:test");
    assert_eq!(
        line["objectRef"],
        json!({
            "resource": "leases", "namespace": "default", "name": name, "apiGroup": "coordination.k8s.io",
            "apiVersion": "v1",
        })
    );
    assert_eq!(line["responseStatus"]["code"], 201);
    assert_eq!(line["annotations"]["authorization.k8s.io/decision"], "allow");
    assert!(line.get("requestObject").is_none());
    let line = of(refused.headers["audit-id"].to_str().unwrap());
    assert_eq!(line["impersonatedUser"]["username"], "jane");
    assert_eq!(line["userAgent"], "test/1");
    assert_eq!(line["responseStatus"]["reason"], "Forbidden");
    assert_eq!(line["annotations"]["authorization.k8s.io/decision"], "forbid");
}

#[tokio::test]
async fn objects_are_logged_at_level_request_but_never_secrets() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = start(dir.path(), Level::Request).await;
    let http = cluster.http();
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"k": "plaintext-of-a-secret"}});
    http.post("/api/v1/namespaces/default/secrets", &secret).await;
    // What is wrong with it quotes the value.
    let wrong = json!({"metadata": {"name": "t"}, "type": "kubernetes.io/tls", "data": {"k": "plaintext-of-a-secret"}});
    assert!(http.post("/api/v1/namespaces/default/secrets", &wrong).await.status.is_client_error());
    http.post(MAPS, &json!({"metadata": {"name": "m"}, "data": {"k": "plaintext-of-a-secret"}})).await;
    let review = json!({"spec": {"token": "plaintext-of-a-secret"}});
    http.post("/apis/authentication.k8s.io/v1/tokenreviews", &review).await;
    let service = json!({"metadata": {"name": "svc"}, "spec": {"ports": [{"port": 80}]}});
    http.post("/api/v1/namespaces/default/services", &service).await;
    http.merge("/api/v1/namespaces/default/services/svc", &json!({"metadata": {"labels": {"a": "b"}}})).await;

    let lines = lines(dir.path(), cluster, http);
    assert_eq!(lines.len(), 6);
    assert!(lines.iter().all(|l| !l.to_string().contains("plaintext-of-a-secret")), "{lines:#?}");
    let levels: Vec<&str> = lines.iter().map(|l| l["level"].as_str().unwrap()).collect();
    assert_eq!(levels, ["Metadata", "Metadata", "Metadata", "Metadata", "Request", "Request"]);
    assert_eq!(lines[4]["requestObject"]["spec"]["ports"][0]["port"], 80);
    assert_eq!(
        lines[5]["requestObject"],
        json!({"metadata": {"labels": {"a": "b"}}}),
        "a patch as it was sent"
    );
}

#[tokio::test]
async fn a_watch_is_logged_when_it_starts_and_when_it_ends() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = start(dir.path(), Level::Metadata).await;
    let http = cluster.http();
    let watch = http.watch(&format!("{MAPS}?watch=true")).await;
    drop(watch);
    let lines = lines(dir.path(), cluster, http);
    let stages: Vec<&str> = lines.iter().map(|l| l["stage"].as_str().unwrap()).collect();
    assert_eq!(stages, ["ResponseStarted", "ResponseComplete"]);
    assert_eq!(lines[0]["auditID"], lines[1]["auditID"]);
    assert_eq!(lines[0]["verb"], "watch");
}

#[tokio::test]
async fn a_policy_decides_what_is_logged_and_secrets_stay_out() {
    let dir = tempfile::tempdir().unwrap();
    let policy = br#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitManagedFields: true
rules:
- {level: None, nonResourceURLs: ["/readyz*"]}
- {level: None, resources: [{group: "", resources: [configmaps]}], verbs: [list, watch]}
- {level: RequestResponse, resources: [{group: "", resources: ["*"]}]}
- {level: Metadata, namespaces: [default]}
"#;
    let options = AuditOptions::by_policy(dir.path().join("audit.log"), AuditPolicy::parse(policy).unwrap());
    let cluster = Cluster::builder().audit(options).start().await;
    let http = cluster.http();
    http.get("/readyz").await;
    http.get(MAPS).await;
    http.get("/apis/apps/v1/deployments").await;
    http.get("/apis/apps/v1/namespaces/default/deployments").await;
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"k": "plaintext-of-a-secret"}});
    http.post("/api/v1/namespaces/default/secrets", &secret).await;
    http.get("/api/v1/namespaces/default/secrets").await;
    let service = json!({"metadata": {"name": "svc"}, "spec": {"ports": [{"port": 80}]}});
    http.post("/api/v1/namespaces/default/services", &service).await;
    http.get("/api/v1/namespaces/default/services").await;
    let lines = lines(dir.path(), cluster, http);
    let logged: Vec<(&str, &str)> = lines
        .iter()
        .map(|l| (l["level"].as_str().unwrap(), l["objectRef"]["resource"].as_str().unwrap()))
        .collect();
    assert_eq!(
        logged,
        [
            ("Metadata", "deployments"),
            ("Metadata", "secrets"),
            ("Metadata", "secrets"),
            ("RequestResponse", "services"),
            ("RequestResponse", "services"),
        ]
    );
    assert!(lines.iter().all(|l| !l.to_string().contains("plaintext-of-a-secret")), "{lines:#?}");
    assert!(lines.iter().all(|l| !l.to_string().contains("managedFields")), "{lines:#?}");
    assert_eq!(lines[3]["responseObject"]["spec"]["ports"][0]["targetPort"], 80);
    assert_eq!(
        lines[4]["responseObject"]["items"].as_array().unwrap().len(),
        2,
        "with the one of the server"
    );
}

#[tokio::test]
async fn a_full_disk_is_counted_and_requests_go_on() {
    if !Path::new("/dev/full").exists() {
        return;
    }
    let cluster =
        Cluster::builder().audit(AuditOptions::new("/dev/full".into(), Level::Metadata)).start().await;
    let http = cluster.http();
    assert_eq!(http.get(MAPS).await.status, 200);
    shoal_testkit::eventually("the loss is counted", || async {
        let metrics = String::from_utf8(http.get("/metrics").await.body.to_vec()).unwrap();
        let lost = metrics.lines().find_map(|l| l.strip_prefix("apiserver_audit_error_total "))?;
        (lost.parse::<u64>().unwrap() > 0).then_some(())
    })
    .await;
}

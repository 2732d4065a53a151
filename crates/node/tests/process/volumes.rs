//! What containers see.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use shoal_testkit::eventually;

use crate::cluster::World;

#[tokio::test(flavor = "multi_thread")]
async fn volumes_are_seen_at_their_paths_and_nowhere_else() {
    let world = World::start().await;
    world
        .create(
            "v1",
            "ConfigMap",
            "configmaps",
            json!({"metadata": {"name": "app"}, "data": {"key": "value"}}),
        )
        .await;
    world
        .create(
            "v1",
            "Secret",
            "secrets",
            json!({"metadata": {"name": "s"}, "stringData": {"password": "p4ss"}}),
        )
        .await;
    let script = "set -e; cat /etc/shoal-test/key; echo; cat /shoal-secret/password; echo; cat /etc/pod/labels; echo; \
        echo kept > /var/lib/shoal-data/file; cat /var/lib/shoal-data/file; test -s /var/run/secrets/kubernetes.io/serviceaccount/token; \
        (echo no > /etc/shoal-test/x) 2>/dev/null || echo read-only; cat /etc/hostname; hostname; echo $GREETING; grep -c vols /etc/hosts; id -u";
    let mount = |name: &str, path: &str, ro: bool| json!({"name": name, "mountPath": path, "readOnly": ro});
    let spec = json!({
        "restartPolicy": "Never",
        "containers": [{
            "name": "main", "image": "busybox", "command": ["sh", "-c", script],
            "env": [{"name": "GREETING", "value": "hello $(KEY)"}, {"name": "KEY", "value": "x"}],
            "envFrom": [{"configMapRef": {"name": "app"}}],
            "securityContext": {"runAsUser": 1234},
            "volumeMounts": [
                mount("config", "/etc/shoal-test", true), mount("secret", "/shoal-secret", true),
                mount("pod", "/etc/pod", true), mount("data", "/var/lib/shoal-data", false),
            ],
        }],
        "volumes": [
            {"name": "config", "configMap": {"name": "app"}},
            {"name": "secret", "secret": {"secretName": "s"}},
            {"name": "data", "emptyDir": {}},
            {"name": "pod", "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.name"}}]}},
        ],
    });
    world.run("vols", spec).await;
    let pod = world
        .until("vols", "over", |pod| {
            pod["status"]["phase"] == "Succeeded" || pod["status"]["phase"] == "Failed"
        })
        .await;
    let log = world.log(&pod, "main", 0);
    assert_eq!(log, "value\np4ss\nvols\nkept\nread-only\nvols\nvols\nhello $(KEY)\n1\n1234\n");
    for path in ["/etc/shoal-test", "/shoal-secret", "/etc/pod", "/var/lib/shoal-data"] {
        assert!(!std::path::Path::new(path).exists(), "{path} is on the host");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_config_map_is_seen_in_the_volume() {
    let world = World::start().await;
    world
        .create("v1", "ConfigMap", "configmaps", json!({"metadata": {"name": "app"}, "data": {"key": "old"}}))
        .await;
    let container = json!({
        "name": "main", "image": "busybox",
        "command": ["sh", "-c", "until grep -q new /etc/shoal-live/key; do sleep 0.2; done; echo seen"],
        "volumeMounts": [{"name": "config", "mountPath": "/etc/shoal-live"}],
    });
    let volumes = json!([{"name": "config", "configMap": {"name": "app"}}]);
    world.run("live", json!({"restartPolicy": "Never", "containers": [container], "volumes": volumes})).await;
    world.until_phase("live", "Running").await;
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), "default");
    let patch = Patch::Merge(json!({"data": {"key": "new"}}));
    maps.patch("app", &PatchParams::default(), &patch).await.unwrap();
    world.until_phase("live", "Succeeded").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_config_map_is_waited_for() {
    let world = World::start().await;
    let volumes = json!([{"name": "config", "configMap": {"name": "late"}}]);
    let container = json!({"name": "main", "image": "sleeper", "volumeMounts": [{"name": "config", "mountPath": "/etc/late"}]});
    world.run("late", json!({"containers": [container], "volumes": volumes})).await;
    eventually("a FailedMount event", || async {
        world.event_reasons("late").await.contains(&"FailedMount".to_owned()).then_some(())
    })
    .await;
    world.create("v1", "ConfigMap", "configmaps", json!({"metadata": {"name": "late"}, "data": {}})).await;
    world.until_ready("late").await;
}

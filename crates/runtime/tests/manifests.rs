//! The manifests of docs/manifests on a cluster: they are accepted, fit each other, and give exactly enough rights.

#![allow(clippy::unwrap_used, clippy::panic, reason = "what fails, fails")]

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::ResourceExt as _;
use kube::api::{Api, PostParams};
use kube::core::ObjectMeta;
use serde_json::{Value, json};
use shoal_runtime::cache::InformerOptions;
use shoal_runtime::config::Config;
use shoal_runtime::shard::{self, ShardingOptions};
use shoal_runtime::{Action, Context, Controller, Manager, ObjectKey, Result, Writer};
use shoal_testkit::{Cluster, eventually};

const CONTROLLER: &str = include_str!("../../../docs/manifests/controller.yaml");
const SHARDING: &str = include_str!("../../../docs/manifests/sharding.yaml");
const MONITOR: &str = include_str!("../../../docs/manifests/servicemonitor.yaml");

const ACCOUNT: &str = "system:serviceaccount:label-mirror:label-mirror";
const GROUPS: [&str; 3] =
    ["system:serviceaccounts", "system:serviceaccounts:label-mirror", "system:authenticated"];

fn objects(yaml: &str) -> Vec<Value> {
    yaml.split("\n---\n").map(|document| serde_saphyr::from_str(document).unwrap()).collect()
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    objects.iter().find(|object| object["kind"] == kind).unwrap()
}

async fn apply(cluster: &Cluster, objects: &[Value]) {
    for object in objects {
        let answer = cluster.http().apply(object).await;
        assert_eq!(answer.status, 201, "{object}: {}", answer.json());
    }
}

/// The definition that the Prometheus operator installs, as far as it matters here.
fn monitors() -> Value {
    let text = json!({"type": "string"});
    let endpoint = json!({"type": "object", "properties": {"port": text, "path": text, "interval": text}});
    let labels = json!({"type": "object", "additionalProperties": text});
    let selector = json!({"type": "object", "properties": {"matchLabels": labels}});
    let spec = json!({"type": "object", "required": ["endpoints", "selector"], "properties": {
        "selector": selector, "endpoints": {"type": "array", "items": endpoint}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "servicemonitors.monitoring.coreos.com"},
        "spec": {"group": "monitoring.coreos.com", "scope": "Namespaced",
            "names": {"plural": "servicemonitors", "singular": "servicemonitor", "kind": "ServiceMonitor"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "required": ["spec"], "properties": {"spec": spec}}}}]}})
}

#[tokio::test(start_paused = true)]
async fn the_manifests_are_accepted_and_fit_each_other() {
    let cluster = Cluster::builder().seed(7).start().await;
    let (all, monitor) = (objects(CONTROLLER), objects(MONITOR));
    apply(&cluster, &all).await;
    apply(&cluster, &[monitors()]).await;
    apply(&cluster, &monitor).await;

    let deployment = of_kind(&all, "Deployment");
    assert_eq!(deployment["spec"]["replicas"], 3);
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let service = of_kind(&all, "Service");
    assert_eq!(&service["spec"]["selector"], labels);
    assert_eq!(service["spec"]["ports"][0]["targetPort"], container["ports"][0]["name"]);
    assert_eq!(monitor[0]["spec"]["selector"]["matchLabels"], service["metadata"]["labels"]);
    assert_eq!(monitor[0]["spec"]["endpoints"][0]["port"], service["spec"]["ports"][0]["name"]);

    let map = of_kind(&all, "ConfigMap");
    let volume = &deployment["spec"]["template"]["spec"]["volumes"][0];
    assert_eq!(volume["configMap"]["name"], map["metadata"]["name"]);
    let env = |name: &str| {
        let variables = container["env"].as_array().unwrap().iter();
        variables.clone().find(|variable| variable["name"] == name)?["value"].as_str().map(str::to_owned)
    };
    let mount = container["volumeMounts"][0]["mountPath"].as_str().unwrap();
    let file = env("CONFIG_FILE").unwrap();
    let file = file.strip_prefix(mount).unwrap().trim_start_matches('/');
    let mut config = Config::parse(map["data"][file].as_str().unwrap(), &env).unwrap();
    let unless_said = InformerOptions::default().cache_size;
    assert_eq!(config.informer.cache_size.take(), Some(unless_said));
    assert_eq!(config, Config::default(), "the manifest spells the defaults out");
    assert_eq!(container["ports"][0]["containerPort"], config.metrics.port);
    assert_eq!(monitor[0]["spec"]["endpoints"][0]["path"], config.metrics.path);
}

/// What examples/label_mirror does.
async fn mirror(context: Context<ConfigMap>) -> Result<Action> {
    let Some(map) = context.object() else { return Ok(Action::done()) };
    let namespace = context.lister::<Namespace>().get(&ObjectKey::cluster(&context.key().namespace));
    let labels = namespace.and_then(|namespace| namespace.metadata.labels.clone());
    let metadata = ObjectMeta {
        name: Some(map.name_any()),
        namespace: map.namespace(),
        labels,
        ..ObjectMeta::default()
    };
    context.writer().apply(&ConfigMap { metadata, ..ConfigMap::default() }, Some(&map)).await?;
    context.recorder().normal(&*map, "Mirrored", "labels are those of the namespace");
    Ok(Action::done())
}

#[tokio::test(start_paused = true)]
async fn the_rights_of_the_manifests_are_enough_and_no_more() {
    let cluster = Cluster::builder().seed(7).start().await;
    apply(&cluster, &objects(CONTROLLER)).await;
    let account = cluster.client_as(ACCOUNT, &GROUPS);
    let mut manager = Manager::builder("label-mirror")
        .client(account)
        .embedded()
        .leader_election()
        .lease_namespace("label-mirror")
        .build()
        .await
        .unwrap();
    manager.add(Controller::of::<ConfigMap>("label-mirror").reads::<Namespace>().reconcile(mirror));
    let (stopper, health, metrics) = (manager.stopper(), manager.health().clone(), manager.metrics().clone());
    let running = tokio::spawn(manager.run());
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), "default");
    let map = serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
    maps.create(&PostParams::default(), &map).await.unwrap();
    eventually("the labels are there", || async {
        maps.get("a").await.unwrap().labels().contains_key("kubernetes.io/metadata.name").then_some(())
    })
    .await;
    let ready = health.ready_checks();
    assert!(ready.iter().all(|check| check.problem.is_none()), "{ready:?}");
    stopper.stop();
    running.await.unwrap().unwrap();
    assert!(metrics.text().contains("controller_reconcile_errors_total{controller=\"label-mirror\"} 0"));
    let events = cluster.http().get("/api/v1/namespaces/default/events").await.json();
    assert!(events.to_string().contains("\"Mirrored\""), "{events}");
    let lease = "/apis/coordination.k8s.io/v1/namespaces/label-mirror/leases/label-mirror";
    assert_eq!(cluster.http().get(lease).await.json()["spec"]["holderIdentity"], "", "given back");

    let (intruder, object) = (cluster.http_as(ACCOUNT, &GROUPS), json!({"metadata": {"name": "x"}}));
    for path in [
        "/api/v1/secrets",
        "/api/v1/namespaces/label-mirror/secrets",
        "/api/v1/pods",
        "/apis/coordination.k8s.io/v1/leases",
        "/apis/coordination.k8s.io/v1/namespaces/label-mirror/leases/other",
        "/apis/coordination.k8s.io/v1/namespaces/default/leases/label-mirror",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    ] {
        assert_eq!(intruder.get(path).await.status, 403, "{path}");
    }
    for path in ["/api/v1/namespaces", "/api/v1/namespaces/default/configmaps"] {
        assert_eq!(intruder.post(path, &object).await.status, 403, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_rights_of_a_sharded_controller_are_enough() {
    let cluster = Cluster::builder().seed(7).start().await;
    apply(&cluster, &objects(CONTROLLER)).await;
    apply(&cluster, &objects(SHARDING)).await;
    // Somebody with more rights installs the kind.
    Writer::new(cluster.client(), "admin").apply(&shard::crd(), None).await.unwrap();
    let mut replicas = Vec::new();
    for name in ["one", "two"] {
        let options = ShardingOptions::new().slots(32).name(name).namespace("label-mirror");
        let mut manager = Manager::builder("label-mirror")
            .client(cluster.client_as(ACCOUNT, &GROUPS))
            .embedded()
            .sharded(options)
            .build()
            .await
            .unwrap();
        manager.add(Controller::of::<ConfigMap>("label-mirror").reads::<Namespace>().reconcile(mirror));
        replicas.push((manager.stopper(), manager.metrics().clone(), tokio::spawn(manager.run())));
    }
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), "default");
    for n in 0..8 {
        let map = serde_json::from_value(json!({"metadata": {"name": format!("m{n}")}})).unwrap();
        maps.create(&PostParams::default(), &map).await.unwrap();
    }
    tokio::time::sleep(std::time::Duration::from_secs(120)).await;
    for map in maps.list(&Default::default()).await.unwrap() {
        assert!(map.labels().contains_key("kubernetes.io/metadata.name"), "{}", map.name_any());
    }
    for (stopper, metrics, running) in replicas {
        stopper.stop();
        running.await.unwrap().unwrap();
        let text = metrics.text();
        assert!(text.contains("controller_reconcile_errors_total{controller=\"label-mirror\"} 0"), "{text}");
    }
}

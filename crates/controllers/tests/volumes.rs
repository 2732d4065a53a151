//! Claims, volumes, quotas and sums of roles on a whole API server.

#![allow(clippy::unwrap_used, clippy::needless_pass_by_value, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    ConfigMap, Event, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ResourceQuota,
    ServiceAccount,
};
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::serde::Serialize;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use shoal_controllers::all::{self, Settings};
use shoal_controllers::scheduler::Scheduler;
use shoal_runtime::Manager;
use shoal_testkit::{Cluster, eventually};

async fn start(settings: Settings) -> Cluster {
    start_and(settings, |_| {}).await
}

async fn start_and(settings: Settings, add: impl FnOnce(&mut Manager)) -> Cluster {
    let cluster = Cluster::start().await;
    let builder = Manager::builder("controllers").client(cluster.client());
    let mut manager = builder.embedded().build().await.unwrap();
    all::register(&mut manager, &settings, |_| true);
    add(&mut manager);
    tokio::spawn(manager.run());
    cluster
}

async fn create<T>(api: &Api<T>, object: Value) -> T
where
    T: Clone + Serialize + DeserializeOwned + std::fmt::Debug,
{
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
}

fn claim(name: &str) -> Value {
    json!({"metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})
}

async fn bound(claims: &Api<PersistentVolumeClaim>, name: &str) -> String {
    eventually("the claim is bound", || async {
        let claim = claims.get(name).await.unwrap();
        let status = claim.status.unwrap_or_default();
        let is_bound = status.phase.as_deref() == Some("Bound") && status.capacity.is_some();
        claim.spec.and_then(|spec| spec.volume_name).filter(|_| is_bound)
    })
    .await
}

async fn phase(volumes: &Api<PersistentVolume>, name: &str, wanted: &str) {
    eventually("the volume has its phase", || async {
        let status = volumes.get(name).await.unwrap().status?;
        (status.phase.as_deref() == Some(wanted)).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_takes_a_volume_that_is_there_and_leaves_it_released() {
    let cluster = start(Settings::default()).await;
    let volumes: Api<PersistentVolume> = Api::all(cluster.client());
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(cluster.client());
    create(&claims, claim("c")).await;
    let volume = |name: &str, size: &str| {
        json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": size},
            "hostPath": {"path": "/tmp/x"}}})
    };
    create(&volumes, volume("small", "1Mi")).await;
    phase(&volumes, "small", "Available").await;
    create(&volumes, volume("fits", "2Gi")).await;
    assert_eq!(bound(&claims, "c").await, "fits");
    phase(&volumes, "fits", "Bound").await;
    claims.delete("c", &DeleteParams::default()).await.unwrap();
    phase(&volumes, "fits", "Released").await;
    volumes.delete("fits", &DeleteParams::default()).await.unwrap();
    eventually("the volume is gone", || async {
        volumes.get_opt("fits").await.unwrap().is_none().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_names_no_class_gets_a_folder_and_keeps_it_while_a_pod_runs() {
    let settings = Settings { volumes: Some("/var/lib/volumes".into()), ..Settings::default() };
    let cluster = start(settings).await;
    let classes: Api<StorageClass> = Api::all(cluster.client());
    eventually("there is a class", || async { classes.get_opt("standard").await.unwrap() }).await;
    let namespaces: Api<Namespace> = Api::all(cluster.client());
    create(&namespaces, json!({"metadata": {"name": "n"}})).await;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(cluster.client(), "n");
    let volumes: Api<PersistentVolume> = Api::all(cluster.client());
    create(&claims, claim("data")).await;
    let volume = bound(&claims, "data").await;
    let path = volumes.get(&volume).await.unwrap().spec.unwrap().host_path.unwrap().path;
    assert_eq!(path, format!("/var/lib/volumes/n_data_{volume}"));

    let pods: Api<Pod> = Api::namespaced(cluster.client(), "n");
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client(), "n");
    eventually("pods can be made", || async { accounts.get_opt("default").await.unwrap() }).await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "somewhere",
        "containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}});
    create(&pods, pod).await;
    claims.delete("data", &DeleteParams::default()).await.unwrap();
    let done = json!({"status": {"phase": "Succeeded"}});
    assert!(claims.get("data").await.unwrap().metadata.deletion_timestamp.is_some(), "in use");
    pods.patch_status("p", &PatchParams::default(), &Patch::Merge(done)).await.unwrap();
    eventually("the claim is gone", || async {
        claims.get_opt("data").await.unwrap().is_none().then_some(())
    })
    .await;
    eventually("and its volume", || async {
        volumes.get_opt(&volume).await.unwrap().is_none().then_some(())
    })
    .await;
}

/// A node that is ready and stays so for the length of a test.
async fn add_node(cluster: &Cluster, name: &str) {
    let nodes: Api<Node> = Api::all(cluster.client());
    let labels = json!({"kubernetes.io/hostname": name});
    create(&nodes, json!({"metadata": {"name": name, "labels": labels}})).await;
    let ready = json!({"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"});
    let room = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
    let status = json!({"status": {"conditions": [ready], "allocatable": room, "capacity": room}});
    nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(status)).await.unwrap();
}

fn consumer(name: &str, claim: &str, host: Option<&str>) -> Value {
    let selector = host.map(|host| json!({"kubernetes.io/hostname": host}));
    json!({"metadata": {"name": name}, "spec": {"nodeSelector": selector,
        "containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]}})
}

fn on_host(host: &str) -> Value {
    let label = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [host]});
    json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [label]}]}})
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_that_wait_for_their_consumer_get_volumes_on_its_node() {
    let settings = Settings { volumes: Some("/var/lib/volumes".into()), ..Settings::default() };
    let cluster = start_and(settings, |manager| {
        manager.add(Scheduler::default());
    })
    .await;
    for name in ["n1", "n2", "n3"] {
        add_node(&cluster, name).await;
    }
    let classes: Api<StorageClass> = Api::all(cluster.client());
    for (name, provisioner) in [("local", "kubernetes.io/no-provisioner"), ("folders", "shoal.dev/local")] {
        let mode = "WaitForFirstConsumer";
        let class =
            json!({"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode});
        create(&classes, class).await;
    }
    let volumes: Api<PersistentVolume> = Api::all(cluster.client());
    // The smallest is on a node that the pod cannot be on.
    for (name, host, size) in [("small", "n1", "1Gi"), ("right", "n2", "2Gi"), ("large", "n2", "9Gi")] {
        let spec = json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": size},
            "storageClassName": "local", "local": {"path": "/mnt"}, "nodeAffinity": on_host(host)});
        create(&volumes, json!({"metadata": {"name": name}, "spec": spec})).await;
    }
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(cluster.client());
    let of_class = |name: &str, class: &str| {
        let mut claim = claim(name);
        claim["spec"]["storageClassName"] = json!(class);
        claim
    };
    create(&claims, of_class("static", "local")).await;
    create(&claims, of_class("made", "folders")).await;
    let events: Api<Event> = Api::default_namespaced(cluster.client());
    for name in ["static", "made"] {
        eventually("the claim says that it waits", || async {
            let events = events.list(&ListParams::default()).await.unwrap();
            let told = |event: &Event| {
                event.involved_object.name.as_deref() == Some(name)
                    && event.reason.as_deref() == Some("WaitForFirstConsumer")
            };
            events.iter().any(told).then_some(())
        })
        .await;
    }
    let accounts: Api<ServiceAccount> = Api::default_namespaced(cluster.client());
    eventually("pods can be made", || async { accounts.get_opt("default").await.unwrap() }).await;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let node_of = async |name: &str| {
        eventually("the pod has a node", || async { pods.get(name).await.unwrap().spec?.node_name }).await
    };
    create(&pods, consumer("a", "static", Some("n2"))).await;
    assert_eq!(node_of("a").await, "n2");
    assert_eq!(bound(&claims, "static").await, "right");
    phase(&volumes, "right", "Bound").await;
    phase(&volumes, "small", "Available").await;

    create(&pods, consumer("b", "made", Some("n3"))).await;
    assert_eq!(node_of("b").await, "n3");
    let volume = bound(&claims, "made").await;
    let made = volumes.get(&volume).await.unwrap().spec.unwrap();
    assert_eq!(serde_json::to_value(made.node_affinity).unwrap(), on_host("n3"));
    // Whoever comes later goes to where the volume is.
    create(&pods, consumer("c", "made", None)).await;
    assert_eq!(node_of("c").await, "n3");

    // Nowhere is a volume left that is enough.
    let mut huge = of_class("huge", "local");
    huge["spec"]["resources"]["requests"]["storage"] = json!("10Gi");
    create(&claims, huge).await;
    create(&pods, consumer("d", "huge", None)).await;
    eventually("the pod says why it waits", || async {
        let conditions = pods.get("d").await.unwrap().status?.conditions?;
        let told = conditions.into_iter().find(|told| told.type_ == "PodScheduled")?.message?;
        told.contains("3 node(s) didn't find available persistent volumes to bind").then_some(())
    })
    .await;
    let spec = json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "20Gi"},
        "storageClassName": "local", "local": {"path": "/mnt"}, "nodeAffinity": on_host("n1")});
    create(&volumes, json!({"metadata": {"name": "late"}, "spec": spec})).await;
    assert_eq!(node_of("d").await, "n1");
    assert_eq!(bound(&claims, "huge").await, "late");
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_come_at_once_get_a_volume_each() {
    let cluster = start_and(Settings::default(), |manager| {
        manager.add(Scheduler::default());
    })
    .await;
    let class = json!({"metadata": {"name": "local"}, "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer"});
    create(&Api::<StorageClass>::all(cluster.client()), class).await;
    let accounts: Api<ServiceAccount> = Api::default_namespaced(cluster.client());
    eventually("pods can be made", || async { accounts.get_opt("default").await.unwrap() }).await;
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(cluster.client());
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    for number in 0..8 {
        let mut claim = claim(&format!("c{number}"));
        claim["spec"]["storageClassName"] = json!("local");
        create(&claims, claim).await;
        create(&pods, consumer(&format!("p{number}"), &format!("c{number}"), None)).await;
    }
    let volumes: Api<PersistentVolume> = Api::all(cluster.client());
    for number in 0..8 {
        let spec = json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "storageClassName": "local", "local": {"path": "/mnt"},
            "nodeAffinity": on_host(["n1", "n2"][number % 2])});
        create(&volumes, json!({"metadata": {"name": format!("v{number}")}, "spec": spec})).await;
    }
    // Everything else is there: from now on all are decided one right after the other.
    add_node(&cluster, "n1").await;
    add_node(&cluster, "n2").await;
    let mut given = BTreeSet::new();
    for number in 0..8 {
        let node = eventually("the pod has a node", || async {
            pods.get(&format!("p{number}")).await.unwrap().spec?.node_name
        })
        .await;
        let volume = bound(&claims, &format!("c{number}")).await;
        let affinity = volumes.get(&volume).await.unwrap().spec.unwrap().node_affinity;
        assert_eq!(serde_json::to_value(affinity).unwrap(), on_host(&node));
        given.insert(volume);
    }
    assert_eq!(given.len(), 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_is_a_sum_has_the_rules_of_its_parts() {
    let cluster = start(Settings::default()).await;
    let roles: Api<ClusterRole> = Api::all(cluster.client());
    create(
        &roles,
        json!({"metadata": {"name": "sum"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"of": "sum"}}]}, "rules": []}),
    )
    .await;
    create(
        &roles,
        json!({"metadata": {"name": "part", "labels": {"of": "sum"}},
        "rules": [{"apiGroups": ["a.test"], "resources": ["things"], "verbs": ["get"]}]}),
    )
    .await;
    eventually("the sum is made", || async {
        roles.get("sum").await.unwrap().rules.filter(|rules| rules.len() == 1)
    })
    .await;
    roles.delete("part", &DeleteParams::default()).await.unwrap();
    eventually("a part is taken away", || async {
        roles.get("sum").await.unwrap().rules.is_none_or(|rules| rules.is_empty()).then_some(())
    })
    .await;
    let view = eventually("the default roles have their rules", || async {
        roles.get("view").await.unwrap().rules.filter(|rules| !rules.is_empty())
    })
    .await;
    assert!(!view.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_tells_what_is_used_and_what_is_given_back() {
    let cluster = start(Settings::default()).await;
    let quotas: Api<ResourceQuota> = Api::default_namespaced(cluster.client());
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(cluster.client());
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    eventually("the namespace has its certificate or none", || async {
        maps.get_opt("kube-root-ca.crt").await.ok()
    })
    .await;
    create(&claims, claim("c")).await;
    let hard =
        json!({"persistentvolumeclaims": "5", "requests.storage": "10Gi", "pods": "3", "configmaps": "100"});
    create(&quotas, json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).await;
    let used = |storage: &'static str, maps: &'static str| {
        let quotas = quotas.clone();
        move || {
            let quotas = quotas.clone();
            async move {
                let used = quotas.get("q").await.unwrap().status?.used?;
                (used.get("requests.storage")?.0 == storage && used.get("configmaps")?.0 == maps)
                    .then_some(())
            }
        }
    };
    eventually("what was there is counted", used("1Gi", "0")).await;
    create(&maps, json!({"metadata": {"name": "m"}})).await;
    claims.delete("c", &DeleteParams::default()).await.unwrap();
    eventually("what is gone is given back", used("0", "1")).await;
}

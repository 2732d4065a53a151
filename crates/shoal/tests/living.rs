//! A whole cluster that is killed while it works, and nodes that die.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod process;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use process::Cluster;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use shoal_controllers::all::{self, Settings};
use shoal_controllers::scheduler::Scheduler;
use shoal_node::simulated::Options;
use shoal_objects::{Clock, Entropy, Timestamp};
use shoal_runtime::Manager;
use tokio::time::Instant;

fn start(data: &Path, port: u16) -> Cluster {
    let (port, data) = (port.to_string(), data.to_str().unwrap());
    Cluster::start(&[
        "up",
        "--port",
        &port,
        "--data-dir",
        data,
        "--without",
        "node",
        "--simulated-nodes",
        "5",
    ])
}

async fn client(cluster: &Cluster) -> Client {
    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// Asks again and again: processes take real time to start, and machines simulated time to be given up.
async fn until<T>(what: &str, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..12_000 {
        if let Some(found) = check().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("still not: {what}");
}

async fn apply<K>(api: &Api<K>, object: &Value)
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let name = object["metadata"]["name"].as_str().unwrap();
    let params = PatchParams::apply("test").force();
    // The server may be up before the account of the namespace is.
    until("it is applied", async || api.patch(name, &params, &Patch::Apply(object)).await.ok()).await;
}

fn template(app: &str) -> Value {
    json!({"metadata": {"labels": {"app": app}}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

fn web(replicas: u64, image: u64) -> Value {
    let mut template = template("web");
    template["spec"]["containers"][0]["image"] = json!(format!("web:{image}"));
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template}})
}

fn db() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
        "spec": {"replicas": 4, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}},
            "template": template("db")}})
}

fn job(round: u64) -> Value {
    let mut template = template("work");
    template["spec"]["restartPolicy"] = json!("Never");
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": format!("work-{round}")},
        "spec": {"completions": 8, "parallelism": 4, "template": template}})
}

fn service() -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}})
}

async fn value<K>(api: &Api<K>, name: &str) -> Value
where
    K: Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    serde_json::to_value(api.get_opt(name).await.ok().flatten()).unwrap()
}

/// Waits until everything is as it was asked for, and looks whether anything is there twice.
async fn converges(client: &Client, replicas: u64, rounds: u64) {
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let sets: Api<StatefulSet> = Api::default_namespaced(client.clone());
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    until("the Deployment is rolled out", async || {
        let web = value(&deployments, "web").await;
        let current = web["status"]["observedGeneration"] == web["metadata"]["generation"];
        let all = ["replicas", "updatedReplicas", "availableReplicas"]
            .iter()
            .all(|key| web["status"][*key] == replicas);
        (current && all).then_some(())
    })
    .await;
    until("the StatefulSet is there", async || {
        (value(&sets, "db").await["status"]["availableReplicas"] == 4).then_some(())
    })
    .await;
    for round in 0..rounds {
        let job = until("the Job is done", async || {
            let job = value(&jobs, &format!("work-{round}")).await;
            (!job["status"]["completionTime"].is_null()).then_some(job)
        })
        .await;
        assert_eq!(job["status"]["succeeded"], 8, "each pod counts once");
        assert!(job["status"]["failed"].is_null(), "{}", job["status"]);
    }
    until("only what was asked for is there", async || {
        let all = pods.list(&ListParams::default()).await.ok()?.items;
        let of = |app: &str| {
            let has = |pod: &&Pod| pod.metadata.labels.as_ref().is_some_and(|all| all["app"] == *app);
            all.iter().filter(has).collect::<Vec<&Pod>>()
        };
        let running: Vec<&Pod> = of("web").into_iter().chain(of("db")).collect();
        let address = |pod: &&Pod| pod.status.as_ref()?.pod_ip.clone();
        let addresses: BTreeSet<String> = running.iter().filter_map(address).collect();
        let names: BTreeSet<&str> = of("db").iter().filter_map(|pod| pod.metadata.name.as_deref()).collect();
        let jobs = usize::try_from(rounds * 8).unwrap();
        let web = usize::try_from(replicas).unwrap();
        (of("web").len() == web
            && names == BTreeSet::from(["db-0", "db-1", "db-2", "db-3"])
            && of("work").len() == jobs
            && addresses.len() == running.len())
        .then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_killed_at_any_moment_goes_on_and_does_nothing_twice() {
    let rounds: u64 = std::env::var("SHOAL_SOAK_ROUNDS").map_or(2, |rounds| rounds.parse().unwrap());
    let chance = match std::env::var("SHOAL_SOAK_ROUNDS") {
        Ok(_) => Entropy::system(),
        Err(_) => Entropy::seeded(5),
    };
    let data = tempfile::tempdir().unwrap();
    let mut cluster = start(data.path(), 0);
    let port = cluster.port();
    let client = client(&cluster).await;
    apply(&Api::<Service>::default_namespaced(client.clone()), &service()).await;
    apply(&Api::<StatefulSet>::default_namespaced(client.clone()), &db()).await;
    let mut replicas = 0;
    for round in 0..rounds {
        replicas = 10 + chance.below(30);
        let pause = Duration::from_millis(chance.below(1500));
        apply(&Api::<Deployment>::default_namespaced(client.clone()), &web(replicas, round)).await;
        apply(&Api::<Job>::default_namespaced(client.clone()), &job(round)).await;
        // Any moment is the right one.
        tokio::time::sleep(pause).await;
        cluster.kill();
        cluster = start(data.path(), port);
    }
    converges(&client, replicas, rounds).await;
    assert_eq!(cluster.stop(), Some(0));
}

/// A whole cluster in this process, in simulated time.
async fn simulated(nodes: u32) -> shoal_testkit::Cluster {
    let cluster = shoal_testkit::Cluster::builder().seed(1).start().await;
    let begin = Instant::now();
    let clock = Clock::from_fn(move || {
        Timestamp(1_767_225_600_000_000 + i64::try_from(begin.elapsed().as_micros()).unwrap())
    });
    let builder = Manager::builder("cluster").client(cluster.client()).clock(clock.clone());
    let mut manager = builder.embedded().build().await.unwrap();
    let settings = Settings { clock, entropy: Entropy::seeded(1), ..Settings::default() };
    all::register(&mut manager, &settings, |_| true);
    manager.add(Scheduler::default());
    shoal_node::simulated::add(&mut manager, Options { nodes, ..Options::default() });
    tokio::spawn(manager.run());
    cluster
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_dies_is_noticed_and_its_pods_are_replaced() {
    let cluster = simulated(3).await;
    let client = cluster.client();
    let nodes: Api<Node> = Api::all(client.clone());
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    apply(&Api::<Deployment>::default_namespaced(client.clone()), &web(6, 1)).await;
    // Names of nodes on which pods serve that nobody has asked to go, and how many pods there are in all.
    let look = async || {
        let all = pods.list(&ListParams::default()).await.unwrap().items;
        let serving = all.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).filter(|pod| {
            let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref());
            conditions.unwrap_or_default().iter().any(|told| told.type_ == "Ready" && told.status == "True")
        });
        let of_nodes = serving.map(|pod| pod.spec.clone().unwrap().node_name.unwrap()).collect::<Vec<_>>();
        (of_nodes, all.len())
    };
    until("all pods serve", async || (look().await.0.len() == 6).then_some(())).await;
    let label = |value: Value| json!({"metadata": {"labels": {"simulated.shoal.dev/dead": value}}});
    let params = PatchParams::default();
    nodes.patch("simulated-0", &params, &Patch::Merge(label(json!("yes")))).await.unwrap();
    let died = Instant::now();
    until("its pods serve elsewhere", async || {
        let (serving, _) = look().await;
        (serving.len() == 6 && !serving.iter().any(|node| node == "simulated-0")).then_some(())
    })
    .await;
    // Silent for 50 s, and its pods tolerate that for 300 s.
    assert!(died.elapsed() > Duration::from_secs(300), "{:?}", died.elapsed());
    assert!(look().await.1 > 6, "nobody can say that the old ones have ended");
    nodes.patch("simulated-0", &params, &Patch::Merge(label(Value::Null))).await.unwrap();
    until("the old ones have ended", async || (look().await.1 == 6).then_some(())).await;
    until("the machine counts again", async || {
        let node = value(&nodes, "simulated-0").await;
        node["spec"]["taints"].as_array().is_none_or(Vec::is_empty).then_some(())
    })
    .await;
}

//! Controllers whose requests and answers are lost.

use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Pod, ServiceAccount};
use kube::api::{Api, WatchEvent, WatchParams};
use serde_json::json;
use shoal_controllers::{job, replicaset, statefulset};
use shoal_objects::clock::Clock;
use shoal_objects::entropy::Entropy;
use shoal_runtime::Manager;
use shoal_testkit::{Cluster, Effect, FaultLayer, Rule};

use crate::cluster::{api, condition, create, kubelet, template, until, until_all};

/// Every seventh write never arrives, or arrives and is not answered, or is refused; watches break.
fn faults() -> FaultLayer {
    let faults = FaultLayer::new(11);
    for effect in [Effect::DropBefore, Effect::DropAfter, Effect::answer(500)] {
        faults.add(Rule::writes(effect).percent(5));
    }
    faults.add(Rule::watches(Effect::CutWithin(20_000)).percent(30));
    faults
}

/// How many pods have ever been made.
async fn made(pods: &Api<Pod>) -> usize {
    use futures::TryStreamExt as _;
    let params = WatchParams::default().timeout(1);
    let events = pods.watch(&params, "1").await.unwrap().try_collect::<Vec<_>>().await.unwrap();
    events.iter().filter(|event| matches!(event, WatchEvent::Added(_))).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_requests_and_answers_make_no_pod_twice_and_count_none_twice() {
    let cluster = Cluster::start().await;
    let client = cluster.client();
    create::<ServiceAccount>(&client, json!({"metadata": {"name": "default"}})).await;
    let unlucky = cluster.client_through(&faults());
    let mut manager = Manager::builder("controllers").client(unlucky).embedded().build().await.unwrap();
    let (clock, entropy) = (Clock::system(), Entropy::system());
    manager.add(job::controller(clock.clone(), entropy.clone()));
    manager.add(replicaset::controller(clock.clone(), entropy));
    manager.add(statefulset::controller(clock));
    tokio::spawn(manager.run());
    let mut node = Manager::builder("node").client(client.clone()).embedded().build().await.unwrap();
    node.add(kubelet());
    tokio::spawn(node.run());

    let mut work = template("work", "succeeds");
    work["spec"]["restartPolicy"] = json!("Never");
    let spec = json!({"template": work, "completions": 12, "parallelism": 4});
    create::<Job>(&client, json!({"metadata": {"name": "j"}, "spec": spec})).await;
    let selector = json!({"matchLabels": {"app": "web"}});
    let spec = json!({"replicas": 15, "selector": selector, "template": template("web", "run")});
    create::<ReplicaSet>(&client, json!({"metadata": {"name": "web"}, "spec": spec})).await;
    let selector = json!({"matchLabels": {"app": "db"}});
    let spec =
        json!({"replicas": 4, "serviceName": "db", "selector": selector, "template": template("db", "run")});
    create::<StatefulSet>(&client, json!({"metadata": {"name": "db"}, "spec": spec})).await;

    let done = until(&api::<Job>(&client), "j", |job| condition(job, "Complete")["status"] == "True").await;
    assert_eq!(done["status"]["succeeded"], 12);
    until(&api::<ReplicaSet>(&client), "web", |set| set["status"]["readyReplicas"] == 15).await;
    until(&api::<StatefulSet>(&client), "db", |set| set["status"]["readyReplicas"] == 4).await;
    let pods = api::<Pod>(&client);
    until_all(&pods, |pods| pods.len() == 31).await;
    assert_eq!(made(&pods).await, 31, "none was made and deleted again");
    until_all(&api::<Event>(&client), |events| !events.is_empty()).await;
}

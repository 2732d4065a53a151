//! One seed, one history: a whole operator with everything that a framework does by chance and by time, run twice.

#![allow(clippy::unwrap_used, clippy::panic, reason = "what fails, fails")]

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use shoal_objects::Entropy;
use shoal_runtime::config::Config;
use shoal_runtime::{Action, Context, Controller, Error, Manager, Result, finalizer};
use shoal_testkit::{Cluster, Effect, FaultLayer, Rule};
use tokio::time::sleep;

const FINALIZER: &str = "example.com/replay";

/// Three numbered ConfigMaps for each Deployment, and its status from them.
async fn reconcile(context: Context<Deployment>) -> Result<Action> {
    let Some(app) = context.object() else { return Ok(Action::done()) };
    finalizer::finalize(
        context.writer(),
        &*app,
        FINALIZER,
        |app| roll_out(&context, app),
        |app| clean_up(&context, app),
    )
    .await
}

async fn roll_out(context: &Context<Deployment>, app: Deployment) -> Result<Action> {
    let live: BTreeMap<String, _> =
        context.children::<ConfigMap>().into_iter().map(|map| (map.name_any(), map)).collect();
    for n in 0..3 {
        let name = format!("{}-{n}", app.name_any());
        let child = json!({"metadata": {"name": name, "namespace": app.namespace()},
            "data": {"replicas": app.spec.as_ref().and_then(|spec| spec.replicas).map(|n| n.to_string())}});
        let child: ConfigMap =
            serde_json::from_value(child).map_err(|error| Error::permanent("child").because(error))?;
        context.writer().apply_child(&app, &child, live.get(&name).map(AsRef::as_ref)).await?;
    }
    let children = i32::try_from(live.len()).unwrap_or_default();
    let set = |app: &mut Deployment| app.status.get_or_insert_default().replicas = Some(children);
    context.writer().modify_status(context.key(), Some(&app), set).await?;
    context.recorder().normal(&app, "Counted", format!("{children} children"));
    Ok(Action::after(Duration::from_secs(20)))
}

/// Fails now and then, as others do.
async fn clean_up(context: &Context<Deployment>, app: Deployment) -> Result<()> {
    match app.name_any().as_str() {
        "app-1" if context.retries() < 2 => Err(Error::unknown("not yet")),
        _ => Ok(()),
    }
}

fn app(name: &str) -> Deployment {
    let labels = json!({"app": name});
    let pod = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let app =
        json!({"metadata": {"name": name}, "spec": {"selector": {"matchLabels": labels}, "template": pod}});
    serde_json::from_value(app).unwrap()
}

/// Some minutes of two replicas on a bad network: all requests that were sent, and all events of the cluster.
async fn run(seed: u64) -> (Vec<String>, Vec<u8>) {
    let cluster = Cluster::builder().seed(seed).start().await;
    let faults = FaultLayer::new(seed);
    for rule in [
        Rule::all(Effect::DropBefore).percent(5),
        Rule::writes(Effect::DropAfter).percent(5),
        Rule::writes(Effect::answer(409)).percent(10),
        Rule::all(Effect::answer_later(429, 1)).percent(5),
        Rule::all(Effect::Delay(Duration::from_millis(30))).percent(20),
        Rule::watches(Effect::CutWithin(5000)).percent(50),
    ] {
        faults.add(rule);
    }
    let mut replicas = Vec::new();
    for n in 0..2 {
        let mut manager = Manager::builder("replay")
            .client(cluster.client_through(&faults))
            .config(Config::default())
            .clock(cluster.clock())
            .entropy(Entropy::seeded(seed * 10 + n))
            .identity(&format!("replica-{n}"))
            .embedded()
            .leader_election()
            .build()
            .await
            .unwrap();
        manager.add(Controller::of::<Deployment>("apps").owns::<ConfigMap>().reconcile(reconcile));
        replicas.push((manager.stopper(), tokio::spawn(manager.run())));
    }
    let (chance, apps) = (Entropy::seeded(seed), Api::<Deployment>::default_namespaced(cluster.client()));
    for step in 0..60 {
        let name = format!("app-{}", chance.below(4));
        match chance.below(4) {
            0 => drop(apps.create(&PostParams::default(), &app(&name)).await),
            1 => drop(apps.delete(&name, &DeleteParams::default()).await),
            _ => {
                let patch = Patch::Merge(json!({"spec": {"replicas": chance.below(9)}}));
                drop(apps.patch(&name, &PatchParams::default(), &patch).await);
            }
        }
        if step == 30 {
            // Whoever leads, the other one takes over.
            replicas[0].0.stop();
        }
        if chance.below(5) == 0 {
            faults.disconnect();
        }
        sleep(Duration::from_millis(chance.below(5000))).await;
    }
    for (stopper, running) in replicas {
        stopper.stop();
        // A leader that could not renew in time says so, in every run of this seed.
        let _ = running.await.unwrap();
    }
    let paths = [
        "/apis/apps/v1/deployments",
        "/api/v1/configmaps",
        "/api/v1/events",
        "/apis/coordination.k8s.io/v1/leases",
    ];
    (faults.requests(), cluster.event_log(&paths).await)
}

fn lines(log: &[u8]) -> Vec<Value> {
    log.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

#[tokio::test(start_paused = true)]
async fn two_runs_of_an_operator_with_one_seed_have_the_same_history() {
    let mut histories = Vec::new();
    for seed in [1, 2, 3] {
        let (first, second) = (run(seed).await, run(seed).await);
        let differ = first.0.iter().zip(&second.0).position(|(a, b)| a != b);
        let around = differ.map(|at| (at, first.0.get(at), second.0.get(at)));
        assert!(first.0 == second.0, "seed {seed}: requests differ: {around:?}");
        assert!(first.1 == second.1, "seed {seed}: events differ");
        histories.push(first.1);
    }
    assert!(histories[0] != histories[1] && histories[1] != histories[2], "other seeds, other histories");
    // It was no empty play.
    let events = lines(&histories[0]);
    let count = |kind: &str, change: &str| {
        events.iter().filter(|event| event["object"]["kind"] == kind && event["type"] == change).count()
    };
    for (kind, change, least) in [
        ("Deployment", "DELETED", 2),
        ("ConfigMap", "ADDED", 9),
        ("Event", "ADDED", 2),
        ("Lease", "MODIFIED", 20),
    ] {
        assert!(count(kind, change) >= least, "{} × {kind} {change}", count(kind, change));
    }
}

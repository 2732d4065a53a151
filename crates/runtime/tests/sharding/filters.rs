//! What each replica asks the server for and holds.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::json;
use shoal_runtime::{Action, Context, Controller};
use shoal_testkit::Abilities;

use crate::harness::{Replica, World, options, settled, within};

fn cache(replica: &Replica, resource: &str) -> (String, u64) {
    let caches = replica.sharding.inspect()["caches"].clone();
    let found = caches
        .as_array()
        .unwrap()
        .iter()
        .find(|cache| cache["path"].as_str().is_some_and(|path| path.ends_with(resource)));
    let found = found.unwrap();
    (found["filter"].as_str().unwrap().to_owned(), found["objects"].as_u64().unwrap())
}

/// Each map gets a secret of its own.
fn with_children() -> Controller {
    Controller::of::<ConfigMap>("maps").with_labels("app=test").owns::<Secret>().reconcile(
        |context: Context<ConfigMap>| async move {
            let Some(map) = context.object() else { return Ok(Action::done()) };
            let child = json!({"metadata": {"name": &*context.key().name, "namespace": "default"}});
            let child: Secret = serde_json::from_value(child).unwrap();
            let live = context.children::<Secret>().pop();
            context.writer().apply_child(&*map, &child, live.as_deref()).await?;
            Ok(Action::done())
        },
    )
}

#[tokio::test(start_paused = true)]
async fn the_server_sends_each_replica_its_share_where_it_can() {
    let world = World::new().await;
    world.create(200).await;
    let (a, b) = (world.replica("a").await, world.replica("b").await);
    settled(&[&a, &b]).await;
    within(30, "caches are divided by the server", || {
        let (a, b) = (cache(&a, "configmaps"), cache(&b, "configmaps"));
        a.0 == "server, by hash" && b.0 == "server, by hash" && a.1 + b.1 == 200
    })
    .await;
    let asked = a.faults.requests();
    assert!(asked.iter().any(|request| request.contains("watch=true") && request.contains("shardSelector=")));
    world.set_all(200, "1").await;
    within(10, "everything is worked on", || world.all_at(200, "1")).await;
    world.intervals.check();
    a.stop().await;
    b.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_older_server_sends_everything_and_each_replica_keeps_its_share() {
    let abilities =
        Abilities { shard_selector: false, watch_list: false, bookmarks: false, ..Abilities::default() };
    let world = World::with(abilities).await;
    world.create(100).await;
    let (a, b) = (world.replica("a").await, world.replica("b").await);
    settled(&[&a, &b]).await;
    within(30, "caches are divided here", || {
        let (a, b) = (cache(&a, "configmaps"), cache(&b, "configmaps"));
        a.0 == "client" && b.0 == "client" && a.1 + b.1 == 100
    })
    .await;
    world.set_all(100, "1").await;
    within(10, "everything is worked on", || world.all_at(100, "1")).await;
    a.crash().await;
    world.set_all(100, "2").await;
    within(15, "everything is worked on", || world.all_at(100, "2")).await;
    world.intervals.check();
    b.stop().await;
}

#[tokio::test(start_paused = true)]
async fn children_carry_the_slot_of_their_owner_and_go_with_it() {
    for by_label in [false, true] {
        let world = World::new().await;
        world.create(60).await;
        let options = |name: &str| options(name).children_by_label(by_label);
        let a = world.replica_with(options("a"), with_children()).await;
        let b = world.replica_with(options("b"), with_children()).await;
        settled(&[&a, &b]).await;
        let filter = if by_label { "server, by label" } else { "client" };
        within(30, "children are divided", || {
            let (a, b) = (cache(&a, "secrets"), cache(&b, "secrets"));
            a.0 == filter && b.0 == filter && a.1 + b.1 == 60 && a.1 > 0 && b.1 > 0
        })
        .await;
        let secrets: kube::Api<Secret> = kube::Api::default_namespaced(world.client());
        let all = secrets.list(&Default::default()).await.unwrap();
        let label = "slot.sharding.shoal.dev/web";
        assert!(all.iter().all(|secret| secret.metadata.labels.as_ref().unwrap().contains_key(label)));
        a.stop().await;
        within(30, "all children are seen by the other", || cache(&b, "secrets").1 == 60).await;
        b.stop().await;
    }
}

//! What each replica asks the server for and holds.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::{Api, PostParams};
use serde_json::json;
use shoal_runtime::{Action, Context, Controller};
use shoal_testkit::Abilities;

use shoal_runtime::shard::KeyFunction;

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
        let secrets: Api<Secret> = Api::default_namespaced(world.client());
        let all = secrets.list(&Default::default()).await.unwrap();
        let label = "slot.sharding.shoal.dev/web";
        assert!(all.iter().all(|secret| secret.metadata.labels.as_ref().unwrap().contains_key(label)));
        a.stop().await;
        within(30, "all children are seen by the other", || cache(&b, "secrets").1 == 60).await;
        b.stop().await;
    }
}

/// What share of all hashes each list of ConfigMaps asked for since request number `from`.
fn listed_shares(replica: &Replica, from: usize) -> Vec<f64> {
    let requests = replica.faults.requests();
    let lists = requests[from..].iter().filter(|request| {
        // A barrier asks for one object, to learn the newest revision.
        request.contains("/configmaps?")
            && !request.contains("watch=true")
            && !request.contains("limit=1&")
            && !request.ends_with("limit=1")
    });
    let share = |request: &String| {
        let bounds: Vec<u128> = request
            .split("0x")
            .skip(1)
            .map(|text| {
                let digits: String = text.chars().take_while(char::is_ascii_hexdigit).collect();
                u128::from_str_radix(&digits, 16).unwrap()
            })
            .collect();
        if bounds.is_empty() {
            return 1.0;
        }
        bounds.chunks(2).map(|range| (range[1] - range[0]) as f64 / 2_f64.powi(64)).sum()
    };
    lists.map(share).collect()
}

#[tokio::test(start_paused = true)]
async fn a_handover_costs_what_moves_and_not_everything_that_is_held() {
    let world = World::new().await;
    world.create(200).await;
    let (a, b) = (world.replica("a").await, world.replica("b").await);
    settled(&[&a, &b]).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let marks = (a.faults.requests().len(), b.faults.requests().len());
    let c = world.replica("c").await;
    settled(&[&a, &b, &c]).await;
    // Until whoever lost something asks for less.
    tokio::time::sleep(Duration::from_secs(30)).await;
    for (replica, from) in [(&a, marks.0), (&b, marks.1)] {
        assert_eq!(listed_shares(replica, from), [0.0; 0], "a loss costs no list");
        let last = replica
            .faults
            .requests()
            .into_iter()
            .rfind(|request| request.contains("/configmaps?") && request.contains("watch=true"));
        assert!(last.unwrap().contains("shardSelector="), "and the watch goes on with less");
    }
    world.set_all(200, "1").await;
    within(10, "everything is worked on", || world.all_at(200, "1")).await;
    let marks = (a.faults.requests().len(), b.faults.requests().len());
    c.stop().await;
    settled(&[&a, &b]).await;
    for (replica, from) in [(&a, marks.0), (&b, marks.1)] {
        let shares = listed_shares(replica, from);
        let total: f64 = shares.iter().sum();
        // A sixth of all slots each: listed once to be warm, at most once more to be fresh.
        assert!(!shares.is_empty() && total < 0.4, "{shares:?}");
        assert!(shares.iter().all(|share| *share < 0.2), "{shares:?}");
    }
    world.set_all(200, "2").await;
    within(10, "everything is worked on", || world.all_at(200, "2")).await;
    assert_eq!(cache(&a, "configmaps").1 + cache(&b, "configmaps").1, 200);
    world.maps().delete("map-7", &Default::default()).await.unwrap();
    within(10, "deletions are seen", || cache(&a, "configmaps").1 + cache(&b, "configmaps").1 == 199).await;
    world.intervals.check();
    a.stop().await;
    b.stop().await;
}

#[tokio::test(start_paused = true)]
async fn objects_that_come_and_go_while_slots_move_are_neither_lost_nor_brought_back() {
    let world = World::new().await;
    world.create(120).await;
    let (a, b) = (world.replica("a").await, world.replica("b").await);
    settled(&[&a, &b]).await;
    for round in 0..3 {
        let c = world.replica(&format!("c{round}")).await;
        for index in 0..40 {
            let name = format!("map-{}", round * 40 + index);
            world.maps().delete(&name, &Default::default()).await.unwrap();
            world.create_one(&format!("new-{round}-{index}")).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        settled(&[&a, &b, &c]).await;
        c.stop().await;
        settled(&[&a, &b]).await;
        within(30, "each object is held once", || {
            cache(&a, "configmaps").1 + cache(&b, "configmaps").1 == 120
        })
        .await;
    }
    world.intervals.check();
    a.stop().await;
    b.stop().await;
}

#[tokio::test(start_paused = true)]
async fn every_key_function_shares_the_objects_and_the_server_filters_where_it_can() {
    let by_label = |object: &shoal_runtime::cache::Encoded| {
        object.label("app").unwrap_or_default().to_owned() + object.name()
    };
    for (function, filter) in [
        (Some(KeyFunction::Namespace), "server, by hash"),
        (Some(KeyFunction::NamespacedName), "client"),
        (None, "client"),
    ] {
        let world = World::new().await;
        let namespaces: Api<Namespace> = Api::all(world.client());
        for tenant in 0..20 {
            // The hash of namespaces hardly looks at the last characters.
            let name = format!("{:x}-tenant", tenant * 7919 + 13);
            let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
            namespaces.create(&PostParams::default(), &namespace).await.unwrap();
            for index in 0..5 {
                let map = json!({"metadata": {"name": format!("map-{index}"), "labels": {"app": "test"}}, "data": {"v": "0"}});
                let maps: Api<ConfigMap> = Api::namespaced(world.client(), &name);
                maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
            }
        }
        let with = |name: &str| match &function {
            Some(function) => options(name).key(function.clone()),
            None => options(name).user_key("app-and-name", 1, by_label),
        };
        let a = world.replica_with(with("a"), world.controller("a")).await;
        let b = world.replica_with(with("b"), world.controller("b")).await;
        settled(&[&a, &b]).await;
        within(30, "each has its part", || {
            let (a, b) = (cache(&a, "configmaps"), cache(&b, "configmaps"));
            a.0 == filter && b.0 == filter && a.1 + b.1 == 100 && a.1 > 0 && b.1 > 0
        })
        .await;
        within(10, "everything is worked on", || world.all_at(100, "0")).await;
        a.stop().await;
        within(30, "the other has it all", || cache(&b, "configmaps").1 == 100).await;
        world.intervals.check();
        b.stop().await;
    }
}

//! People and strangers change what is the replicas' own.

use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use shoal_runtime::shard::KeyFunction;
use shoal_testkit::{Effect, FaultLayer, Rule};

use crate::harness::{SLOTS, World, options, settled, within};

#[tokio::test(start_paused = true)]
async fn a_replica_whose_lease_is_deleted_stops_and_begins_a_new_life() {
    let world = World::new().await;
    world.create(30).await;
    let (a, b) = (world.replica("a").await, world.replica("b").await);
    settled(&[&a, &b]).await;
    let first = a.sharding.id().unwrap();
    world.leases().delete(first.as_str(), &DeleteParams::default()).await.unwrap();
    within(5, "a new life", || a.sharding.id().is_some_and(|id| id != first)).await;
    world.set_all(30, "1").await;
    within(30, "everything is worked on", || world.all_at(30, "1")).await;
    settled(&[&a, &b]).await;
    world.intervals.check();
    a.stop().await;
    b.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_record_that_is_edited_by_hand_is_repaired() {
    let world = World::new().await;
    world.create(30).await;
    let (a, b) = (world.replica("a").await, world.replica("b").await);
    settled(&[&a, &b]).await;
    // Everything to one, and the epoch lowered.
    let edit = json!({"status": {"runs": [format!("0-{} owner=0 epoch=1", SLOTS - 1)]}});
    world.shard_maps().patch("web", &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
    world.set_all(30, "1").await;
    within(60, "everything is worked on", || world.all_at(30, "1")).await;
    settled(&[&a, &b]).await;
    assert_ne!(world.record().await["status"]["repaired"], 0);
    world.intervals.check();
    a.stop().await;
    b.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_record_that_is_deleted_is_made_anew() {
    let world = World::new().await;
    world.create(20).await;
    let (a, b) = (world.replica("a").await, world.replica("b").await);
    settled(&[&a, &b]).await;
    world.shard_maps().delete("web", &DeleteParams::default()).await.unwrap();
    world.set_all(20, "1").await;
    within(60, "everything is worked on", || world.all_at(20, "1")).await;
    settled(&[&a, &b]).await;
    world.intervals.check();
    a.stop().await;
    b.stop().await;
}

#[tokio::test(start_paused = true)]
async fn people_can_pin_slots_and_cordon_replicas() {
    let world = World::new().await;
    world.create(10).await;
    let (a, b) = (world.replica("a").await, world.replica("b").await);
    settled(&[&a, &b]).await;
    let wish = json!({"spec": {"cordoned": ["a"]}});
    world.shard_maps().patch("web", &PatchParams::default(), &Patch::Merge(wish)).await.unwrap();
    within(30, "a has nothing", || a.slots() == 0 && b.slots() == SLOTS).await;
    let wish = json!({"spec": {"cordoned": [], "pins": [{"slots": "0-3", "replica": "a"}]}});
    world.shard_maps().patch("web", &PatchParams::default(), &Patch::Merge(wish)).await.unwrap();
    settled(&[&a, &b]).await;
    let map = a.sharding.map().unwrap();
    let id = a.sharding.id().unwrap();
    assert!((0..4).all(|slot| map.get(slot).unwrap().owner.as_ref() == Some(&id)), "{map}");
    world.intervals.check();
    a.stop().await;
    b.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_second_replica_of_one_identity_is_refused() {
    let world = World::new().await;
    world.create(10).await;
    let a = world.replica_with(options("a").fixed_id("one"), world.controller("a")).await;
    settled(&[&a]).await;
    let b = world.replica_with(options("b").fixed_id("one"), world.controller("b")).await;
    let error = b.task.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("two replicas have one identity"), "{error}");
    assert_eq!(a.slots(), SLOTS);
    a.stop().await;
    world.intervals.check();
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_computes_slots_otherwise_is_refused_with_the_difference() {
    let world = World::new().await;
    world.create(10).await;
    let a = world.replica("a").await;
    settled(&[&a]).await;
    for (other, difference) in [
        (options("b").slots(64), "slots"),
        (options("b").key(KeyFunction::Namespace), "key function"),
        (options("b").algorithm("rendezvous"), "algorithm"),
    ] {
        let b = world.replica_with(other, world.controller("b")).await;
        let error = b.task.await.unwrap().unwrap_err().to_string();
        assert!(error.contains(difference) && error.contains("shards migrate"), "{error}");
    }
    assert_eq!(a.slots(), SLOTS);
    world.intervals.check();
    a.stop().await;
}

#[tokio::test(start_paused = true)]
async fn lost_answers_and_throttling_never_make_two_owners() {
    let world = World::new().await;
    world.create(30).await;
    let (a, b) = (world.replica("a").await, world.replica("b").await);
    let leases = |parts: &http::request::Parts| {
        parts.method != http::Method::GET
            && (parts.uri.path().contains("/leases") || parts.uri.path().contains("/shardmaps"))
    };
    for replica in [&a, &b] {
        replica.faults.add(Rule::on(leases, Effect::DropAfter).percent(20));
        replica.faults.add(Rule::on(leases, Effect::answer(409)).percent(5));
        replica.faults.add(Rule::on(leases, Effect::answer_later(429, 1)).percent(5));
    }
    settled(&[&a, &b]).await;
    let c = world.replica("c").await;
    settled(&[&a, &b, &c]).await;
    c.crash().await;
    world.set_all(30, "1").await;
    within(60, "everything is worked on", || world.all_at(30, "1")).await;
    world.intervals.check();
    a.reconnect();
    b.reconnect();
    a.stop().await;
    b.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_the_kind_and_the_right_to_make_it_the_error_says_what_to_do() {
    let world = World::new().await;
    let options = options("a").install_crd(false);
    let a = world.try_replica(options, world.controller("a"), FaultLayer::new(1)).await.unwrap();
    let error = a.task.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("shoal crds"), "{error}");
    assert!(
        world.maps().list(&Default::default()).await.unwrap().iter().all(|map| !map.name_any().is_empty())
    );
}

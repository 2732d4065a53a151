//! What the layer above and people see: notifications, fences, handlers, figures, settings.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use parking_lot::Mutex;
use serde_json::{Value, json};
use shoal_runtime::config::Logging;
use shoal_runtime::logging;
use shoal_runtime::shard::{NodeInfo, NodeStatus, Reassigned, ShardListener, Shards};
use shoal_runtime::{Action, Context, Controller, Manager, ResourceHandler, Result};
use shoal_testkit::CapturedLog;

use crate::harness::{Notes, Replica, SLOTS, World, config, options, settled, within};

/// A controller that takes notes.
fn noting<F: Future<Output = ()> + Send + 'static>(
    notes: &Notes,
    act: impl Fn(Context<ConfigMap>, Notes) -> F + Send + Sync + 'static,
) -> Controller {
    let notes = notes.clone();
    Controller::of::<ConfigMap>("maps").with_labels("app=test").reconcile(move |context| {
        let acting = act(context, notes.clone());
        async move {
            acting.await;
            Ok(Action::done())
        }
    })
}

struct Listener {
    notes: Notes,
    name: &'static str,
}

impl ShardListener for Listener {
    async fn gained(&self, shards: Shards) {
        tokio::time::sleep(Duration::from_millis(100)).await;
        self.notes.lock().push(format!("{} gained {}", self.name, shards.slots.len()));
    }

    async fn lost(&self, shards: Shards) {
        let objects = shards.resources().len();
        self.notes.lock().push(format!("{} losing {} with {objects}", self.name, shards.slots.len()));
        tokio::time::sleep(Duration::from_millis(100)).await;
        self.notes.lock().push(format!("{} lost {}", self.name, shards.slots.len()));
    }

    async fn reassigned(&self, change: Reassigned) {
        self.notes.lock().push(format!("{} reassigned to {}", self.name, change.to.is_some()));
    }
}

#[tokio::test(start_paused = true)]
async fn the_layer_above_is_told_before_the_first_and_after_the_last_reconcile() {
    let world = World::new().await;
    world.create(20).await;
    let notes = Notes::default();
    let start = async |name: &'static str| {
        let controller = noting(&notes, move |_, seen| async move {
            seen.lock().push(format!("{name} works"));
            tokio::time::sleep(Duration::from_millis(10)).await;
        });
        let listener = Listener { notes: notes.clone(), name };
        world.replica_with(options(name).listener(listener, Duration::from_secs(5)), controller).await
    };
    let a = start("a").await;
    settled(&[&a]).await;
    within(5, "a works", || notes.lock().iter().any(|note| note == "a works")).await;
    let told = notes.lock().clone();
    let place = |notes: &[String], what: &str| notes.iter().position(|note| note.starts_with(what));
    assert!(place(&told, "a gained 32") < place(&told, "a works"), "{told:?}");
    let b = start("b").await;
    settled(&[&a, &b]).await;
    a.stop().await;
    within(5, "b has all", || b.slots() == SLOTS).await;
    let told = notes.lock().clone();
    // The last slots of a: lost before b has gained them, and nothing was worked on by a meanwhile.
    let last_lost = told.iter().rposition(|note| note.starts_with("a lost")).unwrap();
    let last_gained = told.iter().rposition(|note| note.starts_with("b gained")).unwrap();
    let last_work = told.iter().rposition(|note| note == "a works").unwrap();
    assert!(last_work < last_lost && last_lost < last_gained, "{told:?}");
    assert!(told.iter().any(|note| note.starts_with("a losing") && !note.ends_with("with 0")), "{told:?}");
    assert!(told.iter().any(|note| note == "b reassigned to true"), "{told:?}");
    b.stop().await;
}

#[tokio::test(start_paused = true)]
async fn work_that_is_lost_cannot_write_any_more_by_any_way() {
    let world = World::new().await;
    world.create(1).await;
    let notes = Notes::default();
    let controller = noting(&notes, |context, seen| async move {
        let Some(map) = context.object() else { return };
        let epoch = context.shard().map(|shard| shard.epoch).unwrap_or_default();
        let (writer, key) = (context.writer().clone(), context.key().clone());
        // A task that outlives its reconcile.
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(15)).await;
            let result = writer
                .modify::<ConfigMap>(&key, Some(&map), |map| {
                    map.data.get_or_insert_default().insert("late".to_owned(), "x".to_owned());
                })
                .await;
            seen.lock().push(format!("epoch {epoch}: {}", result.is_ok()));
        });
    });
    let a = world.replica_with(options("a"), controller).await;
    settled(&[&a]).await;
    a.cut_off();
    within(60, "the late write was tried", || !notes.lock().is_empty()).await;
    a.reconnect();
    assert!(notes.lock()[0].ends_with("false"), "{:?}", notes.lock());
    let map = world.maps().get("map-0").await.unwrap();
    assert!(!map.data.unwrap().contains_key("late"));
    a.stop().await;
}

#[tokio::test(start_paused = true)]
async fn sharded_work_must_name_what_it_creates() {
    let world = World::new().await;
    world.create(1).await;
    let notes = Notes::default();
    let controller = noting(&notes, |context, seen| async move {
        let nameless = json!({"metadata": {"generateName": "x-", "namespace": "default"}});
        let nameless: ConfigMap = serde_json::from_value(nameless).unwrap();
        let result = context.writer().create(&nameless).await;
        seen.lock().push(result.err().map(|error| error.to_string()).unwrap_or_default());
    });
    let a = world.replica_with(options("a"), controller).await;
    within(30, "it was tried", || !notes.lock().is_empty()).await;
    assert!(notes.lock()[0].contains("generateName"), "{:?}", notes.lock());
    a.stop().await;
}

struct Handler {
    notes: Notes,
    name: &'static str,
}

impl ResourceHandler<ConfigMap> for Handler {
    async fn add(&self, object: Arc<ConfigMap>) -> Result<()> {
        self.notes.lock().push(format!("{} add {}", self.name, object.name_any()));
        Ok(())
    }

    async fn update(&self, _: Arc<ConfigMap>, new: Arc<ConfigMap>) -> Result<()> {
        self.notes.lock().push(format!("{} update {}", self.name, new.name_any()));
        Ok(())
    }

    async fn delete(&self, object: Arc<ConfigMap>) -> Result<()> {
        self.notes.lock().push(format!("{} delete {}", self.name, object.name_any()));
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn handlers_are_sharded_as_well() {
    let world = World::new().await;
    world.create(20).await;
    let notes = Notes::default();
    let start = async |name: &'static str| {
        let handler = Handler { notes: notes.clone(), name };
        let controller = Controller::of::<ConfigMap>("maps").with_labels("app=test").handle(handler);
        world.replica_with(options(name), controller).await
    };
    let a = start("a").await;
    settled(&[&a]).await;
    let count = |what: &str| notes.lock().iter().filter(|note| note.starts_with(what)).count();
    within(5, "all are added", || count("a add") == 20).await;
    let b = start("b").await;
    settled(&[&a, &b]).await;
    within(5, "some are added to b", || count("b add") > 0).await;
    let moved = count("b add");
    notes.lock().clear();
    world.set_all(20, "1").await;
    within(5, "each is updated once", || count("a update") + count("b update") == 20).await;
    assert_eq!(count("b update"), moved);
    a.stop().await;
    within(5, "b has all", || b.slots() == SLOTS).await;
    within(5, "the rest is added to b", || count("b add") == 20 - moved).await;
    world.maps().delete("map-0", &Default::default()).await.unwrap();
    within(5, "a deletion is told once", || count("b delete map-0") == 1).await;
    b.stop().await;
}

#[tokio::test(start_paused = true)]
async fn figures_and_inspection_show_shards_and_replicas() {
    let world = World::new().await;
    world.create(5).await;
    let builder = Manager::builder("web").client(world.client()).config(config()).embedded();
    let mut manager = builder.sharded(options("a")).build().await.unwrap();
    manager.add(world.controller("a"));
    let (metrics, health, stopper) = (manager.metrics().clone(), manager.health().clone(), manager.stopper());
    let sharding = manager.sharding().unwrap().clone();
    let task = tokio::spawn(manager.run());
    let a = Replica { sharding, faults: shoal_testkit::FaultLayer::new(1), stopper, task };
    settled(&[&a]).await;
    within(5, "all are done", || world.all_at(5, "0")).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let text = metrics.text();
    for line in [
        "sharded_controller_shard_count 32",
        "sharded_controller_node_count 1",
        "sharded_controller_node_health{status=\"Healthy\"} 1",
        "sharded_controller_processed_resources_total 5",
        "sharded_controller_unowned_slots 0",
        "sharded_controller_overlaps_detected_total 0",
        "sharded_controller_moves_total{reason=\"unowned\"} 32",
        "sharded_controller_handover_seconds_count{phase=\"barrier\"} 1",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
    let shown = health.inspection();
    assert_eq!(shown["shards"]["active"][0]["slots"], "0-31", "{shown}");
    assert_eq!(shown["shards"]["nodes"][0]["status"], "Healthy", "{shown}");
    a.stop().await;
}

#[tokio::test(start_paused = true)]
async fn slots_that_nobody_takes_raise_an_alarm_until_somebody_does() {
    let world = World::new().await;
    world.create(5).await;
    let a = world.replica_with(options("a").weight(0), world.controller("a")).await;
    let alarm = async || world.record().await["status"]["conditions"][0]["status"].clone();
    within(60, "a replica of no weight joins", || !a.sharding.nodes().is_empty()).await;
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert_eq!(alarm().await, "True");
    let events: Api<Event> = Api::default_namespaced(world.client());
    let told = events.list(&ListParams::default()).await.unwrap();
    assert!(told.iter().any(|event| event.reason.as_deref() == Some("SlotsUnowned")
        && event.involved_object.kind.as_deref() == Some("ShardMap")));
    let b = world.replica("b").await;
    within(30, "b takes all", || b.slots() == SLOTS).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(alarm().await, "False");
    a.stop().await;
    b.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_unwell_replica_gives_its_slots_away() {
    let world = World::new().await;
    world.create(20).await;
    let well = Arc::new(Mutex::new(true));
    let check = well.clone();
    let options_a = options("a").health(move || {
        let well = *check.lock();
        async move { well }
    });
    let a = world.replica_with(options_a, world.controller("a")).await;
    let b = world.replica("b").await;
    settled(&[&a, &b]).await;
    *well.lock() = false;
    within(30, "b has all", || a.slots() == 0 && b.slots() == SLOTS).await;
    *well.lock() = true;
    settled(&[&a, &b]).await;
    world.intervals.check();
    a.stop().await;
    b.stop().await;
}

#[tokio::test(start_paused = true)]
async fn settings_that_are_not_safe_are_refused_by_key_before_anything_starts() {
    let world = World::new().await;
    let mut bad = config();
    bad.state.lease_duration = Duration::from_secs(20);
    let builder = Manager::builder("web").client(world.client()).config(bad).embedded();
    let error = builder.sharded(options("a")).build().await.err().unwrap().to_string();
    assert!(error.contains("node.nodeTimeout"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn what_moves_and_who_is_well_is_logged_and_can_be_watched() {
    let world = World::new().await;
    let log = CapturedLog::new();
    let (subscriber, _level) =
        logging::subscriber(&Logging::default(), world.cluster.clock(), log.writer(), Vec::new()).unwrap();
    let _guard = tracing::subscriber::set_default(subscriber);

    let a = world.replica("a").await;
    settled(&[&a]).await;
    let mut nodes = a.sharding.watch_nodes();
    let b = world.replica_with(options("b").address("10.0.0.2:8080"), world.controller("b")).await;
    settled(&[&a, &b]).await;
    let (first, second) = (a.sharding.id().unwrap().to_string(), b.sharding.id().unwrap().to_string());
    let seen = nodes
        .wait_for(|nodes| {
            let slots = |node: &NodeInfo| node.shards.iter().map(|range| range.len()).sum::<u32>();
            nodes.iter().any(|node| {
                (&*node.name, &*node.address, node.status, slots(node))
                    == ("b", "10.0.0.2:8080", NodeStatus::Healthy, SLOTS / 2)
            })
        })
        .await
        .unwrap()
        .len();
    assert_eq!(seen, 2);
    // Replicas look at each other once in each retry period.
    let look = || tokio::time::sleep(2 * config().state.retry_period);
    b.crash().await;
    settled(&[&a]).await;
    look().await;
    let c = world.replica("c").await;
    settled(&[&a, &c]).await;
    look().await;
    let third = c.sharding.id().unwrap().to_string();
    c.stop().await;
    settled(&[&a]).await;
    look().await;
    a.stop().await;

    let lines = log.lines();
    let health: Vec<(&Value, &Value)> = lines
        .iter()
        .filter(|line| line["message"] == "Node health status changed")
        .map(|line| (&line["node_id"], &line["status"]))
        .collect();
    let of = |id: &str| -> Vec<&Value> {
        health.iter().filter(|(node, _)| *node == id).map(|(_, status)| *status).collect()
    };
    // Whoever is seen well is seen going, and how: by a crash or in order.
    assert_eq!(of(&second).last(), Some(&&json!("Unhealthy")), "{health:?}");
    assert!(of(&second).contains(&&json!("Healthy")), "{health:?}");
    assert_eq!(of(&third).last(), Some(&&json!("Leaving")), "{health:?}");
    let moved = |from: &str, to: &str| {
        lines.iter().filter(|line| line["message"] == "Shard assignment changed").any(|line| {
            let old = line["old_assignment"].as_object().unwrap();
            let new = line["new_assignment"].as_object().unwrap();
            old.values().all(|owner| owner == from)
                && new.values().all(|owner| owner == to)
                && !new.is_empty()
        })
    };
    assert!(moved(&first, &second) && moved(&second, &first), "{}", log.text());
}

#[tokio::test(start_paused = true)]
async fn each_planned_move_is_one_event_on_the_record() {
    let world = World::new().await;
    let events: Api<Event> = Api::default_namespaced(world.client());
    let told = async || -> BTreeSet<String> {
        // Longer than a batch may be quiet.
        tokio::time::sleep(Duration::from_secs(6)).await;
        let all = events.list(&ListParams::default().fields("reason=Moved")).await.unwrap();
        let about = |event: &Event| event.involved_object.kind.as_deref() == Some("ShardMap");
        assert!(all.iter().all(|event| about(event) && event.count == Some(1)), "{all:?}");
        all.into_iter().filter_map(|event| event.message).collect()
    };
    let ask = async |spec: Value| {
        let wish = Patch::Merge(json!({"spec": spec}));
        world.shard_maps().patch("web", &PatchParams::default(), &wish).await.unwrap();
    };
    let a = world.replica("a").await;
    settled(&[&a]).await;
    assert!(told().await.is_empty());
    let b = world.replica("b").await;
    settled(&[&a, &b]).await;
    let (first, second) = (a.sharding.id().unwrap(), b.sharding.id().unwrap());
    let mut expected = BTreeSet::from([format!("moved 16 slots from {first} to {second}: join")]);
    assert_eq!(told().await, expected);

    ask(json!({"cordoned": ["b"]})).await;
    within(60, "b has nothing", || b.slots() == 0 && a.slots() == SLOTS).await;
    expected.insert(format!("moved 16 slots from {second} to {first}: drain"));
    assert_eq!(told().await, expected);

    ask(json!({"cordoned": null})).await;
    settled(&[&a, &b]).await;
    expected.insert(format!("moved 16 slots from {first} to {second}: rebalance"));
    assert_eq!(told().await, expected);

    let theirs = b.sharding.active()[0].0.start;
    ask(json!({"pins": [{"slots": format!("{theirs}-{theirs}"), "replica": "a"}]})).await;
    within(60, "a has it", || a.sharding.active().iter().any(|(range, _)| range.contains(theirs))).await;
    let now = told().await;
    assert!(now.contains(&format!("moved 1 slots from {second} to {first}: move")), "{now:?}");

    let left = b.slots();
    b.stop().await;
    settled(&[&a]).await;
    let now = told().await;
    assert!(now.contains(&format!("moved {left} slots from {second} to {first}: shutdown")), "{now:?}");

    let c = world.replica("c").await;
    settled(&[&a, &c]).await;
    let before = told().await;
    c.crash().await;
    settled(&[&a]).await;
    assert_eq!(told().await, before, "a takeover is not a planned move");
    a.stop().await;
}

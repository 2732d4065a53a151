//! Records made by the core's own functions, shown and changed; on paper and on a cluster in this process.

use std::io;
use std::sync::{Arc, Mutex};

use clap::Parser;
use http::Request;
use kube::Client;
use serde_json::{Value, json};
use shoal_objects::Timestamp;
use shoal_sharding::{
    Facts, Guards, Identity, KeyFunction, LEASE_ANNOTATION, LeaseObject, LeaseRecord, Members, NodeStatus,
    ShardMap, SlotCount, SlotRange, Timers, Transition, apply, encode_lease, encode_map,
};
use shoal_testkit::Cluster;

use super::*;

/// 2026-01-01T00:00:00Z
const NOW: Timestamp = Timestamp(1_767_225_600_000_000);

fn identity(slots: u32) -> Arc<Identity> {
    Arc::new(Identity {
        group: "web".to_owned(),
        controller: "web/Deployment.apps".to_owned(),
        slots: SlotCount::new(slots).unwrap(),
        key_function: KeyFunction::Uid,
        algorithm: "sticky".to_owned(),
    })
}

/// What a live replica says.
fn lease(map: &ShardMap, name: &str) -> LeaseRecord {
    let id = ReplicaId::new(format!("{name}-x1"));
    LeaseRecord {
        name: name.into(),
        revision: "7d9f".into(),
        status: NodeStatus::Healthy,
        fingerprint: map.fingerprint(),
        weight: 100,
        revoked: None,
        ..LeaseRecord::tombstone_of(&id, &id, Duration::from_secs(15))
    }
}

/// A group in the making.
struct Paper {
    map: ShardMap,
    leases: Vec<LeaseRecord>,
    spec: Value,
    ages: Vec<i64>,
}

impl Paper {
    /// Replicas that share the slots evenly.
    fn shared(slots: u32, names: &[&str]) -> Paper {
        let map = ShardMap::new(identity(slots), Duration::from_secs(60), 0);
        let leases: Vec<LeaseRecord> = names.iter().map(|name| lease(&map, name)).collect();
        let ages = vec![1; names.len()];
        let mut paper = Paper { map, leases, spec: json!({}), ages };
        let each = slots / names.len().max(1) as u32;
        let assign = |(at, lease): (usize, &LeaseRecord)| Transition::Assign {
            slots: SlotRange {
                start: at as u32 * each,
                end: if at + 1 == names.len() { slots } else { (at as u32 + 1) * each },
            },
            to: Some(lease.replica.clone()),
        };
        let assignments: Vec<Transition> = paper.leases.iter().enumerate().map(assign).collect();
        paper.apply(&assignments);
        paper
    }

    /// Changes the record by the rules; a released slot is on its owner's Lease.
    fn apply(&mut self, transitions: &[Transition]) {
        let mut members = Members::default();
        for lease in &self.leases {
            let object = LeaseObject { uid: 1, resource_version: 1, record: lease.clone(), genuine: true };
            members.saw(&Arc::new(object), Duration::ZERO, Moment::default());
        }
        let facts = Facts {
            members: &members,
            waited_after_repair: true,
            timers: &Timers::default(),
            guards: Guards::default(),
            now: Moment::default(),
        };
        self.map = apply(&self.map, transitions, &facts).unwrap();
    }

    fn object(&self) -> Value {
        json!({
            "apiVersion": "sharding.shoal.dev/v1",
            "kind": "ShardMap",
            "metadata": {
                "name": "web",
                "namespace": "default",
                "managedFields": [{"time": "2025-12-31T23:59:18Z"}],
            },
            "spec": self.spec,
            "status": encode_map(&self.map),
        })
    }

    fn lease_object(&self, at: usize, now: Timestamp) -> Value {
        let record = &self.leases[at];
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": record.replica.as_str(),
                "resourceVersion": "7",
                "labels": {snapshot::GROUP_LABEL: "web"},
                "annotations": {LEASE_ANNOTATION: encode_lease(record)},
            },
            "spec": {"renewTime": now.plus_seconds(-self.ages[at]).to_micro_string()},
        })
    }

    fn snapshot(&self) -> Snapshot {
        let leases: Vec<Value> = (0..self.leases.len()).map(|at| self.lease_object(at, NOW)).collect();
        let foreign = json!({"metadata": {"name": "kube-scheduler"}, "spec": {}});
        Snapshot::read(&self.object(), &[leases, vec![foreign]].concat(), NOW)
    }

    fn status(&self) -> String {
        let snapshot = self.snapshot();
        status_text(&snapshot, &view(&snapshot), false, false)
    }
}

fn range(text: &str) -> SlotRange {
    text.parse().unwrap()
}

#[test]
fn status_shows_replicas_ranges_and_a_map_of_all_slots() {
    let mut paper = Paper::shared(128, &["a", "b"]);
    paper.apply(&[Transition::Prepare { slots: range("60-63"), next: paper.leases[1].replica.clone() }]);
    paper.leases[0].loads = vec![(3, 900), (4, 100)];
    let expected = "\
web in namespace default: 128 slots by uid, sticky, record version 3
2 replicas, 4 on the move, 0 unowned

   REPLICA  STATUS   SLOTS  SHARE   RENEWED  LOAD  REVISION
A  a-x1     Healthy     64  50.0%  1.0s ago  1000  7d9f
B  b-x1     Healthy     64  50.0%  1.0s ago     -  7d9f

SLOTS   COUNT  OWNER  EPOCH  PHASE      NEXT
0-59       60  a-x1       1  owned      -
60-63       4  a-x1       1  preparing  b-x1
64-127     64  b-x1       1  owned      -

slots, 64 a line: letters are owners, > moves, ! is nobody's
    0 AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA>>>>
   64 BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB
";
    assert_eq!(paper.status(), expected);
}

#[test]
fn what_is_wrong_is_told_and_for_how_long() {
    let mut paper = Paper::shared(64, &["a", "b", "c"]);
    paper.leases[2] = paper.leases[2].tombstone(&"a-x1".into());
    paper.apply(&[Transition::Assign { slots: range("42-63"), to: None }]);
    paper.ages[1] = 20;
    paper.leases[0].fingerprint ^= 1;
    paper.spec = json!({"cordoned": ["b"]});
    let expected = "\
web in namespace default: 64 slots by uid, sticky, record version 3
2 replicas, 0 on the move, 22 unowned for at least 42s
warning: a-x1 computes slots with other settings and gets none; give it those of the group, or drain all and run `shoal shards migrate`
warning: b-x1 has been silent for 20s; the others take over after 15s

   REPLICA  STATUS           SLOTS  SHARE   RENEWED  LOAD  REVISION
A  a-x1     Refused             21  32.8%  1.0s ago     -  7d9f
B  b-x1     Silent, drained     21  32.8%   20s ago     -  7d9f

SLOTS  COUNT  OWNER  EPOCH  PHASE    NEXT
0-20      21  a-x1       1  owned    -
21-41     21  b-x1       1  owned    -
42-63     22  -          2  unowned  -

slots, 64 a line: letters are owners, > moves, ! is nobody's
    0 AAAAAAAAAAAAAAAAAAAAABBBBBBBBBBBBBBBBBBBBB!!!!!!!!!!!!!!!!!!!!!!
";
    assert_eq!(paper.status(), expected);
}

#[test]
fn a_record_edited_by_hand_is_shown_with_a_warning_and_not_planned_on() {
    let paper = Paper::shared(64, &["a"]);
    let mut object = paper.object();
    object["status"]["runs"] = json!(["0-63 owner=0 epoch=0"]);
    let snapshot = Snapshot::read(&object, &[], NOW);
    let view = view(&snapshot);
    assert!(view.problems[0].contains("edited by hand"), "{:?}", view.problems);
    assert_eq!(view.replicas[0].status, "NoLease");
    let refused = dry_run(&snapshot, &Suppose::default()).unwrap_err();
    assert!(refused.contains("cannot be used: the record was edited by hand"), "{refused}");
    for status in [json!(null), json!({}), json!([[[]]]), json!({"slots": -1}), json!("x")] {
        object["status"] = status;
        assert_eq!(view::view(&Snapshot::read(&object, &[], NOW)).slots, 0);
    }
}

#[test]
fn names_and_messages_cannot_steer_the_terminal() {
    let mut paper = Paper::shared(64, &["a"]);
    paper.leases[0].revision = "\u{1b}[31mred\nline".into();
    assert!(!paper.status().contains('\u{1b}'));
}

#[test]
fn a_large_group_shares_cells_and_colours_come_only_when_asked_for() {
    let paper = Paper::shared(4096, &["a", "b", "c"]);
    let ids = ["a-x1", "b-x1", "c-x1"];
    let plain = heat_map(&paper.map, &ids, &[], false);
    assert!(plain.starts_with("slots, 256 a line, 4 a cell: "), "{plain}");
    assert_eq!(plain.lines().count(), 17);
    assert!(plain.contains("AAA*BBB"), "{plain}");
    assert!(!plain.contains('\u{1b}'));
    let coloured = heat_map(&paper.map, &ids, &[(0, 5)], true);
    assert!(coloured.contains("\u{1b}[1;7;32mA\u{1b}[0m"), "the busiest cell is the brightest");
}

#[test]
fn plan_says_what_would_move_and_why() {
    let mut paper = Paper::shared(64, &["a", "b"]);
    let none = dry_run(&paper.snapshot(), &Suppose::default()).unwrap();
    assert_eq!(none.text(), "nothing would move: every slot is where it should be\n");

    let suppose = Suppose { drained: vec!["a".to_owned()], joined: 0 };
    let expected = "\
SLOTS  FROM  TO    STEP     WHY
0-31   a-x1  b-x1  prepare  the owner leaves, is unwell or cordoned

32 of 64 slots would change hands (50.0%); nothing was changed

REPLICA  NOW  AFTER  CHANGE
a-x1      32      0     -32
b-x1      32     64     +32
";
    assert_eq!(dry_run(&paper.snapshot(), &suppose).unwrap().text(), expected);

    paper.spec = json!({"pins": [{"slots": "40-41", "replica": "a"}]});
    let pinned = dry_run(&paper.snapshot(), &Suppose::default()).unwrap();
    let why: Vec<(&str, &str)> = pinned.moves.iter().map(|m| (m.slots.as_str(), m.why.as_str())).collect();
    assert!(why.contains(&("40-41", "pinned")), "{why:?}");
}

#[test]
fn plan_of_a_join_moves_one_share_and_no_more() {
    let paper = Paper::shared(1024, &["a", "b", "c"]);
    let planned = dry_run(&paper.snapshot(), &Suppose { drained: Vec::new(), joined: 1 }).unwrap();
    assert_eq!(planned.moved, 256);
    assert!(planned.balance.values().all(|(_, after)| *after == 256), "{:?}", planned.balance);
    assert!(planned.moves.iter().all(|m| m.to.as_deref() == Some("new-1") && m.why == "balance"));
}

#[test]
fn plan_with_an_algorithm_of_somebody_else_says_so() {
    let mut paper = Paper::shared(64, &["a"]);
    let identity = Identity { algorithm: "mine".to_owned(), ..Identity::clone(&identity(64)) };
    paper.map = ShardMap::new(Arc::new(identity), Duration::from_secs(60), 0);
    paper.leases = vec![lease(&paper.map, "a")];
    let planned = dry_run(&paper.snapshot(), &Suppose::default()).unwrap();
    assert!(planned.text().starts_with("note: the algorithm mine is known to its controller only"));
    assert_eq!(planned.moved, 64);
}

#[test]
fn history_is_events_and_tombstones_in_the_order_of_time() {
    let mut paper = Paper::shared(64, &["a", "b"]);
    paper.leases[1] = paper.leases[1].tombstone(&"a-x1".into());
    let mut tombstone = paper.lease_object(1, NOW);
    tombstone["metadata"]["managedFields"] = json!([{"time": "2025-12-31T23:59:30Z"}]);
    let snapshot = Snapshot::read(&paper.object(), &[tombstone], NOW);
    let events = [
        json!({"reason": "Moved", "message": "slots 32-63 from b-x1 to a-x1", "count": 2, "source": {"component": "a-x1"},
               "lastTimestamp": "2025-12-31T23:59:50Z"}),
        json!({"reason": "Joined", "note": "b-x1", "eventTime": "2025-12-31T23:58:00.000000Z", "reportingInstance": "b-x1"}),
        json!({}),
    ];
    let entries = history::history(&snapshot, &events);
    let expected = " AGE  WHAT          TIMES  BY    MESSAGE
   -  -                 1  -
2m0s  Joined            1  b-x1  b-x1
 30s  ReplicaEnded      1  a-x1  b-x1 was declared dead
 10s  Moved             2  a-x1  slots 32-63 from b-x1 to a-x1
";
    assert_eq!(history::text(&entries, 30, NOW), expected);
    assert!(history::text(&entries, 1, NOW).ends_with("3 older ones are not shown; --limit 0 shows all\n"));
    assert!(history::text(&[], 1, NOW).contains("Events are kept for an hour"));
}

#[test]
fn only_sensible_changes_are_migrated_to() {
    let old = identity(64);
    let change = |change: Change| migrate::changed(&old, &change);
    let slots = |slots| Change { slots: Some(slots), ..Change::default() };
    assert_eq!(change(slots(128)).unwrap().slots.get(), 128);
    for (bad, words) in [
        (slots(100), "power of two"),
        (slots(64), "is like that already"),
        (
            Change { algorithm: Some("stiky".to_owned()), ..Change::default() },
            "is not known; there are sticky",
        ),
        (
            Change { key_function: Some("name".to_owned()), ..Change::default() },
            "if it is one of yours, add --custom",
        ),
    ] {
        let refused = change(bad).unwrap_err();
        assert!(refused.contains(words), "{refused}");
    }
    let own = Change {
        key_function: Some("tenant".to_owned()),
        key_function_version: Some(3),
        custom: true,
        ..Change::default()
    };
    assert_eq!(change(own).unwrap().key_function.version(), 3);
}

/// What was printed.
#[derive(Clone, Default)]
struct Printed(Arc<Mutex<Vec<u8>>>);

impl Write for Printed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A cluster with a group in it.
struct Stage {
    client: Client,
}

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

impl Stage {
    async fn set(paper: &Paper) -> Stage {
        let stage = Stage { client: Cluster::start().await.client() };
        stage.define_kind().await;
        stage.create(paper).await;
        stage
    }

    async fn send(&self, method: &str, path: &str, object: &Value) -> Result<Value, kube::Error> {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        self.client.request(request.body(serde_json::to_vec(object).unwrap()).unwrap()).await
    }

    async fn define_kind(&self) {
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "shardmaps.sharding.shoal.dev"},
            "spec": {
                "group": "sharding.shoal.dev",
                "scope": "Namespaced",
                "names": {"plural": "shardmaps", "singular": "shardmap", "kind": "ShardMap"},
                "versions": [{
                    "name": "v1",
                    "served": true,
                    "storage": true,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": open, "status": open}}},
                }],
            },
        });
        self.send("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition)
            .await
            .unwrap();
        while self.client.request::<Value>(Request::get(MAPS).body(Vec::new()).unwrap()).await.is_err() {
            tokio::task::yield_now().await;
        }
    }

    async fn create(&self, paper: &Paper) {
        let object = paper.object();
        let mut new = self.send("POST", MAPS, &json!({
            "apiVersion": object["apiVersion"], "kind": "ShardMap", "metadata": {"name": "web"}, "spec": paper.spec,
        })).await.unwrap();
        new["status"] = object["status"].clone();
        self.send("PUT", &format!("{MAPS}/web/status"), &new).await.unwrap();
        for at in 0..paper.leases.len() {
            let mut lease = paper.lease_object(at, Clock::system().now());
            lease["metadata"].as_object_mut().unwrap().remove("resourceVersion");
            self.send("POST", LEASES, &lease).await.unwrap();
        }
    }

    async fn map(&self) -> Value {
        self.client.request(Request::get(format!("{MAPS}/web")).body(Vec::new()).unwrap()).await.unwrap()
    }

    /// Writes the record as the replicas would.
    async fn write(&self, paper: &Paper) {
        loop {
            let mut map = self.map().await;
            map["status"] = paper.object()["status"].clone();
            if self.send("PUT", &format!("{MAPS}/web/status"), &map).await.is_ok() {
                return;
            }
        }
    }

    /// Runs a command line; what it printed, or why it failed.
    async fn run(&self, line: &str) -> Result<String, String> {
        let args = Line::try_parse_from(["shards"].into_iter().chain(line.split(' '))).unwrap().args;
        let printed = Printed::default();
        let mut screen = Screen {
            out: Box::new(printed.clone()),
            progress: Box::new(printed.clone()),
            colours: false,
            live: false,
            last: String::new(),
        };
        let clocks = Clocks { day: Clock::system(), own: Monotonic::tokio() };
        let group = find(self.client.clone(), clocks, args.namespace.as_deref(), args.group.as_deref()).await;
        let outcome = match group {
            Ok(group) => execute(args.command, &group, &mut screen).await,
            Err(error) => Err(error),
        };
        let text = String::from_utf8(printed.0.lock().unwrap().clone()).unwrap();
        outcome.map(|()| text).map_err(|error| error.to_string())
    }
}

const MAPS: &str = "/apis/sharding.shoal.dev/v1/namespaces/default/shardmaps";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

#[tokio::test(start_paused = true)]
async fn a_drain_is_asked_for_and_waited_for_with_progress() {
    let mut paper = Paper::shared(64, &["a", "b"]);
    let stage = Arc::new(Stage::set(&paper).await);
    assert!(stage.run("status").await.unwrap().contains("2 replicas, 0 on the move, 0 unowned\n"));
    let draining = tokio::spawn({
        let stage = stage.clone();
        async move { stage.run("drain a").await }
    });
    while stage.map().await["spec"]["cordoned"] != json!(["a"]) {
        tokio::task::yield_now().await;
    }
    let slots = range("0-31");
    let next = paper.leases[1].replica.clone();
    for transition in
        [Transition::Prepare { slots, next }, Transition::Drain { slots }, Transition::Complete { slots }]
    {
        paper.leases[0].released = vec![(slots, 1)];
        paper.apply(&[transition]);
        stage.write(&paper).await;
        tokio::time::sleep(GLANCE * 3).await;
    }
    let said = draining.await.unwrap().unwrap();
    for words in [
        "a is to be drained\n",
        "32 to hand over (32 warming up, 0 draining)",
        "0 warming up, 32 draining",
        "a has no slots any more (",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(stage.run("status").await.unwrap().contains("Healthy, drained"));
    assert_eq!(stage.run("undrain a-x1").await.unwrap(), "a-x1 may have slots again\n");
    assert_eq!(stage.run("undrain a").await.unwrap_err(), "a is not drained; no replica is");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_done_is_refused_with_the_remedy() {
    let stage = Stage::set(&Paper::shared(64, &["a"])).await;
    for (line, words) in [
        ("drain a", "nobody else could take the slots of a-x1: start another replica first"),
        ("drain b", "web has no replica called b; there are a-x1: use one of these, or its name"),
        ("pin 64 a", "slots 64 are not there: web has 64 slots, from 0 to 63"),
        ("pin x a", "\"x\" is no range of slots such as 0-340"),
        ("unpin 3", "none of these slots is pinned"),
        (
            "status --group other",
            "no group called other; there are default/web: choose one with --group NAME",
        ),
        ("status -n prod", "no such group in namespace prod; there are default/web"),
        ("drain a --wait=false --group web -n default", "nobody else"),
    ] {
        let refused = stage.run(line).await.unwrap_err();
        assert!(refused.contains(words), "{line}: {refused}");
    }
    let empty = Stage { client: Cluster::start().await.client() };
    assert!(empty.run("status").await.unwrap_err().contains("this cluster has no ShardMaps"));
    empty.define_kind().await;
    assert!(empty.run("status").await.unwrap_err().contains("there is no ShardMap; start one and try again"));
    let drained =
        Stage::set(&Paper { spec: json!({"cordoned": ["a"]}), ..Paper::shared(64, &["a", "b"]) }).await;
    let refused = drained.run("move 40 a").await.unwrap_err();
    assert!(
        refused.contains("a takes no slots: it is Healthy and drained; choose another one or run"),
        "{refused}"
    );
}

#[tokio::test(start_paused = true)]
async fn pins_are_kept_and_moves_leave_none_behind() {
    let mut paper = Paper::shared(64, &["a", "b"]);
    let stage = Arc::new(Stage::set(&paper).await);
    assert_eq!(stage.run("pin 0-3 8 b --wait=false").await.unwrap(), "slots 0-3, 8 are pinned to b\n");
    let pins = json!([{"slots": "0-3", "replica": "b"}, {"slots": "8", "replica": "b"}]);
    assert_eq!(stage.map().await["spec"]["pins"], pins);
    assert_eq!(stage.run("unpin --all").await.unwrap(), "5 slots no longer pinned\n");

    let moving = tokio::spawn({
        let stage = stage.clone();
        async move { stage.run("move 5 b").await }
    });
    while stage.map().await["spec"]["pins"] != json!([{"slots": "5", "replica": "b"}]) {
        tokio::task::yield_now().await;
    }
    let slots = range("5");
    paper.leases[0].released = vec![(slots, 1)];
    let next = paper.leases[1].replica.clone();
    paper.apply(&[
        Transition::Prepare { slots, next },
        Transition::Drain { slots },
        Transition::Complete { slots },
    ]);
    stage.write(&paper).await;
    assert!(moving.await.unwrap().unwrap().contains("slots 5 are at b ("));
    assert_eq!(stage.map().await["spec"]["pins"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn waiting_ends_with_what_is_left() {
    let stage = Stage::set(&Paper::shared(64, &["a", "b"])).await;
    let late = stage.run("drain a --timeout 2").await.unwrap_err();
    assert!(
        late.contains("not done after 2 s: 32 to hand over") && late.contains("goes on by itself"),
        "{late}"
    );
}

#[tokio::test(start_paused = true)]
async fn edits_are_made_again_when_others_were_faster() {
    let paper = Paper::shared(64, &["a", "b"]);
    let stage = Arc::new(Stage::set(&paper).await);
    let pins: Vec<_> = (0..8)
        .map(|slot| {
            let stage = stage.clone();
            tokio::spawn(async move { stage.run(&format!("pin {slot} b --wait=false")).await.map(drop) })
        })
        .collect();
    for pin in pins {
        pin.await.unwrap().unwrap();
    }
    assert_eq!(stage.map().await["spec"]["pins"], json!([{"slots": "0-7", "replica": "b"}]));
}

#[tokio::test(start_paused = true)]
async fn migrate_is_refused_while_a_replica_renews() {
    let paper = Paper::shared(64, &["a", "b"]);
    let stage = Arc::new(Stage::set(&paper).await);
    let at_once = stage.run("migrate --slots 128 --wait=false").await.unwrap_err();
    let migrating = tokio::spawn({
        let stage = stage.clone();
        async move { stage.run("migrate --slots 128").await }
    });
    tokio::time::sleep(Duration::from_secs(2)).await;
    let lease: Value =
        stage.client.request(Request::get(format!("{LEASES}/b-x1")).body(Vec::new()).unwrap()).await.unwrap();
    let mut renewed = lease.clone();
    renewed["spec"]["renewTime"] = Clock::system().now().to_micro_string().into();
    stage.send("PUT", &format!("{LEASES}/b-x1"), &renewed).await.unwrap();
    for refused in [at_once, migrating.await.unwrap().unwrap_err()] {
        let words = "still runs with the old settings (slots is 128, here 64): scale the controller to 0";
        assert!(refused.contains(words), "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn migrate_waits_for_crashed_replicas_then_switches_and_measures_the_gap() {
    let mut paper = Paper::shared(64, &["a", "b", "c"]);
    paper.leases[0] = paper.leases[0].tombstone(&"a-x1".into());
    let lost = paper.leases.remove(2);
    let stage = Stage::set(&paper).await;
    let began = Instant::now();
    let said = stage.run("migrate --slots 128 --algorithm rendezvous --timeout 90").await.unwrap();
    // One is silent for its Lease's 15 s, one has left no trace and is waited for as long as any Lease may last.
    assert!(began.elapsed() > Duration::from_millis(60_600), "{:?}", began.elapsed());
    for words in [
        "waiting for the Lease of c-x1 to end",
        "ending the Lease of b-x1, which is silent",
        "ending the Lease of c-x1, which is silent",
        "web now has 128 slots by uid, rendezvous\n",
        "128 without an owner",
        "nobody has worked for",
        "start the controller with the new settings",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let snapshot = Snapshot::read(&stage.map().await, &[], NOW);
    assert_eq!(snapshot.sound_map().unwrap().unowned(), 128);
    assert_eq!(snapshot.sound_map().unwrap().highest_epoch(), 2);
    assert!(stage.run("history").await.unwrap().contains("b-x1 was declared dead"));
    let _ = lost;
}

#[tokio::test(start_paused = true)]
async fn results_come_as_json_and_yaml_too() {
    let stage = Stage::set(&Paper::shared(64, &["a", "b"])).await;
    let json: Value = serde_json::from_str(&stage.run("status -o json").await.unwrap()).unwrap();
    assert_eq!((&json["slots"], &json["replicas"][1]["slots"]), (&json!(64), &json!(32)));
    let yaml: Value = serde_saphyr::from_str(&stage.run("plan --join 1 -o yaml").await.unwrap()).unwrap();
    assert_eq!(yaml["moved"], 21);
    let json: Value = serde_json::from_str(&stage.run("history -o json").await.unwrap()).unwrap();
    assert_eq!(json, json!([]));
}

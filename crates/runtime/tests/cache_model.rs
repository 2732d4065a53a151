//! The cache against a model: whatever happens to objects, network and server, in whatever order, a subscriber can
//! follow what is told, and in the end cache, subscriber and server agree.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod clusters;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clusters::*;
use k8s_openapi::api::core::v1::ConfigMap;
use proptest::prelude::*;
use shoal_runtime::cache::{ChangeKind, Delta, InformerOptions, Informers};
use shoal_runtime::watch::{Revision, WatchOptions};
use shoal_testkit::{Cluster, Effect, FaultLayer, Rule};

#[derive(Clone, Debug)]
enum Act {
    Write { name: u8 },
    Delete { name: u8 },
    Wait { milliseconds: u64 },
    Disconnect,
    Hit(Effect, Target, usize),
    Refresh,
    Calm,
}

#[derive(Clone, Copy, Debug)]
enum Target {
    Watches,
    Lists,
    Pages,
}

fn effect() -> impl Strategy<Value = Effect> {
    prop_oneof![
        Just(Effect::DropBefore),
        Just(Effect::answer(410)),
        Just(Effect::answer_later(429, 2)),
        Just(Effect::answer(500)),
        (0usize..1500).prop_map(Effect::CutAfter),
        (0usize..1500).prop_map(Effect::EndAfter),
        (0usize..1500).prop_map(Effect::StallAfter),
        (1usize..100).prop_map(Effect::Pieces),
        Just(Effect::DoubleLines),
        (0usize..4).prop_map(|after| Effect::ErrorEvent { after, code: 410 }),
        (0usize..4).prop_map(|after| Effect::ErrorEvent { after, code: 500 }),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    let target = prop_oneof![Just(Target::Watches), Just(Target::Lists), Just(Target::Pages)];
    prop_oneof![
        6 => (0u8..6).prop_map(|name| Act::Write { name }),
        2 => (0u8..6).prop_map(|name| Act::Delete { name }),
        3 => (0u64..3000).prop_map(|milliseconds| Act::Wait { milliseconds }),
        2 => Just(Act::Disconnect),
        3 => (effect(), target, 1usize..4).prop_map(|(effect, target, times)| Act::Hit(effect, target, times)),
        1 => Just(Act::Refresh),
        1 => Just(Act::Calm),
    ]
}

/// What a subscriber knows, and whether it can follow.
#[derive(Default)]
struct Mirror(BTreeMap<String, (String, Revision)>);

impl Mirror {
    fn take(&mut self, delta: &Delta) {
        let name = delta.key.name.to_string();
        let known = self.0.get(&name).cloned();
        match (delta.change, known) {
            (ChangeKind::Added, None) | (ChangeKind::Modified, Some(_)) => {
                let new = delta.new.as_ref().unwrap();
                if let Some((uid, version)) = &known_of(&self.0, &name) {
                    assert_eq!(uid, &new.uid().to_string(), "another object was told as a change of {name}");
                    assert!(version.is_older_than(new.resource_version()), "{name} went back in time");
                }
                self.0.insert(name, (new.uid().to_string(), new.resource_version().clone()));
            }
            (ChangeKind::Deleted, Some((uid, _))) => {
                assert_eq!(uid, delta.old.as_ref().unwrap().uid().to_string(), "another {name} is gone");
                self.0.remove(&name);
            }
            // It came and went before anything was told.
            (ChangeKind::Deleted, None) => assert!(delta.old.is_some()),
            (change, known) => panic!("{change:?} of {name}, of which {known:?} was known"),
        }
    }
}

fn known_of(known: &BTreeMap<String, (String, Revision)>, name: &str) -> Option<(String, Revision)> {
    known.get(name).cloned()
}

async fn play(acts: &[Act], cluster: Cluster, streamed: bool, page_size: u32) {
    let faults = FaultLayer::new(9);
    let watch = WatchOptions { streamed_lists: streamed, page_size, ..options().watch };
    let options = InformerOptions { watch, ..options() };
    let informer =
        Informers::new(cluster.client_through(&faults), options).namespaced::<ConfigMap>("default");
    let mut subscription = informer.subscribe();
    let (mut mirror, mut alive) = (Mirror::default(), BTreeSet::new());
    for (n, act) in acts.iter().enumerate() {
        match act {
            Act::Write { name } if alive.insert(*name) => {
                create(&cluster, &format!("m{name}"), &n.to_string()).await;
            }
            Act::Write { name } => {
                change(&cluster, &format!("m{name}"), &n.to_string()).await;
            }
            Act::Delete { name } if alive.remove(name) => delete(&cluster, &format!("m{name}")).await,
            Act::Delete { .. } => {}
            Act::Wait { milliseconds } => {
                tokio::time::sleep(Duration::from_millis(*milliseconds)).await;
                while let Some(delta) = subscription.try_recv() {
                    mirror.take(&delta);
                }
            }
            Act::Disconnect => faults.disconnect(),
            Act::Hit(effect, target, times) => {
                let rule = match target {
                    Target::Watches => Rule::watches(effect.clone()),
                    Target::Lists => Rule::lists(effect.clone()),
                    Target::Pages => Rule::on(
                        |parts| parts.uri.query().is_some_and(|query| query.contains("continue=")),
                        effect.clone(),
                    ),
                };
                faults.add(rule.times(*times));
            }
            Act::Refresh => informer.refresh(),
            Act::Calm => faults.clear(),
        }
    }
    faults.clear();
    faults.disconnect();
    tokio::time::sleep(Duration::from_secs(120)).await;
    converge("the end", &cluster, &informer).await;
    for delta in told(&mut subscription).await {
        mirror.take(&delta);
    }
    let server: BTreeMap<String, (String, Revision)> = on_server(&cluster)
        .await
        .into_iter()
        .map(|(name, (uid, version, _))| (name, (uid, Revision::parse(&version))))
        .collect();
    assert_eq!(mirror.0, server, "what was told");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_subscribers_can_follow_and_all_agree_in_the_end(
        acts in proptest::collection::vec(act(), 1..60),
        variant in 0usize..6,
        history in prop_oneof![Just(3usize), Just(1000)],
        streamed: bool,
        page_size in 1u32..8,
    ) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (_, abilities) = variants()[variant];
            let cluster =
                Cluster::builder().seed(7).abilities(abilities).history_events(history).start().await;
            play(&acts, cluster, streamed, page_size).await;
        });
    }
}

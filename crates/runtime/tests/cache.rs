//! An informer on servers of all ages: what it holds, what it tells, and how it is read.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod clusters;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use clusters::*;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::ApiResource;
use shoal_objects::selector::LabelSelector;
use shoal_runtime::cache::{ChangeKind, Encoded, Informers, Origin};
use shoal_runtime::watch::Scope;
use shoal_testkit::eventually;

fn names<'a>(objects: impl Iterator<Item = &'a Arc<Encoded>>) -> Vec<String> {
    objects.map(|object| object.name().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_cache_follows_its_kind_on_servers_of_all_ages() {
    for (variant, cluster) in clusters().await {
        create(&cluster, "before", "1").await;
        let informer = informers(cluster.client()).of::<ConfigMap>();
        assert!(!informer.has_synced());
        let mut subscription = informer.subscribe();
        informer.synced().await;
        assert!(informer.has_synced());
        assert_eq!(short(&told(&mut subscription).await), ["Added before"], "{variant}");
        create(&cluster, "after", "1").await;
        converge(variant, &cluster, &informer).await;
        change(&cluster, "after", "2").await;
        delete(&cluster, "before").await;
        converge(variant, &cluster, &informer).await;
        let lister = informer.lister();
        assert_eq!(lister.get(&key("after")).unwrap().data.as_ref().unwrap()["k"], "2", "{variant}");
        assert!(lister.get(&key("before")).is_none());
        let meta = lister.meta(&key("after")).unwrap();
        assert_eq!((meta.name(), meta.namespace(), meta.label("v")), ("after", "default", Some("2")));
        assert_eq!(short(&told(&mut subscription).await), ["Added after", "Deleted before"], "{variant}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_kind_and_scope_is_watched_once_for_all_who_ask() {
    for (variant, cluster) in clusters().await {
        let faults = shoal_testkit::FaultLayer::new(1);
        let informers = Informers::new(cluster.client_through(&faults), options());
        let (one, two) = (informers.of::<ConfigMap>(), informers.of::<ConfigMap>());
        let dynamic = informers.dynamic(&ApiResource::erase::<ConfigMap>(&()), Scope::all());
        informers.synced().await;
        let requests = faults.requests().len();
        create(&cluster, "a", "1").await;
        converge(variant, &cluster, &one).await;
        converge(variant, &cluster, &two).await;
        let object = dynamic.lister().get(&key("a")).unwrap();
        assert_eq!(object.types.as_ref().unwrap().kind, "ConfigMap");
        assert_eq!(object.data["data"]["k"], "1");
        assert_eq!(faults.requests().len(), requests, "{variant}: another request for what is watched");
        let namespaced = informers.namespaced::<ConfigMap>("kube-system");
        namespaced.synced().await;
        assert!(namespaced.lister().get(&key("a")).is_none());
        assert_eq!(informers.snapshot().len(), 2);
        assert!(informers.have_synced());
    }
}

#[tokio::test(start_paused = true)]
async fn late_subscribers_are_told_what_is_there_and_then_what_happens() {
    for (variant, cluster) in clusters().await {
        for name in ["a", "b"] {
            create(&cluster, name, "1").await;
        }
        let informer = informers(cluster.client()).namespaced::<ConfigMap>("default");
        informer.synced().await;
        let mut late = informer.subscribe();
        change(&cluster, "a", "2").await;
        converge(variant, &cluster, &informer).await;
        delete(&cluster, "b").await;
        converge(variant, &cluster, &informer).await;
        let deltas = told(&mut late).await;
        assert_eq!(short(&deltas), ["Added a", "Added b", "Modified a", "Deleted b"], "{variant}");
        assert_eq!(deltas[0].origin, Origin::Relist);
        assert_eq!(deltas[2].origin, Origin::Live);
        let (old, new) = (deltas[2].old.as_ref().unwrap(), deltas[2].new.as_ref().unwrap());
        assert_eq!((old.label("v"), new.label("v")), (Some("1"), Some("2")));
        assert_eq!(deltas[3].old.as_ref().unwrap().name(), "b");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_subscriber_is_told_the_newest_state_and_every_deletion() {
    let (_, cluster) = clusters().await.remove(0);
    let informer = informers(cluster.client()).namespaced::<ConfigMap>("default");
    informer.synced().await;
    let mut slow = informer.subscribe();
    create(&cluster, "kept", "0").await;
    create(&cluster, "reborn", "0").await;
    converge("before", &cluster, &informer).await;
    assert_eq!(short(&told(&mut slow).await), ["Added kept", "Added reborn"]);
    for n in 1..50 {
        change(&cluster, "kept", &n.to_string()).await;
    }
    delete(&cluster, "reborn").await;
    create(&cluster, "reborn", "1").await;
    create(&cluster, "short-lived", "1").await;
    delete(&cluster, "short-lived").await;
    converge("after", &cluster, &informer).await;
    assert!(slow.len() <= 3);
    let deltas = told(&mut slow).await;
    let all = ["Modified kept", "Deleted reborn", "Added reborn", "Deleted short-lived"];
    assert_eq!(short(&deltas), all, "whoever made the short-lived one has to make another");
    assert_eq!(deltas[0].old.as_ref().unwrap().label("v"), Some("0"));
    assert_eq!(deltas[0].new.as_ref().unwrap().label("v"), Some("49"));
}

#[tokio::test(start_paused = true)]
async fn metadata_only_caches_hold_no_bodies() {
    for (variant, cluster) in clusters().await {
        create(&cluster, "a", "secret-value").await;
        let informer = informers(cluster.client()).metadata::<ConfigMap>();
        informer.synced().await;
        create(&cluster, "b", "secret-value").await;
        let lister = informer.lister();
        eventually("b is there", || async { lister.get(&key("b")) }).await;
        for name in ["a", "b"] {
            let object = lister.get(&key(name)).unwrap();
            assert_eq!(object.metadata.labels.as_ref().unwrap()["v"], "secret-value", "{variant}");
            let json = String::from_utf8(lister.meta(&key(name)).unwrap().json()).unwrap();
            assert!(!json.contains("\"data\""), "{variant}: {json}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn selectors_and_indexes_find_without_decoding() {
    let (_, cluster) = clusters().await.remove(0);
    for n in 0..30 {
        create(&cluster, &format!("m{n:02}"), &(n % 3).to_string()).await;
    }
    let informer = informers(cluster.client()).of::<ConfigMap>();
    informer.add_index("value", |object| object.label("v").map(str::to_owned).into_iter().collect());
    informer.synced().await;
    informer.add_decoded_index("data", |map: &ConfigMap| {
        map.data.iter().flatten().map(|(_, v)| v.clone()).collect()
    });
    let lister = informer.lister();
    let expected: Vec<String> = (0..10).map(|n| format!("m{:02}", n * 3 + 1)).collect();
    let selector = LabelSelector::parse("v in (1)").unwrap();
    assert_eq!(names(lister.select_metas(None, &selector).iter()), expected);
    assert_eq!(names(lister.metas_by_index("value", "1").iter()), expected);
    assert_eq!(names(lister.metas_by_index("data", "1").iter()), expected);
    assert_eq!(informer.stats().decoded.load(Relaxed), 0);
    assert_eq!(lister.select(&selector).len(), 10);
    assert_eq!(informer.stats().decoded.load(Relaxed), 10);
    assert_eq!(lister.by_index("value", "1").len(), 10);
    assert_eq!(informer.stats().decoded.load(Relaxed), 10, "decoded again");
    change(&cluster, "m01", "2").await;
    delete(&cluster, "m04").await;
    converge("indexes", &cluster, &informer).await;
    for index in ["value", "data"] {
        assert_eq!(names(lister.metas_by_index(index, "1").iter()), expected[2..], "{index}");
        assert_eq!(lister.metas_by_index(index, "2").len(), 11);
    }
    assert!(lister.metas_by_index("never-added", "1").is_empty());
}

#[tokio::test(start_paused = true)]
async fn objects_of_another_shape_are_left_out_told_and_still_watched() {
    #[derive(Clone, Debug, serde::Deserialize)]
    struct Numbers {
        metadata: kube::api::ObjectMeta,
        data: std::collections::BTreeMap<String, u64>,
    }
    impl kube::Resource for Numbers {
        type DynamicType = ();
        type Scope = k8s_openapi::NamespaceResourceScope;
        fn kind(_: &()) -> std::borrow::Cow<'_, str> {
            "ConfigMap".into()
        }
        fn group(_: &()) -> std::borrow::Cow<'_, str> {
            "".into()
        }
        fn version(_: &()) -> std::borrow::Cow<'_, str> {
            "v1".into()
        }
        fn plural(_: &()) -> std::borrow::Cow<'_, str> {
            "configmaps".into()
        }
        fn meta(&self) -> &kube::api::ObjectMeta {
            &self.metadata
        }
        fn meta_mut(&mut self) -> &mut kube::api::ObjectMeta {
            &mut self.metadata
        }
    }
    let (_, cluster) = clusters().await.remove(0);
    create(&cluster, "a", "hunter2").await;
    let informers = informers(cluster.client());
    let (numbers, maps) = (informers.of::<Numbers>(), informers.of::<ConfigMap>());
    informers.synced().await;
    let lister = numbers.lister();
    assert!(lister.get(&key("a")).is_none());
    assert!(lister.get(&key("a")).is_none());
    assert_eq!(numbers.stats().malformed.load(Relaxed), 1);
    let malformed = lister.malformed();
    assert_eq!(malformed[0].key, key("a"));
    assert!(!malformed[0].problem.contains("hunter2"));
    assert!(maps.lister().get(&key("a")).is_some(), "the same cache, another type");
    delete(&cluster, "a").await;
    converge("gone", &cluster, &maps).await;
    assert!(lister.malformed().is_empty());
    assert!(lister.list().iter().all(|numbers| numbers.data.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn only_so_many_objects_are_kept_decoded_and_all_are_readable() {
    let (_, cluster) = clusters().await.remove(0);
    for n in 0..100 {
        create(&cluster, &format!("m{n}"), "1").await;
    }
    let options = shoal_runtime::cache::InformerOptions { cache_size: 32, ..options() };
    let informer = Informers::new(cluster.client(), options).namespaced::<ConfigMap>("default");
    informer.synced().await;
    for _ in 0..3 {
        assert_eq!(informer.lister().list().len(), 100);
        assert!(informer.lister().decoded_len() <= 32);
    }
}

#[tokio::test(start_paused = true)]
async fn a_resync_tells_every_object_again() {
    let (_, cluster) = clusters().await.remove(0);
    create(&cluster, "a", "1").await;
    let options =
        shoal_runtime::cache::InformerOptions { resync: Some(Duration::from_secs(600)), ..options() };
    let informer = Informers::new(cluster.client(), options).namespaced::<ConfigMap>("default");
    informer.synced().await;
    let mut subscription = informer.subscribe();
    assert_eq!(short(&told(&mut subscription).await), ["Added a"]);
    tokio::time::sleep(Duration::from_secs(601)).await;
    let deltas = told(&mut subscription).await;
    assert_eq!(short(&deltas), ["Modified a"]);
    assert_eq!(deltas[0].origin, Origin::Resync);
}

#[tokio::test(start_paused = true)]
async fn managed_fields_are_dropped_and_a_transform_can_do_more() {
    let (_, cluster) = clusters().await.remove(0);
    create(&cluster, "a", "1").await;
    let plain = informers(cluster.client()).of::<ConfigMap>();
    let without_data = |_: &ApiResource, body: Vec<u8>| {
        let mut object: serde_json::Value = serde_json::from_slice(&body).unwrap();
        object.as_object_mut().unwrap().remove("data");
        serde_json::to_vec(&object).unwrap()
    };
    let options =
        shoal_runtime::cache::InformerOptions { transform: Some(Arc::new(without_data)), ..options() };
    let bare = Informers::new(cluster.client(), options).of::<ConfigMap>();
    plain.synced().await;
    bare.synced().await;
    let object = plain.lister().get(&key("a")).unwrap();
    assert!(object.metadata.managed_fields.is_none() && object.data.is_some());
    assert!(maps(&cluster).get("a").await.unwrap().metadata.managed_fields.is_some());
    assert!(bare.lister().get(&key("a")).unwrap().data.is_none());
}

#[tokio::test(start_paused = true)]
async fn selected_scopes_hold_what_matches_and_let_go_of_what_does_not_any_more() {
    for (variant, cluster) in clusters().await {
        create(&cluster, "a", "1").await;
        create(&cluster, "b", "2").await;
        let informer = informers(cluster.client()).scoped::<ConfigMap>(Scope::all().labels("v=1"));
        informer.synced().await;
        let mut subscription = informer.subscribe();
        assert_eq!(short(&told(&mut subscription).await), ["Added a"], "{variant}");
        change(&cluster, "b", "1").await;
        change(&cluster, "a", "3").await;
        assert_eq!(short(&told(&mut subscription).await), ["Added b", "Deleted a"], "{variant}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_barrier_waits_for_everything_written_before() {
    for (variant, cluster) in clusters().await {
        let informer = informers(cluster.client()).of::<ConfigMap>();
        informer.synced().await;
        for n in 0..10 {
            create(&cluster, &format!("m{n}"), "1").await;
            informer.barrier().await.unwrap();
            assert_eq!(on_server(&cluster).await, in_cache(&informer), "{variant}");
        }
        // Nothing happens to this kind, only to others: the barrier must not wait for an event that never comes.
        let namespaces: kube::Api<Namespace> = kube::Api::all(cluster.client());
        let namespace = serde_json::from_value(serde_json::json!({"metadata": {"name": "n"}})).unwrap();
        namespaces.create(&kube::api::PostParams::default(), &namespace).await.unwrap();
        let mut subscription = informer.subscribe();
        while subscription.try_recv().is_some() {}
        tokio::time::timeout(Duration::from_secs(5), informer.barrier()).await.unwrap().unwrap();
        assert!(told(&mut subscription).await.is_empty(), "{variant}: phantom changes");
    }
}

#[tokio::test(start_paused = true)]
async fn another_shard_evicts_without_telling_of_deletions() {
    use shoal_objects::shard::ShardSelector;
    let half = |low: bool| {
        let (start, end) = if low {
            ("0x0000000000000000", "0x8000000000000000")
        } else {
            ("0x8000000000000000", "0x10000000000000000")
        };
        format!("shardRange(object.metadata.uid, '{start}', '{end}')")
    };
    for (variant, cluster) in clusters().await {
        for n in 0..20 {
            create(&cluster, &format!("m{n}"), "1").await;
        }
        let informer = informers(cluster.client()).namespaced::<ConfigMap>("default");
        informer.synced().await;
        let mut subscription = informer.subscribe();
        assert_eq!(told(&mut subscription).await.len(), 20);
        for low in [true, false] {
            let selector = ShardSelector::parse(&half(low)).unwrap();
            let ours = selector.clone();
            let filter = move |object: &Encoded| ours.contains(&object.uid().to_string(), object.namespace());
            informer.reshard(Some(half(low)), Some(Arc::new(filter)));
            let deltas = told(&mut subscription).await;
            assert!(
                deltas.iter().all(|delta| matches!(delta.change, ChangeKind::Evicted | ChangeKind::Added)),
                "{variant}: {deltas:?}"
            );
            let expected: Vec<String> = on_server(&cluster)
                .await
                .into_iter()
                .filter(|(_, (uid, ..))| selector.contains(uid, "default"))
                .map(|(name, _)| name)
                .collect();
            let held: Vec<String> =
                informer.lister().metas().iter().map(|meta| meta.name().to_owned()).collect();
            assert_eq!(held, expected, "{variant}");
            let obeys = !matches!(variant, "no shards" | "old");
            assert_eq!(informer.obeyed_shard().is_some(), obeys, "{variant}");
        }
        // Objects outside stay outside, whatever happens to them.
        for n in 0..20 {
            change(&cluster, &format!("m{n}"), "2").await;
        }
        let held = informer.lister().len();
        assert_eq!(told(&mut subscription).await.len(), held, "{variant}");
    }
}

#[tokio::test(start_paused = true)]
async fn metrics_tell_of_collections_and_never_of_objects() {
    let (_, cluster) = clusters().await.remove(0);
    create(&cluster, "object-name", "1").await;
    let informers = informers(cluster.client());
    informers.namespaced::<ConfigMap>("default").synced().await;
    let mut registry = prometheus_client::registry::Registry::default();
    shoal_runtime::cache::InformerMetrics::new(informers).register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let expected = "controller_informer_objects{path=\"/api/v1/namespaces/default/configmaps\",selector=\"\",metadata_only=\"false\"} 1";
    assert!(text.contains(expected), "{text}");
    assert!(text.contains("controller_informer_lists_total{"), "{text}");
    assert!(!text.contains("object-name"));
}

#[tokio::test(start_paused = true)]
async fn what_nobody_reads_is_kept_encoded_only() {
    let cluster = shoal_testkit::Cluster::start().await;
    for name in ["idle", "busy"] {
        create(&cluster, name, "1").await;
    }
    let informer = informers(cluster.client()).of::<ConfigMap>();
    informer.synced().await;
    let lister = informer.lister();
    assert_eq!((lister.list().len(), lister.decoded_len()), (2, 2));
    for _ in 0..9 {
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(lister.get(&key("busy")).is_some());
    }
    assert_eq!(lister.decoded_len(), 1, "the one that is read");
    assert_eq!(lister.get(&key("idle")).unwrap().data.as_ref().unwrap()["k"], "1");
}

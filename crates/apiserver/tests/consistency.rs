//! Lists and watches agree with each other, whatever is written, selected and however it is cut into pages.

mod workload;

use proptest::prelude::*;
use serde_json::{Value, json};
use shoal_testkit::{Cluster, Http, Mirror};

use workload::{View, Write, apply, in_simulated_time, views, writes};

async fn list(http: &Http, view: &View) -> Value {
    let answer = http.get(&view.path("")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

/// Reads page after page; `between` is written after each of them.
async fn pages(http: &Http, view: &View, limit: usize, between: &[Write]) -> Vec<Value> {
    let mut between = between.chunks(3);
    let mut pages = Vec::new();
    let mut token = String::new();
    loop {
        let page = http.get(&view.path(&format!("limit={limit}&continue={token}"))).await;
        assert_eq!(page.status, 200, "{page:?}");
        let page = page.json();
        token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
        pages.push(page);
        if token.is_empty() {
            return pages;
        }
        apply(http, between.next().unwrap_or_default()).await;
    }
}

fn items(list: &Value) -> Vec<Value> {
    list["items"].as_array().cloned().unwrap_or_default()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pages_of_any_size_make_up_the_list(
        before in writes(0..50), meanwhile in writes(0..30), view in views(), limit in 1..40usize,
    ) {
        in_simulated_time(async {
            let http = Cluster::start().await.http();
            apply(&http, &before).await;
            let whole = list(&http, &view).await;
            // The pages show the state of the first one, whatever is written while they are read.
            let pages = pages(&http, &view, limit, &meanwhile).await;
            let mut seen = Vec::new();
            for page in &pages {
                prop_assert_eq!(&page["metadata"]["resourceVersion"], &whole["metadata"]["resourceVersion"]);
                seen.extend(items(page));
                let left = items(&whole).len() - seen.len();
                let told = page["metadata"].get("remainingItemCount").and_then(Value::as_u64);
                let is_last = page["metadata"]["continue"].is_null();
                prop_assert_eq!(told, (view.is_everything() && !is_last).then_some(left as u64));
                prop_assert!(items(page).len() == limit || is_last);
            }
            prop_assert_eq!(seen, items(&whole));
            Ok(())
        })?;
    }

    #[test]
    fn a_list_and_the_events_after_it_make_up_the_later_list(
        before in writes(0..30), meanwhile in writes(0..30), after in writes(0..30), view in views(),
    ) {
        in_simulated_time(async {
            let http = Cluster::start().await.http();
            apply(&http, &before).await;
            let first = list(&http, &view).await;
            let version = first["metadata"]["resourceVersion"].as_str().unwrap_or_default();
            // The watch starts in the past and goes on live.
            apply(&http, &meanwhile).await;
            let path = view.path(&format!("watch=1&timeoutSeconds=9&resourceVersion={version}"));
            let mut events = http.watch(&path).await;
            apply(&http, &after).await;
            let mut mirror = Mirror::of_list(&first);
            for event in events.rest().await {
                mirror.apply(&event).map_err(TestCaseError::fail)?;
            }
            prop_assert_eq!(mirror.objects, Mirror::of_list(&list(&http, &view).await).objects);
            Ok(())
        })?;
    }

    #[test]
    fn a_streamed_list_and_its_events_make_up_the_later_list(
        before in writes(0..30), after in writes(0..30), view in views(), version in prop::sample::select(vec!["", "0"]),
    ) {
        in_simulated_time(async {
            let http = Cluster::start().await.http();
            apply(&http, &before).await;
            let first = list(&http, &view).await;
            let path = view.path(&format!(
                "watch=1&timeoutSeconds=9&sendInitialEvents=true&allowWatchBookmarks=true\
                 &resourceVersionMatch=NotOlderThan&resourceVersion={version}"
            ));
            let mut events = http.watch(&path).await;
            let mut mirror = Mirror::default();
            let bookmark = loop {
                let Some(event) = events.next().await else { return Err(TestCaseError::fail("no bookmark")) };
                if event["type"] == "BOOKMARK" {
                    break event;
                }
                // The initial objects come by name; their versions are of any order.
                mirror.version = 0;
                mirror.apply(&event).map_err(TestCaseError::fail)?;
            };
            prop_assert_eq!(&bookmark["object"]["metadata"]["annotations"], &json!({"k8s.io/initial-events-end": "true"}));
            mirror.apply(&bookmark).map_err(TestCaseError::fail)?;
            prop_assert_eq!(&mirror, &Mirror::of_list(&first));
            apply(&http, &after).await;
            for event in events.rest().await {
                mirror.apply(&event).map_err(TestCaseError::fail)?;
            }
            // The last bookmark tells how far the client has seen everything: as far as the list goes.
            prop_assert_eq!(mirror, Mirror::of_list(&list(&http, &view).await));
            Ok(())
        })?;
    }

    #[test]
    fn a_watch_from_the_beginning_tells_what_is_there_and_what_follows(
        before in writes(0..30), after in writes(0..30), view in views(), version in prop::sample::select(vec!["", "0"]),
    ) {
        in_simulated_time(async {
            let http = Cluster::start().await.http();
            apply(&http, &before).await;
            let mut events = http.watch(&view.path(&format!("watch=1&timeoutSeconds=9&resourceVersion={version}"))).await;
            apply(&http, &after).await;
            let mut mirror = Mirror::default();
            let initial = list(&http, &view).await;
            for event in events.rest().await {
                if event["type"] == "ADDED" {
                    mirror.version = 0;
                }
                mirror.apply(&event).map_err(TestCaseError::fail)?;
            }
            prop_assert_eq!(mirror.objects, Mirror::of_list(&initial).objects);
            Ok(())
        })?;
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_starts_or_stops_matching_is_added_or_deleted_for_the_watcher() {
    let http = Cluster::start().await.http();
    let maps = "/api/v1/namespaces/default/configmaps";
    let label = async |value: Value| {
        let patch = json!({"metadata": {"labels": {"on": value}}});
        http.merge(&format!("{maps}/a"), &patch).await.json()
    };
    http.post(maps, &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})).await;
    let path = |selector: &str| format!("{maps}?watch=1&timeoutSeconds=9&{selector}");
    let mut matching = http.watch(&path("labelSelector=on%3D1")).await;
    let mut others = http.watch(&path("labelSelector=on%21%3D1")).await;
    let (on, on_again) =
        (label(json!("1")).await, http.merge(&format!("{maps}/a"), &json!({"data": {"k": "v"}})).await);
    let off = label(Value::Null).await;
    http.delete(&format!("{maps}/a")).await;
    let kinds = |events: &[Value]| -> Vec<String> {
        events.iter().map(|event| event["type"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let matching = matching.rest().await;
    assert_eq!(kinds(&matching), ["ADDED", "MODIFIED", "DELETED"]);
    assert_eq!(matching[0]["object"], on);
    // The watcher is shown what it knew, at the version of the change that it does not see.
    let mut last_seen = on_again.json();
    last_seen["metadata"]["resourceVersion"] = off["metadata"]["resourceVersion"].clone();
    assert_eq!(matching[2]["object"], last_seen);
    let others = others.rest().await;
    assert_eq!(kinds(&others), ["ADDED", "DELETED", "ADDED", "DELETED"]);
    assert_eq!(others[2]["object"], off);
}

/// A node's agent sees the mark, writes the last state and removes the pod before the server's own second write.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_deleted_at_once_is_found_however_fast_its_node_is() {
    const PODS: &str = "/api/v1/namespaces/default/pods";
    let http = Cluster::start().await.http();
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    http.post("/api/v1/namespaces/default/serviceaccounts", &account).await;
    let mut events = http.watch(&format!("{PODS}?watch=1&timeoutSeconds=300")).await;
    let agent = http.clone();
    let answering = tokio::spawn(async move {
        while let Some(event) = events.next().await {
            let meta = &event["object"]["metadata"];
            let path = format!("{PODS}/{}", meta["name"].as_str().unwrap_or_default());
            if event["type"] == "MODIFIED" && meta["deletionTimestamp"].is_string() {
                agent.merge(&format!("{path}/status"), &json!({"status": {"message": "ended"}})).await;
                agent.delete(&format!("{path}?gracePeriodSeconds=0")).await;
            }
        }
    });
    for round in 0..300 {
        let name = format!("p-{round}");
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
        assert_eq!(http.post(PODS, &pod).await.status, 201);
        let answer = http.delete(&format!("{PODS}/{name}?gracePeriodSeconds=0")).await;
        assert_eq!(answer.status, 200, "round {round}: {answer:?}");
        assert_eq!(http.get(&format!("{PODS}/{name}")).await.status, 404, "round {round}");
    }
    answering.abort();
}

//! What clients meet on servers that are older, or whose caches lag, or that have forgotten: they must be able to cope,
//! so the server can play each of these.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use serde_json::{Value, json};
use shoal_testkit::{Abilities, Answer, Cluster, Http};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const STREAMED: &str = "watch=1&timeoutSeconds=9&sendInitialEvents=true&allowWatchBookmarks=true\
                        &resourceVersionMatch=NotOlderThan";
/// Half of all objects.
const SHARD: &str =
    "shardSelector=shardRange(object.metadata.uid,%20%270x0000000000000000%27,%20%270x8000000000000000%27)";

async fn create(http: &Http, name: &str) -> Value {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let created = http.post(MAPS, &map).await;
    assert_eq!(created.status, 201, "{created:?}");
    created.json()
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().into_iter().flatten();
    items.filter_map(|item| item["metadata"]["name"].as_str()).collect()
}

fn version(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap_or_default()
}

async fn start(change: impl FnOnce(&mut Abilities)) -> Http {
    let mut abilities = Abilities::default();
    change(&mut abilities);
    Cluster::builder().abilities(abilities).start().await.http()
}

#[tokio::test(start_paused = true)]
async fn without_shards_the_parameter_is_ignored_and_not_confirmed() {
    let new = start(|_| {}).await;
    let old = start(|abilities| abilities.shard_selector = false).await;
    for i in 0..40 {
        create(&new, &format!("m{i}")).await;
        create(&old, &format!("m{i}")).await;
    }
    let shard = new.get(&format!("{MAPS}?{SHARD}")).await;
    assert_eq!(shard.status, 200, "{shard:?}");
    assert!(shard.json()["metadata"]["shardInfo"].is_object());
    assert!((1..40).contains(&names(&shard.json()).len()));
    let all = old.get(&format!("{MAPS}?{SHARD}")).await.json();
    assert_eq!((names(&all).len(), all["metadata"].get("shardInfo")), (40, None));
    assert_eq!(old.watch(&format!("{MAPS}?watch=1&timeoutSeconds=1&{SHARD}")).await.rest().await.len(), 40);
    // A malformed one is not even looked at.
    assert_eq!(old.get(&format!("{MAPS}?shardSelector=nonsense")).await.status, 200);
    assert_ne!(new.get(&format!("{MAPS}?shardSelector=nonsense")).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn without_streamed_lists_a_client_is_told_to_fall_back() {
    let http = start(|abilities| abilities.watch_list = false).await;
    let answer = http.get(&format!("{MAPS}?{STREAMED}")).await;
    assert_eq!(answer.status, 422, "{answer:?}");
    let status = answer.json();
    assert_eq!(status["reason"], "Invalid");
    let cause = &status["details"]["causes"][0];
    assert_eq!(
        (&cause["reason"], &cause["field"]),
        (&json!("FieldValueForbidden"), &json!("sendInitialEvents"))
    );
    assert!(http.watch(&format!("{MAPS}?watch=1&timeoutSeconds=1")).await.rest().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn without_bookmarks_none_are_sent_however_long_the_watch() {
    for (bookmarks, expected) in [(true, 6), (false, 0)] {
        let http = start(|abilities| abilities.bookmarks = bookmarks).await;
        let path = format!("{MAPS}?watch=1&timeoutSeconds=330&allowWatchBookmarks=true");
        let events = http.watch(&path).await.rest().await;
        assert_eq!(events.iter().filter(|event| event["type"] == "BOOKMARK").count(), expected, "{events:?}");
        assert_eq!(events.len(), expected);
    }
}

#[tokio::test]
async fn reads_of_a_lagging_cache_are_old_and_others_are_not() {
    let http = start(|abilities| abilities.stale_reads = 2).await;
    for name in ["a", "b", "c", "d"] {
        create(&http, name).await;
    }
    assert_eq!(names(&http.get(MAPS).await.json()), ["a", "b", "c", "d"]);
    let lagging = http.get(&format!("{MAPS}?resourceVersion=0")).await.json();
    assert_eq!(names(&lagging), ["a", "b"]);
    let newest = version(&http.get(MAPS).await.json()).to_owned();
    assert!(version(&lagging).parse::<u64>().unwrap() + 2 == newest.parse::<u64>().unwrap());
    let fresh = http.get(&format!("{MAPS}?resourceVersion={newest}")).await.json();
    assert_eq!(names(&fresh), ["a", "b", "c", "d"]);
    assert_eq!(http.get(&format!("{MAPS}/d?resourceVersion=0")).await.status, 404);
    assert_eq!(http.get(&format!("{MAPS}/b?resourceVersion=0")).await.status, 200);
    assert_eq!(http.get(&format!("{MAPS}/d")).await.status, 200);
    http.delete(&format!("{MAPS}/a")).await;
    assert_eq!(
        http.get(&format!("{MAPS}/a?resourceVersion=0")).await.status,
        200,
        "deleted, but not yet for the cache"
    );
    // Lists in pages come from the same state.
    let page = http.get(&format!("{MAPS}?resourceVersion=0&limit=1")).await.json();
    let token = page["metadata"]["continue"].as_str().unwrap();
    let rest = http.get(&format!("{MAPS}?continue={token}")).await.json();
    assert_eq!((names(&page), names(&rest)), (vec!["a"], vec!["b", "c"]));
}

/// A server that remembers ten events, and the version of an object made before it forgot.
async fn forgetful() -> (Http, String) {
    let http = Cluster::builder().history_events(10).start().await.http();
    let old = version(&create(&http, "m00").await).to_owned();
    for i in 1..20 {
        create(&http, &format!("m{i:02}")).await;
    }
    (http, old)
}

fn assert_expired(status: &Value) {
    assert_eq!(
        (&status["kind"], &status["status"], &status["code"], &status["reason"]),
        (&json!("Status"), &json!("Failure"), &json!(410), &json!("Expired")),
        "{status}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_forgotten_version_is_told_so_and_ends() {
    let (http, old) = forgetful().await;
    let events = http.watch(&format!("{MAPS}?watch=1&resourceVersion={old}")).await.rest().await;
    assert_eq!((events.len(), &events[0]["type"]), (1, &json!("ERROR")), "{events:?}");
    assert_expired(&events[0]["object"]);
    let message = events[0]["object"]["message"].as_str().unwrap();
    assert!(message.starts_with(&format!("too old resource version: {old} (")), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_watcher_that_is_overtaken_by_forgetting_is_told_so_after_what_it_may_still_see() {
    let http = Cluster::builder().history_events(10).start().await.http();
    let mut slow = http.watch(&format!("{MAPS}?watch=1")).await;
    create(&http, "first").await;
    assert_eq!(slow.next().await.unwrap()["object"]["metadata"]["name"], "first");
    for i in 0..30 {
        create(&http, &format!("m{i:02}")).await;
    }
    let events = slow.rest().await;
    assert_eq!((events.len(), &events[0]["type"]), (1, &json!("ERROR")), "{events:?}");
    assert_expired(&events[0]["object"]);
}

async fn first_page(http: &Http) -> (Vec<String>, String) {
    let page = http.get(&format!("{MAPS}?limit=5")).await.json();
    let seen = names(&page).into_iter().map(str::to_owned).collect();
    (seen, page["metadata"]["continue"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn an_expired_continue_token_comes_with_one_that_goes_on_with_what_is_there_now() {
    let (http, _) = forgetful().await;
    let (mut seen, token) = first_page(&http).await;
    for i in 20..40 {
        create(&http, &format!("m{i:02}")).await;
    }
    http.delete(&format!("{MAPS}/m07")).await;
    let expired: Answer = http.get(&format!("{MAPS}?limit=5&continue={token}")).await;
    assert_eq!(expired.status, 410, "{expired:?}");
    let status = expired.json();
    assert_expired(&status);
    let mut token = status["metadata"]["continue"].as_str().unwrap().to_owned();
    while !token.is_empty() {
        let page = http.get(&format!("{MAPS}?limit=5&continue={token}")).await;
        assert_eq!(page.status, 200, "{page:?}");
        let page = page.json();
        seen.extend(names(&page).into_iter().map(str::to_owned));
        token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
    }
    let expected: Vec<String> = (0..40).filter(|i| *i != 7).map(|i| format!("m{i:02}")).collect();
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn a_list_at_a_forgotten_version_is_refused_and_a_newer_one_is_shown_instead() {
    let (http, old) = forgetful().await;
    let exact = http.get(&format!("{MAPS}?resourceVersion={old}&resourceVersionMatch=Exact")).await;
    assert_eq!(exact.status, 410, "{exact:?}");
    assert_expired(&exact.json());
    let newer = http.get(&format!("{MAPS}?resourceVersion={old}")).await;
    assert_eq!((newer.status.as_u16(), names(&newer.json()).len()), (200, 20));
}

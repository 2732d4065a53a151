//! What the client adds to requests: audit, fence, limits.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use shoal_objects::{Clock, Timestamp};
use shoal_runtime::client::{Cause, Options, because, cause, instrumented};
use shoal_runtime::config::{LogFormat, Logging};
use shoal_runtime::{Fence, ObjectKey, logging};
use shoal_testkit::Cluster;
use tokio::time::Instant;
use tracing::instrument::WithSubscriber as _;

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn parsed(&self) -> Vec<Value> {
        let text = String::from_utf8(self.0.lock().clone()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn web(trigger: &str) -> Cause {
    Cause {
        controller: "web".into(),
        key: Some(ObjectKey::new("default", "shop")),
        trigger: trigger.into(),
        fence: None,
    }
}

#[tokio::test]
async fn every_write_is_on_record_with_who_what_and_why_but_no_content() {
    let cluster = Cluster::start().await;
    let client = instrumented(cluster.client(), &Options::default());
    let lines = Lines::default();
    let made = lines.clone();
    // The audit does not depend on the level.
    let settings = Logging { level: "error".to_owned(), format: LogFormat::Json };
    let clock = Clock::from_fn(|| Timestamp(0));
    let (subscriber, _) = logging::subscriber(&settings, clock, move || made.clone(), Vec::new()).unwrap();
    async {
        let secrets: Api<Secret> = Api::default_namespaced(client.clone());
        let secret: Secret =
            serde_json::from_value(json!({"metadata": {"name": "s"}, "stringData": {"k": "hunter2"}}))
                .unwrap();
        because(web("added"), async {
            secrets.create(&PostParams::default(), &secret).await.unwrap();
            secrets.get("s").await.unwrap();
            let patch = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
            secrets.patch("s", &PatchParams::default(), &patch).await.unwrap();
        })
        .await;
        secrets.create(&PostParams::default(), &secret).await.unwrap_err();
        secrets.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    }
    .with_subscriber(subscriber)
    .await;
    let lines = lines.parsed();
    let told = |line: &Value| -> Vec<String> {
        ["controller", "key", "trigger", "verb", "resource", "namespace", "name", "status"]
            .iter()
            .map(|field| line[*field].as_str().map_or_else(|| line[*field].to_string(), str::to_owned))
            .collect()
    };
    assert!(lines.iter().all(|line| line["target"] == "audit"));
    assert_eq!(
        lines.iter().map(told).collect::<Vec<_>>(),
        [
            ["web", "default/shop", "added", "create", "secrets", "default", "", "201"],
            ["web", "default/shop", "added", "patch", "secrets", "default", "s", "200"],
            ["", "", "", "create", "secrets", "default", "", "409"],
            ["", "", "", "deletecollection", "secrets", "default", "", "200"],
        ]
    );
    assert!(!lines.iter().any(|line| line.to_string().contains("hunter2")));
}

#[tokio::test]
async fn writes_behind_a_closed_fence_are_not_sent_and_reads_are() {
    let cluster = Cluster::start().await;
    let client = instrumented(cluster.client(), &Options::default());
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "m"}})).unwrap();
    let fenced = Cause { fence: Some(Fence::new(|| None)), ..web("resync") };
    because(fenced, async {
        assert_eq!(&*cause().unwrap().trigger, "resync");
        let error = maps.create(&PostParams::default(), &map).await.unwrap_err();
        assert!(error.to_string().contains("does not own"), "{error}");
        assert_eq!(maps.get_opt("m").await.unwrap(), None);
    })
    .await;
    assert!(cause().is_none());
    maps.create(&PostParams::default(), &map).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_is_given_up() {
    let service = tower::service_fn(|_: Request<Body>| async {
        std::future::pending::<()>().await;
        Ok::<http::Response<Body>, tower::BoxError>(http::Response::new(Body::empty()))
    });
    let options = Options { timeout: Duration::from_secs(7), ..Options::default() };
    let client = instrumented(Client::new(service, "default"), &options);
    let begun = Instant::now();
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let error = maps.get("m").await.unwrap_err();
    assert_eq!(begun.elapsed().as_secs(), 7);
    assert!(error.to_string().contains("did not begin to answer within 7s"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn requests_are_spread_when_a_rate_is_set() {
    let cluster = Cluster::builder().seed(1).start().await;
    let options = Options { limit: Some((10.0, 2)), ..Options::default() };
    let maps: Api<ConfigMap> = Api::default_namespaced(instrumented(cluster.client(), &options));
    let begun = Instant::now();
    for _ in 0..12 {
        maps.get_opt("m").await.unwrap();
    }
    assert_eq!(begun.elapsed().as_millis() / 100, 10);
}

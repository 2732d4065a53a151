//! What a running operator writes to its log: one JSON object per line, which say of what they speak.

#![allow(clippy::unwrap_used, clippy::panic, reason = "what fails, fails")]

use std::io;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use shoal_runtime::config::{Config, Logging};
use shoal_runtime::logging;
use shoal_runtime::{Action, Context, Controller, Error, Manager};
use shoal_testkit::{CapturedLog, Cluster, eventually};

#[tokio::test(start_paused = true)]
async fn an_operator_logs_json_that_names_controller_key_and_error() {
    let cluster = Cluster::builder().seed(7).start().await;
    let log = CapturedLog::new();
    let (subscriber, _level) =
        logging::subscriber(&Logging::default(), cluster.clock(), log.writer(), Vec::new()).unwrap();
    let _guard = tracing::subscriber::set_default(subscriber);
    let mut manager = Manager::builder("test")
        .client(cluster.client())
        .config(Config::default())
        .clock(cluster.clock())
        .embedded()
        .build()
        .await
        .unwrap();
    let reconcile = |context: Context<Namespace>| async move {
        match &*context.key().name {
            "default" => {
                Err(Error::transient("asking the weather").because(io::Error::other("no \"answer\"\n")))
            }
            "kube-system" => Err(Error::permanent("this cannot be")),
            "kube-public" => {
                let map = serde_json::json!({"metadata": {"name": "seen", "namespace": "kube-public"}});
                context.writer().apply::<ConfigMap>(&serde_json::from_value(map).unwrap(), None).await?;
                Ok(Action::done())
            }
            _ => Ok(Action::done()),
        }
    };
    manager.add(Controller::of::<Namespace>("spaces").reconcile(reconcile));
    let stopper = manager.stopper();
    let running = tokio::spawn(manager.run());
    let of = |key: &str| log.find("key", key);
    let (retried, parked) =
        eventually("both failures", || async { of("default").zip(of("kube-system")) }).await;
    let written = eventually("the write", || async {
        log.lines().into_iter().find(|line| line["target"] == "audit" && line["resource"] == "configmaps")
    })
    .await;
    stopper.stop();
    running.await.unwrap().unwrap();

    for (line, level, message) in [
        (&retried, "warn", "reconcile failed; will be retried"),
        (&parked, "error", "reconcile failed; parked until something happens"),
    ] {
        assert_eq!((&line["level"], &line["message"]), (&level.into(), &message.into()), "{line}");
        assert_eq!((&line["controller"], &line["retries"]), (&"spaces".into(), &0.into()), "{line}");
        assert!(line["timestamp"].as_str().unwrap().starts_with("2026-01-01T00:00:"), "{line}");
        assert_eq!(line["target"], "shoal_runtime::worker::outcome");
    }
    assert!(retried["error"].as_str().unwrap().contains("asking the weather: no \"answer\""), "{retried}");
    // Who wrote what, and why: it was there at the start.
    for (field, value) in [
        ("controller", "spaces"),
        ("key", "kube-public"),
        ("trigger", "resync"),
        ("verb", "patch"),
        ("namespace", "kube-public"),
        ("name", "seen"),
    ] {
        assert_eq!(written[field], value, "{written}");
    }
    let life: Vec<String> = log
        .lines()
        .iter()
        .filter(|line| line["manager"] == "test")
        .map(|line| line["message"].to_string())
        .collect();
    assert_eq!(life, ["\"starting\"", "\"stopped\""]);
}

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proptest::prelude::*;

use super::*;

/// The file as the design of the sharded framework gives it.
const SEED: &str = r#"
# config.yaml
sharding:
  algorithm: "consistent-hash"
  virtualNodes: 150
  rebalanceThreshold: 0.1
  rebalanceInterval: "30s"

node:
  healthCheckInterval: "10s"
  healthCheckTimeout: "5s"
  nodeTimeout: "60s"

state:
  syncInterval: "10s"
  leaseDuration: "15s"
  renewDeadline: "10s"
  retryPeriod: "2s"

metrics:
  enabled: true
  port: 8080
  path: "/metrics"

logging:
  level: "info"
  format: "json"
"#;

fn parse(yaml: &str) -> Result<Config, Error> {
    Config::parse(yaml, &|_| None)
}

fn problems(yaml: &str) -> Vec<String> {
    parse(yaml).unwrap_err().problems
}

#[test]
fn the_documented_file_is_read_and_equals_the_defaults_but_for_the_algorithm() {
    let mut expected = Config::default();
    assert_eq!(expected.sharding.algorithm, "sticky");
    expected.sharding.algorithm = "consistent-hash".to_owned();
    assert_eq!(parse(SEED).unwrap(), expected);
    assert_eq!(parse("").unwrap(), Config::default());
    assert_eq!(parse("# nothing\n").unwrap(), Config::default());
}

#[test]
fn settings_of_workers_queue_and_reconcile_are_read() {
    let config = parse(
        "workers: 8\nqueueConfig: {maxRetries: 3, baseDelay: 10ms, maxDelay: 1m, rateLimiterQPS: 2.5}\n\
         reconcileConfig: {timeout: 30s, resyncPeriod: 5m, maxConcurrent: 20}",
    )
    .unwrap();
    assert_eq!(config.workers, Workers(8));
    let queue = Queue {
        max_retries: 3,
        base_delay: Duration::from_millis(10),
        max_delay: Duration::from_secs(60),
        rate_limiter_qps: 2.5,
    };
    assert_eq!(config.queue_config, queue);
    assert_eq!(config.reconcile_config.max_concurrent, 20);
    assert_eq!(config.reconcile_config.resync_period, Duration::from_secs(300));
}

#[test]
fn informers_are_set_by_the_environment() {
    let environment = |name: &str| {
        let value = match name {
            "INFORMER_CACHE_SIZE" => "500",
            "LIST_TIMEOUT" => "90s",
            "ENABLE_INCREMENTAL_SYNC" => "false",
            _ => return None,
        };
        Some(value.to_owned())
    };
    let informer = Config::parse("", &environment).unwrap().informer;
    assert_eq!(
        (informer.cache_size, informer.list_timeout.as_secs(), informer.incremental_sync),
        (Some(500), 90, false)
    );
    let wrong = Config::parse("", &|_| Some("soon".to_owned())).unwrap_err();
    assert_eq!(
        wrong.problems,
        [
            "INFORMER_CACHE_SIZE must be a number of objects, such as 10000",
            "LIST_TIMEOUT is wrong: \"soon\" is not a duration: write a number and a unit, such as \"30s\" or \"1m30s\"",
            "ENABLE_INCREMENTAL_SYNC must be true or false",
        ]
    );
}

#[test]
fn unknown_keys_are_errors_that_name_the_key_and_the_nearest() {
    assert_eq!(
        problems(
            "sharding: {virtualnodes: 3}\nlog: {}\nstate: {port: 1}\nmetrics: {colour: red}\nQueueConfig: {}"
        ),
        [
            "QueueConfig is not a key: did you mean queueConfig?",
            "log is not a key: use one of sharding, node, state, metrics, logging, workers, queueConfig, reconcileConfig",
            "metrics.colour is not a key: use one of enabled, port, path, probePort",
            "sharding.virtualnodes is not a key: did you mean virtualNodes?",
            "state.port is not a key: port belongs to section metrics",
        ]
    );
}

#[test]
fn values_of_the_wrong_kind_are_errors_that_name_the_key() {
    assert_eq!(
        problems(
            "workers: many\nnode: 5\nmetrics: {port: 70000, enabled: 1}\nstate: {leaseDuration: 15}\nlogging: {format: xml}"
        ),
        [
            "node must be a map of settings, not 5",
            "state.leaseDuration must be a duration with a unit, such as \"30s\", not 15",
            "metrics.enabled must be true or false, not 1",
            "metrics.port must be a whole number that fits, not 70000",
            "logging.format must be json or text",
            "workers must be a whole number that fits, not \"many\"",
        ]
    );
    assert_eq!(problems("- a"), ["it must be a map of sections, not a list"]);
    assert!(problems("a: [")[0].starts_with("it is not valid YAML: "));
}

#[test]
fn timers_that_are_not_safely_ordered_are_refused_with_the_remedy() {
    assert_eq!(
        problems("state: {leaseDuration: 10s, renewDeadline: 10s, retryPeriod: 9s}"),
        [
            "state.leaseDuration (10s) must be longer than renewDeadline (10s): a leader must have stopped before another may start; make it longer",
            "state.renewDeadline (10s) must be longer than 1.2 times retryPeriod (9s): one late renewal would end the leadership; shorten retryPeriod",
        ]
    );
    assert_eq!(
        problems("node: {healthCheckInterval: 10s, healthCheckTimeout: 11s, nodeTimeout: 14s}").len(),
        3,
        "checks overlap, one late check moves shards, gone while the lease is valid"
    );
    assert_eq!(
        problems("queueConfig: {baseDelay: 2s, maxDelay: 1s}"),
        ["queueConfig.maxDelay (1s) is shorter than queueConfig.baseDelay (2s): make it longer"]
    );
    assert_eq!(
        problems("metrics: {port: 9090, probePort: 9090}"),
        ["metrics.probePort is metrics.port: leave it out, probes are answered there anyway"]
    );
    assert_eq!(
        problems("metrics: {path: /readyz}"),
        ["metrics.path \"/readyz\" is used for something else: use /metrics"]
    );
}

/// A folder as the kubelet mounts a ConfigMap: the file is a link into a folder that is itself a link.
struct Mount(tempfile::TempDir);

impl Mount {
    fn new(yaml: &str) -> Mount {
        let mount = Mount(tempfile::tempdir().unwrap());
        mount.swap("v1", yaml);
        std::os::unix::fs::symlink("..data/config.yaml", mount.file()).unwrap();
        mount
    }

    fn file(&self) -> std::path::PathBuf {
        self.0.path().join("config.yaml")
    }

    fn swap(&self, version: &str, yaml: &str) {
        let root = self.0.path();
        std::fs::create_dir(root.join(version)).unwrap();
        std::fs::write(root.join(version).join("config.yaml"), yaml).unwrap();
        std::os::unix::fs::symlink(version, root.join("..data_tmp")).unwrap();
        std::fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
    }
}

#[test]
fn a_swapped_mount_is_noticed_and_a_bad_one_leaves_the_last_good_in_force() {
    let mount = Mount::new("workers: 2");
    let source = Source::file(mount.file()).unwrap();
    let changes = Arc::new(Mutex::new(Vec::new()));
    let log = changes.clone();
    source.on_change(move |change| log.lock().push(change.clone()));
    let mut follower = source.subscribe();
    assert_eq!(source.poll(), None);

    mount.swap("v2", "workers: 3");
    assert_eq!(source.poll(), None, "content counts when it was the same twice");
    assert_eq!(source.poll(), Some(Change::Applied { generation: 2 }));
    assert!(follower.has_changed().unwrap());
    assert_eq!(follower.borrow_and_update().workers, Workers(3));

    mount.swap("v3", "workers: 0\nworker: 1");
    source.poll();
    let Some(Change::Rejected { generation: 2, error }) = source.poll() else { panic!("not rejected") };
    assert_eq!(
        error.problems,
        ["worker is not a key: did you mean workers?", "workers must be between 1 and 10000"]
    );
    assert_eq!(source.current().workers, Workers(3));
    assert!(!follower.has_changed().unwrap());
    assert_eq!(source.inspect()["rejected"][0], "worker is not a key: did you mean workers?");
    assert_eq!(source.poll(), None, "told once");

    mount.swap("v4", "workers: 4");
    source.poll();
    assert_eq!(source.poll(), Some(Change::Applied { generation: 3 }));
    assert_eq!(source.inspect()["rejected"], serde_json::Value::Null);
    assert_eq!(changes.lock().len(), 3);
}

#[test]
fn a_file_that_is_gone_for_a_while_changes_nothing_and_is_told_once() {
    let mount = Mount::new("workers: 2");
    let source = Source::file(mount.file()).unwrap();
    std::fs::remove_file(mount.0.path().join("..data")).unwrap();
    assert!(matches!(source.poll(), Some(Change::Rejected { .. })));
    assert_eq!(source.poll(), None);
    assert_eq!(source.current().workers, Workers(2));
    mount.swap("v2", "workers: 5");
    source.poll();
    assert_eq!(source.poll(), Some(Change::Applied { generation: 2 }));
}

#[test]
fn a_guard_can_refuse_what_is_valid_in_itself() {
    let mount = Mount::new("workers: 2");
    let source = Source::file(mount.file()).unwrap();
    source.guard(|config| {
        if config.metrics.port == 8080 { Ok(()) } else { Err("metrics.port needs a restart".to_owned()) }
    });
    mount.swap("v2", "metrics: {port: 9090}");
    source.poll();
    let Some(Change::Rejected { error, .. }) = source.poll() else { panic!("not rejected") };
    assert_eq!(error.problems, ["metrics.port needs a restart"]);
}

#[test]
fn a_change_can_be_rolled_back_by_hand_until_the_file_changes_again() {
    let mount = Mount::new("workers: 2");
    let source = Source::file(mount.file()).unwrap();
    assert_eq!(source.roll_back(), None);
    mount.swap("v2", "workers: 3");
    source.poll();
    source.poll();
    assert_eq!(source.roll_back(), Some(Change::RolledBack { generation: 3 }));
    assert_eq!(source.current().workers, Workers(2));
    assert_eq!((source.poll(), source.poll()), (None, None));
    assert_eq!(source.current().workers, Workers(2));
    mount.swap("v3", "workers: 4");
    source.poll();
    assert_eq!(source.poll(), Some(Change::Applied { generation: 4 }));
}

#[test]
fn a_file_that_is_not_there_is_told_with_the_variable() {
    let error = Source::file("/nonexistent/config.yaml").map(|_| ()).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("/nonexistent/config.yaml cannot be used\n  it cannot be read: "), "{text}");
    assert!(text.contains("CONFIG_FILE"), "{text}");
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,200}") {
        let _ = parse(&text);
    }

    #[test]
    fn no_value_makes_it_panic(section in 0usize..8, value in prop_oneof![
        Just("1e400".to_owned()), Just("-1".to_owned()), Just("99999999999999999999999".to_owned()), Just(".nan".to_owned()),
        Just("[[[[]]]]".to_owned()), Just("{a: {b: c}}".to_owned()), Just("null".to_owned()), Just("\"9999999999h\"".to_owned()),
    ]) {
        let keys = ["sharding: {virtualNodes: ", "node: {nodeTimeout: ", "state: {leaseDuration: ", "metrics: {port: ",
            "logging: {level: ", "queueConfig: {rateLimiterQPS: ", "reconcileConfig: {maxConcurrent: ", "{workers: "];
        let _ = parse(&format!("{}{value}}}", keys[section]));
    }
}

//! What settings must be like together. Each message names the key and what to do.

use std::time::Duration;

use super::duration::format;
use super::{Config, Workers};
use crate::election::Timing;
use crate::health::RESERVED_PATHS;
use crate::logging;

/// Everything that is wrong, in the order of the sections.
pub(super) fn problems(config: &Config) -> Vec<String> {
    let mut problems = Vec::new();
    sharding(config, &mut problems);
    node(config, &mut problems);
    state(config, &mut problems);
    endpoints(config, &mut problems);
    work(config, &mut problems);
    problems
}

fn sharding(config: &Config, problems: &mut Vec<String>) {
    let sharding = &config.sharding;
    if sharding.algorithm.trim().is_empty() {
        problems.push(
            "sharding.algorithm is empty: use sticky, hash, consistent-hash, rendezvous or one of your own"
                .to_owned(),
        );
    }
    if !(1..=10_000).contains(&sharding.virtual_nodes) {
        problems.push("sharding.virtualNodes must be between 1 and 10000".to_owned());
    }
    if !(0.0..=1.0).contains(&sharding.rebalance_threshold) {
        problems.push(
            "sharding.rebalanceThreshold must be between 0 and 1; 0.1 allows 10 % more than the even load"
                .to_owned(),
        );
    }
    longer_than_zero("sharding.rebalanceInterval", sharding.rebalance_interval, problems);
}

/// A replica that cannot be reached must have stopped before another one takes its shards: it needs several checks
/// to notice, and all of them must fit before others count it as gone.
fn node(config: &Config, problems: &mut Vec<String>) {
    let node = &config.node;
    longer_than_zero("node.healthCheckInterval", node.health_check_interval, problems);
    longer_than_zero("node.healthCheckTimeout", node.health_check_timeout, problems);
    if node.health_check_timeout > node.health_check_interval {
        problems.push(format!(
            "node.healthCheckTimeout ({}) is longer than node.healthCheckInterval ({}): checks would overlap; shorten the timeout",
            format(node.health_check_timeout),
            format(node.health_check_interval)
        ));
    }
    let least = node.health_check_interval.saturating_mul(2).saturating_add(node.health_check_timeout);
    if node.node_timeout < least {
        problems.push(format!(
            "node.nodeTimeout ({}) must be at least twice node.healthCheckInterval plus node.healthCheckTimeout ({}): one late check would move shards",
            format(node.node_timeout),
            format(least)
        ));
    }
    if node.node_timeout < config.state.lease_duration {
        problems.push(format!(
            "node.nodeTimeout ({}) is shorter than state.leaseDuration ({}): a replica would count as gone while its lease is valid; make it longer",
            format(node.node_timeout),
            format(config.state.lease_duration)
        ));
    }
}

fn state(config: &Config, problems: &mut Vec<String>) {
    longer_than_zero("state.syncInterval", config.state.sync_interval, problems);
    problems
        .extend(Timing::from(&config.state).problems().into_iter().map(|problem| format!("state.{problem}")));
}

fn endpoints(config: &Config, problems: &mut Vec<String>) {
    let path = &config.metrics.path;
    if config.metrics.port == 0 {
        problems.push("metrics.port must be between 1 and 65535".to_owned());
    }
    if config.metrics.probe_port == config.metrics.port && config.metrics.port != 0 {
        problems.push(
            "metrics.probePort is metrics.port: leave it out, probes are answered there anyway".to_owned(),
        );
    }
    if !path.starts_with('/') || path.contains(['?', '#', ' ']) {
        problems.push("metrics.path must begin with / and have no ?, # or space".to_owned());
    }
    if RESERVED_PATHS.iter().any(|reserved| path == reserved) || path.starts_with("/debug/") {
        problems.push(format!("metrics.path {path:?} is used for something else: use /metrics"));
    }
    if let Err(message) = logging::check_level(&config.logging.level) {
        problems.push(format!("logging.level {message}"));
    }
}

fn work(config: &Config, problems: &mut Vec<String>) {
    let Workers(workers) = config.workers;
    if !(1..=10_000).contains(&workers) {
        problems.push("workers must be between 1 and 10000".to_owned());
    }
    let queue = &config.queue_config;
    longer_than_zero("queueConfig.baseDelay", queue.base_delay, problems);
    if queue.max_delay < queue.base_delay {
        problems.push(format!(
            "queueConfig.maxDelay ({}) is shorter than queueConfig.baseDelay ({}): make it longer",
            format(queue.max_delay),
            format(queue.base_delay)
        ));
    }
    if queue.rate_limiter_qps <= 0.0 {
        problems.push("queueConfig.rateLimiterQPS must be greater than 0".to_owned());
    }
    let reconcile = &config.reconcile_config;
    longer_than_zero("reconcileConfig.timeout", reconcile.timeout, problems);
    if reconcile.max_concurrent == 0 {
        problems.push("reconcileConfig.maxConcurrent must be at least 1".to_owned());
    }
    let resync = reconcile.resync_period;
    if !resync.is_zero() && resync < Duration::from_secs(1) {
        problems.push("reconcileConfig.resyncPeriod must be 0 (never) or at least 1s: every object is looked at each time".to_owned());
    }
}

fn longer_than_zero(key: &str, duration: Duration, problems: &mut Vec<String>) {
    if duration.is_zero() {
        problems.push(format!("{key} must be longer than 0"));
    }
}

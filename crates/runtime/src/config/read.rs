//! From YAML to settings, collecting everything that is wrong.

use std::time::Duration;

use serde_json::{Map, Value};

use super::{Config, LogFormat, Workers, duration};
use crate::nearest::nearest;

/// Sections with their keys; keys of the top level have none.
const KEYS: &[(&str, &[&str])] = &[
    ("sharding", &["algorithm", "virtualNodes", "rebalanceThreshold", "rebalanceInterval"]),
    ("node", &["healthCheckInterval", "healthCheckTimeout", "nodeTimeout"]),
    ("state", &["syncInterval", "leaseDuration", "renewDeadline", "retryPeriod"]),
    ("metrics", &["enabled", "port", "path", "probePort"]),
    ("logging", &["level", "format"]),
    ("workers", &[]),
    ("queueConfig", &["maxRetries", "baseDelay", "maxDelay", "rateLimiterQPS"]),
    ("reconcileConfig", &["timeout", "resyncPeriod", "maxConcurrent"]),
];

/// No configuration is this long; a wrong mount may be.
const LONGEST: usize = 1 << 20;

/// The settings as far as they can be read, and what is wrong.
pub(super) fn config(yaml: &str) -> (Config, Vec<String>) {
    let mut config = Config::default();
    if yaml.len() > LONGEST {
        return (config, vec![format!("the file has {} bytes, more than the {LONGEST} allowed", yaml.len())]);
    }
    let value: Value = match serde_saphyr::from_str::<Option<Value>>(yaml) {
        Ok(value) => value.unwrap_or_default(),
        Err(error) => return (config, vec![format!("it is not valid YAML: {error}")]),
    };
    let mut problems = Vec::new();
    let top = match value {
        Value::Null => Map::new(),
        Value::Object(top) => top,
        other => return (config, vec![format!("it must be a map of sections, not {}", kind(&other))]),
    };
    unknown(&top, &mut problems);

    let mut section = Section::new(&top, "sharding", &mut problems);
    section.text("algorithm", &mut config.sharding.algorithm);
    section.number("virtualNodes", &mut config.sharding.virtual_nodes);
    section.decimal("rebalanceThreshold", &mut config.sharding.rebalance_threshold);
    section.duration("rebalanceInterval", &mut config.sharding.rebalance_interval);
    let mut section = Section::new(&top, "node", &mut problems);
    section.duration("healthCheckInterval", &mut config.node.health_check_interval);
    section.duration("healthCheckTimeout", &mut config.node.health_check_timeout);
    section.duration("nodeTimeout", &mut config.node.node_timeout);
    let mut section = Section::new(&top, "state", &mut problems);
    section.duration("syncInterval", &mut config.state.sync_interval);
    section.duration("leaseDuration", &mut config.state.lease_duration);
    section.duration("renewDeadline", &mut config.state.renew_deadline);
    section.duration("retryPeriod", &mut config.state.retry_period);
    let mut section = Section::new(&top, "metrics", &mut problems);
    section.switch("enabled", &mut config.metrics.enabled);
    section.number("port", &mut config.metrics.port);
    section.text("path", &mut config.metrics.path);
    section.number("probePort", &mut config.metrics.probe_port);
    let mut section = Section::new(&top, "logging", &mut problems);
    section.text("level", &mut config.logging.level);
    section.format("format", &mut config.logging.format);
    let mut section = Section::new(&top, "queueConfig", &mut problems);
    section.number("maxRetries", &mut config.queue_config.max_retries);
    section.duration("baseDelay", &mut config.queue_config.base_delay);
    section.duration("maxDelay", &mut config.queue_config.max_delay);
    section.decimal("rateLimiterQPS", &mut config.queue_config.rate_limiter_qps);
    let mut section = Section::new(&top, "reconcileConfig", &mut problems);
    section.duration("timeout", &mut config.reconcile_config.timeout);
    section.duration("resyncPeriod", &mut config.reconcile_config.resync_period);
    section.number("maxConcurrent", &mut config.reconcile_config.max_concurrent);
    let mut section = Section { name: "", values: Some(&top), problems: &mut problems };
    let Workers(workers) = &mut config.workers;
    section.number("workers", workers);
    (config, problems)
}

fn unknown(top: &Map<String, Value>, problems: &mut Vec<String>) {
    for (name, value) in top {
        let Some((section, keys)) = KEYS.iter().find(|(section, _)| section == name) else {
            problems.push(unknown_key("", name));
            continue;
        };
        for key in value.as_object().into_iter().flat_map(Map::keys) {
            if !keys.is_empty() && !keys.contains(&key.as_str()) {
                problems.push(unknown_key(section, key));
            }
        }
    }
}

/// Suggests the nearest key of the same section, else the same key where it belongs, else lists the section.
fn unknown_key(section: &str, key: &str) -> String {
    let here: Vec<&str> = match KEYS.iter().find(|(name, _)| *name == section) {
        Some((_, keys)) => keys.to_vec(),
        None => KEYS.iter().map(|(name, _)| *name).collect(),
    };
    let shown: String = key.chars().take(60).collect();
    let path = if section.is_empty() { shown } else { format!("{section}.{shown}") };
    if let Some(near) = nearest(key, here.iter().copied()) {
        return format!("{path} is not a key: did you mean {near}?");
    }
    if let Some((elsewhere, _)) = KEYS.iter().find(|(_, keys)| keys.contains(&key)) {
        return format!("{path} is not a key: {key} belongs to section {elsewhere}");
    }
    format!("{path} is not a key: use one of {}", here.join(", "))
}

/// One section being read. A key that is absent or null keeps its default.
struct Section<'a> {
    name: &'static str,
    values: Option<&'a Map<String, Value>>,
    problems: &'a mut Vec<String>,
}

impl<'a> Section<'a> {
    fn new(top: &'a Map<String, Value>, name: &'static str, problems: &'a mut Vec<String>) -> Section<'a> {
        let values = match top.get(name) {
            None | Some(Value::Null) => None,
            Some(Value::Object(values)) => Some(values),
            Some(other) => {
                problems.push(format!("{name} must be a map of settings, not {}", kind(other)));
                None
            }
        };
        Section { name, values, problems }
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        self.values?.get(key).filter(|value| !value.is_null())
    }

    fn wrong(&mut self, key: &str, message: &str) {
        let dot = if self.name.is_empty() { "" } else { "." };
        self.problems.push(format!("{}{dot}{key} {message}", self.name));
    }

    fn text(&mut self, key: &str, to: &mut String) {
        match self.get(key) {
            None => {}
            Some(Value::String(text)) => *to = text.clone(),
            Some(other) => self.wrong(key, &format!("must be text, not {}", kind(other))),
        }
    }

    fn switch(&mut self, key: &str, to: &mut bool) {
        match self.get(key) {
            None => {}
            Some(Value::Bool(value)) => *to = *value,
            Some(other) => self.wrong(key, &format!("must be true or false, not {}", kind(other))),
        }
    }

    fn number<N: TryFrom<u64>>(&mut self, key: &str, to: &mut N) {
        match self.get(key) {
            None => {}
            Some(value) => match value.as_u64().and_then(|number| N::try_from(number).ok()) {
                Some(number) => *to = number,
                None => self.wrong(key, &format!("must be a whole number that fits, not {}", kind(value))),
            },
        }
    }

    fn decimal(&mut self, key: &str, to: &mut f64) {
        match self.get(key) {
            None => {}
            Some(value) => match value.as_f64().filter(|number| number.is_finite()) {
                Some(number) => *to = number,
                None => self.wrong(key, &format!("must be a number, not {}", kind(value))),
            },
        }
    }

    fn duration(&mut self, key: &str, to: &mut Duration) {
        match self.get(key) {
            None => {}
            Some(Value::String(text)) => match duration::parse(text) {
                Ok(duration) => *to = duration,
                Err(message) => self.wrong(key, &format!("is wrong: {message}")),
            },
            Some(value) if value.as_u64() == Some(0) => *to = Duration::ZERO,
            Some(other) => {
                self.wrong(
                    key,
                    &format!("must be a duration with a unit, such as \"30s\", not {}", kind(other)),
                );
            }
        }
    }

    fn format(&mut self, key: &str, to: &mut LogFormat) {
        match self.get(key).map(Value::as_str) {
            None => {}
            Some(Some("json")) => *to = LogFormat::Json,
            Some(Some("text")) => *to = LogFormat::Text,
            Some(_) => self.wrong(key, "must be json or text"),
        }
    }
}

fn kind(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => format!("{:?}", text.chars().take(40).collect::<String>()),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a map".to_owned(),
    }
}

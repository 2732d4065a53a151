//! Logs: one JSON object per line, or text for people; the level can change while the process runs.
//!
//! A field called `json.x` holds JSON as text and appears as the field `x` with that JSON inside, so that maps stay
//! maps: see [`shard_change`].

mod json;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::json;
use shoal_objects::Clock;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};
use tracing_subscriber::{EnvFilter, Layer, Registry, reload};

pub use json::JsonLayer;

use crate::config::{LogFormat, Logging};

type Boxed = Box<dyn Layer<Registry> + Send + Sync>;

/// Reads and changes the level of a running process. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Level {
    handle: reload::Handle<EnvFilter, Registry>,
    directives: Arc<Mutex<String>>,
}

impl Level {
    /// The directives in force.
    pub fn get(&self) -> String {
        self.directives.lock().clone()
    }

    /// Puts other directives in force: a level such as `debug`, or `info,shoal_runtime::queue=trace`.
    pub fn set(&self, directives: &str) -> Result<(), String> {
        let filter = filter(directives)?;
        let mut shown = self.directives.lock();
        self.handle.reload(filter).map_err(|error| error.to_string())?;
        directives.clone_into(&mut shown);
        Ok(())
    }
}

/// Logs to standard error for the rest of the process. `more` are further layers, such as traces.
pub fn init(logging: &Logging, more: Vec<Boxed>) -> Result<Level, String> {
    let (subscriber, level) = subscriber(logging, Clock::system(), io::stderr, more)?;
    subscriber.try_init().map_err(|error: TryInitError| format!("logging is already set up: {error}"))?;
    Ok(level)
}

/// The same with a writer of one's own, not installed.
pub fn subscriber<W>(
    logging: &Logging,
    clock: Clock,
    writer: W,
    more: Vec<Boxed>,
) -> Result<(impl tracing::Subscriber + Send + Sync, Level), String>
where
    W: for<'a> tracing_subscriber::fmt::MakeWriter<'a> + Send + Sync + 'static,
{
    let directives = Arc::new(Mutex::new(logging.level.clone()));
    let (filter, handle) = reload::Layer::new(filter(&logging.level)?);
    let lines: Boxed = match logging.format {
        LogFormat::Json => Box::new(JsonLayer::new(clock, writer).with_filter(filter)),
        LogFormat::Text => Box::new(tracing_subscriber::fmt::layer().with_writer(writer).with_filter(filter)),
    };
    let mut layers = vec![lines];
    layers.extend(more);
    Ok((tracing_subscriber::registry().with(layers), Level { handle, directives }))
}

/// Whether text can be used as level.
pub fn check_level(directives: &str) -> Result<(), String> {
    filter(directives).map(|_| ())
}

/// A shard moved: the entry that operators search for.
pub fn shard_change(old: &BTreeMap<u32, String>, new: &BTreeMap<u32, String>) {
    tracing::info!(
        json.old_assignment = %json!(old),
        json.new_assignment = %json!(new),
        "Shard assignment changed"
    );
}

/// A replica was seen healthy or not: the entry that operators search for.
pub fn node_health(node_id: &str, status: &str) {
    tracing::info!(node_id, status, "Node health status changed");
}

fn filter(directives: &str) -> Result<EnvFilter, String> {
    let wrong = || {
        let shown: String = directives.chars().take(60).collect();
        format!(
            "{shown:?} is not a level: use error, warn, info, debug, trace, or directives such as info,kube=debug"
        )
    };
    // A lone word is read as the name of a module, which would silence everything.
    let known = |word: &str| {
        ["off", "error", "warn", "info", "debug", "trace"].contains(&word.to_ascii_lowercase().as_str())
    };
    if !directives.contains(['=', ',']) && !known(directives) || directives.len() > 4096 {
        return Err(wrong());
    }
    // The audit is no matter of verbosity; whoever wants none must say so.
    let audit = if directives.contains("audit=") { "" } else { ",audit=info" };
    EnvFilter::builder().parse(format!("{directives}{audit}")).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use shoal_objects::Timestamp;
    use shoal_testkit::CapturedLog;

    use super::*;

    fn logged(level: &str, act: impl FnOnce(&Level)) -> Vec<Value> {
        let (log, logging) =
            (CapturedLog::new(), Logging { level: level.to_owned(), format: LogFormat::Json });
        let clock = Clock::from_fn(|| Timestamp(1_714_557_600_123_456));
        let (subscriber, level) = subscriber(&logging, clock, log.writer(), Vec::new()).unwrap();
        tracing::subscriber::with_default(subscriber, || act(&level));
        log.lines()
    }

    #[test]
    fn a_shard_change_has_the_documented_fields() {
        let lines = logged("info", |_| {
            let old = BTreeMap::from([(0, "a".to_owned()), (1, "a".to_owned())]);
            let new = BTreeMap::from([(0, "a".to_owned()), (1, "b".to_owned())]);
            shard_change(&old, &new);
        });
        assert_eq!(
            lines,
            [json!({
                "timestamp": "2024-05-01T10:00:00.123456Z",
                "level": "info",
                "target": "shoal_runtime::logging",
                "message": "Shard assignment changed",
                "old_assignment": {"0": "a", "1": "a"},
                "new_assignment": {"0": "a", "1": "b"},
            })]
        );
    }

    #[test]
    fn a_change_of_health_has_the_documented_fields() {
        let lines = logged("info", |_| node_health("replica-1", "Unhealthy"));
        let line = &lines[0];
        assert_eq!(line["message"], "Node health status changed");
        assert_eq!((&line["node_id"], &line["status"]), (&"replica-1".into(), &"Unhealthy".into()));
        assert_eq!(line["timestamp"], "2024-05-01T10:00:00.123456Z");
    }

    #[test]
    fn lines_carry_the_fields_of_the_spans_around_them() {
        let lines = logged("info", |_| {
            let outer = tracing::info_span!("controller", controller = "web", attempt = 1);
            let _outer = outer.enter();
            let inner = tracing::info_span!("reconcile", key = "default/a", attempt = tracing::field::Empty);
            inner.record("attempt", 2);
            let _inner = inner.enter();
            tracing::warn!(key = "own", ok = false, "hm\n\"quoted\"");
        });
        let line = &lines[0];
        assert_eq!(line["controller"], "web");
        assert_eq!(line["attempt"], 2, "the inner span wins");
        assert_eq!(line["key"], "own", "the line itself wins");
        assert_eq!((&line["ok"], &line["level"]), (&false.into(), &"warn".into()));
        assert_eq!(line["message"], "hm\n\"quoted\"");
    }

    #[test]
    fn the_level_changes_while_the_process_runs() {
        let lines = logged("warn", |level| {
            tracing::info!("silent");
            level.set("debug").unwrap();
            assert_eq!(level.get(), "debug");
            tracing::debug!("heard");
            assert!(level.set("loud").unwrap_err().starts_with("\"loud\" is not a level"));
            assert!(level.set("a=b=c,=").is_err());
            tracing::debug!("still heard");
            level.set("off").unwrap();
            tracing::error!("silent");
        });
        let messages: Vec<&Value> = lines.iter().map(|line| &line["message"]).collect();
        assert_eq!(messages, ["heard", "still heard"]);
    }
}

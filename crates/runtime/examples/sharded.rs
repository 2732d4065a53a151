//! A sharded controller that writes down every reconcile, for tests with real processes and for the demo.
//!
//! ```text
//! sharded --name NAME --log FILE [--group web] [--slots 256] [--service 5ms] [--selector app=sharded]
//! ```
//!
//! It looks after ConfigMaps with the label. The cluster is that of KUBECONFIG, settings come from `CONFIG_FILE`. Each reconcile is
//! two lines of JSON: one when it begins, with `end` null, and one when it ends, also when it is cut off. Times are microseconds of
//! the machine's clock since boot, so that the lines of several processes can be compared.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use parking_lot::Mutex;
use serde_json::json;
use shoal_runtime::config::{Logging, duration};
use shoal_runtime::logging;
use shoal_runtime::monotonic::Monotonic;
use shoal_runtime::{Action, Context, Controller, Manager, ShardingOptions};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = Arguments::default();
    arguments.read(std::env::args().skip(1))?;
    logging::init(&Logging::default(), Vec::new())?;
    let log = Arc::new(Log {
        file: Mutex::new(OpenOptions::new().create(true).append(true).open(&arguments.log)?),
        clock: Monotonic::system(),
        replica: arguments.name.clone(),
    });
    let options = ShardingOptions::new().name(&arguments.name).slots(arguments.slots);
    let mut manager = Manager::builder(&arguments.group).listen(false).sharded(options).build().await?;
    let service = arguments.service;
    let controller = Controller::of::<ConfigMap>("sharded").with_labels(&arguments.selector).reconcile(
        move |context: Context<ConfigMap>| {
            let log = log.clone();
            async move {
                let _open = Open::begin(log, &context);
                tokio::time::sleep(service).await;
                Ok(Action::done())
            }
        },
    );
    manager.add(controller);
    manager.run().await?;
    Ok(())
}

struct Arguments {
    name: String,
    log: String,
    group: String,
    slots: u32,
    service: Duration,
    selector: String,
}

impl Default for Arguments {
    fn default() -> Arguments {
        Arguments {
            name: format!("process-{}", std::process::id()),
            log: "sharded.jsonl".to_owned(),
            group: "web".to_owned(),
            slots: 256,
            service: Duration::from_millis(5),
            selector: "app=sharded".to_owned(),
        }
    }
}

impl Arguments {
    fn read(&mut self, mut words: impl Iterator<Item = String>) -> Result<(), String> {
        while let Some(word) = words.next() {
            let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
            match word.as_str() {
                "--name" => self.name = value,
                "--log" => self.log = value,
                "--group" => self.group = value,
                "--selector" => self.selector = value,
                "--slots" => {
                    self.slots = value.parse().map_err(|_| format!("{value} is no number of slots"))?;
                }
                "--service" => {
                    self.service = duration::parse(&value).map_err(|error| format!("--service: {error}"))?;
                }
                _ => return Err(format!("{word} is not known: see the head of this example")),
            }
        }
        Ok(())
    }
}

struct Log {
    file: Mutex<File>,
    clock: Monotonic,
    replica: String,
}

/// A reconcile under way.
struct Open {
    log: Arc<Log>,
    line: serde_json::Value,
}

impl Open {
    fn begin(log: Arc<Log>, context: &Context<ConfigMap>) -> Open {
        let object = context.object();
        let shard = context.shard();
        let line = json!({
            "key": context.key().to_string(),
            "uid": object.as_ref().and_then(|object| object.uid()),
            "value": object.as_ref().and_then(|object| object.data.as_ref()?.get("v").cloned()),
            "slot": shard.map(|shard| shard.slot),
            "epoch": shard.map(|shard| shard.epoch),
            "replica": log.replica,
            "start": log.now(),
            "end": null,
        });
        log.write(&line);
        Open { log, line }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.line["end"] = self.log.now().into();
        self.log.write(&self.line);
    }
}

impl Log {
    fn now(&self) -> u64 {
        u64::try_from(self.clock.now().as_micros()).unwrap_or(u64::MAX)
    }

    fn write(&self, line: &serde_json::Value) {
        // One write per line: appended lines of several processes do not mix.
        if let Err(error) = self.file.lock().write_all(format!("{line}\n").as_bytes()) {
            tracing::error!(%error, "the log cannot be written");
        }
    }
}

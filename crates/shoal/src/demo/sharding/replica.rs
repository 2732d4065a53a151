//! The sample controller of the story, one process each: it copies a number within each ConfigMap and writes down when it did.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::core::ObjectMeta;
use shoal_runtime::client::Places;
use shoal_runtime::config::Config;
use shoal_runtime::monotonic::Monotonic;
use shoal_runtime::shard::{ShardListener, ShardingOptions, Shards};
use shoal_runtime::{Action, Context, Controller, Manager, Sharding};
use shoal_sharding::Timers;

use super::trail::{Fact, Micros};

/// The group, its ShardMap and the namespace of its objects.
pub const GROUP: &str = "demo";
/// What the objects say.
pub const CONTENT: &str = "content";
/// What of it was seen by a replica.
pub const SEEN: &str = "demo.shoal.dev/seen";
/// With which fencing token.
pub const EPOCH: &str = "demo.shoal.dev/epoch";

/// One replica of the story's controller
#[derive(clap::Args)]
pub struct Args {
    #[arg(long)]
    kubeconfig: PathBuf,
    #[arg(long)]
    name: String,
    #[arg(long)]
    revision: String,
    /// Where to write down what is done.
    #[arg(long)]
    trail: PathBuf,
    #[arg(long)]
    lease_ms: u64,
    /// How long the work on an object takes.
    #[arg(long)]
    work_ms: u64,
    /// How many objects are worked on at once.
    #[arg(long)]
    workers: usize,
}

/// Facts on their way to the file, each in one write.
struct Trail {
    file: File,
    clock: Monotonic,
}

impl Trail {
    fn open(path: &Path) -> anyhow::Result<Trail> {
        let file = File::options().create(true).append(true).open(path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Trail { file, clock: Monotonic::system() })
    }

    fn now(&self) -> Micros {
        u64::try_from(self.clock.now().as_micros()).unwrap_or(u64::MAX)
    }

    fn write(&self, fact: &Fact) {
        // Without a trail there is no proof: better no replica than an unproven one.
        if (&self.file).write_all(fact.line().as_bytes()).is_err() {
            std::process::abort();
        }
    }
}

/// One reconcile on record, however it ends.
struct Work {
    trail: Arc<Trail>,
    start: Micros,
    effect: Micros,
    seen: u64,
    slot: u32,
    epoch: u64,
    key: u32,
}

impl Work {
    fn begin(trail: &Arc<Trail>, slot: u32, epoch: u64, key: u32) -> Work {
        let start = trail.now();
        trail.write(&Fact::Started { start, slot, epoch, key });
        Work { trail: trail.clone(), start, effect: 0, seen: 0, slot, epoch, key }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let Work { start, effect, seen, slot, epoch, key, .. } = *self;
        let end = self.trail.now();
        self.trail.write(&Fact::Ended { start, end, effect, seen, slot, epoch, key });
    }
}

/// Writes down which slots come and go.
struct Listener(Arc<Trail>);

impl ShardListener for Listener {
    async fn gained(&self, shards: Shards) {
        self.0.write(&Fact::Gained { at: self.0.now(), slots: shards.slots, epoch: shards.epoch });
    }

    async fn lost(&self, shards: Shards) {
        self.0.write(&Fact::Lost { at: self.0.now(), slots: shards.slots, epoch: shards.epoch });
    }
}

/// Works until it is told to stop.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let trail = Arc::new(Trail::open(&args.trail)?);
    let places = Places { kubeconfig: Some(args.kubeconfig.into()), ..Places::default() };
    let config = Config::parse(&config(args.lease_ms, args.workers), &|_| None)?;
    let options = ShardingOptions::new()
        .namespace(GROUP)
        .name(&args.name)
        .revision(&args.revision)
        .move_budget(1024)
        .listener(Listener(trail.clone()), Duration::from_secs(1));
    let mut manager =
        Manager::builder(GROUP).places(places).config(config).listen(false).sharded(options).build().await?;
    tokio::spawn(count_objects(manager.sharding().cloned(), trail.clone()));
    let work = Duration::from_millis(args.work_ms);
    manager.add(Controller::of::<ConfigMap>("demo").in_namespace(GROUP).reconcile(
        move |context: Context<ConfigMap>| {
            let trail = trail.clone();
            async move { reconcile(&context, &trail, work).await }
        },
    ));
    Ok(manager.run().await?)
}

/// Writes down now and then how many objects this replica keeps.
async fn count_objects(sharding: Option<Sharding>, trail: Arc<Trail>) {
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    while let Some(sharding) = &sharding {
        ticks.tick().await;
        let shown = sharding.inspect();
        let sum = |key: &str| {
            shown["caches"].as_array().into_iter().flatten().filter_map(|cache| cache[key].as_u64()).sum()
        };
        let (objects, bytes, received) = (sum("objects"), sum("bytes"), sum("received"));
        trail.write(&Fact::Cached { at: trail.now(), objects, bytes, received });
    }
}

async fn reconcile(
    context: &Context<ConfigMap>,
    trail: &Arc<Trail>,
    takes: Duration,
) -> shoal_runtime::Result<Action> {
    let (Some(object), Some(shard)) = (context.object(), context.shard()) else { return Ok(Action::done()) };
    let Some(key) = key(&object.name_any()) else { return Ok(Action::done()) };
    let mut work = Work::begin(trail, shard.slot, shard.epoch, key);
    let content = object.data.as_ref().and_then(|data| data.get(CONTENT)).cloned().unwrap_or_default();
    work.seen = content.parse().unwrap_or_default();
    tokio::time::sleep(takes).await;
    if object.annotations().get(SEEN) != Some(&content) {
        let annotations = [(SEEN.to_owned(), content), (EPOCH.to_owned(), shard.epoch.to_string())];
        let metadata = ObjectMeta {
            name: Some(object.name_any()),
            namespace: object.namespace(),
            annotations: Some(annotations.into()),
            ..ObjectMeta::default()
        };
        let before = trail.now();
        context.writer().apply(&ConfigMap { metadata, ..ConfigMap::default() }, Some(&object)).await?;
        work.effect = before;
    }
    Ok(Action::done())
}

/// The number in an object's name.
pub fn key(name: &str) -> Option<u32> {
    name.strip_prefix("item-")?.parse().ok()
}

/// Timers that fit the Lease.
pub fn timers(lease: Duration) -> Timers {
    let (renew_deadline, retry_period) = (lease * 2 / 3, lease / 6);
    Timers { lease_duration: lease, renew_deadline, retry_period, ..Timers::default() }
}

fn config(lease: u64, workers: usize) -> String {
    let timers = timers(Duration::from_millis(lease));
    let (deadline, retry) = (timers.renew_deadline.as_millis(), timers.retry_period.as_millis());
    let (interval, patience) = (lease / 3, lease * 2);
    format!(
        "workers: {workers}
state: {{leaseDuration: {lease}ms, renewDeadline: {deadline}ms, retryPeriod: {retry}ms, syncInterval: {lease}ms}}
node: {{healthCheckInterval: {interval}ms, healthCheckTimeout: {retry}ms, nodeTimeout: {patience}ms}}
sharding: {{rebalanceInterval: 1s}}
logging: {{level: warn}}
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_of_a_replica_is_accepted_for_every_lease() {
        for lease in [2_000, 3_000, 10_000, 15_000] {
            Config::parse(&config(lease, 4), &|_| None).unwrap();
        }
    }

    #[test]
    fn objects_are_known_by_their_number() {
        assert_eq!((key("item-17"), key("item-"), key("kube-root-ca.crt")), (Some(17), None, None));
    }
}

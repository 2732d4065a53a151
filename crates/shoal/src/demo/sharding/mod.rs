//! The story of sharding with real processes: replicas of a sample controller share objects that change all the time, and are killed,
//! stopped, cut off, replaced and scaled. Every reconcile is written down; at the end the trails must prove that no object ever had
//! two replicas at once and none was left alone.

mod figures;
mod fleet;
mod intervals;
mod load;
mod picture;
pub mod replica;
mod trail;
mod verdict;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use rustix::process::Signal;
use shoal_objects::Clock;
use shoal_runtime::client::{Options, Places, infer_from};
use shoal_runtime::monotonic::Monotonic;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use fleet::Fleet;
use intervals::merged;
use load::Load;
use replica::GROUP;
use trail::Micros;
use verdict::{Chapter, Figures, Life, RESTART, Verdict, judge};

use crate::demo::process::Server;
use crate::demo::stage::Stage;
use crate::shards::{Clocks, Group, Snapshot, find};

/// How the story goes.
#[derive(clap::Args)]
pub struct Args {
    /// How many objects
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    objects: u32,
    /// How many of them change each second
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=5_000))]
    changes: u32,
    /// How long a Lease lasts, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(2..=60))]
    lease: u64,
    /// How many replicas at most
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(3..=20))]
    replicas: u32,
    /// How long the work on an object takes, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 2)]
    work: u64,
    /// How many objects a replica works on at once
    #[arg(long, value_name = "N", default_value_t = 8)]
    workers: usize,
    /// Play the middle part, from the kill to the rolling restart, so many times
    #[arg(long, value_name = "N", default_value_t = 1)]
    rounds: u32,
    /// Measure what bench asks for, too
    #[arg(long, hide = true)]
    figures: bool,
    /// Keep trails and logs in this new folder
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Print the verdict as JSON and nothing else
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Json,
}

impl Default for Args {
    fn default() -> Args {
        Args {
            objects: 2_000,
            changes: 100,
            lease: 5,
            replicas: 5,
            work: 2,
            workers: 8,
            rounds: 1,
            figures: false,
            keep: None,
            output: None,
        }
    }
}

/// What a takeover may cost beyond what the protocol takes: reading the slots anew and working through the queue.
const READING: Duration = Duration::from_secs(1);
/// Nothing but the API server: the story is about others.
const ALONE: [&str; 2] =
    ["--without", "controllers,scheduler,node,metrics,application,etcd,kubeocean,console"];
/// How long the group may take to come to rest before the story is given up.
const PATIENCE: Duration = Duration::from_secs(60);

/// Tells the story and ends with an error if a promise was broken.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let folder = match &args.keep {
        Some(path) => Folder::Kept(path.clone()),
        None => Folder::Temporary(tempfile::tempdir().context("cannot make a temporary folder")?),
    };
    if let Folder::Kept(path) = &folder {
        std::fs::create_dir_all(path)
            .with_context(|| format!("cannot make the folder {}", path.display()))?;
    }
    let stage = Stage::new(args.output.is_some());
    let interrupted = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    let verdict = tokio::select! {
        verdict = tell(args, folder.path(), &stage) => verdict?,
        () = interrupted => bail!("interrupted; all processes of the story were ended"),
    };
    stage.end();
    match args.output {
        Some(Output::Json) => crate::shards::print(&(serde_json::to_string_pretty(&verdict)? + "\n")),
        None => crate::shards::print(&format!("\n{}", verdict.text())),
    }
    if !verdict.overlaps.is_empty() {
        // Told apart from a wait that was too long, which a machine that stood still can cause as well.
        drop(folder);
        let _ = writeln!(std::io::stderr(), "error: two replicas had one object at once; {LOOK}");
        std::process::exit(TWO_AT_ONCE);
    }
    match verdict.is_good() {
        true => Ok(()),
        false => bail!("a promise was broken; {LOOK}"),
    }
}

const LOOK: &str = "run again with --keep DIR and look at the trails";
/// What the program ends with if safety itself was broken.
const TWO_AT_ONCE: i32 = 2;

enum Folder {
    Kept(PathBuf),
    Temporary(tempfile::TempDir),
}

impl Folder {
    fn path(&self) -> &Path {
        match self {
            Folder::Kept(path) => path,
            Folder::Temporary(folder) => folder.path(),
        }
    }
}

/// Everything on stage.
struct Play<'a> {
    stage: &'a Stage,
    server: Server,
    fleet: Fleet,
    load: Arc<Load>,
    group: Option<Group>,
    client: kube::Client,
    lease: Duration,
    /// How long creating an object took without any replica.
    created: Duration,
    chapters: Vec<Chapter>,
    outages: Vec<(Micros, Micros)>,
    changing: Option<JoinHandle<()>>,
    figures: Option<Figures>,
}

async fn tell(args: &Args, folder: &Path, stage: &Stage) -> anyhow::Result<Verdict> {
    let binary = std::env::current_exe().context("cannot find this program")?;
    let lease = Duration::from_secs(args.lease);
    let server = Server::start(&binary, folder, &ALONE)?;
    let places = Places { kubeconfig: Some(server.kubeconfig.clone().into()), ..Places::default() };
    let client = infer_from(&places, &Options::default()).await?;
    let load = Load::new(client.clone(), args.objects);
    let fleet = Fleet::new(&binary, folder, &server, lease, Duration::from_millis(args.work), args.workers);
    let mut play = Play {
        stage,
        server,
        fleet,
        load: load.clone(),
        group: None,
        client,
        lease,
        created: Duration::ZERO,
        chapters: Vec::new(),
        outages: Vec::new(),
        changing: None,
        figures: None,
    };
    stage.say(&format!("a cluster runs; creating {} objects", args.objects));
    load.create().await?;
    if args.figures {
        play.created = load.creation_takes("before").await?;
    }
    let watching = tokio::spawn(load.clone().watch_tokens());
    let outcome = play.story(args).await;
    load.end();
    if outcome.is_ok() {
        if let Some(changing) = play.changing.take() {
            changing.await?;
        }
        stage.say("no more changes; every object is to be up to date");
        // Whether that took too long is for the trails to say.
        load.settled(PATIENCE).await?;
        sleep(Duration::from_millis(300)).await;
    }
    watching.abort();
    outcome?;
    play.finish().await
}

impl Play<'_> {
    /// How long a change may wait, as documented; time without an API server does not count.
    fn bound(&self) -> Duration {
        replica::timers(self.lease).takeover() + READING
    }

    async fn story(&mut self, args: &Args) -> anyhow::Result<()> {
        let most = args.replicas as usize;
        self.begin("one replica takes everything");
        self.fleet.start("1")?;
        self.at_rest(1).await?;
        self.load.settled(PATIENCE * 4).await?;
        // Before that nobody was there to be waited for.
        self.outages.push((0, self.fleet.now()));
        self.changing = Some(tokio::spawn(self.load.clone().keep_changing(args.changes)));
        self.stage
            .say(&format!("  every object is up to date; from now on {} change each second", args.changes));
        self.begin(&format!("scale from 1 to {most}"));
        if args.figures {
            self.measure(most).await?;
        } else {
            for _ in 1..most {
                self.fleet.start("1")?;
            }
        }
        self.at_rest(most).await?;

        let mut revision = 1;
        for _ in 0..args.rounds {
            revision += 1;
            self.middle(most, &(revision - 1).to_string(), &revision.to_string()).await?;
        }

        self.begin(&format!("scale from {most} to 2"));
        let leaving: Vec<usize> = self.fleet.running().into_iter().skip(2).collect();
        for at in &leaving {
            self.fleet.ask_to_leave(*at);
        }
        for at in leaving {
            self.fleet.left(at, PATIENCE).await?;
        }
        self.at_rest(2).await
    }

    async fn middle(&mut self, most: usize, old: &str, new: &str) -> anyhow::Result<()> {
        let victim = self.pick(1)?;
        self.begin(&format!("kill -9 of {}", self.fleet.replicas[victim].name));
        self.fleet.kill(victim);
        self.at_rest(most - 1).await?;
        self.fleet.start(old)?;
        self.at_rest(most).await?;

        let victim = self.pick(0)?;
        let pause = self.lease.mul_f64(1.5) + Duration::from_secs(1);
        self.begin(&format!(
            "SIGSTOP of {} for {:.1} s",
            self.fleet.replicas[victim].name,
            pause.as_secs_f64()
        ));
        self.fleet.stop(victim);
        self.pass(pause).await;
        self.fleet.resume(victim);
        self.at_rest(most).await?;

        let outage = self.lease.mul_f64(1.3);
        self.begin(&format!("no API server for {:.1} s", outage.as_secs_f64()));
        let began = self.fleet.now();
        self.fleet.cut_off(true);
        self.server.process.signal(Signal::STOP);
        sleep(outage).await;
        self.server.process.signal(Signal::CONT);
        self.fleet.cut_off(false);
        self.outages.push((began, self.fleet.now()));
        self.at_rest(most).await?;

        self.begin(&format!("{RESTART}, one more at a time"));
        for at in self.fleet.running() {
            self.fleet.start(new)?;
            self.joined(most + 1).await?;
            self.fleet.ask_to_leave(at);
            self.fleet.left(at, PATIENCE).await?;
        }
        self.at_rest(most).await
    }

    fn pick(&self, nth: usize) -> anyhow::Result<usize> {
        self.fleet.running().get(nth).copied().context("no replica is left to play with")
    }

    fn begin(&mut self, title: &str) {
        let now = self.fleet.now();
        if let Some(last) = self.chapters.last_mut() {
            last.to = now;
        }
        self.stage.say(&format!("▶ {title}"));
        let chapter =
            Chapter { title: title.to_owned(), from: now, to: Micros::MAX, longest_wait_seconds: 0.0 };
        self.chapters.push(chapter);
    }

    /// Looks at the group, if it can be seen.
    async fn look(&mut self) -> Option<Snapshot> {
        if self.group.is_none() {
            let clocks = Clocks { day: Clock::system(), own: Monotonic::system() };
            let found = find(self.client.clone(), clocks, Some(GROUP), Some(GROUP));
            self.group = timeout(Duration::from_secs(2), found).await.ok()?.ok();
        }
        let snapshot = timeout(Duration::from_secs(2), self.group.as_ref()?.read()).await.ok()?.ok()?;
        let below = format!("{} changes so far", self.load.changes().len());
        self.stage.draw(|colours| picture::picture(&snapshot, &below, colours));
        Some(snapshot)
    }

    async fn pass(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.look().await;
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until so many replicas are members.
    async fn joined(&mut self, replicas: usize) -> anyhow::Result<()> {
        self.until(&format!("{replicas} replicas"), |members, _| members == replicas).await
    }

    /// Waits until so many replicas share all slots evenly and nothing moves.
    async fn at_rest(&mut self, replicas: usize) -> anyhow::Result<()> {
        let began = Instant::now();
        let wanted = format!("{replicas} replicas that share all slots");
        self.until(&wanted, |members, even| members == replicas && even).await?;
        self.stage.say(&format!("  {wanted} evenly after {:.1} s", began.elapsed().as_secs_f64()));
        // So that every chapter has changes of its own.
        self.pass(Duration::from_secs(1)).await;
        Ok(())
    }

    /// Waits for something about the number of healthy members and whether they share all slots evenly.
    async fn until(&mut self, what: &str, done: impl Fn(usize, bool) -> bool) -> anyhow::Result<()> {
        let end = Instant::now() + PATIENCE;
        let mut last = String::new();
        while Instant::now() < end {
            for told in self.fleet.revive()? {
                self.stage.say(&format!("  {told}"));
            }
            if let Some(snapshot) = self.look().await {
                let view = crate::shards::view(&snapshot);
                let healthy: Vec<u32> =
                    view.replicas.iter().filter(|r| r.status == "Healthy").map(|r| r.slots).collect();
                let (most, fewest) = (healthy.iter().max().copied(), healthy.iter().min().copied());
                let near = most.unwrap_or_default() - fewest.unwrap_or_default() <= 1;
                let all = healthy.iter().sum::<u32>() == view.slots && view.slots > 0;
                let even = near && all && view.moving == 0 && view.unowned == 0;
                if done(healthy.len(), even) {
                    return Ok(());
                }
                last = format!(
                    "{} healthy with {healthy:?} slots, {} on the move, {} unowned {:?}",
                    healthy.len(),
                    view.moving,
                    view.unowned,
                    view.problems
                );
            }
            sleep(Duration::from_millis(100)).await;
        }
        bail!("there are not {what} after {PATIENCE:?}: {last}")
    }

    /// Stops everything and reads the trails.
    async fn finish(mut self) -> anyhow::Result<Verdict> {
        if let Some(last) = self.chapters.last_mut() {
            last.to = self.fleet.now();
        }
        let running = self.fleet.running();
        running.iter().for_each(|at| self.fleet.ask_to_leave(*at));
        for at in running {
            self.fleet.left(at, PATIENCE).await?;
        }
        let mut lives = Vec::new();
        for replica in &self.fleet.replicas {
            let text = std::fs::read_to_string(&replica.trail)
                .with_context(|| format!("cannot read {}", replica.trail.display()))?;
            lives.push(Life {
                facts: trail::read(&text).map_err(anyhow::Error::msg)?,
                pauses: replica.pauses.clone(),
                gone: replica.gone.unwrap_or(Micros::MAX),
                killed: replica.killed,
            });
        }
        let bound = self.bound();
        let turned_back = self.load.turned_back();
        let slow = merged(self.load.slow());
        let slow_seconds = slow.iter().map(|(from, to)| to - from).sum::<Micros>() as f64 / 1e6;
        // A machine that does ten other things is no fault of the replicas'.
        let left_out = merged(self.outages.into_iter().chain(slow).collect());
        let verdict = judge(&lives, &self.load.changes(), &left_out, bound, self.chapters, &turned_back);
        let verdict = verdict.leaving_out(slow_seconds);
        Ok(Verdict { figures: self.figures, ended_themselves: self.fleet.aborted, ..verdict })
    }
}

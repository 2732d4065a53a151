//! `shoal shards`: who works on what, what would move, and what people ask for; against any cluster.
//!
//! Pure: `snapshot` (objects → core types), `view`, `heat`, `dry_run`, `edits`, `history`, `migrate`, `text`.
//! IO: `cluster` (requests) and this file (order of steps, printing).

mod cluster;
mod dry_run;
mod edits;
mod heat;
mod history;
mod migrate;
mod snapshot;
mod text;
mod view;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{anyhow, bail};
use clap::{ArgAction, Subcommand, ValueEnum};
use serde::Serialize;
use shoal_objects::{Clock, Entropy};
use shoal_runtime::client::{Options, Places, infer_from};
use shoal_runtime::monotonic::Monotonic;
use shoal_sharding::{Moment, ReplicaId};
use tokio::time::Instant;

use cluster::Written;
pub use cluster::{Clocks, Group, find};
use dry_run::{Suppose, dry_run};
use edits::Goal;
pub use heat::{heat_map, letter};
use migrate::{Change, Found, Vigil};
pub use snapshot::Snapshot;
pub use view::view;

/// Show and change which replica of a sharded controller works on which objects
#[derive(clap::Args)]
#[command(after_help = "Examples:
  shoal shards status                      # replicas, ranges of slots, and a map of all slots
  shoal shards plan --drain web-0          # what would move if web-0 were drained; changes nothing
  shoal shards drain web-0                 # hand everything over, then wait until it is done
  shoal shards pin 0-127 web-1             # these slots stay with web-1
  shoal shards --group web-apps -n prod history

A replica is given by its name, which survives a restart, or by its id, which does not.")]
pub struct Args {
    #[command(subcommand)]
    command: Command,

    /// The kubeconfig file [default: $KUBECONFIG, else ~/.kube/config, else the pod's account]
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The namespace of the group [default: that of the kubeconfig's context]
    #[arg(short, long, global = true, value_name = "NAME")]
    namespace: Option<String>,

    /// The group, which is the name of its ShardMap; not needed if there is only one
    #[arg(long, global = true, value_name = "NAME")]
    group: Option<String>,
}

#[derive(Subcommand)]
enum Command {
    /// Show replicas, ranges of slots and a map of all slots
    Status {
        #[arg(short, long, value_enum, default_value_t)]
        output: Output,
        /// Show all ranges
        #[arg(long)]
        all: bool,
    },
    /// Show what would move and why; changes nothing
    #[command(after_help = "Examples:
  shoal shards plan                        # what the replicas are about to do
  shoal shards plan --join 2               # what two more replicas would get
  shoal shards plan --drain web-0 --drain web-1")]
    Plan {
        #[arg(short, long, value_enum, default_value_t)]
        output: Output,
        /// Suppose that this replica is drained
        #[arg(long, value_name = "REPLICA")]
        drain: Vec<String>,
        /// Suppose that so many more replicas join
        #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=500))]
        join: u32,
    },
    /// Hand over all slots of a replica and give it no new ones
    #[command(
        after_help = "The replica works on until others are ready: no object is left alone, none is rewritten.
It stays drained until `shoal shards undrain`, also across restarts if it is given by name."
    )]
    Drain {
        /// Its name or id
        replica: String,
        #[command(flatten)]
        patience: Patience,
    },
    /// Let a drained replica have slots again
    Undrain {
        /// Its name or id
        replica: String,
    },
    /// Move a slot to a replica once; it stays until balance asks for something else
    #[command(
        after_help = "The slot is pinned while it moves. Interrupted, or with --wait=false, the pin stays: `shoal shards unpin`."
    )]
    Move {
        /// A slot or a range of slots, 5 or 0-127
        slot: String,
        /// Name or id of the replica
        replica: String,
        #[command(flatten)]
        patience: Patience,
    },
    /// Move slots to a replica and keep them there
    Pin {
        /// Slots or ranges of slots, 5 or 0-127
        #[arg(required = true, value_name = "SLOT")]
        slots: Vec<String>,
        /// Name or id of the replica
        replica: String,
        #[command(flatten)]
        patience: Patience,
    },
    /// Let slots go where balance wants them
    Unpin {
        /// Slots or ranges of slots, 5 or 0-127
        #[arg(required_unless_present = "all", value_name = "SLOT")]
        slots: Vec<String>,
        /// All of them
        #[arg(long, conflicts_with = "slots")]
        all: bool,
    },
    /// Show what moved, who came and who went
    History {
        #[arg(short, long, value_enum, default_value_t)]
        output: Output,
        /// At most so many lines, the newest; 0 for all
        #[arg(long, value_name = "N", default_value_t = 30)]
        limit: usize,
    },
    /// Change the number of slots, the key function or the algorithm, while no replica runs
    #[command(after_help = "How to:
  kubectl scale deployment/web --replicas=0      # every replica hands in its Lease
  shoal shards migrate --slots 4096              # waits for Leases of crashed ones, then switches
  kubectl scale deployment/web --replicas=3      # with the new settings in its configuration

The time without anybody at work is measured and printed.")]
    Migrate {
        #[command(flatten)]
        change: Change,
        #[command(flatten)]
        patience: Patience,
    },
}

/// How to print.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Output {
    /// Tables for people
    #[default]
    Text,
    Json,
    Yaml,
}

/// Whether and how long to wait.
#[derive(Clone, Copy, clap::Args)]
struct Patience {
    /// Wait until it is done, and show how far it is
    #[arg(long, action = ArgAction::Set, default_value_t = true, default_missing_value = "true",
          num_args = 0..=1, require_equals = true)]
    wait: bool,
    /// Give up waiting after so many seconds; what was asked for stays
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    timeout: u64,
}

/// Time between two looks at the cluster while waiting.
const GLANCE: Duration = Duration::from_millis(300);

/// Finds the group and does what the command says.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let mut places = Places::of_this_process();
    if let Some(file) = args.kubeconfig {
        places.kubeconfig = Some(file.into());
    }
    let client = infer_from(&places, &Options::default()).await?;
    let clocks = Clocks { day: Clock::system(), own: Monotonic::system() };
    let group = find(client, clocks, args.namespace.as_deref(), args.group.as_deref()).await?;
    let mut screen = Screen::of_this_process();
    execute(args.command, &group, &mut screen).await
}

async fn execute(command: Command, group: &Group, screen: &mut Screen) -> anyhow::Result<()> {
    match command {
        Command::Status { output, all } => {
            let snapshot = group.read().await?;
            let view = view(&snapshot);
            match output {
                Output::Text => screen.say(&status_text(&snapshot, &view, all, screen.colours)),
                output => screen.say(&formatted(&view, output)?),
            }
        }
        Command::Plan { output, drain, join } => {
            let snapshot = group.read().await?;
            for name in &drain {
                edits::resolve(&snapshot, name).map_err(anyhow::Error::msg)?;
            }
            let planned = dry_run(&snapshot, &Suppose { drained: drain, joined: join });
            let planned = planned.map_err(anyhow::Error::msg)?;
            match output {
                Output::Text => screen.say(&planned.text()),
                output => screen.say(&formatted(&planned, output)?),
            }
        }
        Command::History { output, limit } => {
            let snapshot = group.read().await?;
            let entries = history::history(&snapshot, &group.events().await?);
            match output {
                Output::Text => {
                    let limit = if limit == 0 { usize::MAX } else { limit };
                    screen.say(&history::text(&entries, limit, snapshot.taken));
                }
                output => screen.say(&formatted(&entries, output)?),
            }
        }
        Command::Drain { replica, patience } => drain(group, &replica, patience, screen).await?,
        Command::Undrain { replica } => undrain(group, &replica, screen).await?,
        Command::Move { slot, replica, patience } => {
            pin(group, &[slot], &replica, patience, Keep::UntilThere, screen).await?;
        }
        Command::Pin { slots, replica, patience } => {
            pin(group, &slots, &replica, patience, Keep::Forever, screen).await?;
        }
        Command::Unpin { slots, all } => unpin(group, &slots, all, screen).await?,
        Command::Migrate { change, patience } => migrate_group(group, &change, patience, screen).await?,
    }
    Ok(())
}

/// The tables and the map of all slots.
fn status_text(snapshot: &Snapshot, view: &view::View, all: bool, colours: bool) -> String {
    let mut text = view::tables(view, all);
    if let Some(map) = snapshot.map() {
        let ids: Vec<&str> = view.replicas.iter().map(|replica| replica.id.as_str()).collect();
        let loads: Vec<(u32, u32)> =
            snapshot.leases.iter().flat_map(|lease| lease.object.record.loads.iter().copied()).collect();
        text.push('\n');
        text += &heat_map(map, &ids, &loads, colours);
    }
    text
}

fn formatted(value: &impl Serialize, output: Output) -> anyhow::Result<String> {
    Ok(match output {
        Output::Yaml => serde_saphyr::to_string(value)?,
        _ => serde_json::to_string_pretty(value)? + "\n",
    })
}

async fn drain(group: &Group, name: &str, patience: Patience, screen: &mut Screen) -> anyhow::Result<()> {
    let mut new = false;
    let snapshot = group
        .edit(|snapshot, spec| {
            let ids = edits::resolve(snapshot, name).map_err(anyhow::Error::msg)?;
            edits::others_take(snapshot, &ids).map_err(anyhow::Error::msg)?;
            new = edits::drain(spec, name);
            Ok(new)
        })
        .await?;
    let ids = edits::resolve(&snapshot, name).map_err(anyhow::Error::msg)?;
    screen.say(&format!("{name} {}\n", if new { "is to be drained" } else { "was drained before" }));
    if patience.wait {
        let took = wait(group, patience, screen, |_| Ok(Goal::Empty(ids.clone()))).await?;
        screen.say(&format!("{name} has no slots any more ({})\n", text::age(took)));
    }
    Ok(())
}

async fn undrain(group: &Group, name: &str, screen: &mut Screen) -> anyhow::Result<()> {
    group
        .edit(|snapshot, spec| {
            // Asked for by name and taken back by id, or the other way round.
            let mut names = vec![name];
            let records = snapshot.leases.iter().map(|lease| &lease.object.record);
            for record in records.filter(|r| r.replica.as_str() == name || &*r.name == name) {
                names.extend([record.replica.as_str(), &*record.name].iter().filter(|n| !n.is_empty()));
            }
            match edits::undrain(spec, &names) {
                true => Ok(true),
                false => Err(anyhow!("{name} is not drained; {}", drained(snapshot))),
            }
        })
        .await?;
    screen.say(&format!("{name} may have slots again\n"));
    Ok(())
}

fn drained(snapshot: &Snapshot) -> String {
    match snapshot.spec.cordoned.is_empty() {
        true => "no replica is".to_owned(),
        false => format!("drained are {}", snapshot.spec.cordoned.join(", ")),
    }
}

/// How long a pin is to last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    UntilThere,
    Forever,
}

async fn pin(
    group: &Group,
    texts: &[String],
    name: &str,
    patience: Patience,
    keep: Keep,
    screen: &mut Screen,
) -> anyhow::Result<()> {
    let mut ranges = Vec::new();
    group
        .edit(|snapshot, spec| {
            let map = snapshot.sound_map().map_err(anyhow::Error::msg)?;
            ranges = edits::slots(texts, map).map_err(anyhow::Error::msg)?;
            let ids = edits::resolve(snapshot, name).map_err(anyhow::Error::msg)?;
            let view = view(snapshot);
            let targets = view.replicas.iter().filter(|r| ids.iter().any(|id| id.as_str() == r.id));
            let able = targets.clone().any(|replica| replica.status == "Healthy" && !replica.drained);
            if let Some(replica) = targets.clone().next().filter(|_| !able) {
                bail!(
                    "{name} takes no slots: it is {}{}; choose another one{}",
                    replica.status,
                    if replica.drained { " and drained" } else { "" },
                    if replica.drained {
                        format!(" or run `shoal shards undrain {name}`")
                    } else {
                        String::new()
                    }
                );
            }
            let before = spec.clone();
            edits::pin(spec, &ranges, name);
            Ok(*spec != before)
        })
        .await?;
    let shown = ranges.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    screen.say(&format!("slots {shown} are pinned to {name}\n"));
    if !patience.wait {
        return Ok(());
    }
    let goal = |snapshot: &Snapshot| {
        let ids = edits::resolve(snapshot, name).map_err(anyhow::Error::msg)?;
        Ok(Goal::At(ranges.clone(), ids))
    };
    let took = wait(group, patience, screen, goal).await?;
    screen.say(&format!("slots {shown} are at {name} ({})\n", text::age(took)));
    if keep == Keep::UntilThere {
        group.edit(|_, spec| Ok(edits::unpin(spec, Some(&ranges)) > 0)).await?;
    }
    Ok(())
}

async fn unpin(group: &Group, texts: &[String], all: bool, screen: &mut Screen) -> anyhow::Result<()> {
    let mut gone = 0;
    group
        .edit(|snapshot, spec| {
            let ranges = match all {
                true => None,
                false => {
                    let map = snapshot.sound_map().map_err(anyhow::Error::msg)?;
                    Some(edits::slots(texts, map).map_err(anyhow::Error::msg)?)
                }
            };
            gone = edits::unpin(spec, ranges.as_deref());
            match gone {
                0 => Err(anyhow!(
                    "none of these slots is pinned; `shoal shards status -o yaml` shows what is there"
                )),
                _ => Ok(true),
            }
        })
        .await?;
    screen.say(&format!("{} no longer pinned\n", text::count(gone, "slot")));
    Ok(())
}

async fn migrate_group(
    group: &Group,
    change: &Change,
    patience: Patience,
    screen: &mut Screen,
) -> anyhow::Result<()> {
    let moment = || Moment::from_micros(group.clocks.own.now().as_micros() as u64);
    let first = group.read().await?;
    let identity = &first.sound_map().map_err(anyhow::Error::msg)?.identity;
    let identity = Arc::new(migrate::changed(identity, change).map_err(anyhow::Error::msg)?);
    let id = ReplicaId::new(format!("migrate-{}", Entropy::system().name_suffix(5)));
    let mut vigil = Vigil::new(id);
    let deadline = Instant::now() + Duration::from_secs(patience.timeout);
    let snapshot = loop {
        let snapshot = group.read().await?;
        let map = snapshot.sound_map().map_err(anyhow::Error::msg)?;
        match vigil.look(&snapshot, map, moment()) {
            Found::Clear => {
                let switched = vigil.switch(map, &identity).map_err(anyhow::Error::msg)?;
                if let Written::Done = group.replace_record(&snapshot, &switched).await? {
                    break snapshot;
                }
            }
            Found::Silent(leases) => {
                for (tombstone, version) in leases {
                    screen.progress(&format!("ending the Lease of {}, which is silent", tombstone.replica));
                    // If somebody was faster, the next look tells.
                    group.bury(&tombstone, version).await?;
                }
            }
            Found::Waiting(left, id) if patience.wait && Instant::now() < deadline => {
                screen.progress(&format!("waiting for the Lease of {id} to end: {} left", text::age(left)));
            }
            // The core says how.
            Found::Waiting(..) | Found::Alive(_) => {
                let refused = vigil.switch(map, &identity).err();
                bail!("{}", refused.unwrap_or_else(|| "replicas run".to_owned()));
            }
        }
        tokio::time::sleep(GLANCE).await;
    };
    let switched = group.clocks.day.now();
    let stopped = migrate::last_sign(&first).max(migrate::last_sign(&snapshot));
    screen.say(&format!(
        "{} now has {} by {}, {}\n",
        group.name(),
        text::count(identity.slots.get() as usize, "slot"),
        identity.key_function.id(),
        identity.algorithm
    ));
    if !first.spec.pins.is_empty() && change.slots.is_some() {
        screen.say("note: pins are still there and mean other objects now; look at them with `shoal shards status -o yaml`\n");
    }
    let owned = match patience.wait {
        true => {
            screen
                .say("start the controller with the new settings; waiting for every slot to have an owner\n");
            wait(group, patience, screen, |_| Ok(Goal::Owned)).await.ok()
        }
        false => None,
    };
    let now = group.clocks.day.now();
    screen.say(&(migrate::gap(stopped, switched, owned.map(|_| now), now) + "\n"));
    Ok(())
}

/// Waits until nothing is left to do, and shows how far it is. How long it took.
async fn wait(
    group: &Group,
    patience: Patience,
    screen: &mut Screen,
    goal: impl Fn(&Snapshot) -> anyhow::Result<Goal>,
) -> anyhow::Result<Duration> {
    let began = Instant::now();
    loop {
        let snapshot = group.read().await?;
        let said = match snapshot.sound_map() {
            Ok(map) => {
                let (left, said) = edits::left(map, &goal(&snapshot)?);
                if left == 0 {
                    screen.clear();
                    return Ok(began.elapsed());
                }
                said
            }
            Err(problem) => problem,
        };
        screen.progress(&said);
        if began.elapsed() > Duration::from_secs(patience.timeout) {
            screen.clear();
            bail!(
                "not done after {} s: {said}; it goes on by itself, look with `shoal shards status`",
                patience.timeout
            );
        }
        tokio::time::sleep(GLANCE).await;
    }
}

/// Writes to standard output. Whoever reads may have gone; that is no reason to fail.
pub fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Where results and progress go.
struct Screen {
    out: Box<dyn Write + Send>,
    progress: Box<dyn Write + Send>,
    colours: bool,
    /// Progress can be written over.
    live: bool,
    last: String,
}

impl Screen {
    fn of_this_process() -> Screen {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Screen {
            colours: std::io::stdout().is_terminal() && !set("NO_COLOR") && !dumb,
            live: std::io::stderr().is_terminal() && !dumb,
            out: Box::new(std::io::stdout()),
            progress: Box::new(std::io::stderr()),
            last: String::new(),
        }
    }

    /// A result. Whoever reads may have gone; that is no reason to fail.
    fn say(&mut self, text: &str) {
        self.clear();
        let _ = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
    }

    /// How far it is: one line that is written over on a terminal, else a line per change.
    fn progress(&mut self, line: &str) {
        let line = text::tame(line);
        if line == self.last {
            return;
        }
        let _ = match self.live {
            true => write!(self.progress, "\r\u{1b}[2K{line}"),
            false => writeln!(self.progress, "{line}"),
        };
        let _ = self.progress.flush();
        self.last = line;
    }

    fn clear(&mut self) {
        if self.live && !self.last.is_empty() {
            let _ = write!(self.progress, "\r\u{1b}[2K").and_then(|()| self.progress.flush());
        }
        self.last.clear();
    }
}

#[cfg(test)]
mod tests;

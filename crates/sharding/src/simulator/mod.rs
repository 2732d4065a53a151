//! Many small worlds, each from one seed: replicas on a model of the API server, with every fault it can think of.
//!
//! The state machines are the real ones; time, network, clocks and the server are modelled. A seed gives the same run every time.

use crate::guards::{Guard, Guards};
use crate::slots::SlotCount;

mod chance;
mod check;
mod coverage;
mod faults;
mod mischief;
mod node;
mod server;
mod story;
mod world;

pub use check::Violation;
pub use coverage::{Coverage, Mark};
pub use faults::{Fault, FaultKind};
use world::World;

/// How one seed went.
#[derive(Clone, Debug)]
pub struct Run {
    /// What was broken, if anything.
    pub violation: Option<Violation>,
    /// How many events there were.
    pub events: u64,
    /// Whether slots of a dead or silent replica were taken over.
    pub takeover: bool,
    /// Whether the run is large enough to count.
    pub counts: bool,
    /// Microseconds from the last fault until every key was reconciled.
    pub settled: u64,
    /// The stated bound for that.
    pub bound: u64,
    /// Faults that took effect.
    pub faults: Vec<Fault>,
    /// Slots of the world.
    pub slots: SlotCount,
    /// How often the owner of the most moved slot changed.
    pub most_moves: u32,
    seen: u64,
    /// What happened, if asked for.
    pub trace: Vec<String>,
}

impl Run {
    /// Adds this run to the counts.
    pub fn cover(&self, coverage: &mut Coverage) {
        coverage.add(self.seen, self.faults.iter().map(|fault| fault.kind));
    }

    /// Whether something was seen.
    pub fn saw(&self, mark: Mark) -> bool {
        self.seen >> mark as u64 & 1 == 1
    }
}

/// Runs one seed with some of its faults: bit n of `enabled` stands for the n-th.
pub fn run(seed: u64, without: Option<Guard>, enabled: u64, trace: bool) -> Run {
    let guards = without.map_or(Guards::default(), Guards::without);
    finish(World::new(seed, guards, enabled, trace))
}

/// Runs one seed with all of its faults.
pub fn run_seed(seed: u64, without: Option<Guard>) -> Run {
    run(seed, without, u64::MAX, false)
}

/// A rolling update and nothing else: one new replica before each old one leaves.
pub fn run_rolling_update(seed: u64) -> Run {
    let mut world = World::new(seed, Guards::default(), 0, false);
    let lease = world.settings.timers.lease_duration.as_micros() as u64;
    // First everything finds its place.
    while world.now < lease * 12 && world.step() {}
    world.check.moves.fill(0);
    world.start_roll(world.now);
    let replicas = world.nodes.len() as u64;
    world.calm = world.now + lease * (replicas * 2 + 6);
    finish(world)
}

/// The longest time from the last fault until every key is reconciled: a takeover or a repair, which both wait for the
/// longest Lease, work in flight, and some round trips.
fn bound(world: &World) -> u64 {
    let timers = &world.settings.timers;
    let patience = timers.patience(timers.node_timeout);
    let turns = timers.retry_period * 6 + timers.sync_interval * 2;
    // Work in flight that a drain waits for lasts up to two Leases here.
    let drain = timers.lease_duration * 2;
    (patience + turns + drain).as_micros() as u64 + 1_000_000
}

fn finish(mut world: World) -> Run {
    let bound = bound(&world);
    let mut look = 0;
    let mut settled = 0;
    while world.step() && world.check.violation.is_none() && world.events < 1_000_000 {
        if world.now < world.calm || world.now < look {
            continue;
        }
        look = world.now + 100_000;
        match world.check.unhandled(&world.nodes, world.now) {
            None => {
                settled = world.now - world.calm;
                break;
            }
            Some(violation) if world.now > world.calm + bound => world.violated(violation),
            Some(_) => {}
        }
    }
    let running = world.nodes.iter().filter(|node| node.shift == 0).count();
    Run {
        violation: world.check.violation.take(),
        events: world.events,
        takeover: world.check.has(Mark::Takeover),
        counts: running >= 3 && world.events >= 300 && world.faults.len() >= 3,
        settled,
        bound,
        slots: world.slots,
        most_moves: world.check.moves.iter().copied().max().unwrap_or_default(),
        seen: world.check.seen,
        faults: world.faults,
        trace: world.trace.unwrap_or_default(),
    }
}

/// Takes faults away from a failing seed as long as it still fails; gives the run with what is left, and its trace.
pub fn shrink(seed: u64, without: Option<Guard>) -> Run {
    let mut enabled = (1_u64 << run(seed, without, u64::MAX, false).faults.len()) - 1;
    loop {
        let smaller = (0..64)
            .filter(|at| enabled >> at & 1 == 1)
            .map(|at| enabled & !(1 << at))
            .find(|fewer| run(seed, without, *fewer, false).violation.is_some());
        match smaller {
            Some(fewer) => enabled = fewer,
            None => return run(seed, without, enabled, true),
        }
    }
}

#[cfg(test)]
mod tests;

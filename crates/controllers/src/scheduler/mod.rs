//! The scheduler: gives every pod a node.
//!
//! ```text
//! informers ─▶ snapshot (nodes, what is on them)        ┌▶ filter (where can it be) ─▶ score (where is it best) ─▶ bind
//!         └──▶ queue (who is next) ─▶ plan (one by one) ┤
//!                    ▲ park, wake                       └▶ preempt (who has to go) ─▶ condition, event
//! ```
//!
//! A decision depends on all earlier ones, so there is one loop that decides; the requests that follow run at once. What
//! was decided counts as done until the cluster says otherwise.

pub mod claims;
mod cluster;
pub mod cycle;
pub mod filter;
mod kin;
pub mod plan;
pub mod preempt;
pub mod queue;
pub mod reason;
pub mod resources;
mod run;
pub mod score;
pub mod shape;
pub mod snapshot;
#[cfg(test)]
mod tests;
mod write;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::json;
use shoal_runtime::manager::IntoComponent;
use shoal_runtime::{Component, Manager};

/// Pods that name no scheduler are for this one.
pub const DEFAULT: &str = "default-scheduler";

/// The scheduler, ready to be added to a manager.
#[derive(Clone, Debug)]
pub struct Scheduler {
    /// Pods that name this scheduler are placed.
    pub name: String,
}

impl Default for Scheduler {
    fn default() -> Scheduler {
        Scheduler { name: DEFAULT.to_owned() }
    }
}

/// What the loop shows of itself.
#[derive(Debug, Default)]
struct Gauges {
    running: AtomicBool,
    pending: AtomicUsize,
    parked: AtomicUsize,
    nodes: AtomicUsize,
}

impl IntoComponent for Scheduler {
    fn into_component(self, manager: &Manager) -> Component {
        let gauges = Arc::new(Gauges::default());
        let (ready, shown) = (gauges.clone(), gauges.clone());
        let scheduler = run::Loop::new(self.name.clone(), manager, gauges);
        Component::new(self.name, move |stop| scheduler.run(stop))
            .elected()
            .ready(move || ready.running.load(Ordering::Relaxed))
            .inspect(move || {
                let number = |gauge: &AtomicUsize| gauge.load(Ordering::Relaxed);
                json!({
                    "nodes": number(&shown.nodes),
                    "pending": number(&shown.pending),
                    "parked": number(&shown.parked)
                })
            })
    }
}

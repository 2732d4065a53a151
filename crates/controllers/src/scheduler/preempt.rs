//! Which pods have to go so that a more important one has a place.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use shoal_objects::selector::LabelSelector;
use shoal_runtime::ObjectKey;

use super::cycle::{Cycle, Volumes};
use super::filter;
use super::reason::Failure;
use super::shape::Shape;
use super::snapshot::{Placed, Snapshot};

/// So many nodes are tried at most.
const CANDIDATES: usize = 100;

/// A disruption budget.
#[derive(Clone, Debug)]
pub struct Budget {
    /// Where.
    pub namespace: String,
    /// Which pods.
    pub selector: LabelSelector,
    /// How many of them may go now.
    pub allowed: i32,
}

/// A place that can be made free.
#[derive(Debug, PartialEq, Eq)]
pub struct Preemption {
    /// On this node,
    pub node: Arc<str>,
    /// by deleting these pods.
    pub victims: Vec<ObjectKey>,
}

/// The place that costs least, or what to tell about there being none.
pub fn plan(
    snapshot: &mut Snapshot,
    pod: &Arc<Shape>,
    volumes: &Volumes,
    failure: &Failure,
    budgets: &[Budget],
) -> Result<Preemption, String> {
    if !pod.preempts {
        return Err("preemption: not eligible due to preemptionPolicy=Never.".to_owned());
    }
    let helpless = failure.nodes.saturating_sub(failure.resolvable.len());
    let mut without_victims = failure.resolvable.len();
    let lesser = lesser_pods(snapshot, pod, failure);
    let mut best: Option<(Cost, Preemption)> = None;
    for (index, pods) in lesser {
        let Some(victims) = victims(snapshot, index, pod, volumes, pods, budgets) else { continue };
        without_victims -= 1;
        let cost = Cost::of(&victims);
        if best.as_ref().is_none_or(|(least, _)| cost < *least) {
            let node = snapshot.nodes()[index].name.clone();
            best = Some((cost, Preemption { node, victims: victims.into_iter().map(|v| v.key).collect() }));
        }
    }
    best.map(|(_, preemption)| preemption).ok_or_else(|| {
        let counts = [
            (without_victims, "No preemption victims found for incoming pod"),
            (helpless, "Preemption is not helpful for scheduling"),
        ];
        let mut parts: Vec<String> = counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, text)| format!("{count} {text}"))
            .collect();
        parts.sort();
        format!("preemption: 0/{} nodes are available: {}.", failure.nodes, parts.join(", "))
    })
}

/// A pod that might go.
#[derive(Clone, Debug)]
struct Victim {
    key: ObjectKey,
    placed: Placed,
    /// No budget allows it.
    protected: bool,
}

/// What a preemption costs, the least being the best.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    protected: usize,
    highest: i32,
    sum: i64,
    count: usize,
    /// Of equals, rather those whose most important pod is young.
    oldest: Reverse<i64>,
}

impl Cost {
    fn of(victims: &[Victim]) -> Cost {
        let priority = |victim: &Victim| victim.placed.shape.priority;
        let highest = victims.iter().map(priority).max().unwrap_or(i32::MIN);
        let of_highest = victims.iter().filter(|victim| priority(victim) == highest);
        Cost {
            protected: victims.iter().filter(|victim| victim.protected).count(),
            highest,
            // Priorities may be negative, yet one victim more must never make it cheaper.
            sum: victims.iter().map(|v| i64::from(priority(v)) - i64::from(i32::MIN)).sum(),
            count: victims.len(),
            oldest: Reverse(of_highest.map(|victim| victim.placed.created).min().unwrap_or_default()),
        }
    }
}

/// Pods of less importance, by node, where the pod could be if others went. In the order of nodes.
fn lesser_pods(
    snapshot: &Snapshot,
    pod: &Shape,
    failure: &Failure,
) -> Vec<(usize, Vec<(ObjectKey, Placed)>)> {
    let is_lesser = |shape: &Shape| shape.priority < pod.priority;
    // By shape first: most often nothing is less important, and that must be cheap to know.
    let mut of: HashMap<usize, Vec<(ObjectKey, Placed)>> = failure
        .resolvable
        .iter()
        .copied()
        .filter(|index| snapshot.nodes()[*index].shapes.iter().any(|(shape, _)| is_lesser(shape)))
        .take(CANDIDATES)
        .map(|index| (index, Vec::new()))
        .collect();
    if of.is_empty() {
        return Vec::new();
    }
    for (key, placed) in snapshot.pods() {
        if is_lesser(&placed.shape)
            && let Some(pods) = snapshot.index(&placed.node).and_then(|index| of.get_mut(&index))
        {
            pods.push((key.clone(), placed.clone()));
        }
    }
    let mut all: Vec<_> = of.into_iter().collect();
    all.sort_unstable_by_key(|(index, _)| *index);
    all
}

/// The pods that have to leave a node; None if the pod cannot be there even then. The snapshot is as before afterwards.
fn victims(
    snapshot: &mut Snapshot,
    index: usize,
    pod: &Arc<Shape>,
    volumes: &Volumes,
    lesser: Vec<(ObjectKey, Placed)>,
    budgets: &[Budget],
) -> Option<Vec<Victim>> {
    let candidates = judged(lesser, budgets);
    for candidate in &candidates {
        snapshot.vacate(index, &candidate.placed.shape);
    }
    let fits = |snapshot: &Snapshot| {
        let cycle = Cycle::new(snapshot, pod, volumes);
        filter::reasons(&cycle, &snapshot.nodes()[index]).is_empty()
    };
    let possible = !candidates.is_empty() && fits(snapshot);
    let mut victims = Vec::new();
    // Who can stay, stays: those that are protected first, then the most important.
    for candidate in candidates {
        snapshot.occupy(index, &candidate.placed.shape);
        if possible && !fits(snapshot) {
            snapshot.vacate(index, &candidate.placed.shape);
            victims.push(candidate);
        }
    }
    for victim in &victims {
        snapshot.occupy(index, &victim.placed.shape);
    }
    (!victims.is_empty()).then_some(victims)
}

/// In the order in which they may stay.
fn judged(mut pods: Vec<(ObjectKey, Placed)>, budgets: &[Budget]) -> Vec<Victim> {
    pods.sort_by_key(|(key, placed)| (Reverse(placed.shape.priority), placed.created, key.clone()));
    let mut left: Vec<i32> = budgets.iter().map(|budget| budget.allowed).collect();
    let mut victims: Vec<Victim> = pods
        .into_iter()
        .map(|(key, placed)| {
            let mut protected = false;
            for (budget, left) in budgets.iter().zip(&mut left) {
                let meant = budget.namespace == *key.namespace && placed.shape.matches(&budget.selector);
                if meant && !placed.leaving {
                    *left -= 1;
                    protected |= *left < 0;
                }
            }
            Victim { key, placed, protected }
        })
        .collect();
    victims.sort_by_key(|victim| !victim.protected);
    victims
}

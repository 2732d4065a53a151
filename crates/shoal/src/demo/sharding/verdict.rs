//! What the trails prove, in figures and in words. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use shoal_sharding::Slot;

use super::intervals::{Change, gaps, handovers, quantile, reactions, violations};
use super::trail::{Fact, Micros, Span, spans};

/// The life of one process, from its own trail and from whoever played with it.
pub struct Life {
    /// What it wrote down.
    pub facts: Vec<Fact>,
    /// When it was stopped and continued.
    pub pauses: Vec<(Micros, Micros)>,
    /// When it was certainly gone.
    pub gone: Micros,
    /// Whether it was killed, not asked.
    pub killed: bool,
}

/// A part of the story.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Chapter {
    /// What happened.
    pub title: String,
    #[serde(skip)]
    pub from: Micros,
    #[serde(skip)]
    pub to: Micros,
    /// The longest that a change of an object had to wait in it.
    pub longest_wait_seconds: f64,
}

/// The end of the story.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    /// `proved` or `broken`
    pub verdict: &'static str,
    /// How many pieces of work were looked at.
    pub reconciles: usize,
    /// How many changes of objects.
    pub changes: usize,
    /// Two on one slot at once, or an old token after a new one.
    pub overlaps: Vec<String>,
    /// Changes that waited longer than the bound, or for ever.
    pub gaps: Vec<String>,
    /// How long a change may wait, takeovers included.
    pub bound_seconds: f64,
    /// Time in which the API server took more than half a second to answer; it does not count as waiting.
    pub slow_seconds: f64,
    /// Half of all changes waited no longer.
    pub median_wait_seconds: f64,
    /// 99 of 100 changes waited no longer.
    pub p99_wait_seconds: f64,
    /// The longest wait.
    pub longest_wait_seconds: f64,
    /// How often a slot changed hands in order.
    pub handovers: usize,
    /// From the end of one owner's tenure to the beginning of the next one's, 99 of 100.
    pub p99_handover_seconds: f64,
    /// From each kill to the last slot's next owner.
    pub takeover_seconds: Vec<f64>,
    /// How often the most restless slot changed hands in a rolling restart.
    pub restart_moves: usize,
    /// Replicas that ended themselves because work did not stop in time.
    pub ended_themselves: usize,
    /// Parts of the story.
    pub chapters: Vec<Chapter>,
    /// Measured on request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub figures: Option<Figures>,
}

/// What is measured with `--figures`.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Figures {
    /// How many replicas.
    pub replicas: usize,
    /// Writes of Leases and of the record while nothing happens.
    pub coordination_writes_per_second: f64,
    /// Replicas / renewal period.
    pub renewals_per_second: f64,
    /// Writes of objects while replicas join and nobody changes anything.
    pub objects_rewritten: usize,
    /// How much longer creating an object takes with all replicas than with none.
    pub added_create_seconds: f64,
    /// Throughput of all / (replicas × throughput of one).
    pub efficiency: f64,
    /// CPU time of replicas and API server for a reconcile with all replicas / with one.
    pub cpu_growth: f64,
    /// From one replica on.
    pub scales: Vec<Scale>,
}

/// What so many replicas bring when every object changes at once.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Scale {
    /// How many.
    pub replicas: usize,
    /// Reconciles per second with a fixed time of work.
    pub reconciles_per_second: f64,
    /// CPU time of replicas and API server for one of them.
    pub cpu_seconds: f64,
    /// Bytes that the replica with the most has received meanwhile.
    pub watched_bytes: u64,
    /// Bytes of objects in the largest cache.
    pub cached_bytes: u64,
}

/// So the chapters begin in which every replica is replaced.
pub const RESTART: &str = "rolling restart";
/// How much of the story may be left out because the API server was slow.
const MOST_LEFT_OUT: f64 = 0.3;
/// Examples are enough; a broken run has thousands.
const EXAMPLES: usize = 10;

/// What follows from everything that was written down.
pub fn judge(
    lives: &[Life],
    changes: &[Change],
    outages: &[(Micros, Micros)],
    bound: Duration,
    mut chapters: Vec<Chapter>,
    turned_back: &[String],
) -> Verdict {
    let work: Vec<Span> = lives
        .iter()
        .enumerate()
        .flat_map(|(at, life)| spans(at, &life.facts, &life.pauses, life.gone))
        .collect();
    let reactions = reactions(&work, changes, outages);
    let mut waits: Vec<Micros> = reactions.iter().filter_map(|reaction| reaction.after).collect();
    waits.sort_unstable();
    for chapter in &mut chapters {
        let within = reactions.iter().filter(|r| chapter.from <= r.change.at && r.change.at < chapter.to);
        chapter.longest_wait_seconds = seconds(within.filter_map(|r| r.after).max().unwrap_or_default());
    }
    let bound_micros = u64::try_from(bound.as_micros()).unwrap_or(u64::MAX);
    let gaps = gaps(&reactions, bound_micros);
    let told = gaps.iter().take(EXAMPLES).map(|gap| match gap.after {
        Some(after) => format!("object {} waited for {:.1} s", gap.change.key, seconds(after)),
        None => format!("object {}: its change number {} was never seen", gap.change.key, gap.change.content),
    });
    let facts: Vec<Fact> = lives.iter().flat_map(|life| life.facts.iter().cloned()).collect();
    let handovers = handovers(&facts);
    let violations = violations(&work);
    let overlaps = violations.iter().map(ToString::to_string).chain(turned_back.iter().cloned());
    let overlaps: Vec<String> = overlaps.take(EXAMPLES).collect();
    let gaps: Vec<String> = told.collect();
    // Nothing proves nothing.
    let fine = overlaps.is_empty() && gaps.is_empty() && !work.is_empty() && !changes.is_empty();
    Verdict {
        verdict: if fine { "proved" } else { "broken" },
        reconciles: work.len(),
        changes: changes.len(),
        overlaps,
        gaps,
        bound_seconds: bound.as_secs_f64(),
        slow_seconds: 0.0,
        median_wait_seconds: seconds(quantile(&waits, 0.5)),
        p99_wait_seconds: seconds(quantile(&waits, 0.99)),
        longest_wait_seconds: seconds(waits.last().copied().unwrap_or_default()),
        handovers: handovers.len(),
        p99_handover_seconds: seconds(quantile(&handovers, 0.99)),
        takeover_seconds: takeovers(lives).into_iter().map(seconds).collect(),
        restart_moves: restart_moves(lives, &chapters),
        ended_themselves: 0,
        chapters,
        figures: None,
    }
}

/// For each killed process, how long its slots were without an owner.
fn takeovers(lives: &[Life]) -> Vec<Micros> {
    let mut gained: BTreeMap<Slot, Vec<(u64, Micros)>> = BTreeMap::new();
    for fact in lives.iter().flat_map(|life| &life.facts) {
        if let Fact::Gained { at, slots, epoch } = fact {
            slots.slots().for_each(|slot| gained.entry(slot).or_default().push((*epoch, *at)));
        }
    }
    let held = |life: &Life| {
        let mut held: BTreeMap<Slot, u64> = BTreeMap::new();
        for fact in &life.facts {
            match fact {
                Fact::Gained { slots, epoch, .. } => held.extend(slots.slots().map(|slot| (slot, *epoch))),
                Fact::Lost { slots, .. } => held.retain(|slot, _| !slots.contains(*slot)),
                _ => {}
            }
        }
        held
    };
    let next = |slot: Slot, epoch: u64| {
        let after = gained.get(&slot).into_iter().flatten().filter(|(later, _)| *later > epoch);
        after.map(|(_, at)| *at).min()
    };
    let killed = lives.iter().filter(|life| life.killed);
    killed
        .filter_map(|life| {
            let held = held(life);
            let times = held.into_iter().filter_map(|(slot, epoch)| next(slot, epoch));
            times.max().map(|last| last.saturating_sub(life.gone))
        })
        .collect()
}

/// How often the most restless slot got another owner in any one rolling restart.
fn restart_moves(lives: &[Life], chapters: &[Chapter]) -> usize {
    let mut tenures: BTreeMap<Slot, Vec<(u64, Micros, usize)>> = BTreeMap::new();
    for (replica, life) in lives.iter().enumerate() {
        for fact in &life.facts {
            if let Fact::Gained { at, slots, epoch } = fact {
                slots.slots().for_each(|slot| tenures.entry(slot).or_default().push((*epoch, *at, replica)));
            }
        }
    }
    tenures.values_mut().for_each(|tenures| tenures.sort_unstable());
    let moves = |tenures: &Vec<(u64, Micros, usize)>, chapter: &Chapter| {
        let within = |at: Micros| chapter.from <= at && at < chapter.to;
        tenures.windows(2).filter(|pair| pair[0].2 != pair[1].2 && within(pair[1].1)).count()
    };
    let restarts = chapters.iter().filter(|chapter| chapter.title.starts_with(RESTART));
    restarts.flat_map(|chapter| tenures.values().map(move |t| moves(t, chapter))).max().unwrap_or_default()
}

fn seconds(micros: Micros) -> f64 {
    micros as f64 / 1e6
}

impl Verdict {
    /// The same, without the time in which the API server was slow. If that was much of the story, it has proved nothing.
    pub fn leaving_out(mut self, slow_seconds: f64) -> Self {
        self.slow_seconds = slow_seconds;
        let from = self.chapters.iter().map(|chapter| chapter.from).min().unwrap_or_default();
        let to = self.chapters.iter().map(|chapter| chapter.to).max().unwrap_or_default();
        let whole = seconds(to.saturating_sub(from));
        if slow_seconds > whole * MOST_LEFT_OUT {
            self.verdict = "broken";
            self.gaps.push(format!(
                "the API server was slow for {slow_seconds:.1} of {whole:.1} s: too much is left out to prove anything"
            ));
        }
        self
    }

    /// Whether the promises were kept.
    pub fn is_good(&self) -> bool {
        self.verdict == "proved"
    }

    /// In words.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for chapter in &self.chapters {
            text +=
                &format!("  {:<48} longest wait {:>6.2} s\n", chapter.title, chapter.longest_wait_seconds);
        }
        text += &format!(
            "{} reconciles of {} changes: {} overlaps, {} gaps beyond {:.1} s\n",
            self.reconciles,
            self.changes,
            self.overlaps.len(),
            self.gaps.len(),
            self.bound_seconds
        );
        if self.slow_seconds >= 0.1 {
            text += &format!("{:.1} s with a slow API server are left out\n", self.slow_seconds);
        }
        text += &format!(
            "a change waited {:.3} s (median), {:.3} s (p99), {:.2} s (longest)\n",
            self.median_wait_seconds, self.p99_wait_seconds, self.longest_wait_seconds
        );
        text += &format!(
            "{} slots changed hands in order, without an owner for {:.3} s (p99)\n",
            self.handovers, self.p99_handover_seconds
        );
        text += &format!("the most restless slot moved {} times in a rolling restart\n", self.restart_moves);
        for takeover in &self.takeover_seconds {
            text += &format!("after a kill -9 the slots had a new owner within {takeover:.2} s\n");
        }
        if let Some(figures) = &self.figures {
            text += &format!("{figures:#?}\n");
        }
        for example in self.overlaps.iter().chain(&self.gaps) {
            text += &format!("broken: {example}\n");
        }
        text += match self.is_good() {
            true => "verdict: proved. Never two on one object, never none.\n",
            false => "verdict: broken\n",
        };
        text
    }
}

#[cfg(test)]
mod tests {
    use shoal_sharding::SlotRange;

    use super::*;

    fn life(facts: Vec<Fact>, gone: Micros, killed: bool) -> Life {
        Life { facts, pauses: Vec::new(), gone, killed }
    }

    fn ended(start: Micros, epoch: u64, seen: u64) -> Fact {
        Fact::Ended { start, end: start + 10, effect: start + 5, seen, slot: 0, epoch, key: 7 }
    }

    fn verdict(lives: &[Life], bound: u64) -> Verdict {
        let changes = [Change { key: 7, content: 1, at: 90 }, Change { key: 7, content: 2, at: 190 }];
        let chapter = Chapter { title: "all".to_owned(), from: 0, to: 1000, longest_wait_seconds: 0.0 };
        judge(lives, &changes, &[], Duration::from_micros(bound), vec![chapter], &[])
    }

    fn takeover() -> Vec<Life> {
        let slots = SlotRange::one(0);
        vec![
            life(vec![Fact::Gained { at: 50, slots, epoch: 1 }, ended(100, 1, 1)], 150, true),
            life(vec![Fact::Gained { at: 190, slots, epoch: 2 }, ended(200, 2, 2)], 400, false),
        ]
    }

    #[test]
    fn a_good_run_is_proved_with_its_figures() {
        let verdict = verdict(&takeover(), 20);
        assert!(verdict.is_good(), "{}", verdict.text());
        assert_eq!((verdict.reconciles, verdict.changes), (2, 2));
        assert_eq!(verdict.takeover_seconds, [0.00004]);
        assert_eq!(verdict.chapters[0].longest_wait_seconds, 0.00001);
        assert!(verdict.text().ends_with("verdict: proved. Never two on one object, never none.\n"));
    }

    #[test]
    fn two_at_once_a_long_wait_and_an_empty_run_are_broken() {
        let mut lives = takeover();
        lives[1].facts.push(ended(105, 1, 1));
        assert!(verdict(&lives, 20).text().contains("broken: slot 0: two at once"));
        assert!(verdict(&takeover(), 5).text().contains("broken: object 7 waited for 0.0 s"));
        let lost = verdict(&takeover()[..1], 20);
        assert!(lost.text().contains("object 7: its change number 2 was never seen"), "{}", lost.text());
        assert!(!judge(&[], &[], &[], Duration::ZERO, Vec::new(), &[]).is_good());
        let back = judge(
            &takeover(),
            &[Change { key: 7, content: 1, at: 90 }],
            &[],
            Duration::from_secs(1),
            Vec::new(),
            &["item-7".to_owned()],
        );
        assert!(!back.is_good());
    }

    #[test]
    fn a_story_with_a_slow_server_throughout_proves_nothing() {
        assert!(verdict(&takeover(), 20).leaving_out(0.0002).is_good());
        let slow = verdict(&takeover(), 20).leaving_out(0.0004);
        assert!(!slow.is_good() && slow.overlaps.is_empty(), "{}", slow.text());
    }
}

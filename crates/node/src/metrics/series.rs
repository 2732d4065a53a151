//! From readings to how much is used: the rate of CPU time over a window. Pure.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use shoal_objects::Timestamp;
use shoal_runtime::ObjectKey;

use super::scrape::{Point, Scrape, Told};
use crate::usage::Usage;

/// Two readings that are nearer to each other say little.
pub const SHORTEST: Duration = Duration::from_millis(900);

/// How much is used: CPU in billionths of a core, memory in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    /// CPU per time, and memory.
    pub usage: Usage,
    /// When that was so.
    pub at: Timestamp,
    /// Over which time CPU was measured.
    pub window: Duration,
}

/// Readings of one thing, the oldest first: as many as the window needs.
#[derive(Clone, Debug, Default)]
struct Series {
    since: Option<Timestamp>,
    points: VecDeque<Point>,
}

fn between(from: Timestamp, to: Timestamp) -> Duration {
    Duration::from_micros(u64::try_from(to.0.saturating_sub(from.0)).unwrap_or(0))
}

impl Series {
    fn add(&mut self, Told { since, point }: Told, resolution: Duration) {
        let restarted = self.since.is_some() && since != self.since
            || self.points.back().is_some_and(|last| point.usage.cpu < last.usage.cpu);
        if restarted {
            self.points.clear();
        }
        self.since = since;
        if self.points.back().is_some_and(|last| last.at >= point.at) {
            return;
        }
        // What has just started had used nothing then: no need to wait for a second reading.
        if self.points.is_empty()
            && let Some(since) = since.filter(|since| between(*since, point.at) <= resolution)
        {
            self.points.push_back(Point { at: since, usage: Usage::default() });
        }
        self.points.push_back(point);
        let enough = resolution.saturating_sub(resolution / 10);
        while self.points.len() > 2 && between(self.points[1].at, point.at) >= enough {
            self.points.pop_front();
        }
    }

    fn figure(&self) -> Option<Figure> {
        let (first, last) = (self.points.front()?, self.points.back()?);
        let window = between(first.at, last.at);
        if window < SHORTEST {
            return None;
        }
        let used = u128::from(last.usage.cpu.saturating_sub(first.usage.cpu));
        let rate = used * 1_000_000_000 / window.as_nanos().max(1);
        let cpu = u64::try_from(rate).unwrap_or(u64::MAX);
        Some(Figure { usage: Usage { cpu, memory: last.usage.memory }, at: last.at, window })
    }
}

/// What is known of a node and its pods.
#[derive(Clone, Debug, Default)]
pub struct History {
    node: Series,
    pods: HashMap<ObjectKey, BTreeMap<String, Series>>,
}

impl History {
    /// Adds what the node has told; what it tells nothing about is gone.
    pub fn add(&mut self, scrape: Scrape, resolution: Duration) {
        if let Some(point) = scrape.node {
            self.node.add(Told { since: None, point }, resolution);
        }
        let mut before = std::mem::take(&mut self.pods);
        for (pod, containers) in scrape.pods {
            let mut known = before.remove(&pod).unwrap_or_default();
            let now = containers.into_iter().map(|(name, told)| {
                let mut series = known.remove(&name).unwrap_or_default();
                series.add(told, resolution);
                (name, series)
            });
            self.pods.insert(pod, now.collect());
        }
    }

    /// What the node uses.
    pub fn node(&self) -> Option<Figure> {
        self.node.figure()
    }

    /// What each container of a pod uses. A pod of which one is not known yet would seem to use little.
    pub fn pod(&self, pod: &ObjectKey) -> Option<Vec<(String, Figure)>> {
        let containers = self.pods.get(pod)?.iter();
        containers.map(|(name, series)| Some((name.clone(), series.figure()?))).collect()
    }

    /// Whether another reading soon would tell more.
    pub fn is_young(&self) -> bool {
        let containers = self.pods.values().flat_map(BTreeMap::values);
        containers.chain([&self.node]).any(|series| series.figure().is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESOLUTION: Duration = Duration::from_secs(15);

    fn told(since: i64, second: i64, cpu_seconds: u64) -> Told {
        let usage = Usage { cpu: cpu_seconds * 1_000_000_000, memory: 7 };
        let at = Timestamp(second * 1_000_000);
        Told { since: Some(Timestamp(since * 1_000_000)), point: Point { at, usage } }
    }

    fn shown(series: &Series) -> Option<(u64, u64)> {
        series.figure().map(|figure| (figure.usage.cpu / 1_000_000, figure.window.as_secs()))
    }

    #[test]
    fn what_has_just_started_is_measured_from_its_start() {
        let mut series = Series::default();
        series.add(told(100, 102, 1), RESOLUTION);
        assert_eq!(shown(&series), Some((500, 2)));
        let mut old = Series::default();
        old.add(told(100, 1000, 1), RESOLUTION);
        assert_eq!(shown(&old), None, "an average of its whole life says nothing about now");
        old.add(told(100, 1001, 2), RESOLUTION);
        assert_eq!(shown(&old), Some((1000, 1)));
    }

    #[test]
    fn the_window_is_as_long_as_wanted_however_often_one_looks() {
        let mut series = Series::default();
        for second in 0..100 {
            series.add(told(0, 1000 + second, second as u64), RESOLUTION);
        }
        assert_eq!(shown(&series), Some((1000, 14)));
        assert!(series.points.len() < 20);
        let mut rare = Series::default();
        for second in [0, 15, 30, 31] {
            rare.add(told(0, 1000 + second, second as u64), RESOLUTION);
        }
        assert_eq!(shown(&rare), Some((1000, 16)));
    }

    #[test]
    fn a_restart_begins_anew() {
        let mut series = Series::default();
        series.add(told(0, 1000, 50), RESOLUTION);
        series.add(told(0, 1015, 65), RESOLUTION);
        series.add(told(1020, 1022, 1), RESOLUTION);
        assert_eq!(shown(&series), Some((500, 2)));
        series.add(told(1020, 1022, 1), RESOLUTION);
        assert_eq!(series.points.len(), 2, "the same reading twice is one");
    }

    #[test]
    fn what_is_not_told_of_any_more_is_gone_and_half_a_pod_is_none() {
        let key = ObjectKey::new("n", "p");
        let scrape = |containers: &[(&str, Told)]| Scrape {
            node: None,
            pods: BTreeMap::from([(
                key.clone(),
                containers.iter().map(|(name, told)| ((*name).to_owned(), *told)).collect(),
            )]),
        };
        let mut history = History::default();
        history.add(scrape(&[("a", told(0, 5, 1)), ("b", told(5, 5, 0))]), RESOLUTION);
        assert_eq!(history.pod(&key), None);
        assert!(history.is_young());
        history.add(scrape(&[("a", told(0, 6, 1))]), RESOLUTION);
        assert_eq!(history.pod(&key).unwrap().len(), 1);
        history.add(Scrape::default(), RESOLUTION);
        assert_eq!(history.pod(&key), None);
    }
}

//! How fast pods of nodes that are not ready may be driven away: the more nodes of a zone are in trouble, the more likely
//! the trouble is somewhere else.

use std::collections::BTreeMap;
use std::time::Duration;

/// Nodes a second in a zone that is well.
const NORMAL: f64 = 0.1;
/// Nodes a second in a large zone of which much is in trouble.
const SLOW: f64 = 0.01;
/// Zones with no more nodes than this are left alone when much of them is in trouble.
const LARGE: usize = 50;
/// Trouble beyond this share is much.
const UNHEALTHY: f64 = 0.55;

/// How a zone is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Most nodes are ready.
    Normal,
    /// Much is in trouble.
    Partial,
    /// No node is ready.
    Full,
}

/// How a zone with so many nodes is.
pub fn state(ready: usize, not_ready: usize) -> State {
    if not_ready == 0 {
        State::Normal
    } else if ready == 0 {
        State::Full
    } else if not_ready > 2 && not_ready as f64 / (ready + not_ready) as f64 >= UNHEALTHY {
        State::Partial
    } else {
        State::Normal
    }
}

/// Ready nodes and others, by zone.
pub type Counts = BTreeMap<String, (usize, usize)>;

/// How many nodes a second may be emptied in a zone. Where no node of any zone is ready, the trouble is ours: none.
pub fn rate(zone: &str, counts: &Counts) -> f64 {
    let states = counts.values().map(|(ready, not_ready)| state(*ready, *not_ready));
    if !counts.is_empty() && states.clone().all(|state| state == State::Full) {
        return 0.0;
    }
    let (ready, not_ready) = counts.get(zone).copied().unwrap_or_default();
    match state(ready, not_ready) {
        State::Normal | State::Full => NORMAL,
        State::Partial if ready + not_ready > LARGE => SLOW,
        State::Partial => 0.0,
    }
}

/// Turns that are given one after the other, in each zone.
#[derive(Default)]
pub struct Turns {
    next: BTreeMap<String, Duration>,
}

impl Turns {
    /// Whether the next node of a zone may be emptied now; if not, when to ask again. `now` counts from anywhere.
    pub fn take(&mut self, zone: &str, rate: f64, now: Duration) -> Result<(), Option<Duration>> {
        if rate <= 0.0 {
            return Err(None);
        }
        let next = self.next.entry(zone.to_owned()).or_default();
        if *next > now {
            return Err(Some(*next - now));
        }
        *next = now + Duration::from_secs_f64(1.0 / rate);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(zones: &[(&str, usize, usize)]) -> Counts {
        zones.iter().map(|(zone, ready, not)| ((*zone).to_owned(), (*ready, *not))).collect()
    }

    #[test]
    fn the_more_is_in_trouble_the_slower() {
        assert_eq!(rate("a", &counts(&[("a", 3, 1)])), NORMAL);
        assert_eq!(rate("a", &counts(&[("a", 1, 4)])), 0.0, "a small zone is left alone");
        assert_eq!(rate("a", &counts(&[("a", 20, 80)])), SLOW);
        assert_eq!(rate("a", &counts(&[("a", 0, 5), ("b", 1, 0)])), NORMAL, "another zone is well");
        assert_eq!(
            rate("a", &counts(&[("a", 0, 5), ("b", 0, 2)])),
            0.0,
            "nobody is ready: the trouble is ours"
        );
    }

    #[test]
    fn turns_are_given_at_the_rate_of_the_zone() {
        let mut turns = Turns::default();
        let at = Duration::from_secs;
        assert_eq!(turns.take("a", 0.1, at(100)), Ok(()));
        assert_eq!(turns.take("a", 0.1, at(103)), Err(Some(at(7))));
        assert_eq!(turns.take("b", 0.1, at(103)), Ok(()), "zones do not wait for each other");
        assert_eq!(turns.take("a", 0.1, at(110)), Ok(()));
        assert_eq!(turns.take("a", 0.0, at(200)), Err(None));
    }
}

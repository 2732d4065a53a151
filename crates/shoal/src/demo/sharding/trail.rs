//! What a replica writes down while it works: one line per fact, each written at once, so that `kill -9` loses none.
//!
//! ```text
//! S <start> <slot> <epoch> <key>                             a reconcile begins
//! E <start> <end> <effect> <seen> <slot> <epoch> <key>       it has ended; its last write was permitted at <effect>, 0 for none
//! G <time> <slots> <epoch>                                   slots were gained
//! L <time> <slots> <epoch>                                   slots were lost
//! C <time> <objects> <bytes> <received>                      the caches hold so much, and have received so many bytes
//! ```
//!
//! Times are microseconds of the machine's clock since boot, which all processes share.

use std::collections::BTreeMap;

use shoal_sharding::{Epoch, Slot, SlotRange};

/// Microseconds since boot.
pub type Micros = u64;

/// One fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// A reconcile begins.
    Started { start: Micros, slot: Slot, epoch: Epoch, key: u32 },
    /// A reconcile has ended; it saw this version of the object's content.
    Ended { start: Micros, end: Micros, effect: Micros, seen: u64, slot: Slot, epoch: Epoch, key: u32 },
    /// Slots were gained.
    Gained { at: Micros, slots: SlotRange, epoch: Epoch },
    /// Slots were lost.
    Lost { at: Micros, slots: SlotRange, epoch: Epoch },
    /// What the cache holds.
    Cached { at: Micros, objects: u64, bytes: u64, received: u64 },
}

impl Fact {
    /// As a line.
    pub fn line(&self) -> String {
        match self {
            Fact::Started { start, slot, epoch, key } => format!("S {start} {slot} {epoch} {key}\n"),
            Fact::Ended { start, end, effect, seen, slot, epoch, key } => {
                format!("E {start} {end} {effect} {seen} {slot} {epoch} {key}\n")
            }
            Fact::Gained { at, slots, epoch } => format!("G {at} {slots} {epoch}\n"),
            Fact::Lost { at, slots, epoch } => format!("L {at} {slots} {epoch}\n"),
            Fact::Cached { at, objects, bytes, received } => format!("C {at} {objects} {bytes} {received}\n"),
        }
    }

    /// From a line.
    pub fn parse(line: &str) -> Option<Fact> {
        let mut words = line.split(' ');
        let sort = words.next()?;
        let words: Vec<&str> = words.collect();
        let n = |at: usize| words.get(at)?.parse::<u64>().ok();
        let slot = |at: usize| words.get(at)?.parse::<Slot>().ok();
        let wanted = match sort {
            "S" | "C" => 4,
            "E" => 7,
            "G" | "L" => 3,
            _ => return None,
        };
        if words.len() != wanted {
            return None;
        }
        Some(match sort {
            "S" => Fact::Started { start: n(0)?, slot: slot(1)?, epoch: n(2)?, key: slot(3)? },
            "E" => Fact::Ended {
                start: n(0)?,
                end: n(1)?,
                effect: n(2)?,
                seen: n(3)?,
                slot: slot(4)?,
                epoch: n(5)?,
                key: slot(6)?,
            },
            "G" => Fact::Gained { at: n(0)?, slots: words[1].parse().ok()?, epoch: n(2)? },
            "L" => Fact::Lost { at: n(0)?, slots: words[1].parse().ok()?, epoch: n(2)? },
            _ => Fact::Cached { at: n(0)?, objects: n(1)?, bytes: n(2)?, received: n(3)? },
        })
    }
}

/// Everything in a file. A line that was cut off by the end of the process is left out; any other that cannot be read is an error.
pub fn read(text: &str) -> Result<Vec<Fact>, String> {
    let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
    let fact = |line: &str| Fact::parse(line).ok_or_else(|| format!("{line:?} cannot be read"));
    whole.lines().map(fact).collect()
}

/// One stretch of work on one object by one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Which process.
    pub replica: usize,
    /// Which object.
    pub key: u32,
    /// Its slot.
    pub slot: Slot,
    /// The fencing token it worked with.
    pub epoch: Epoch,
    /// What it saw of the object; none if it did not live to tell.
    pub seen: Option<u64>,
    /// From here.
    pub start: Micros,
    /// To here.
    pub end: Micros,
}

/// The work of one process. `pauses` are the times at which it was stopped and continued; `gone` is when it was certainly dead.
///
/// While a process is stopped it does nothing. What it does after that with a reconcile from before counts only if it could
/// still write: the fence is asked before each write, and a reconcile without a permitted one has no effect.
pub fn spans(replica: usize, facts: &[Fact], pauses: &[(Micros, Micros)], gone: Micros) -> Vec<Span> {
    let mut open: BTreeMap<(Micros, u32), Span> = BTreeMap::new();
    let mut spans = Vec::new();
    for fact in facts {
        match *fact {
            Fact::Started { start, slot, epoch, key } => {
                let span = Span { replica, key, slot, epoch, seen: None, start, end: gone };
                open.insert((start, key), span);
            }
            Fact::Ended { start, end, effect, seen, slot, epoch, key } => {
                open.remove(&(start, key));
                let span = Span { replica, key, slot, epoch, seen: Some(seen), start, end };
                let pause = pauses.iter().find(|(stopped, _)| start < *stopped && *stopped < end);
                let Some((stopped, continued)) = pause.copied() else {
                    spans.push(span);
                    continue;
                };
                let before = Span { end: stopped, ..span };
                if effect >= continued {
                    spans.extend([before, Span { start: continued, ..span }]);
                } else {
                    spans.push(before);
                }
            }
            _ => {}
        }
    }
    for span in open.into_values() {
        let end = pauses.iter().map(|(stopped, _)| *stopped).find(|stopped| *stopped > span.start);
        spans.push(Span { end: end.map_or(gone, |stopped| stopped.min(gone)), ..span });
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(start: Micros, end: Micros, effect: Micros) -> Fact {
        Fact::Ended { start, end, effect, seen: 3, slot: 9, epoch: 2, key: 7 }
    }

    #[test]
    fn a_trail_reads_what_it_wrote() {
        let slots = SlotRange { start: 4, end: 9 };
        let facts = vec![
            Fact::Started { start: 1, slot: 9, epoch: 2, key: 7 },
            ended(1, 5, 4),
            Fact::Gained { at: 3, slots, epoch: 1 },
            Fact::Lost { at: 4, slots, epoch: 1 },
            Fact::Cached { at: 5, objects: 100, bytes: 7, received: 9 },
        ];
        let text: String = facts.iter().map(Fact::line).collect();
        assert_eq!(read(&text).unwrap(), facts);
        assert_eq!(read(&format!("{text}E 9 1")).unwrap(), facts, "cut off by a kill");
        for bad in ["X 1\n", "E 1 2 3\n", "S a b c d\n", "\n", "G 1 9-4 2\n"] {
            assert!(read(&format!("{bad}{text}")).is_err(), "{bad}");
        }
    }

    #[test]
    fn work_that_a_kill_cut_off_lasts_until_the_process_is_gone() {
        let facts = [Fact::Started { start: 1, slot: 9, epoch: 2, key: 7 }];
        assert_eq!(spans(0, &facts, &[], 50)[0].end, 50);
        assert_eq!(spans(0, &facts, &[(20, 30)], 50)[0].end, 20);
    }

    #[test]
    fn a_stopped_process_does_nothing_unless_it_writes_afterwards() {
        let pauses = [(20, 90)];
        let times = |spans: Vec<Span>| spans.iter().map(|span| (span.start, span.end)).collect::<Vec<_>>();
        assert_eq!(times(spans(0, &[ended(1, 5, 0)], &pauses, 200)), [(1, 5)]);
        assert_eq!(times(spans(0, &[ended(10, 95, 15)], &pauses, 200)), [(10, 20)]);
        assert_eq!(times(spans(0, &[ended(10, 95, 92)], &pauses, 200)), [(10, 20), (90, 95)]);
    }
}

//! What processes use, from `/proc`.

use std::collections::HashMap;

/// CPU time in nanoseconds and memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time so far.
    pub cpu: u64,
    /// Memory now.
    pub memory: u64,
}

impl std::ops::Add for Usage {
    type Output = Usage;

    fn add(self, other: Usage) -> Usage {
        Usage { cpu: self.cpu.saturating_add(other.cpu), memory: self.memory.saturating_add(other.memory) }
    }
}

impl std::iter::Sum for Usage {
    fn sum<I: Iterator<Item = Usage>>(all: I) -> Usage {
        all.fold(Usage::default(), |sum, one| sum + one)
    }
}

/// All processes of this machine that can be seen, at one moment.
pub struct Processes {
    /// CPU time.
    cpu: HashMap<i32, u64>,
    children: HashMap<i32, Vec<i32>>,
    memory: fn(i32) -> u64,
}

impl Processes {
    /// Looks at all of them.
    pub fn look() -> Processes {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let tick = tick();
        let all = numbers.filter_map(|pid| {
            let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let (parent, cpu) = parse_stat(&text, tick)?;
            Some((pid, parent, cpu))
        });
        Processes::of(all, own_memory)
    }

    fn of(all: impl IntoIterator<Item = (i32, i32, u64)>, memory: fn(i32) -> u64) -> Processes {
        let mut found = Processes { cpu: HashMap::new(), children: HashMap::new(), memory };
        for (pid, parent, cpu) in all {
            found.cpu.insert(pid, cpu);
            found.children.entry(parent).or_default().push(pid);
        }
        found
    }

    /// A process and everything below it.
    pub fn tree(&self, root: i32) -> Vec<i32> {
        let mut all = vec![root];
        let mut at = 0;
        // Processes that came and went while we looked can make a ring.
        while let Some(pid) = all.get(at).filter(|_| at <= self.cpu.len()) {
            all.extend(self.children.get(pid).into_iter().flatten());
            at += 1;
        }
        all
    }

    /// What a process and everything below it use.
    pub fn below(&self, root: i32) -> Usage {
        let of = |pid: i32| Some(Usage { cpu: *self.cpu.get(&pid)?, memory: (self.memory)(pid) });
        self.tree(root).into_iter().filter_map(of).sum()
    }
}

/// Memory that a process has to itself. What files lend to all who run the same program is nobody's.
pub fn own_memory(pid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let mut pages = text.split_whitespace().skip(1).map(|field| field.parse::<u64>().unwrap_or(0));
    let (resident, shared) = (pages.next().unwrap_or(0), pages.next().unwrap_or(0));
    let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
    resident.saturating_sub(shared).saturating_mul(page)
}

/// Nanoseconds of a tick, the kernel's unit of CPU time.
fn tick() -> u64 {
    1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)
}

/// Parent and CPU time. The name of a command may hold anything, so fields count from its last parenthesis.
fn parse_stat(text: &str, tick: u64) -> Option<(i32, u64)> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
    let parent = fields.get(1)?.parse().ok()?;
    // Its own time and that of children that it has waited for.
    let ticks = (11..=14).map(number).try_fold(0_u64, |sum, one| Some(sum.saturating_add(one?)))?;
    Some((parent, ticks.saturating_mul(tick)))
}

/// What the whole machine uses.
pub fn machine() -> Usage {
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    Usage {
        cpu: busy_ticks(&read("/proc/stat")).saturating_mul(tick()),
        memory: used_memory(&read("/proc/meminfo")),
    }
}

/// Time of all processors that was not idle. Guests count as users already.
fn busy_ticks(stat: &str) -> u64 {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu ")).unwrap_or_default();
    let fields: Vec<u64> = line.split_whitespace().filter_map(|field| field.parse().ok()).collect();
    // user, nice, system, irq, softirq; not idle, iowait and what was stolen.
    [0, 1, 2, 5, 6].iter().filter_map(|at| fields.get(*at)).fold(0, |sum, one| sum.saturating_add(*one))
}

fn used_memory(meminfo: &str) -> u64 {
    let kib = |name: &str| -> u64 {
        let rest = meminfo.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        rest.trim_start_matches(':').trim().trim_end_matches("kB").trim().parse().unwrap_or(0)
    };
    kib("MemTotal").saturating_sub(kib("MemAvailable")).saturating_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_confuse_the_fields() {
        let text = "7 (a) b (c) S 3 7 7 0 -1 0 0 0 0 0 10 20 1 2 20 0 1 0 100 4096 5 0 0";
        assert_eq!(parse_stat(text, 10), Some((3, 330)));
        assert_eq!(parse_stat("garbage", 1), None);
    }

    #[test]
    fn children_count_with_their_parents_and_rings_end() {
        let memory = |pid: i32| u64::try_from(pid).unwrap();
        let all = Processes::of([(1, 0, 1), (2, 1, 10), (3, 2, 100), (4, 9, 1000)], memory);
        assert_eq!(all.below(1), Usage { cpu: 111, memory: 6 });
        assert_eq!(all.below(7), Usage::default());
        Processes::of([(1, 2, 1), (2, 1, 1)], memory).below(1);
    }

    #[test]
    fn this_process_has_memory_of_its_own() {
        assert!(own_memory(i32::try_from(std::process::id()).unwrap()) > 4096);
    }

    #[test]
    fn the_machine_is_what_its_processors_did_and_its_memory_holds() {
        let stat = "cpu  1 2 3 1000 1000 4 5 1000 1 1\ncpu0 9 9 9 9\n";
        assert_eq!(busy_ticks(stat), 15);
        assert_eq!(used_memory("MemTotal:     100 kB\nMemFree: 1 kB\nMemAvailable:  40 kB\n"), 60 * 1024);
        assert_eq!((busy_ticks("odd"), used_memory("odd")), (0, 0));
    }
}

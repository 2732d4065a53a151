//! Runs seeds of the sharding simulator on all cores: `cargo xtask simulate sharding`.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use shoal_sharding::Guard;
use shoal_sharding::simulator::{Coverage, run_seed, shrink};

struct Options {
    seeds: u64,
    first: u64,
    only: Option<u64>,
    without: Option<Guard>,
    threads: usize,
    mutants: bool,
}

#[derive(Default)]
struct Totals {
    coverage: Coverage,
    runs: u64,
    counted: u64,
    takeovers: u64,
    events: u64,
    slowest: (f64, u64),
    settled: u64,
    failures: BTreeMap<u64, String>,
}

fn main() {
    let options = match options() {
        Ok(options) => options,
        Err(message) => {
            println!("error: {message}");
            std::process::exit(2);
        }
    };
    let fine = match (options.only, options.mutants) {
        (Some(seed), _) => one(seed, options.without),
        (None, true) => mutants(&options),
        (None, false) => many(&options),
    };
    std::process::exit(i32::from(!fine));
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        seeds: 20_000,
        first: 0,
        only: None,
        without: None,
        threads: std::thread::available_parallelism().map_or(2, usize::from),
        mutants: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        let number = |text: String| text.parse::<u64>().map_err(|_| format!("{text} is no number"));
        match word.as_str() {
            "--seeds" => options.seeds = number(value()?)?,
            "--first" => options.first = number(value()?)?,
            "--seed" => options.only = Some(number(value()?)?),
            "--threads" => options.threads = number(value()?)?.clamp(1, 1024) as usize,
            "--without" => {
                let name = value()?;
                let known = Guard::ALL.iter().copied().find(|guard| guard.name() == name);
                let names: Vec<&str> = Guard::ALL.iter().map(|guard| guard.name()).collect();
                options.without =
                    Some(known.ok_or_else(|| format!("no guard {name}; there are {}", names.join(", ")))?);
            }
            "--mutants" => options.mutants = true,
            other => return Err(format!("unknown option {other}")),
        }
    }
    Ok(options)
}

/// One seed, with its trace if it fails.
fn one(seed: u64, without: Option<Guard>) -> bool {
    let run = run_seed(seed, without);
    let Some(violation) = &run.violation else {
        println!("seed {seed}: fine, {} events, {} faults", run.events, run.faults.len());
        return true;
    };
    println!("seed {seed}: {violation}");
    let small = shrink(seed, without);
    println!("with {} of its {} faults:", small.faults.len(), run.faults.len());
    small.trace.iter().for_each(|line| println!("{line}"));
    false
}

fn many(options: &Options) -> bool {
    let totals = search(options, options.without, options.seeds, true);
    println!("{}", totals.coverage);
    let share = |part: u64| 100.0 * part as f64 / totals.runs.max(1) as f64;
    println!("seeds                   {}", totals.runs);
    println!("  that count            {} ({:.1} %)", totals.counted, share(totals.counted));
    println!("  with a takeover       {} ({:.1} %)", totals.takeovers, share(totals.takeovers));
    println!("events per seed         {}", totals.events / totals.runs.max(1));
    println!("longest way to calm     {:.1} s", totals.settled as f64 / 1e6);
    println!("most of the bound used  {:.0} % (seed {})", totals.slowest.0 * 100.0, totals.slowest.1);
    println!("violations              {}", totals.failures.len());
    for (seed, violation) in totals.failures.iter().take(10) {
        println!("  seed {seed}: {violation}");
    }
    if let Some(seed) = totals.failures.keys().next() {
        println!("\nthe first one:");
        one(*seed, options.without);
    }
    let missing = totals.coverage.missing();
    if !missing.is_empty() && totals.runs >= 20_000 {
        println!("never seen: {}", missing.join("; "));
    }
    totals.failures.is_empty() && totals.takeovers * 2 >= totals.runs
}

/// Removes every guard in turn: each must be missed.
fn mutants(options: &Options) -> bool {
    let mut fine = true;
    for guard in options.without.as_ref().map_or(Guard::ALL, std::slice::from_ref) {
        let began = Instant::now();
        let totals = search(options, Some(*guard), options.seeds, false);
        let found = totals.failures.iter().next();
        fine &= found.is_some();
        match found {
            Some((seed, violation)) => println!(
                "{:<22} found after {:>6} seeds ({:>5.1} s): seed {seed}: {violation}",
                guard.name(),
                totals.runs,
                began.elapsed().as_secs_f64()
            ),
            None => println!("{:<22} NOT FOUND in {} seeds", guard.name(), totals.runs),
        }
    }
    fine
}

/// Runs seeds until all are done or, for mutants, one fails.
fn search(options: &Options, without: Option<Guard>, seeds: u64, progress: bool) -> Totals {
    let next = AtomicU64::new(0);
    let done = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let totals = Mutex::new(Totals::default());
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..options.threads {
            scope.spawn(|| {
                let mut mine = Totals::default();
                while !stop.load(Ordering::Relaxed) {
                    let from = next.fetch_add(64, Ordering::Relaxed);
                    if from >= seeds {
                        break;
                    }
                    for seed in from..(from + 64).min(seeds) {
                        count(&mut mine, options.first + seed, without);
                    }
                    done.fetch_add(64, Ordering::Relaxed);
                    if !mine.failures.is_empty() && without.is_some() {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
                if let Ok(mut totals) = totals.lock() {
                    add(&mut totals, mine);
                }
            });
        }
        if progress {
            scope.spawn(|| {
                let mut shown = Instant::now();
                while done.load(Ordering::Relaxed) < seeds && !stop.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(100));
                    if shown.elapsed() >= Duration::from_secs(5) {
                        shown = Instant::now();
                        let done = done.load(Ordering::Relaxed);
                        let rate = done as f64 / began.elapsed().as_secs_f64();
                        println!("{done} of {seeds} seeds, {rate:.0}/s");
                    }
                }
            });
        }
    });
    let totals = totals.into_inner().unwrap_or_default();
    if progress {
        println!(
            "{} seeds in {:.1} s, {:.0}/s\n",
            totals.runs,
            began.elapsed().as_secs_f64(),
            totals.runs as f64 / began.elapsed().as_secs_f64()
        );
    }
    totals
}

fn count(totals: &mut Totals, seed: u64, without: Option<Guard>) {
    let run = run_seed(seed, without);
    run.cover(&mut totals.coverage);
    totals.runs += 1;
    totals.counted += u64::from(run.counts);
    totals.takeovers += u64::from(run.takeover);
    totals.events += run.events;
    totals.settled = totals.settled.max(run.settled);
    let used = run.settled as f64 / run.bound as f64;
    if used > totals.slowest.0 {
        totals.slowest = (used, seed);
    }
    if let Some(violation) = run.violation {
        totals.failures.insert(seed, violation.to_string());
    }
}

fn add(totals: &mut Totals, mine: Totals) {
    totals.coverage.merge(&mine.coverage);
    totals.runs += mine.runs;
    totals.counted += mine.counted;
    totals.takeovers += mine.takeovers;
    totals.events += mine.events;
    totals.settled = totals.settled.max(mine.settled);
    if mine.slowest.0 > totals.slowest.0 {
        totals.slowest = mine.slowest;
    }
    totals.failures.extend(mine.failures);
}

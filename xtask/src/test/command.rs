//! A child process whose output is shown as it comes, and whose summary is counted.

use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::ops::{Add, AddAssign};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, anyhow};

/// How many tests passed and failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Passed.
    pub passed: u64,
    /// Failed, for whatever reason.
    pub failed: u64,
    /// Passed, but not the first time: there is a race, in the test or in what it tests.
    pub flaky: u64,
    /// The lines that told of a failure, to be repeated at the very end: a log of a thousand lines hides them.
    pub told: Vec<String>,
}

/// One test that passed.
pub const PASSED: Counts = Counts { passed: 1, failed: 0, flaky: 0, told: Vec::new() };
/// One test that failed.
pub const FAILED: Counts = Counts { passed: 0, failed: 1, flaky: 0, told: Vec::new() };

impl Counts {
    /// One test that failed, with what to say of it at the end.
    pub fn failure(line: String) -> Self {
        Counts { told: vec![line], ..FAILED }
    }

    /// What counts is the second try; what failed in the first one only is flaky.
    pub fn then(self, mut second: Counts) -> Self {
        second.flaky += self.failed.saturating_sub(second.failed);
        second + Counts { told: self.told, ..Counts::default() }
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.flaky += other.flaky;
        for line in other.told {
            if !self.told.contains(&line) {
                self.told.push(line);
            }
        }
    }
}

impl Add for Counts {
    type Output = Counts;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} passed, {} failed", self.passed, self.failed)?;
        if self.flaky > 0 {
            write!(out, " ({} passed on the second try only: find FLAKY above)", self.flaky)?;
        }
        Ok(())
    }
}

/// Tells how one claim fared, and counts it.
pub fn verdict(claim: &str, outcome: Result<()>) -> Counts {
    match outcome {
        Ok(()) => {
            println!("PASS {claim}");
            PASSED
        }
        Err(error) => {
            println!("FAIL {claim}\n    {error:#}");
            Counts::failure(format!("FAIL {claim}: {error:#}"))
        }
    }
}

/// Runs a program that tells a story and ends well only if all of it was true. Real time passes in it, and a machine that stands
/// still for seconds spoils it: so it has a second try, which is told, unless it ended with 2: safety itself was broken.
pub fn story(program: &Path, arguments: &[&str]) -> Counts {
    let told = format!("shoal {}", arguments.join(" "));
    let mut counts = Counts::default();
    for again in [true, false] {
        let status = match Command::new(program).args(arguments).status() {
            Ok(status) if status.success() => {
                counts += verdict(&told, Ok(()));
                break;
            }
            Ok(status) => status,
            Err(error) => return verdict(&told, Err(error.into())),
        };
        if again && status.code() != Some(2) {
            let line = format!("FLAKY {told} ended with {status}");
            println!("{line}");
            counts += Counts { flaky: 1, told: vec![line], ..Counts::default() };
        } else {
            counts += verdict(&told, Err(anyhow!("ended with {status}")));
            break;
        }
    }
    counts
}

/// Runs the command, shows its output and adds up the summaries in it.
pub fn run_counted(command: &mut Command) -> Result<Counts> {
    run(command, summary)
}

/// Runs a program that tells of every test in a line, `ok CLAIM` or `FAILED CLAIM: why`, and counts them.
pub fn run_reporting(command: &mut Command) -> Result<Counts> {
    let mut counts = run(command, report)?;
    if counts == Counts::default() {
        println!("    {} told of no test", command.get_program().to_string_lossy());
        counts.failed = 1;
    }
    Ok(counts)
}

fn run(command: &mut Command, count: fn(&str) -> Option<Counts>) -> Result<Counts> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command.spawn().with_context(|| format!("starting {name}"))?;
    let readers = [
        child.stdout.take().map(|stream| follow(stream, count)),
        child.stderr.take().map(|stream| follow(stream, count)),
    ];
    let status = child.wait().with_context(|| format!("waiting for {name}"))?;
    let mut counts = Counts::default();
    for reader in readers.into_iter().flatten() {
        counts += reader.join().unwrap_or_default();
    }
    if !status.success() && counts.failed == 0 {
        println!("    {name} ended with {status}");
        counts += Counts::failure(format!("{name} ended with {status}"));
    }
    Ok(counts)
}

fn follow(
    stream: impl Read + Send + 'static,
    count: fn(&str) -> Option<Counts>,
) -> thread::JoinHandle<Counts> {
    thread::spawn(move || {
        let mut counts = Counts::default();
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            println!("{line}");
            counts += count(&line).unwrap_or_default();
            if tells_of_a_failure(&line) {
                counts += Counts { told: vec![line.trim().to_owned()], ..Counts::default() };
            }
        }
        counts
    })
}

/// Whether a runner names a test that failed, or that needed a second try, in this line.
fn tells_of_a_failure(whole: &str) -> bool {
    let line = whole.trim_start();
    let nextest = ["FAIL [", "TRY ", "FLAKY ", "TIMEOUT [", "SIGABRT [", "SIGSEGV ["];
    let ours = line.starts_with("FAILED ") || line.starts_with("FAIL ");
    ours || (whole.starts_with("test ") && line.ends_with(" FAILED"))
        || nextest.iter().any(|word| line.starts_with(word)) && !line.contains(" PASS [")
}

/// The counts in a summary line of nextest, of cargo's own test runner, or of the oracle's checker.
fn summary(line: &str) -> Option<Counts> {
    // What nextest repeats of a test's own output is indented, and counted by nextest itself.
    let of_cargo = line.strip_prefix("test result:");
    let line = line.trim();
    let rest = if let Some(rest) = of_cargo {
        rest
    } else if line.starts_with("Summary [") {
        line.split_once(" run: ")?.1
    } else if line.ends_with(" failed") && line.starts_with(|first: char| first.is_ascii_digit()) {
        line
    } else {
        return None;
    };
    let words: Vec<&str> = rest.split([' ', ',', ';', '(', ')']).filter(|word| !word.is_empty()).collect();
    let mut counts = Counts::default();
    for pair in words.windows(2) {
        if let Ok(number) = pair[0].parse::<u64>() {
            match pair[1] {
                "passed" => counts.passed += number,
                "flaky" => counts.flaky += number,
                "failed" | "timed" | "exec" => counts.failed += number,
                _ => {}
            }
        }
    }
    Some(counts)
}

/// One test, in the words of our own client programs.
fn report(line: &str) -> Option<Counts> {
    match line.split_once(' ')?.0 {
        "ok" => Some(PASSED),
        "FAILED" => Some(FAILED),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Counts, FAILED, PASSED, report, summary, tells_of_a_failure};

    #[test]
    fn a_client_s_lines_are_counted_one_by_one() {
        assert_eq!(report("ok python: a list is read in pages"), Some(PASSED));
        assert_eq!(report("FAILED python: a list: 500"), Some(FAILED));
        for line in ["okay then", "  ok indented", "Traceback (most recent call last):", ""] {
            assert_eq!(report(line), None, "{line}");
        }
    }

    #[test]
    fn every_runner_s_summary_is_understood() {
        let check = |line, passed, failed| {
            assert_eq!(summary(line), Some(Counts { passed, failed, ..Counts::default() }), "{line}");
        };
        check("     Summary [   0.012s] 5 tests run: 4 passed (1 slow), 1 failed, 0 skipped", 4, 1);
        check("     Summary [   1.2s] 1 test run: 1 passed, 0 skipped", 1, 0);
        check("     Summary [   1.2s] 3 tests run: 1 passed, 1 failed, 1 timed out, 0 skipped", 1, 2);
        check("test result: FAILED. 5 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out", 5, 2);
        check("104 passed, 3 failed", 104, 3);
        let flaky = summary("     Summary [   9.1s] 5 tests run: 5 passed (1 slow, 2 flaky), 0 skipped");
        assert_eq!(flaky, Some(Counts { passed: 5, flaky: 2, ..Counts::default() }));
    }

    #[test]
    fn failures_are_repeated_at_the_end_once_each() {
        let lines = [
            "        FAIL [   0.1s] ( 3/9) store a_torn_tail_is_cut",
            "  TRY 1 FAIL [   2.0s] (10/99) shoal::metrics an_autoscaler",
            "test src/lib.rs - Manager (line 12) ... FAILED",
            "FAILED python: a list: 500",
            "FAIL core-create (0.1s)",
        ];
        for line in lines {
            assert!(tells_of_a_failure(line), "{line}");
        }
        for line in ["  TRY 2 PASS [   1.0s] shoal::x y", "PASS [ 0.1s] a_FAILED_write", "test x ... ok", ""]
        {
            assert!(!tells_of_a_failure(line), "{line}");
        }
        let mut counts = Counts::failure("x".to_owned());
        counts += Counts::failure("x".to_owned());
        assert_eq!((counts.failed, counts.told.len()), (2, 1));
        let second = counts.then(Counts { passed: 7, ..Counts::default() });
        assert_eq!((second.passed, second.failed, second.flaky, second.told.len()), (7, 0, 2, 1));
    }

    #[test]
    fn other_lines_count_nothing() {
        for line in [
            "    test result: FAILED. 0 passed; 1 failed",
            "PASS [ 0.1s] store a_write_that_failed",
            "FAIL core-create (0.1s)",
            "error: 2 jobs failed",
            "",
        ] {
            assert_eq!(summary(line), None, "{line}");
        }
    }
}

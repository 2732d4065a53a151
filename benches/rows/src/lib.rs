//! One measured value on its way from a benchmark program to `xtask`.

use std::time::{Duration, Instant};

use serde::Serialize;

/// What a value is compared with.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Goal {
    /// Not more than this.
    AtMost(f64),
    /// Not less than this.
    AtLeast(f64),
}

/// One row of the report.
#[derive(Serialize)]
pub struct Row<'a> {
    /// What was measured.
    pub what: &'a str,
    /// What others need, in words.
    pub peer: String,
    /// What we want.
    pub goal: Goal,
    /// What came out.
    pub measured: f64,
    /// Of all three.
    pub unit: &'a str,
    /// Whether the goal holds for a quick run too.
    pub any_size: bool,
}

impl Row<'_> {
    /// Hands the row over.
    pub fn print(&self) -> anyhow::Result<()> {
        println!("{}", serde_json::to_string(self)?);
        Ok(())
    }
}

/// What a run took.
#[derive(Clone, Copy)]
pub struct Spent {
    /// By the clock on the wall.
    pub wall: Duration,
    /// By all threads of this process together.
    pub cpu: Duration,
}

/// The shortest of three runs: what the code needs when others leave the machine alone.
pub fn best(mut run: impl FnMut() -> anyhow::Result<Spent>) -> anyhow::Result<Spent> {
    let mut best = Spent { wall: Duration::MAX, cpu: Duration::MAX };
    for _ in 0..3 {
        let spent = run()?;
        best = Spent { wall: best.wall.min(spent.wall), cpu: best.cpu.min(spent.cpu) };
    }
    Ok(best)
}

/// Runs something and says what it took.
pub async fn timed<T>(work: impl Future<Output = T>) -> Spent {
    let (start, cpu) = (Instant::now(), cpu());
    work.await;
    Spent { wall: start.elapsed(), cpu: self::cpu().saturating_sub(cpu) }
}

/// Nanoseconds for each of `count`.
pub fn each(total: Duration, count: usize) -> f64 {
    total.as_nanos() as f64 / count as f64
}

/// CPU time of all threads of this process so far.
pub fn cpu() -> Duration {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(spent.tv_sec.unsigned_abs(), spent.tv_nsec as u32)
}

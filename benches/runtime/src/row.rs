//! One measured value on its way to `xtask`.

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
    /// Shown only.
    None,
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

/// The shortest of three runs: what the code needs when others leave the machine alone.
pub fn best(mut run: impl FnMut() -> anyhow::Result<Duration>) -> anyhow::Result<Duration> {
    let mut shortest = Duration::MAX;
    for _ in 0..3 {
        shortest = shortest.min(run()?);
    }
    Ok(shortest)
}

/// Runs something and says how long it took.
pub async fn timed<T>(work: impl Future<Output = T>) -> Duration {
    let start = Instant::now();
    work.await;
    start.elapsed()
}

/// Nanoseconds for each of `count`.
pub fn each(total: Duration, count: usize) -> f64 {
    total.as_nanos() as f64 / count as f64
}

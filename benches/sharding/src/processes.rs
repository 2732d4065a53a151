//! Figures of real processes: `shoal demo sharding` plays, measures and judges; here its figures become rows.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use bench_rows::{Goal, Row};
use serde_json::Value;

/// How long the work on an object takes, in milliseconds, and how many are worked on at once: so little that throughput is a matter of
/// workers, not of the cores that all processes share.
const WORK: u32 = 10;
const WORKERS: u32 = 2;

/// Prints the rows.
pub fn run(shoal: &Path, quick: bool) -> Result<()> {
    // Short leases make the story shorter; only the long one is judged.
    let (lease, objects) = if quick { (3.0, "300") } else { (10.0, "8000") };
    let output = Command::new(shoal)
        .args(["demo", "sharding", "-o", "json", "--figures", "--objects", objects, "--changes", "20"])
        .args(["--lease", &lease.to_string(), "--work", &WORK.to_string(), "--workers", &WORKERS.to_string()])
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("running {}", shoal.display()))?;
    let verdict: Value = serde_json::from_slice(&output.stdout).context("the story has no verdict")?;
    let number = |path: &str| verdict.pointer(path).and_then(Value::as_f64);
    let count = |key: &str| verdict[key].as_array().map(Vec::len).context("the verdict is incomplete");
    row(
        "two on one object, real processes",
        "nobody checks",
        Goal::AtMost(0.0),
        count("overlaps")? as f64,
        "times",
        true,
    )?;
    row(
        "a change left alone beyond the bound",
        "–",
        Goal::AtMost(0.0),
        count("gaps")? as f64,
        "times",
        true,
    )?;
    let takeovers = verdict["takeoverSeconds"].as_array().into_iter().flatten().filter_map(Value::as_f64);
    let Some(worst) = takeovers.max_by(f64::total_cmp) else { bail!("no takeover was measured") };
    row("crash takeover, lease 10 s", "30–60 s", Goal::AtMost(11.5), worst, "s", false)?;
    let wait = 0.5 + f64::from(WORK) / 1e3;
    let handover = number("/p99HandoverSeconds").context("no handover was measured")?;
    row("planned handover gap, p99", "per object, seconds", Goal::AtMost(wait), handover, "s", true)?;
    let figure =
        |key: &str| number(&format!("/figures/{key}")).with_context(|| format!("{key} was not measured"));
    let writes = figure("coordinationWritesPerSecond")? / figure("renewalsPerSecond")?;
    row("coordination writes at rest, N = 5 / (N/renew)", "–", Goal::AtMost(1.1), writes, "×", true)?;
    let rewritten = figure("objectsRewritten")?;
    row(
        "objects rewritten while 7 replicas join",
        "≥ 2 writes per move",
        Goal::AtMost(0.0),
        rewritten,
        "writes",
        true,
    )?;
    let added = figure("addedCreateSeconds")? * 1e3;
    row("added create latency, N = 5, median", "25 → 87 ms", Goal::AtMost(1.0), added, "ms", false)?;
    let moves = number("/restartMoves").context("no rolling restart was measured")?;
    row(
        "rolling restart: moves of the most restless slot",
        "most objects twice",
        Goal::AtMost(1.0),
        moves,
        "moves",
        true,
    )?;
    for (key, what) in [
        ("watchedBytes", "watch bytes of the busiest replica × N / of one alone, N = 2…8, worst"),
        ("cachedBytes", "cache of the fullest replica × N / of one alone, N = 2…8, worst"),
    ] {
        let worst = worst_share(&verdict, key).with_context(|| format!("{key} was not measured"))?;
        row(what, "N: each has all", Goal::AtMost(1.1), worst, "×", false)?;
    }
    row(
        "throughput efficiency at 5 replicas",
        "0.60",
        Goal::AtLeast(0.85),
        figure("efficiency")?,
        "×",
        false,
    )?;
    row(
        "CPU per reconcile, 5 replicas / 1",
        "1.23 at 3",
        Goal::AtMost(1.15),
        figure("cpuGrowth")?,
        "×",
        false,
    )?;
    Ok(())
}

/// The largest of value × replicas / value of one.
fn worst_share(verdict: &Value, key: &str) -> Option<f64> {
    let scales = verdict.pointer("/figures/scales")?.as_array()?;
    let one = scales.first()?[key].as_f64()?;
    let share = |scale: &Value| Some(scale[key].as_f64()? * scale["replicas"].as_f64()? / one);
    scales.iter().skip(1).filter_map(share).max_by(f64::total_cmp)
}

fn row(what: &str, peer: &str, goal: Goal, measured: f64, unit: &str, any_size: bool) -> Result<()> {
    Row { what, peer: peer.to_owned(), goal, measured, unit, any_size }.print()
}

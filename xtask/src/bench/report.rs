//! The rows: shown as they come, as a table at the end, and as JSON.

use std::path::Path;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::process::{Usage, machine};

/// What a measured value is compared with.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Goal {
    /// Not more than this.
    AtMost(f64),
    /// Not less than this.
    AtLeast(f64),
    /// Shown only.
    None,
}

/// One measured value.
#[derive(Serialize)]
struct Row {
    what: String,
    real_server: String,
    goal: String,
    measured: f64,
    unit: String,
    ok: Option<bool>,
    /// CPU that other programs took meanwhile, in percent of the machine.
    others_percent: Option<f64>,
}

/// All rows of a run.
#[derive(Serialize)]
pub struct Report {
    machine: String,
    quick: bool,
    rows: Vec<Row>,
}

impl Report {
    /// An empty one. In a quick run, rows that depend on size are not judged.
    pub fn new(quick: bool) -> Self {
        Report { machine: machine(), quick, rows: Vec::new() }
    }

    /// Adds a row that holds for any size of the run.
    pub fn row(&mut self, what: &str, real: &str, goal: Goal, measured: f64, unit: &str) {
        let (text, ok) = match goal {
            Goal::AtMost(limit) => (format!("≤ {}", number(limit)), Some(measured <= limit)),
            Goal::AtLeast(limit) => (format!("≥ {}", number(limit)), Some(measured >= limit)),
            Goal::None => (String::new(), None),
        };
        let row = Row {
            what: what.to_owned(),
            real_server: real.to_owned(),
            goal: text,
            measured,
            unit: unit.to_owned(),
            ok,
            others_percent: None,
        };
        println!("    {what}: {} {unit}{}", number(measured), verdict(ok));
        self.rows.push(row);
    }

    /// Adds a row whose goal is for the full size only.
    pub fn sized_row(&mut self, what: &str, real: &str, goal: Goal, measured: f64, unit: &str) {
        self.row(what, real, goal, measured, unit);
        if let Some(row) = self.rows.last_mut().filter(|_| self.quick) {
            row.ok = None;
        }
    }

    /// Notes how much other programs disturbed the last row.
    pub fn noise(&mut self, usage: &Usage) {
        if let Some(row) = self.rows.last_mut() {
            row.others_percent = Some(usage.others);
        }
    }

    /// Prints the table, writes the JSON.
    pub fn finish(&self, json: Option<&Path>) -> Result<()> {
        println!("\n{}{}\n", self.machine, if self.quick { ", quick run" } else { "" });
        println!("| what | peer | goal | measured | ok | other load |");
        println!("| --- | --- | --- | --- | --- | --- |");
        for row in &self.rows {
            let ok = row.ok.map_or("", |ok| if ok { "yes" } else { "NO" });
            let noise = row.others_percent.map_or(String::new(), |percent| format!("{percent:.0} %"));
            let goal = if row.goal.is_empty() { String::new() } else { format!("{} {}", row.goal, row.unit) };
            let measured = format!("{} {}", number(row.measured), row.unit);
            println!("| {} | {} | {goal} | {measured} | {ok} | {noise} |", row.what, row.real_server);
        }
        let judged = self.rows.iter().filter(|row| row.ok.is_some()).count();
        let reached = self.rows.iter().filter(|row| row.ok == Some(true)).count();
        println!("\n{reached} of {judged} goals reached");
        if let Some(path) = json {
            let text = serde_json::to_string_pretty(self)?;
            std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
        }
        Ok(())
    }
}

/// A histogram of nanoseconds up to a minute.
pub fn latencies() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).context("creating a histogram")
}

/// A quantile in milliseconds.
pub fn quantile(histogram: &Histogram<u64>, quantile: f64) -> f64 {
    histogram.value_at_quantile(quantile) as f64 / 1e6
}

fn verdict(ok: Option<bool>) -> &'static str {
    match ok {
        Some(true) => "  ok",
        Some(false) => "  MISSED",
        None => "",
    }
}

fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

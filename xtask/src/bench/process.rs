//! What Linux knows about a process: CPU time and memory.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// CPU of the server, of this client and of everything else at one moment.
pub struct Reading {
    server: Duration,
    client: Duration,
    machine: Duration,
    at: Instant,
    pid: u32,
}

/// What was used between two moments.
#[derive(Clone, Copy, Default)]
pub struct Usage {
    /// CPU of the server.
    pub server: Duration,
    /// CPU of this process.
    pub client: Duration,
    /// CPU of everything else, in percent of the machine: the noise of the measurement.
    pub others: f64,
    /// Wall time.
    pub elapsed: Duration,
}

impl Reading {
    /// Starts a measurement.
    pub fn now(pid: u32) -> Result<Self> {
        Ok(Reading {
            server: cpu(&pid.to_string())?,
            client: cpu("self")?,
            machine: machine_busy()?,
            at: Instant::now(),
            pid,
        })
    }

    /// What was used since.
    pub fn until_now(&self) -> Result<Usage> {
        let now = Reading::now(self.pid)?;
        let elapsed = now.at - self.at;
        let (server, client) = (now.server - self.server, now.client - self.client);
        let others = (now.machine - self.machine).saturating_sub(server + client);
        let capacity = elapsed.as_secs_f64() * std::thread::available_parallelism()?.get() as f64;
        Ok(Usage { server, client, others: 100.0 * others.as_secs_f64() / capacity, elapsed })
    }
}

/// Resident memory in MiB.
pub fn resident(pid: u32) -> Result<f64> {
    let status = read(&format!("/proc/{pid}/status"))?;
    let line =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS in the status")?;
    let kibibytes: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kibibytes / 1024.0)
}

/// The processor's name and how many there are, for the report.
pub fn machine() -> String {
    let info = read("/proc/cpuinfo").unwrap_or_default();
    let model =
        info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or(": unknown processor");
    let count = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{count} × {}", model.trim_start_matches(['\t', ' ', ':']))
}

fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("reading {path}"))
}

fn ticks(count: u64) -> Duration {
    Duration::from_secs_f64(count as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// User and system time of a process with all its threads.
fn cpu(process: &str) -> Result<Duration> {
    let stat = read(&format!("/proc/{process}/stat"))?;
    // The second field is the program's name and may hold anything, so count from its closing bracket.
    let (_, after) = stat.rsplit_once(')').context("no name in the stat file")?;
    let field = |index: usize| -> Result<u64> {
        Ok(after.split_whitespace().nth(index).context("the stat file is too short")?.parse()?)
    };
    Ok(ticks(field(11)? + field(12)?))
}

/// Time in which the processors did not idle, including what the host took away.
fn machine_busy() -> Result<Duration> {
    let stat = read("/proc/stat")?;
    let line = stat.lines().next().context("the stat file is empty")?;
    let fields: Vec<u64> = line.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    let idle = fields.get(3).copied().unwrap_or(0) + fields.get(4).copied().unwrap_or(0);
    Ok(ticks(fields.iter().take(8).sum::<u64>() - idle))
}

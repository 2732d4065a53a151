//! What is measured without sockets, by examples of other crates that print `name value` lines.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::report::{Goal, Report};
use crate::workspace::Workspace;

/// What a program that embeds the cluster pays, and parts of the server by themselves.
pub fn rows(workspace: &Workspace, report: &mut Report) -> Result<()> {
    println!("==> in process");
    let cluster = run("shoal-testkit", "in_process", None)?;
    let watcher = "server and reader CPU per further watcher per event, in process";
    report.row("start of a cluster in process", "", Goal::AtMost(5.0), value(&cluster, "start_ms")?, "ms");
    report.row(watcher, "40 µs", Goal::AtMost(2.0), value(&cluster, "watcher_us")?, "µs");

    println!("==> parts of the server");
    let deployment = workspace.root.join("xtask/src/bench/deployment.json");
    let parts = run("shoal-testkit", "parts", Some(&deployment))?;
    let mut row = |what: &str, name: &str, goal, unit| -> Result<()> {
        report.row(what, "", goal, value(&parts, name)?, unit);
        Ok(())
    };
    row("CEL: a typical rule of a custom kind, CPU per evaluation", "cel_rule_us", Goal::AtMost(2.0), "µs")?;
    row(
        "CEL: the worst of the hostile rules until it is stopped",
        "cel_hostile_ms",
        Goal::AtMost(50.0),
        "ms",
    )?;
    let what = "protobuf decoded to JSON values, Pods and Deployments, bytes of protobuf per second of CPU";
    row(what, "protobuf_mb_s", Goal::AtLeast(200.0), "MB/s")?;
    for (what, name) in
        [("unchanged", "unchanged_us"), ("another image", "changed_us"), ("without a variable", "removed_us")]
    {
        row(&format!("apply of a Deployment, field algebra alone: {what}"), name, Goal::None, "µs")?;
    }
    Ok(())
}

fn run(package: &str, example: &str, file: Option<&Path>) -> Result<String> {
    let output = Command::new("cargo")
        .args(["run", "--quiet", "--release", "--package", package, "--example", example, "--"])
        .args(file)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("running the example {example} of {package}"))?;
    if !output.status.success() {
        bail!("the example {example} of {package} failed: {}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn value(text: &str, name: &str) -> Result<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok()).with_context(|| format!("no {name} in {text:?}"))
}

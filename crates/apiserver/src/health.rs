//! Health checks and the version.

use serde_json::{Value, json};

use crate::response::Reply;
use crate::server::Inner;

/// The Kubernetes version whose API is served.
const MINOR: &str = "36";
const GIT_VERSION: &str = concat!("v1.36.0+shoal-", env!("CARGO_PKG_VERSION"));

/// The document of `/version`.
pub fn version() -> Value {
    json!({
        "major": "1", "minor": MINOR, "gitVersion": GIT_VERSION, "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, arch()),
        "emulationMajor": "1", "emulationMinor": MINOR, "minCompatibilityMajor": "1", "minCompatibilityMinor": "35",
    })
}

fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Answers `/healthz`, `/livez`, `/readyz`, and single checks below them.
pub fn answer(server: &Inner, path: &str, verbose: bool) -> Reply {
    let store = server.store.stats().refused.map_or(Ok(()), Err);
    let checks: [(&str, Result<(), String>); 2] = [("ping", Ok(())), ("store", store)];
    let mut words = path.splitn(2, '/');
    let endpoint = words.next().unwrap_or_default();
    if let Some(single) = words.next() {
        return match checks.iter().find(|(name, _)| *name == single) {
            None => Reply::text(404, "404 page not found\n"),
            Some((_, Ok(()))) => Reply::text(200, "ok"),
            Some((_, Err(why))) => Reply::text(500, format!("internal server error: {why}\n")),
        };
    }
    // A process that cannot write is still alive: restarting it would not free the disk.
    let failed =
        checks.iter().any(|(name, check)| check.is_err() && !(endpoint == "livez" && *name == "store"));
    if !verbose && !failed {
        return Reply::text(200, "ok");
    }
    let mut text = String::new();
    for (name, check) in &checks {
        match check {
            Ok(()) => text.push_str(&format!("[+]{name} ok\n")),
            Err(why) => text.push_str(&format!("[-]{name} failed: {why}\n")),
        }
    }
    let outcome = if failed { "failed" } else { "passed" };
    text.push_str(&format!("{endpoint} check {outcome}\n"));
    Reply::text(if failed { 500 } else { 200 }, text)
}

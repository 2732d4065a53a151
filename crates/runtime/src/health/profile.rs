//! Profiles of the running process.

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;

use super::HeapProfile;
use super::answer::{text, with_type};

/// Samples where the CPU time goes: `?seconds=10` (at most 60). One line per stack, as tools for flame graphs read them.
#[cfg(not(feature = "profiling"))]
#[allow(clippy::unused_async, reason = "the other build waits")]
pub(super) async fn cpu(_query: &str) -> Response<Full<Bytes>> {
    text(
        StatusCode::NOT_IMPLEMENTED,
        "this program was built without CPU profiles: build it with the feature `profiling` of shoal-runtime\n",
    )
}

/// Where memory was asked for. Only an allocator that keeps account knows, and the allocator is the program's choice.
pub(super) async fn heap(dump: Option<HeapProfile>) -> Response<Full<Bytes>> {
    let Some(dump) = dump else {
        return text(
            StatusCode::NOT_IMPLEMENTED,
            "this program has given no heap profile: only an allocator that samples has one. Link such an allocator \
             (jemalloc with its feature `profiling`) and hand its dump to Builder::heap_profile\n",
        );
    };
    // A dump takes its time, and may write a file.
    match tokio::task::spawn_blocking(move || dump()).await {
        Ok(Ok(bytes)) => with_type(StatusCode::OK, "application/octet-stream", bytes),
        Ok(Err(problem)) => text(StatusCode::INTERNAL_SERVER_ERROR, &format!("no heap profile: {problem}\n")),
        Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "no heap profile: the dump panicked\n"),
    }
}

#[cfg(feature = "profiling")]
pub(super) use sampled::cpu;

#[cfg(feature = "profiling")]
mod sampled {
    use std::time::Duration;

    use super::*;

    const SAMPLES_PER_SECOND: i32 = 99;
    const LONGEST: u64 = 60;

    pub(in super::super) async fn cpu(query: &str) -> Response<Full<Bytes>> {
        let option =
            |name: &str| query.split('&').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
        let seconds = match option("seconds").unwrap_or("10").parse::<u64>() {
            Ok(seconds @ 1..=LONGEST) => seconds,
            _ => return text(StatusCode::BAD_REQUEST, "seconds must be between 1 and 60\n"),
        };
        let failed =
            |error: String| text(StatusCode::INTERNAL_SERVER_ERROR, &format!("no profile: {error}\n"));
        let guard = match pprof::ProfilerGuardBuilder::default().frequency(SAMPLES_PER_SECOND).build() {
            Ok(guard) => guard,
            Err(error) => return failed(error.to_string()),
        };
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        let report = match guard.report().build() {
            Ok(report) => report,
            Err(error) => return failed(error.to_string()),
        };
        let mut lines: Vec<String> = report
            .data
            .iter()
            .map(|(stack, count)| {
                let frames: Vec<String> = stack
                    .frames
                    .iter()
                    .rev()
                    .map(|inlined| inlined.first().map(ToString::to_string).unwrap_or_default())
                    .collect();
                format!("{};{} {count}\n", stack.thread_name, frames.join(";"))
            })
            .collect();
        lines.sort();
        with_type(StatusCode::OK, "text/plain; charset=utf-8", lines.concat())
    }
}

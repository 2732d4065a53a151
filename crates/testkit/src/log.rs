//! What a program logs, for tests that look at it.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

/// Keeps what is written to it. Clones share what they keep.
///
/// ```
/// use std::io::Write as _;
/// use shoal_testkit::CapturedLog;
///
/// let log = CapturedLog::new();
/// // Hand `log.writer()` to whatever makes log lines: a `tracing_subscriber::fmt` layer (`.json().with_writer(…)`), or
/// // `shoal_runtime::logging::subscriber`.
/// let make_writer = log.writer();
/// make_writer().write_all(b"{\"level\":\"info\",\"message\":\"started\",\"controller\":\"web\"}\n")?;
///
/// assert_eq!(log.find("message", "started").unwrap()["controller"], "web");
/// assert_eq!(log.lines().len(), 1);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct CapturedLog(Arc<Mutex<Vec<u8>>>);

impl CapturedLog {
    /// Nothing is written yet.
    pub fn new() -> CapturedLog {
        CapturedLog::default()
    }

    /// Makes writers that write here, in the form that `tracing_subscriber` wants.
    pub fn writer(&self) -> impl Fn() -> CapturedLog + Send + Sync + Clone + use<> {
        let log = self.clone();
        move || log.clone()
    }

    /// Everything that was written.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }

    /// Everything that was written, one JSON object per line.
    ///
    /// # Panics
    /// When a line is not JSON.
    pub fn lines(&self) -> Vec<Value> {
        #[allow(clippy::panic, reason = "the test has failed")]
        let read = |line: &str| {
            serde_json::from_str(line).unwrap_or_else(|error| panic!("not a line of JSON ({error}): {line}"))
        };
        self.text().lines().map(read).collect()
    }

    /// The first line whose field has that text.
    ///
    /// # Panics
    /// When a line is not JSON.
    pub fn find(&self, field: &str, text: &str) -> Option<Value> {
        self.lines().into_iter().find(|line| line[field] == text)
    }

    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl io::Write for CapturedLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

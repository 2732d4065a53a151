//! Logs of containers: files in the format of container runtimes, rotated, read as `kubectl logs` wants them.
//!
//! A line is `TIME stdout F text`; `P` instead of `F` says that the line goes on.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use shoal_objects::{Clock, Timestamp};
use tokio::sync::{broadcast, watch};

/// A file is replaced when it is larger than this.
const ROTATE_AT: u64 = 10 * 1024 * 1024;
/// Files that are kept beside the current one.
const KEPT_FILES: u32 = 4;
/// Longer lines are cut into parts.
const LONGEST_LINE: usize = 16 * 1024;
/// Pieces of output that someone who watches may be behind.
const BACKLOG: usize = 256;

/// Which of a container's two outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Stream {
    fn name(self) -> &'static str {
        match self {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        }
    }
}

/// The log of one run of a container, being written. Clones share it.
#[derive(Clone)]
pub struct Log {
    inner: Arc<Inner>,
}

struct Inner {
    path: PathBuf,
    clock: Clock,
    file: Mutex<Current>,
    /// Grows with every write; closed when the run is over.
    progress: watch::Sender<Progress>,
    output: broadcast::Sender<(Stream, Bytes)>,
}

struct Current {
    file: File,
    size: u64,
}

/// How far a log is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    written: u64,
    rotations: u64,
    closed: bool,
}

impl Progress {
    /// Whether nothing more will come.
    pub fn is_closed(&self) -> bool {
        self.closed
    }
}

impl Log {
    /// Begins a log.
    pub fn create(path: &Path, clock: Clock) -> io::Result<Log> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let size = file.metadata()?.len();
        let inner = Inner {
            path: path.to_owned(),
            clock,
            file: Mutex::new(Current { file, size }),
            progress: watch::Sender::new(Progress::default()),
            output: broadcast::Sender::new(BACKLOG),
        };
        Ok(Log { inner: Arc::new(inner) })
    }

    /// The output as it comes, for `attach`.
    pub fn watch_output(&self) -> broadcast::Receiver<(Stream, Bytes)> {
        self.inner.output.subscribe()
    }

    /// How far it is, for readers that follow.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.inner.progress.subscribe()
    }

    /// Nothing more will come.
    pub fn close(&self) {
        self.inner.progress.send_modify(|progress| progress.closed = true);
    }

    /// Adds lines; `rest` keeps what is not a whole line yet.
    pub fn write(&self, stream: Stream, bytes: &[u8], rest: &mut Vec<u8>) -> io::Result<()> {
        let _ = self.inner.output.send((stream, Bytes::copy_from_slice(bytes)));
        rest.extend_from_slice(bytes);
        let mut out = Vec::with_capacity(bytes.len() + 64);
        let head = format!("{} {} ", nanos(self.inner.clock.now()), stream.name());
        let mut at = 0;
        loop {
            let left = &rest[at..];
            let line = &left[..left.len().min(LONGEST_LINE + 1)];
            // To ask first is faster: the library looks at many bytes at once.
            let end = line.contains(&b'\n').then(|| line.iter().position(|byte| *byte == b'\n'));
            match end.flatten() {
                Some(end) => {
                    push_line(&mut out, &head, "F", &left[..end]);
                    at += end + 1;
                }
                _ if left.len() > LONGEST_LINE => {
                    push_line(&mut out, &head, "P", &left[..LONGEST_LINE]);
                    at += LONGEST_LINE;
                }
                _ => break,
            }
        }
        rest.drain(..at);
        self.append(&out)
    }

    /// Adds a last line that was not ended.
    pub fn finish(&self, stream: Stream, rest: &mut Vec<u8>) -> io::Result<()> {
        if rest.is_empty() {
            return Ok(());
        }
        let mut out = Vec::new();
        push_line(&mut out, &format!("{} {} ", nanos(self.inner.clock.now()), stream.name()), "F", rest);
        rest.clear();
        self.append(&out)
    }

    fn append(&self, out: &[u8]) -> io::Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        let mut current = self.inner.file.lock();
        let mut rotated = 0;
        if current.size > ROTATE_AT {
            let numbered = |number: u32| numbered(&self.inner.path, number);
            for number in (1..KEPT_FILES).rev() {
                let _ = fs::rename(numbered(number), numbered(number + 1));
            }
            fs::rename(&self.inner.path, numbered(1))?;
            current.file = OpenOptions::new().create(true).append(true).open(&self.inner.path)?;
            current.size = 0;
            rotated = 1;
        }
        current.file.write_all(out)?;
        current.size += out.len() as u64;
        drop(current);
        self.inner.progress.send_modify(|progress| {
            progress.written += out.len() as u64;
            progress.rotations += rotated;
        });
        Ok(())
    }
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}

fn push_line(out: &mut Vec<u8>, head: &str, tag: &str, text: &[u8]) {
    out.extend_from_slice(head.as_bytes());
    out.extend_from_slice(tag.as_bytes());
    out.push(b' ');
    out.extend_from_slice(text);
    out.push(b'\n');
}

/// RFC 3339 with nine decimals, as runtimes write it.
fn nanos(now: Timestamp) -> String {
    let text = now.to_micro_string();
    format!("{}000Z", text.trim_end_matches('Z'))
}

/// What of a log is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Go on with what comes.
    pub follow: bool,
    /// Only the last lines.
    pub tail: Option<usize>,
    /// Only what was written then or later.
    pub since: Option<Timestamp>,
    /// Each line begins with its time.
    pub timestamps: bool,
    /// Not more bytes than this.
    pub limit: Option<u64>,
    /// Only this stream.
    pub stream: Option<String>,
}

/// One line of a file: time, stream, tag and text with its end.
fn parse(line: &[u8]) -> Option<(&str, &str, &str, &[u8])> {
    let mut parts = line.splitn(4, |byte| *byte == b' ');
    let mut text = || parts.next().and_then(|part| std::str::from_utf8(part).ok());
    let (time, stream, tag) = (text()?, text()?, text()?);
    Some((time, stream, tag, parts.next()?))
}

/// A log being read.
pub struct Reader {
    path: PathBuf,
    options: Options,
    /// Files still to be read before the current one, the next one last.
    older: Vec<PathBuf>,
    file: Option<BufReader<File>>,
    /// Lines of these files that are left out at the beginning.
    skip: usize,
    sent: u64,
    /// Part of a line that is still being written.
    partial: Vec<u8>,
}

impl Reader {
    /// Opens a log of which at least the current file exists.
    pub fn open(path: &Path, options: Options) -> io::Result<Reader> {
        let mut older: Vec<PathBuf> =
            (1..=KEPT_FILES).map(|number| numbered(path, number)).take_while(|path| path.exists()).collect();
        older.insert(0, path.to_owned());
        let skip = match options.tail {
            None => 0,
            Some(tail) => {
                let mut lines = 0;
                for path in &older {
                    lines += count_lines(path, &options)?;
                }
                lines.saturating_sub(tail)
            }
        };
        let mut reader =
            Reader { path: path.to_owned(), options, older, file: None, skip, sent: 0, partial: Vec::new() };
        reader.next_file()?;
        Ok(reader)
    }

    fn next_file(&mut self) -> io::Result<bool> {
        let Some(path) = self.older.pop() else { return Ok(false) };
        self.file = Some(BufReader::new(File::open(path)?));
        Ok(true)
    }

    /// The current file was replaced: what is left of the old one has been read.
    pub fn reopen(&mut self) -> io::Result<()> {
        self.file = Some(BufReader::new(File::open(&self.path)?));
        Ok(())
    }

    /// Whether the limit was reached.
    pub fn is_done(&self) -> bool {
        self.options.limit.is_some_and(|limit| self.sent >= limit)
    }

    /// The next piece, at most about `most` bytes; nothing when there is nothing now.
    pub fn read(&mut self, most: usize) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        while out.len() < most && !self.is_done() {
            let Some(file) = &mut self.file else { break };
            let mut line = std::mem::take(&mut self.partial);
            let count = file.read_until(b'\n', &mut line)?;
            if !line.ends_with(b"\n") {
                self.partial = line;
                if count == 0 && self.next_file()? {
                    self.partial.clear();
                    continue;
                }
                break;
            }
            let Some((time, stream, tag, text)) = parse(&line) else { continue };
            if !is_wanted(&self.options, time, stream) {
                continue;
            }
            if self.skip > 0 {
                self.skip -= usize::from(tag == "F");
                continue;
            }
            let before = out.len();
            if self.options.timestamps {
                out.extend_from_slice(time.as_bytes());
                out.push(b' ');
            }
            // A part of a line has no end of its own.
            out.extend_from_slice(if tag == "F" { text } else { text.strip_suffix(b"\n").unwrap_or(text) });
            if let Some(limit) = self.options.limit {
                let left = usize::try_from(limit - self.sent).unwrap_or(usize::MAX);
                out.truncate(before.saturating_add(left));
            }
            self.sent += (out.len() - before) as u64;
        }
        Ok(out)
    }
}

fn is_wanted(options: &Options, time: &str, stream: &str) -> bool {
    if options.stream.as_deref().is_some_and(|wanted| !wanted.eq_ignore_ascii_case(stream)) {
        return false;
    }
    let Some(since) = options.since else { return true };
    time.parse::<jiff::Timestamp>().is_ok_and(|time| time.as_microsecond() >= since.0)
}

fn count_lines(path: &Path, options: &Options) -> io::Result<usize> {
    let mut file = BufReader::new(File::open(path)?);
    file.seek(SeekFrom::Start(0))?;
    let (mut lines, mut line) = (0, Vec::new());
    while file.read_until(b'\n', &mut line)? > 0 {
        if let Some((time, stream, "F", _)) = parse(&line)
            && is_wanted(options, time, stream)
        {
            lines += 1;
        }
        line.clear();
    }
    Ok(lines)
}

/// Reads a log to its end, and beyond it if that is wanted; `send` says whether someone still listens.
pub async fn stream<F, R>(mut reader: Reader, log: Option<Log>, mut send: F) -> io::Result<()>
where
    F: FnMut(Vec<u8>) -> R,
    R: Future<Output = bool>,
{
    let mut progress = log.filter(|_| reader.options.follow).map(|log| log.progress());
    let mut rotations = progress.as_ref().map_or(0, |progress| progress.borrow().rotations);
    loop {
        let seen = progress.as_mut().map(|progress| *progress.borrow_and_update());
        let piece = reader.read(64 * 1024)?;
        if !piece.is_empty() {
            if !send(piece).await {
                return Ok(());
            }
            continue;
        }
        if reader.is_done() {
            return Ok(());
        }
        let (Some(progress), Some(seen)) = (&mut progress, seen) else { return Ok(()) };
        if seen.rotations != rotations {
            rotations = seen.rotations;
            reader.reopen()?;
            continue;
        }
        if seen.closed || progress.changed().await.is_err() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(dir: &Path) -> Log {
        Log::create(&dir.join("0.log"), Clock::from_fn(|| Timestamp(1_767_225_600_000_000))).unwrap()
    }

    fn read(dir: &Path, options: Options) -> String {
        let mut reader = Reader::open(&dir.join("0.log"), options).unwrap();
        let mut all = Vec::new();
        loop {
            let piece = reader.read(100).unwrap();
            if piece.is_empty() {
                return String::from_utf8(all).unwrap();
            }
            all.extend(piece);
        }
    }

    #[test]
    fn lines_come_back_as_they_were_written() {
        let dir = tempfile::tempdir().unwrap();
        let log = log(dir.path());
        let mut rest = Vec::new();
        log.write(Stream::Stdout, b"one\ntw", &mut rest).unwrap();
        assert_eq!(read(dir.path(), Options::default()), "one\n");
        log.write(Stream::Stdout, b"o\nthree", &mut rest).unwrap();
        log.finish(Stream::Stdout, &mut rest).unwrap();
        log.write(Stream::Stderr, b"error\n", &mut rest).unwrap();
        assert_eq!(read(dir.path(), Options::default()), "one\ntwo\nthree\nerror\n");
        let tail = Options { tail: Some(2), ..Options::default() };
        assert_eq!(read(dir.path(), tail.clone()), "three\nerror\n");
        assert_eq!(read(dir.path(), Options { limit: Some(7), ..tail }), "three\ne");
        let errors = Options { stream: Some("Stderr".to_owned()), timestamps: true, ..Options::default() };
        assert_eq!(read(dir.path(), errors), "2026-01-01T00:00:00.000000000Z error\n");
        let later = Options { since: Some(Timestamp(1_767_225_600_000_001)), ..Options::default() };
        assert_eq!(read(dir.path(), later), "");
    }

    #[test]
    fn long_lines_are_put_together_again() {
        let dir = tempfile::tempdir().unwrap();
        let log = log(dir.path());
        let line = "x".repeat(3 * LONGEST_LINE + 1) + "\n";
        log.write(Stream::Stdout, line.as_bytes(), &mut Vec::new()).unwrap();
        assert_eq!(read(dir.path(), Options::default()), line);
        let tail = Options { tail: Some(1), ..Options::default() };
        assert_eq!(read(dir.path(), tail), line);
    }

    #[test]
    fn a_log_that_grows_is_cut_and_keeps_its_newest_part() {
        let dir = tempfile::tempdir().unwrap();
        let log = log(dir.path());
        let piece = ("y".repeat(1023) + "\n").repeat(1024);
        for _ in 0..60 {
            log.write(Stream::Stdout, piece.as_bytes(), &mut Vec::new()).unwrap();
        }
        let files: Vec<_> = fs::read_dir(dir.path()).unwrap().flatten().collect();
        assert_eq!(files.len(), 1 + KEPT_FILES as usize);
        assert!(files.iter().all(|file| file.metadata().unwrap().len() <= ROTATE_AT + 2 * 1024 * 1024));
    }

    #[tokio::test]
    async fn a_follower_sees_what_comes_until_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let log = log(dir.path());
        let mut rest = Vec::new();
        log.write(Stream::Stdout, b"before\n", &mut rest).unwrap();
        let options = Options { follow: true, ..Options::default() };
        let reader = Reader::open(&dir.path().join("0.log"), options).unwrap();
        let (sender, mut receiver) = tokio::sync::mpsc::channel(8);
        let following = tokio::spawn(stream(reader, Some(log.clone()), move |piece| {
            let sender = sender.clone();
            async move { sender.send(piece).await.is_ok() }
        }));
        assert_eq!(receiver.recv().await.unwrap(), b"before\n");
        log.write(Stream::Stdout, b"after\n", &mut rest).unwrap();
        assert_eq!(receiver.recv().await.unwrap(), b"after\n");
        log.close();
        following.await.unwrap().unwrap();
    }
}

//! The journal's thread: takes the queued writes in groups, makes each group durable, then visible.
//!
//! Readers see only what is committed, so a group that fails leaves no trace in memory: the queue is dropped with all
//! that was built on it. On disk the failed frame is cut off. Where that is not certain to have worked (the sync
//! itself failed, or the cut did), the store refuses all writes until it is opened anew, which reads what is there.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use parking_lot::Mutex;

use crate::dir::{DataDir, OpenError};
use crate::format::{FileKind, begin_frame, end_frame, push_record};
use crate::options::Stats;
use crate::segment::Segment;
use crate::shared::{Shared, Touched};
use crate::snapshot;
use crate::writer::Pending;

/// A group is cut at this size, so that the first of many large writes need not wait for all of them.
const GROUP_BYTES: usize = 8 << 20;

/// Why a closed store refuses writes.
pub(crate) const CLOSED: &str = "the store is closed";
/// What a write counts for beside its object, so that a group of tiny ones has an end too.
const OVERHEAD: usize = 256;

/// A segment that is complete.
#[derive(Debug)]
pub(crate) struct Closed {
    pub path: PathBuf,
    pub first: u64,
    pub length: u64,
}

/// The running journal. Dropping it writes what is queued and ends the thread.
pub(crate) struct Journal {
    shared: Arc<Shared>,
    figures: Arc<Figures>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Figures {
    bytes: AtomicU64,
    syncs: AtomicU64,
    sync_nanos: AtomicU64,
    sync_nanos_max: AtomicU64,
    snapshots: AtomicU64,
}

impl Journal {
    /// Starts the thread.
    pub(crate) fn start(
        dir: DataDir,
        segment: Segment,
        closed: Vec<Closed>,
        shared: Arc<Shared>,
    ) -> Result<Journal, OpenError> {
        let path = dir.path().to_owned();
        let figures = Arc::new(Figures::default());
        #[allow(unused_mut, reason = "tests hand in faults")]
        let mut log = Log {
            shared: shared.clone(),
            figures: figures.clone(),
            dir: Arc::new(dir),
            segment,
            closed,
            frame: Vec::new(),
            unsealed: None,
            snapshot: None,
            stop: Arc::default(),
            retry_above: 0,
        };
        log.count_bytes();
        #[cfg(test)]
        {
            log.segment.faults = log.shared.options.faults.clone();
        }
        let thread = std::thread::Builder::new().name("journal".into()).spawn(move || log.run());
        let thread = Mutex::new(Some(thread.map_err(OpenError::io("start the journal of", &path))?));
        Ok(Journal { shared, figures, thread })
    }

    /// Refuses further writes, waits for those under way and ends the thread.
    pub(crate) fn close(&self) {
        {
            let mut writer = self.shared.writer.lock();
            writer.closing = true;
            writer.refused.get_or_insert_with(|| CLOSED.into());
        }
        self.shared.queued.notify_one();
        // Waking a task of a runtime that shuts down may drop the last store right here, in the journal's thread.
        let own = |thread: &JoinHandle<()>| thread.thread().id() == std::thread::current().id();
        if let Some(thread) = self.thread.lock().take().filter(|thread| !own(thread)) {
            let _ = thread.join();
        }
    }

    /// Fills in what is known about the disk.
    pub(crate) fn describe(&self, stats: &mut Stats) {
        let seconds = |nanos: &AtomicU64| nanos.load(Ordering::Relaxed) as f64 / 1e9;
        stats.journal_bytes = self.figures.bytes.load(Ordering::Relaxed);
        stats.syncs = self.figures.syncs.load(Ordering::Relaxed);
        stats.sync_seconds = seconds(&self.figures.sync_nanos);
        stats.sync_seconds_max = seconds(&self.figures.sync_nanos_max);
        stats.snapshots = self.figures.snapshots.load(Ordering::Relaxed);
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.close();
    }
}

/// What the thread owns.
struct Log {
    shared: Arc<Shared>,
    figures: Arc<Figures>,
    dir: Arc<DataDir>,
    segment: Segment,
    closed: Vec<Closed>,
    frame: Vec<u8>,
    /// Why the frame must not be written.
    unsealed: Option<String>,
    /// The snapshot being written, and its revision.
    snapshot: Option<(u64, JoinHandle<std::io::Result<()>>)>,
    stop: Arc<AtomicBool>,
    /// After a failure no snapshot is tried before the journal is larger than this.
    retry_above: u64,
}

/// Refuses writes if the thread ends in a panic: nobody would ever answer them.
struct Abandoned(Arc<Shared>);

impl Drop for Abandoned {
    fn drop(&mut self) {
        if std::thread::panicking() {
            fail(&self.0, "the journal has stopped after an internal error; restart the server", true);
        }
    }
}

/// Takes back all queued writes. With `for_good` later ones are refused.
fn fail(shared: &Shared, reason: &str, for_good: bool) {
    let reason: Arc<str> = reason.into();
    let failed = {
        let mut writer = shared.writer.lock();
        if for_good {
            writer.refused = Some(reason.clone());
        }
        writer.roll_back(shared.revision())
    };
    for sender in failed.into_iter().flat_map(|pending| pending.waiting) {
        let _ = sender.send(Err(reason.clone()));
    }
}

impl Log {
    fn run(mut self) {
        let _abandoned = Abandoned(self.shared.clone());
        while let Some(last) = self.take_group() {
            let written = match self.unsealed.take() {
                Some(reason) => Err((reason, false)),
                None => self.write_group(),
            };
            match written {
                Ok(()) => self.commit(last),
                Err((reason, for_good)) => {
                    tracing::error!("{reason}");
                    fail(&self.shared, &reason, for_good);
                }
            }
            self.reap_snapshot(false);
            self.begin_snapshot();
        }
        self.stop.store(true, Ordering::Relaxed);
        self.reap_snapshot(true);
    }

    /// Waits for writes and encodes a group of them into `frame`; returns its last revision, None at the end.
    fn take_group(&mut self) -> Option<u64> {
        let group: Vec<_> = {
            let mut writer = self.shared.writer.lock();
            while writer.pending.is_empty() {
                if writer.closing {
                    return None;
                }
                self.shared.queued.wait(&mut writer);
            }
            let mut bytes = 0;
            let fits = |pending: &&Pending| {
                let fits = bytes < GROUP_BYTES;
                bytes += pending.event.object.size() + OVERHEAD;
                fits
            };
            let taken = writer.pending.iter().take_while(fits);
            taken.map(|pending| (pending.table.name.clone(), pending.event.clone())).collect()
        };
        begin_frame(&mut self.frame);
        let seal = self.shared.options.seal.as_deref();
        for (resource, event) in &group {
            if let Err(why) = push_record(&mut self.frame, seal, event.kind, resource, &event.object) {
                self.unsealed = Some(format!("cannot encrypt {resource} {}: {why}", event.object.key));
            }
        }
        let (first, last) = (group.first()?.1.revision, group.last()?.1.revision);
        end_frame(&mut self.frame, self.segment.salt, first, u32::try_from(group.len()).ok()?);
        Some(last)
    }

    /// Makes the frame durable. An error says why not, and whether it is final.
    fn write_group(&mut self) -> Result<(), (String, bool)> {
        let path = self.segment.path.clone();
        let path = path.display();
        if let Err(error) = self.segment.write(&self.frame) {
            let reason = format!("cannot write to {path}: {error}; nothing of this write was stored");
            return Err(match self.segment.cut() {
                Ok(()) => (format!("{reason}; free space on the disk and try again"), false),
                Err(cut) => (
                    format!(
                        "cannot write to {path}: {error}; the journal cannot be repaired while running either ({cut}): \
                         no writes are accepted until the disk is repaired and the server restarted"
                    ),
                    true,
                ),
            });
        }
        let begun = Instant::now();
        self.segment.sync(self.frame.len()).map_err(|error| {
            let reason = format!(
                "cannot sync {path}: {error}; whether this write was stored shows after a restart: \
                 no writes are accepted until the disk is repaired and the server restarted"
            );
            (reason, true)
        })?;
        let nanos = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.figures.syncs.fetch_add(1, Ordering::Relaxed);
        self.figures.sync_nanos.fetch_add(nanos, Ordering::Relaxed);
        self.figures.sync_nanos_max.fetch_max(nanos, Ordering::Relaxed);
        self.count_bytes();
        if self.frame.capacity() > 2 * GROUP_BYTES {
            self.frame = Vec::new();
        }
        Ok(())
    }

    /// Makes the group visible and answers its writers.
    fn commit(&self, last: u64) {
        let mut touched = Touched::default();
        let group = {
            let mut writer = self.shared.writer.lock();
            let group = writer.dequeue(last);
            for pending in &group {
                self.shared.commit(&mut writer, &pending.table, pending.event.clone(), &mut touched);
            }
            group
        };
        self.shared.wake(&touched);
        for sender in group.into_iter().flat_map(|pending| pending.waiting) {
            let _ = sender.send(Ok(()));
        }
    }

    fn count_bytes(&self) -> u64 {
        let bytes = self.segment.length + self.closed.iter().map(|closed| closed.length).sum::<u64>();
        self.figures.bytes.store(bytes, Ordering::Relaxed);
        bytes
    }

    /// Starts a snapshot if the journal has become large: a new segment, and a thread that writes the objects as
    /// they are now. Only this thread commits, so the tables stand still while they are copied.
    fn begin_snapshot(&mut self) {
        let bytes = self.count_bytes();
        let live = self.shared.writer.lock().bytes;
        let threshold = self.shared.options.snapshot_bytes.max(live).max(self.retry_above);
        if self.snapshot.is_some() || bytes <= threshold {
            return;
        }
        let revision = self.shared.revision();
        if let Err(error) = self.rotate(revision) {
            self.snapshot_failed(&error);
            self.withdraw_segment(revision + 1);
            return;
        }
        let copy = |table: &Arc<crate::table::Table>| (table.name.clone(), table.objects.read().clone());
        let tables: snapshot::Tables = self.shared.tables().iter().map(copy).collect();
        let (dir, stop, seal) = (self.dir.clone(), self.stop.clone(), self.shared.options.seal.clone());
        let write = move || snapshot::write(&dir, revision, &tables, seal.as_deref(), &stop);
        match std::thread::Builder::new().name("snapshot".into()).spawn(write) {
            Ok(thread) => self.snapshot = Some((revision, thread)),
            Err(error) => self.snapshot_failed(&error),
        }
    }

    /// Closes the current segment and begins one for the revisions after this one.
    fn rotate(&mut self, revision: u64) -> std::io::Result<()> {
        if self.segment.first > revision {
            return Ok(());
        }
        #[allow(unused_mut, reason = "tests hand the faults on")]
        let mut segment = Segment::create(&self.dir, revision + 1, 0)?;
        #[cfg(test)]
        {
            segment.faults = self.segment.faults.clone();
        }
        let full = std::mem::replace(&mut self.segment, segment);
        self.closed.push(Closed { path: full.path, first: full.first, length: full.length });
        Ok(())
    }

    /// Removes a segment that got its name but not for certain: the current one will hold its revisions, and both
    /// together could not be read.
    fn withdraw_segment(&self, first: u64) {
        let path = self.dir.name(FileKind::Journal, first);
        if let Err(error) = std::fs::remove_file(&path).and_then(|()| self.dir.sync())
            && error.kind() != std::io::ErrorKind::NotFound
        {
            let reason = format!(
                "cannot remove {}: {error}; no writes are accepted until the disk is repaired and the server restarted",
                path.display()
            );
            tracing::error!("{reason}");
            fail(&self.shared, &reason, true);
        }
    }

    /// Takes note of a snapshot that is complete and removes what it replaces.
    fn reap_snapshot(&mut self, wait: bool) {
        let Some((revision, thread)) = self.snapshot.take_if(|(_, thread)| wait || thread.is_finished())
        else {
            return;
        };
        let written =
            thread.join().unwrap_or_else(|_| Err(std::io::Error::other("the snapshot's thread panicked")));
        match written {
            Ok(()) => {
                self.figures.snapshots.fetch_add(1, Ordering::Relaxed);
                self.retry_above = 0;
                self.remove_before(revision);
                self.count_bytes();
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => self.snapshot_failed(&error),
        }
    }

    /// Removes the snapshots and segments that the snapshot of this revision replaces. What cannot be removed now is
    /// removed at the next start.
    fn remove_before(&mut self, revision: u64) {
        let (replaced, kept) =
            std::mem::take(&mut self.closed).into_iter().partition(|closed| closed.first <= revision);
        self.closed = kept;
        let replaced: Vec<Closed> = replaced;
        let older = self.dir.files().map(|files| files.snapshots).unwrap_or_default();
        let older = older.into_iter().filter(|(other, _)| *other < revision).map(|(_, path)| path);
        for path in replaced.into_iter().map(|closed| closed.path).chain(older) {
            if let Err(error) = std::fs::remove_file(&path) {
                tracing::warn!(path = %path.display(), %error, "cannot remove a file that a snapshot replaces");
            }
        }
    }

    fn snapshot_failed(&mut self, error: &std::io::Error) {
        self.retry_above = self.count_bytes() + self.shared.options.snapshot_bytes;
        tracing::warn!(
            directory = %self.dir.path().display(), %error,
            "cannot write a snapshot; the journal goes on growing, free space on the disk"
        );
    }
}

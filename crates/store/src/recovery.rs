//! From the files of a data directory to the state they describe: the newest snapshot and the segments after it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::dir::{DataDir, Files, OpenError};
use crate::format::{FileKind, GENESIS, Record, Records};
use crate::frames::{Frames, Next};
use crate::journal::Closed;
use crate::object::EventKind;
use crate::pages::Pages;
use crate::seal::{Fault, Seal};
use crate::segment::Segment;
use crate::snapshot::{self, Tables};

/// What the files describe, and where to continue writing.
pub(crate) struct Recovered {
    pub tables: Tables,
    pub revision: u64,
    pub segment: Segment,
    /// The segments before the current one.
    pub closed: Vec<Closed>,
}

/// Reads a data directory; an empty one gets its first segment, for a store that begins at `first_revision`. `seal`
/// opens values that were sealed.
pub(crate) fn recover(
    dir: &DataDir,
    first_revision: u64,
    seal: Option<&dyn Seal>,
) -> Result<Recovered, OpenError> {
    let files = dir.files()?;
    for path in &files.temporary {
        std::fs::remove_file(path).map_err(OpenError::io("remove", path))?;
    }
    let mut tables = Tables::new();
    let mut revision = None;
    if let Some((number, path)) = files.snapshots.last() {
        let mut frames = open(FileKind::Snapshot, *number, path)?;
        tables = snapshot::load(&mut frames, seal)?;
        revision = Some(frames.header.revision);
    }
    let needed = remove_superseded(dir, &files, revision)?;
    if needed.is_empty() {
        if let Some(revision) = revision {
            return Err(incomplete(dir, format!("the journal after revision {revision} is missing")));
        }
        let path = dir.name(FileKind::Journal, first_revision + 1);
        let segment =
            Segment::create(dir, first_revision + 1, GENESIS).map_err(OpenError::io("create", &path))?;
        return Ok(Recovered { tables, revision: first_revision, segment, closed: Vec::new() });
    }
    replay(dir, needed, tables, revision, seal)
}

/// Replays the segments that are needed after a snapshot.
fn replay(
    dir: &DataDir,
    needed: &[(u64, PathBuf)],
    tables: Tables,
    snapshot: Option<u64>,
    seal: Option<&dyn Seal>,
) -> Result<Recovered, OpenError> {
    let skip_to = snapshot.unwrap_or(0);
    let mut state = State { tables, revision: skip_to, skip_to, seal };
    let mut closed = Vec::new();
    let mut current = None;
    for (position, (number, path)) in needed.iter().enumerate() {
        let mut frames = open(FileKind::Journal, *number, path)?;
        let begins_after = frames.header.revision.saturating_sub(1);
        if position == 0 {
            match snapshot {
                Some(snapshot) if begins_after > snapshot => {
                    return Err(missing(dir, snapshot, frames.header.revision));
                }
                None if frames.header.flags & GENESIS == 0 => {
                    return Err(incomplete(dir, format!("the snapshot before revision {number} is missing")));
                }
                _ => state.revision = begins_after,
            }
        } else if begins_after != state.revision {
            return Err(missing(dir, state.revision, frames.header.revision));
        }
        let last = position + 1 == needed.len();
        let length = state.replay(&mut frames, last)?;
        if last {
            let resumed = Segment::resume(path, &frames.header, length);
            current = Some(resumed.map_err(OpenError::io("open for writing", path))?);
        } else {
            closed.push(Closed { path: path.clone(), first: frames.header.revision, length });
        }
    }
    if state.revision < state.skip_to {
        let what = format!("the journal ends at revision {}, before the snapshot", state.revision);
        return Err(incomplete(dir, what));
    }
    let Some(segment) = current else { return Err(incomplete(dir, "there is no journal".into())) };
    Ok(Recovered { tables: state.tables, revision: state.revision, segment, closed })
}

/// Removes files that a snapshot has made needless (a crash may have left them); returns the segments still needed.
fn remove_superseded<'a>(
    dir: &DataDir,
    files: &'a Files,
    snapshot: Option<u64>,
) -> Result<&'a [(u64, PathBuf)], OpenError> {
    let Some(snapshot) = snapshot else { return Ok(&files.segments) };
    // A segment ends where the next one begins.
    let begin = files.segments.partition_point(|(first, _)| *first <= snapshot + 1).saturating_sub(1);
    let older = files.snapshots.iter().filter(|(revision, _)| *revision < snapshot);
    let superseded: Vec<_> = older.chain(&files.segments[..begin]).collect();
    for (_, path) in &superseded {
        std::fs::remove_file(path).map_err(OpenError::io("remove", path))?;
    }
    if !superseded.is_empty() {
        dir.sync().map_err(OpenError::io("write to", dir.path()))?;
    }
    Ok(&files.segments[begin..])
}

/// Opens a file whose header must agree with its name.
fn open(kind: FileKind, number: u64, path: &Path) -> Result<Frames, OpenError> {
    let mut frames = Frames::open(kind, path)?;
    if frames.header.revision != number {
        frames.offset = 0;
        let what =
            format!("the revision in its header is {}, not the one in its name", frames.header.revision);
        return Err(frames.damaged(&what));
    }
    Ok(frames)
}

fn incomplete(dir: &DataDir, what: String) -> OpenError {
    OpenError::Incomplete { path: dir.path().to_owned(), what }
}

fn missing(dir: &DataDir, after: u64, until: u64) -> OpenError {
    incomplete(dir, format!("the revisions after {after} and before {until} are missing"))
}

/// The state while segments are replayed.
struct State<'a> {
    tables: Tables,
    revision: u64,
    /// Records up to here are in the snapshot.
    skip_to: u64,
    seal: Option<&'a dyn Seal>,
}

impl State<'_> {
    /// Replays one segment; returns the length of its intact part. Only the last one may be broken at its end.
    fn replay(&mut self, frames: &mut Frames, last: bool) -> Result<u64, OpenError> {
        loop {
            let at = frames.offset;
            let what = match frames.next()? {
                Next::End => return Ok(at),
                Next::Frame(head, _) if head.first != self.revision + 1 => {
                    format!("revision {} follows on {}", head.first, self.revision)
                }
                Next::Frame(head, records) => match self.apply(records, head.records) {
                    Ok(()) => continue,
                    Err(Fault::Locked(why)) => return Err(OpenError::Locked(why)),
                    Err(Fault::Damaged(what)) => what,
                },
                Next::Broken(what) if last => match frames.later_frame()? {
                    Some(later) => format!("{what}, and further ones follow at byte {later}"),
                    None => {
                        tracing::warn!(
                            file = %frames.path.display(), offset = at, revision = self.revision,
                            "cutting off an interrupted write at the end of the journal: {what}"
                        );
                        return Ok(at);
                    }
                },
                Next::Broken(what) => format!("{what}, and a later file exists"),
            };
            frames.offset = at;
            return Err(frames.damaged(&what));
        }
    }

    fn apply(&mut self, records: Records<'_>, count: u32) -> Result<(), Fault> {
        let mut seen = 0;
        for record in records {
            let record = record?;
            if record.revision != self.revision + 1 {
                return Err(format!("revision {} follows on {}", record.revision, self.revision).into());
            }
            if record.revision > self.skip_to {
                self.apply_record(&record)?;
            }
            self.revision = record.revision;
            seen += 1;
        }
        if seen == count { Ok(()) } else { Err("records are missing".into()) }
    }

    fn apply_record(&mut self, record: &Record<'_>) -> Result<(), Fault> {
        if !self.tables.contains_key(record.resource) {
            self.tables.insert(record.resource.into(), Pages::default());
        }
        let Some(pages) = self.tables.get_mut(record.resource) else { return Ok(()) };
        let existed = match record.kind {
            EventKind::Created | EventKind::Updated => {
                pages.insert(Arc::new(snapshot::object(record, self.seal)?)).is_some()
            }
            EventKind::Deleted => pages.remove(record.key).is_some(),
        };
        if existed == (record.kind == EventKind::Created) {
            let Record { key, resource, revision, .. } = record;
            return Err(format!(
                "the write of {resource} {key} at revision {revision} contradicts what is before it"
            )
            .into());
        }
        Ok(())
    }
}

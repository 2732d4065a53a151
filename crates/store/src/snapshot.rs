//! Snapshots: all objects at one revision, so that the journal before it can go.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;

use crate::dir::{DataDir, OpenError};
use crate::format::{FileKind, HEADER, Header, Record, Records, begin_frame, end_frame, push_record};
use crate::frames::{Frames, Next};
use crate::object::{EventKind, Object};
use crate::pages::Pages;
use crate::seal::{Fault, Place, Seal};
use crate::segment::new_salt;

/// A frame is closed when it has this size.
const FRAME_BYTES: usize = 1 << 20;
/// Synced in steps, so that the journal's syncs never wait behind a long one.
const SYNC_BYTES: usize = 16 << 20;

/// The objects of tables by name.
pub(crate) type Tables = BTreeMap<Arc<str>, Pages>;

/// Writes a snapshot of `tables` at `revision`. Stops early, with an error, when `stop` is set.
pub(crate) fn write(
    dir: &DataDir,
    revision: u64,
    tables: &Tables,
    seal: Option<&dyn Seal>,
    stop: &AtomicBool,
) -> io::Result<()> {
    let written = write_temporary(dir, revision, tables, seal, stop);
    let published = written.and_then(|()| dir.publish(FileKind::Snapshot, revision));
    if published.is_err() {
        dir.discard(FileKind::Snapshot, revision);
    }
    published.map(|_| ())
}

fn write_temporary(
    dir: &DataDir,
    revision: u64,
    tables: &Tables,
    seal: Option<&dyn Seal>,
    stop: &AtomicBool,
) -> io::Result<()> {
    let salt = new_salt();
    let mut file = dir.create(FileKind::Snapshot, revision)?;
    file.write_all(&Header { kind: FileKind::Snapshot, flags: 0, revision, salt }.encode())?;
    let mut frame = Vec::with_capacity(FRAME_BYTES + FRAME_BYTES / 4);
    let (mut number, mut records, mut unsynced) = (0, 0, HEADER);
    begin_frame(&mut frame);
    for (resource, pages) in tables {
        for object in pages.slice(Bound::Unbounded, Bound::Unbounded, 0).iter() {
            push_record(&mut frame, seal, EventKind::Created, resource, object).map_err(io::Error::other)?;
            records += 1;
            if frame.len() < FRAME_BYTES {
                continue;
            }
            if stop.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            end_frame(&mut frame, salt, number, records);
            file.write_all(&frame)?;
            unsynced += frame.len();
            if unsynced >= SYNC_BYTES {
                file.sync_data()?;
                unsynced = 0;
            }
            begin_frame(&mut frame);
            (number, records) = (number + 1, 0);
        }
    }
    if records > 0 {
        end_frame(&mut frame, salt, number, records);
        file.write_all(&frame)?;
        number += 1;
    }
    // A frame without records is the end.
    begin_frame(&mut frame);
    end_frame(&mut frame, salt, number, 0);
    file.write_all(&frame)?;
    file.sync_all()
}

/// Reads a snapshot. Anything that is not right in it is an error: it was complete when it got its name.
pub(crate) fn load(frames: &mut Frames, seal: Option<&dyn Seal>) -> Result<Tables, OpenError> {
    let mut loading = Loading {
        tables: Tables::new(),
        revision: frames.header.revision,
        resource: "".into(),
        objects: Vec::new(),
    };
    let mut number = 0;
    loop {
        let at = frames.offset;
        let loaded = match frames.next()? {
            Next::Frame(head, _) if head.first != number => Err("groups of objects are missing".into()),
            Next::Frame(head, _) if head.records == 0 => return Ok(loading.finish()),
            Next::Frame(head, records) => loading.add(records, head.records, seal),
            Next::End => Err("the end is missing".into()),
            Next::Broken(what) => Err(what.into()),
        };
        match loaded {
            Ok(()) => {}
            Err(Fault::Locked(why)) => return Err(OpenError::Locked(why)),
            Err(Fault::Damaged(what)) => {
                frames.offset = at;
                return Err(frames.damaged(&what));
            }
        }
        number += 1;
    }
}

/// Tables while a snapshot is read, which has them one after the other.
struct Loading {
    tables: Tables,
    revision: u64,
    /// The table being read, and its objects so far.
    resource: Arc<str>,
    objects: Vec<Arc<Object>>,
}

impl Loading {
    fn add(&mut self, records: Records<'_>, count: u32, seal: Option<&dyn Seal>) -> Result<(), Fault> {
        let mut seen = 0;
        for record in records {
            let record = record?;
            if *record.resource != *self.resource {
                self.close_table(record.resource);
            }
            let last = self.objects.last();
            if last.is_some_and(|last| *last.key >= *record.key) || record.revision > self.revision {
                return Err("an object is not where it belongs".into());
            }
            self.objects.push(Arc::new(object(&record, seal)?));
            seen += 1;
        }
        if seen == count { Ok(()) } else { Err("objects are missing".into()) }
    }

    fn close_table(&mut self, next: &str) {
        let resource = std::mem::replace(&mut self.resource, next.into());
        let objects = std::mem::take(&mut self.objects);
        if !objects.is_empty() {
            self.tables.insert(resource, Pages::from_sorted(objects));
        }
    }

    fn finish(mut self) -> Tables {
        self.close_table("");
        self.tables
    }
}

/// An object in memory of its own size: a slice of the file's buffer would keep all of that alive.
pub(crate) fn object(record: &Record<'_>, seal: Option<&dyn Seal>) -> Result<Object, Fault> {
    let value = match (record.sealed, seal) {
        (false, _) => Bytes::copy_from_slice(record.value),
        (true, Some(seal)) => {
            let place = Place { resource: record.resource, key: record.key, revision: record.revision };
            let opened = seal.open(place, record.value).map_err(Fault::Locked)?;
            opened.into_boxed_slice().into()
        }
        (true, None) => {
            let Record { resource, key, .. } = record;
            return Err(Fault::Locked(format!("{resource} {key} is encrypted and no key was given")));
        }
    };
    Ok(Object {
        key: record.key.into(),
        created: record.created,
        revision: record.revision,
        value,
        meta: Bytes::copy_from_slice(record.meta),
    })
}

//! Writing a journal segment: whole frames, appended and synced, cut back when that fails.

use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::dir::DataDir;
use crate::format::{FileKind, HEADER, Header};

/// The segment that is being written.
pub(crate) struct Segment {
    pub path: PathBuf,
    /// The first revision it may hold.
    pub first: u64,
    /// Part of all checksums in it.
    pub salt: u64,
    /// Bytes that are durable.
    pub length: u64,
    file: File,
    #[cfg(test)]
    pub faults: std::sync::Arc<crate::tests::Faults>,
}

/// A number that cannot be guessed. Files are made by real runs only, never by simulated ones.
pub(crate) fn new_salt() -> u64 {
    RandomState::new().hash_one(0u8)
}

impl Segment {
    /// A new, empty, durable segment. `flags` go into its header.
    pub(crate) fn create(dir: &DataDir, first: u64, flags: u32) -> io::Result<Segment> {
        let salt = new_salt();
        let header = Header { kind: FileKind::Journal, flags, revision: first, salt };
        let mut file = dir.create(FileKind::Journal, first)?;
        let written = file.write_all(&header.encode()).and_then(|()| file.sync_all());
        let path = match written.and_then(|()| dir.publish(FileKind::Journal, first)) {
            Ok(path) => path,
            Err(error) => {
                dir.discard(FileKind::Journal, first);
                return Err(error);
            }
        };
        let length = HEADER as u64;
        Ok(Segment {
            path,
            first,
            salt,
            length,
            file,
            #[cfg(test)]
            faults: Default::default(),
        })
    }

    /// An existing segment, to be continued after its first `length` bytes; the rest is cut off.
    pub(crate) fn resume(path: &Path, header: &Header, length: u64) -> io::Result<Segment> {
        let mut file = OpenOptions::new().write(true).open(path)?;
        if file.metadata()?.len() != length {
            file.set_len(length)?;
            file.sync_all()?;
        }
        file.seek(SeekFrom::Start(length))?;
        Ok(Segment {
            path: path.to_owned(),
            first: header.revision,
            salt: header.salt,
            length,
            file,
            #[cfg(test)]
            faults: Default::default(),
        })
    }

    /// Writes a frame behind the durable ones. After an error call `cut`.
    pub(crate) fn write(&mut self, frame: &[u8]) -> io::Result<()> {
        #[cfg(test)]
        self.faults.write(&mut self.file, frame)?;
        self.file.write_all(frame)
    }

    /// Makes what was written durable. After an error nothing is known about the file's end.
    pub(crate) fn sync(&mut self, written: usize) -> io::Result<()> {
        #[cfg(test)]
        self.faults.sync()?;
        self.file.sync_data()?;
        self.length += written as u64;
        Ok(())
    }

    /// Removes what was written after the last successful `sync`.
    pub(crate) fn cut(&mut self) -> io::Result<()> {
        self.file.set_len(self.length)?;
        self.file.seek(SeekFrom::Start(self.length))?;
        self.file.sync_data()
    }
}

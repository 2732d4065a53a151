//! Reading the frames of a file, and telling an interrupted write from damage.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::dir::OpenError;
use crate::format::{
    BadHeader, FRAME, FRAME_MAGIC, FileKind, FrameHead, HEADER, Header, Records, checksum, frame_head,
    records,
};

/// Reads a file frame by frame.
pub(crate) struct Frames {
    pub path: PathBuf,
    pub header: Header,
    /// Where the next frame begins.
    pub offset: u64,
    length: u64,
    file: BufReader<File>,
    body: Vec<u8>,
}

/// What comes next in a file.
pub(crate) enum Next<'a> {
    Frame(FrameHead, Records<'a>),
    /// The file ends after a whole frame.
    End,
    /// What begins at `offset` is no intact frame.
    Broken(&'static str),
}

impl Frames {
    /// Opens a file and reads its header.
    pub(crate) fn open(kind: FileKind, path: &Path) -> Result<Frames, OpenError> {
        let failed = || OpenError::io("read", path);
        let file = File::open(path).map_err(failed())?;
        let length = file.metadata().map_err(failed())?.len();
        let mut file = BufReader::with_capacity(1 << 20, file);
        let mut bytes = Vec::new();
        (&mut file).take(HEADER as u64).read_to_end(&mut bytes).map_err(failed())?;
        let header = Header::decode(kind, &bytes).map_err(|bad| match bad {
            BadHeader::Version(found) => OpenError::Version { path: path.to_owned(), found },
            BadHeader::Damaged(what) => damaged(path, 0, what),
        })?;
        Ok(Frames { path: path.to_owned(), header, offset: HEADER as u64, length, file, body: Vec::new() })
    }

    /// The next frame. After `End` or `Broken` there is no further one.
    pub(crate) fn next(&mut self) -> Result<Next<'_>, OpenError> {
        let rest = self.length.saturating_sub(self.offset);
        if rest == 0 {
            return Ok(Next::End);
        }
        if rest < FRAME as u64 {
            return Ok(Next::Broken("the file ends within the header of a group of records"));
        }
        let mut head = [0; FRAME];
        self.file.read_exact(&mut head).map_err(OpenError::io("read", &self.path))?;
        let Some(head) = frame_head(self.header.salt, &head) else {
            return Ok(Next::Broken("the header of a group of records is not right"));
        };
        if head.length as u64 > rest - FRAME as u64 {
            return Ok(Next::Broken("the file ends within a group of records"));
        }
        self.body.resize(head.length, 0);
        self.file.read_exact(&mut self.body).map_err(OpenError::io("read", &self.path))?;
        if checksum(self.header.salt, &self.body) != head.crc {
            return Ok(Next::Broken("the checksum of a group of records is wrong"));
        }
        self.offset += (FRAME + head.length) as u64;
        Ok(Next::Frame(head, records(&self.body)))
    }

    /// Where after the broken part the header of a frame is found. A frame is begun only when the one before is
    /// synced, so if there is one, the broken part had been acknowledged. It need not be intact itself.
    pub(crate) fn later_frame(&mut self) -> Result<Option<u64>, OpenError> {
        let read = |file: &mut BufReader<File>, offset: u64| -> io::Result<Vec<u8>> {
            let mut rest = Vec::new();
            file.seek(SeekFrom::Start(offset))?;
            file.read_to_end(&mut rest)?;
            Ok(rest)
        };
        let rest = read(&mut self.file, self.offset).map_err(OpenError::io("read", &self.path))?;
        let found = (1..rest.len()).find(|&at| {
            rest[at..].starts_with(&FRAME_MAGIC) && frame_head(self.header.salt, &rest[at..]).is_some()
        });
        Ok(found.map(|at| self.offset + at as u64))
    }

    /// The error for damage at the current offset.
    pub(crate) fn damaged(&self, what: &str) -> OpenError {
        damaged(&self.path, self.offset, what)
    }
}

/// The error for damage that must not be passed over.
fn damaged(path: &Path, offset: u64, what: &str) -> OpenError {
    let name = path.file_name().unwrap_or(path.as_os_str()).display();
    let remedy = if offset == 0 || path.extension().is_some_and(|extension| extension == "snap") {
        format!("restore the directory from a backup ({name} cannot be read in part)")
    } else {
        format!(
            "restore the directory from a backup, or give up everything written after this point: \
             cut the file with `truncate -s {offset}` and move later journal-* files away"
        )
    };
    OpenError::Damaged { path: path.to_owned(), offset, what: what.to_owned(), remedy }
}

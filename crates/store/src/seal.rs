//! Values that lie on disk in a form only the right key opens.

use std::fmt;

use crate::object::EventKind;

/// Whose value it is: part of what is authenticated, so that a value cannot be moved to another place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// The table.
    pub resource: &'a str,
    /// The key in the table.
    pub key: &'a str,
    /// The revision that wrote the value.
    pub revision: u64,
}

/// Seals values on their way to disk and opens them on their way back. In memory they are as they were given.
pub trait Seal: Send + Sync {
    /// The sealed value; None when values of this table stay as they are. An error says why it cannot be sealed.
    fn seal(&self, place: Place<'_>, value: &[u8]) -> Result<Option<Vec<u8>>, String>;

    /// The value that was sealed. An error says why it cannot be opened and what to do, in one line.
    fn open(&self, place: Place<'_>, sealed: &[u8]) -> Result<Vec<u8>, String>;
}

/// Why what was read from disk cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The bytes are wrong.
    Damaged(String),
    /// The bytes are right and the key is not there.
    Locked(String),
}

impl From<&'static str> for Fault {
    fn from(what: &'static str) -> Fault {
        Fault::Damaged(what.to_owned())
    }
}

impl From<String> for Fault {
    fn from(what: String) -> Fault {
        Fault::Damaged(what)
    }
}

impl fmt::Debug for dyn Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seal")
    }
}

/// The sealed value of a record that is about to be written; deletions have none.
pub(crate) fn sealed(
    seal: Option<&dyn Seal>,
    kind: EventKind,
    place: Place<'_>,
    value: &[u8],
) -> Result<Option<Vec<u8>>, String> {
    match seal {
        Some(seal) if kind != EventKind::Deleted => seal.seal(place, value),
        _ => Ok(None),
    }
}

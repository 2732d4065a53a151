//! State that outlives the process: small records under keys, each with a version and a time.
//!
//! Every write is a compare-and-swap: it names the version that it is based on and is refused when another one is
//! stored. A replica that has missed something can never overwrite it.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use shoal_runtime::state::{Error, FileStore, StateStore as _};
//! use serde_json::json;
//!
//! let folder = tempfile::tempdir()?;
//! let store = FileStore::open(folder.path())?;
//! let first = store.save("shards/3", json!({"owner": "a"}), None).await?;
//! store.save("shards/3", json!({"owner": "b"}), Some(&first.version)).await?;
//! let stale = store.save("shards/3", json!({"owner": "c"}), Some(&first.version)).await;
//! assert!(matches!(stale, Err(Error::Conflict { .. })));
//! assert_eq!(store.list("shards/").await?, ["shards/3"]);
//! # Ok(())
//! # }
//! ```

mod file;
mod kubernetes;
mod name;
mod synchronizer;

use futures::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use shoal_objects::{Entropy, Timestamp};

pub use file::FileStore;
pub use kubernetes::KubernetesStore;
pub use synchronizer::{Synced, Synchronizer};

/// One state of one record. Two records of one key that was deleted in between never have the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Drawn when the record is created.
    incarnation: String,
    /// Counts its writes from 1.
    number: u64,
}

/// What is stored under a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The key.
    pub key: String,
    /// The state itself.
    pub value: Value,
    /// Names this state for the next write.
    pub version: Version,
    /// When it was written, by the writer's clock: for people.
    pub timestamp: String,
}

/// Why state was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Somebody else wrote first.
    #[error("the state {key:?} was changed by somebody else: read it again and decide anew")]
    Conflict {
        /// The key.
        key: String,
    },
    /// The key cannot be used.
    #[error("the key {key:?} cannot be used: {why}")]
    Key {
        /// Its beginning.
        key: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The state is too large.
    #[error(
        "the state {key:?} has {size} bytes, more than the {most} that fit: store less, or in several keys"
    )]
    TooLarge {
        /// The key.
        key: String,
        /// Bytes.
        size: usize,
        /// Bytes.
        most: usize,
    },
    /// What is stored is not a record.
    #[error("what is stored as state {key:?} is damaged: {why}; delete it to start afresh")]
    Damaged {
        /// The key.
        key: String,
        /// What is wrong with it.
        why: String,
    },
    /// The cluster did not do it.
    #[error("the state {key:?} was not reached: {source}")]
    Request {
        /// The key or prefix.
        key: String,
        /// Why.
        source: Box<kube::Error>,
    },
    /// The disk did not do it.
    #[error("the state in {file} was not reached: {source}")]
    Disk {
        /// The file.
        file: String,
        /// Why.
        source: std::io::Error,
    },
}

/// Where state is kept.
pub trait StateStore: Send + Sync {
    /// Writes a record. `based_on` is the version that was read; None says that there must be none.
    fn save<'a>(
        &'a self,
        key: &'a str,
        value: Value,
        based_on: Option<&'a Version>,
    ) -> BoxFuture<'a, Result<Record, Error>>;

    /// Reads a record.
    fn load<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Record>, Error>>;

    /// Deletes a record of this version.
    fn delete<'a>(&'a self, key: &'a str, based_on: &'a Version) -> BoxFuture<'a, Result<(), Error>>;

    /// The keys that begin with `prefix`, sorted.
    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<String>, Error>>;
}

impl Record {
    /// The value as a type.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, Error> {
        T::deserialize(&self.value)
            .map_err(|error| Error::Damaged { key: self.key.clone(), why: error.to_string() })
    }
}

impl Version {
    /// How often the record was written since it was created.
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// The record to write over `stored`, or a conflict. The one place that decides.
fn next(
    stored: Option<&Record>,
    based_on: Option<&Version>,
    key: &str,
    value: Value,
    now: Timestamp,
    entropy: &Entropy,
) -> Result<Record, Error> {
    if stored.map(|record| &record.version) != based_on {
        return Err(Error::Conflict { key: key.to_owned() });
    }
    let version = match based_on {
        None => Version { incarnation: entropy.uid(), number: 1 },
        Some(Version { incarnation, number }) => {
            Version { incarnation: incarnation.clone(), number: number.saturating_add(1) }
        }
    };
    Ok(Record { key: key.to_owned(), value, version, timestamp: now.to_micro_string() })
}

fn decode(key: &str, bytes: &[u8]) -> Result<Record, Error> {
    let damaged = |why: String| Error::Damaged { key: key.to_owned(), why };
    let record: Record = serde_json::from_slice(bytes).map_err(|error| damaged(error.to_string()))?;
    if record.key == key { Ok(record) } else { Err(damaged(format!("it belongs to {:?}", record.key))) }
}

//! State in files of one folder, one per key. A write is a new file that takes the old one's name; a lock on the
//! folder makes comparing and swapping one step, for all processes of this machine.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::Value;
use shoal_objects::{Clock, Entropy};

use super::{Error, Record, StateStore, Version, decode, name, next};

const ENDING: &str = ".json";
const LOCK: &str = ".lock";

/// State in a folder.
#[derive(Clone)]
pub struct FileStore(Arc<Inner>);

struct Inner {
    folder: PathBuf,
    clock: Clock,
    entropy: Entropy,
}

impl FileStore {
    /// The store in this folder, which is made if it is not there.
    pub fn open(folder: impl Into<PathBuf>) -> Result<FileStore, Error> {
        FileStore::open_with(folder, Clock::system(), Entropy::system())
    }

    /// The same with clock and chance of one's own.
    pub fn open_with(folder: impl Into<PathBuf>, clock: Clock, entropy: Entropy) -> Result<FileStore, Error> {
        let folder = folder.into();
        fs::create_dir_all(&folder).map_err(|error| disk(&folder, error))?;
        Ok(FileStore(Arc::new(Inner { folder, clock, entropy })))
    }

    /// Files block: they are used outside the tasks.
    async fn apart<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let inner = self.0.clone();
        match tokio::task::spawn_blocking(move || work(&inner)).await {
            Ok(result) => result,
            Err(error) => Err(disk(&self.0.folder, io::Error::other(error))),
        }
    }
}

impl Inner {
    fn path(&self, key: &str) -> Result<PathBuf, Error> {
        // Room for the ending within the longest name of a file.
        let name = name::encode("", key)?;
        if name.len() > 240 {
            return Err(Error::Key { key: key.chars().take(60).collect(), why: "it is too long" });
        }
        Ok(self.folder.join(name + ENDING))
    }

    /// Held until dropped.
    fn lock(&self) -> Result<File, Error> {
        let path = self.folder.join(LOCK);
        let open = || -> io::Result<File> {
            let file = File::options().create(true).truncate(false).write(true).open(&path)?;
            file.lock()?;
            Ok(file)
        };
        open().map_err(|error| disk(&path, error))
    }

    fn read(&self, key: &str) -> Result<Option<Record>, Error> {
        let path = self.path(key)?;
        match fs::read(&path) {
            Ok(bytes) => decode(key, &bytes).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(disk(&path, error)),
        }
    }

    fn write(&self, key: &str, value: Value, based_on: Option<&Version>) -> Result<Record, Error> {
        let path = self.path(key)?;
        let _lock = self.lock()?;
        let stored = self.read(key)?;
        let record = next(stored.as_ref(), based_on, key, value, self.clock.now(), &self.entropy)?;
        let bytes = serde_json::to_vec(&record)
            .map_err(|error| Error::Damaged { key: key.to_owned(), why: error.to_string() })?;
        // The lock leaves one writer, so one name is enough; what a crash left there is overwritten.
        let new = self.folder.join(".new");
        let swap = || -> io::Result<()> {
            let mut file = File::create(&new)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(&self.folder)?.sync_all()
        };
        swap().map_err(|error| disk(&path, error))?;
        Ok(record)
    }

    fn remove(&self, key: &str, based_on: &Version) -> Result<(), Error> {
        let path = self.path(key)?;
        let _lock = self.lock()?;
        if self.read(key)?.is_none_or(|record| record.version != *based_on) {
            return Err(Error::Conflict { key: key.to_owned() });
        }
        let remove = || -> io::Result<()> {
            fs::remove_file(&path)?;
            File::open(&self.folder)?.sync_all()
        };
        remove().map_err(|error| disk(&path, error))
    }

    fn keys(&self, prefix: &str) -> Result<Vec<String>, Error> {
        let mut keys = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(|error| disk(&self.folder, error))? {
            let path = entry.map_err(|error| disk(&self.folder, error))?.path();
            let ours = path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(ENDING));
            // What is damaged is told when it is read; what is deleted meanwhile is gone.
            let record = if ours { fs::read(&path).ok() } else { None };
            if let Some(record) = record.and_then(|bytes| serde_json::from_slice::<Record>(&bytes).ok())
                && record.key.starts_with(prefix)
            {
                keys.push(record.key);
            }
        }
        keys.sort();
        Ok(keys)
    }
}

impl StateStore for FileStore {
    fn save<'a>(
        &'a self,
        key: &'a str,
        value: Value,
        based_on: Option<&'a Version>,
    ) -> BoxFuture<'a, Result<Record, Error>> {
        let (key, based_on) = (key.to_owned(), based_on.cloned());
        self.apart(move |store| store.write(&key, value, based_on.as_ref())).boxed()
    }

    fn load<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Record>, Error>> {
        let key = key.to_owned();
        self.apart(move |store| store.read(&key)).boxed()
    }

    fn delete<'a>(&'a self, key: &'a str, based_on: &'a Version) -> BoxFuture<'a, Result<(), Error>> {
        let (key, based_on) = (key.to_owned(), based_on.clone());
        self.apart(move |store| store.remove(&key, &based_on)).boxed()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<String>, Error>> {
        let prefix = prefix.to_owned();
        self.apart(move |store| store.keys(&prefix)).boxed()
    }
}

fn disk(path: &Path, source: io::Error) -> Error {
    Error::Disk { file: path.display().to_string(), source }
}

//! Secrets on disk: sealed with AES-256-GCM under the keys of a file.
//!
//! The file has one key per line: 32 bytes in base64. The first one seals, all of them open. To change the key, put a
//! new line in front and restart; what lies on disk is sealed anew with the next snapshot, and the old key can go then.
//!
//! ```text
//! sealed value: version u8 · key id [4] · nonce [12] · ciphertext · tag [16]
//! ```

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use parking_lot::RwLock;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use shoal_store::{Place, Seal};

use super::files::{self, FileError};

/// The tables whose values are sealed.
const SEALED_TABLES: [&str; 1] = ["secrets"];
const VERSION: u8 = 1;
const KEY_BYTES: usize = 32;
const ID_BYTES: usize = 4;

/// Why the keys cannot be used. One line each.
#[derive(Debug, thiserror::Error)]
pub enum EncryptionError {
    /// The file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A line is no key.
    #[error(
        "{} is not a file of encryption keys: line {line} is not 32 bytes in base64; restore it from a backup",
        path.display()
    )]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
    },
    /// The machine has no randomness.
    #[error("no random numbers for an encryption key; check the system's random device")]
    Randomness,
}

/// The keys of one file.
pub struct EncryptionKeys {
    path: PathBuf,
    keys: RwLock<Vec<Key>>,
    random: SystemRandom,
}

struct Key {
    id: [u8; ID_BYTES],
    key: LessSafeKey,
}

impl EncryptionKeys {
    /// Reads the keys of a file; none when there is no file.
    pub fn read(path: &Path) -> Result<EncryptionKeys, EncryptionError> {
        let text = files::read_if_there(path)?.unwrap_or_default();
        let mut keys = Vec::new();
        for (i, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let key = BASE64_STANDARD.decode(line).ok().and_then(|bytes| Key::new(&bytes));
            keys.push(key.ok_or_else(|| EncryptionError::Malformed { path: path.to_owned(), line: i + 1 })?);
        }
        Ok(EncryptionKeys { path: path.to_owned(), keys: RwLock::new(keys), random: SystemRandom::new() })
    }

    /// Makes a first key, in a new file, if there is none. Only for a store that holds nothing sealed.
    pub fn create_if_missing(&self) -> Result<(), EncryptionError> {
        let mut keys = self.keys.write();
        if !keys.is_empty() {
            return Ok(());
        }
        let mut bytes = [0; KEY_BYTES];
        self.random.fill(&mut bytes).map_err(|_| EncryptionError::Randomness)?;
        let key = Key::new(&bytes).ok_or(EncryptionError::Randomness)?;
        let text = format!("{}\n", BASE64_STANDARD.encode(bytes));
        let name = self.path.file_name().and_then(|name| name.to_str()).unwrap_or("encryption.key");
        let dir = self.path.parent().unwrap_or(Path::new("."));
        files::create_private_dir(dir)?;
        files::write_durably(dir, &[(name, text.as_bytes())])?;
        keys.push(key);
        Ok(())
    }
}

impl Key {
    fn new(bytes: &[u8]) -> Option<Key> {
        let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, bytes).ok()?);
        let hash = digest(&SHA256, bytes);
        Some(Key { id: hash.as_ref().get(..ID_BYTES)?.try_into().ok()?, key })
    }

    fn open(&self, place: Place<'_>, nonce: &[u8], ciphertext: &[u8]) -> Option<Vec<u8>> {
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut buffer = ciphertext.to_vec();
        let length = self.key.open_in_place(nonce, Aad::from(associated(place)), &mut buffer).ok()?.len();
        buffer.truncate(length);
        Some(buffer)
    }
}

/// A value is good at its place only: nobody who can write to the disk can pass an old or other one for it.
fn associated(place: Place<'_>) -> Vec<u8> {
    let mut data = Vec::with_capacity(place.resource.len() + place.key.len() + 10);
    data.extend_from_slice(place.resource.as_bytes());
    data.push(0);
    data.extend_from_slice(place.key.as_bytes());
    data.push(0);
    data.extend_from_slice(&place.revision.to_le_bytes());
    data
}

impl Seal for EncryptionKeys {
    fn seal(&self, place: Place<'_>, value: &[u8]) -> Result<Option<Vec<u8>>, String> {
        if !SEALED_TABLES.contains(&place.resource) {
            return Ok(None);
        }
        let keys = self.keys.read();
        let Some(first) = keys.first() else {
            return Err(format!("there is no key in {}", self.path.display()));
        };
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).map_err(|_| "no random numbers".to_owned())?;
        let mut buffer = value.to_vec();
        let sealed = first.key.seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(associated(place)),
            &mut buffer,
        );
        sealed.map_err(|_| "the value is too large".to_owned())?;
        let mut out = Vec::with_capacity(1 + ID_BYTES + NONCE_LEN + buffer.len());
        out.push(VERSION);
        out.extend_from_slice(&first.id);
        out.extend_from_slice(&nonce);
        out.extend_from_slice(&buffer);
        Ok(Some(out))
    }

    fn open(&self, place: Place<'_>, sealed: &[u8]) -> Result<Vec<u8>, String> {
        let (path, keys) = (self.path.display(), self.keys.read());
        let what = format!("{} {}", place.resource, place.key);
        if keys.is_empty() {
            return Err(format!(
                "{what} is encrypted, but {path} is missing; restore that file from a backup"
            ));
        }
        let parts = sealed
            .split_first()
            .filter(|(version, _)| **version == VERSION)
            .and_then(|(_, rest)| rest.split_first_chunk::<ID_BYTES>())
            .and_then(|(id, rest)| Some((id, rest.split_first_chunk::<NONCE_LEN>()?)));
        let Some((id, (nonce, ciphertext))) = parts else {
            return Err(format!(
                "{what} is encrypted in a way this program does not know; use the one that wrote it"
            ));
        };
        let fitting: Vec<&Key> = keys.iter().filter(|key| key.id == *id).collect();
        if fitting.is_empty() {
            return Err(format!(
                "{what} is encrypted with a key that is not in {path}; restore that file from a backup"
            ));
        }
        let opened = fitting.iter().find_map(|key| key.open(place, nonce, ciphertext));
        opened.ok_or_else(|| {
            format!("{what} is encrypted and was changed on disk or does not belong there; restore a backup")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place<'_> = Place { resource: "secrets", key: "default/a", revision: 7 };

    fn keys(dir: &Path) -> EncryptionKeys {
        let keys = EncryptionKeys::read(&dir.join("encryption.key")).unwrap();
        keys.create_if_missing().unwrap();
        keys
    }

    #[test]
    fn what_is_sealed_opens_at_its_place_only() {
        let dir = tempfile::tempdir().unwrap();
        let keys = keys(dir.path());
        let sealed = keys.seal(PLACE, b"plaintext").unwrap().unwrap();
        assert!(!sealed.windows(9).any(|window| window == b"plaintext"));
        assert_eq!(keys.open(PLACE, &sealed).unwrap(), b"plaintext");
        for place in [
            Place { revision: 8, ..PLACE },
            Place { key: "default/b", ..PLACE },
            Place { resource: "other", ..PLACE },
        ] {
            assert!(keys.open(place, &sealed).unwrap_err().contains("does not belong there"));
        }
        assert_ne!(keys.seal(PLACE, b"plaintext").unwrap().unwrap(), sealed, "each time another nonce");
        assert_eq!(keys.seal(Place { resource: "pods", ..PLACE }, b"x").unwrap(), None);
    }

    #[test]
    fn no_bytes_on_disk_make_it_panic() {
        let dir = tempfile::tempdir().unwrap();
        let keys = keys(dir.path());
        let sealed = keys.seal(PLACE, b"plaintext").unwrap().unwrap();
        for length in 0..sealed.len() {
            assert!(keys.open(PLACE, &sealed[..length]).is_err(), "{length}");
        }
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(keys.open(PLACE, &changed).is_err(), "{at}");
        }
    }

    #[test]
    fn a_new_first_key_seals_and_the_old_one_still_opens() {
        let dir = tempfile::tempdir().unwrap();
        let old = keys(dir.path());
        let sealed = old.seal(PLACE, b"plaintext").unwrap().unwrap();
        let path = dir.path().join("encryption.key");
        let text = std::fs::read_to_string(&path).unwrap();
        let new_key = BASE64_STANDARD.encode([7; 32]);
        std::fs::write(&path, format!("# new\n{new_key}\n{text}")).unwrap();
        let both = EncryptionKeys::read(&path).unwrap();
        assert_eq!(both.open(PLACE, &sealed).unwrap(), b"plaintext");
        let sealed_anew = both.seal(PLACE, b"plaintext").unwrap().unwrap();
        assert!(old.open(PLACE, &sealed_anew).unwrap_err().contains("encryption.key"));
    }

    #[test]
    fn a_missing_or_malformed_file_is_told_in_one_line() {
        let dir = tempfile::tempdir().unwrap();
        let sealed = keys(dir.path()).seal(PLACE, b"plaintext").unwrap().unwrap();
        let path = dir.path().join("encryption.key");
        std::fs::remove_file(&path).unwrap();
        let why = EncryptionKeys::read(&path).unwrap().open(PLACE, &sealed).unwrap_err();
        assert!(why.contains("encryption.key is missing") && !why.contains('\n'), "{why}");
        std::fs::write(&path, "not a key\n").unwrap();
        let why = EncryptionKeys::read(&path).err().unwrap().to_string();
        assert!(why.contains("line 1") && why.contains("encryption.key"), "{why}");
    }
}

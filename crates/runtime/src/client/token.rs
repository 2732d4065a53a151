//! The token of an account is a file that is written anew before the token in it expires.
//!
//! It is read again at least once a minute by a clock that nobody sets, and at once after the server has refused it: neither a jump of
//! the time of day nor a machine that slept leaves a process with a token that is no longer valid.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, StatusCode};
use parking_lot::Mutex;
use tokio::time::Instant;

/// The longest time for which a token is used without a look at its file.
const FRESH: Duration = Duration::from_secs(60);

/// A token in a file. Clones share what was read.
#[derive(Clone, Debug)]
pub(super) struct TokenFile {
    path: Arc<Path>,
    read: Arc<Mutex<Read>>,
}

#[derive(Debug)]
struct Read {
    header: HeaderValue,
    /// When to look again.
    stale_at: Instant,
}

impl TokenFile {
    /// Reads the token for the first time.
    pub(super) fn open(path: PathBuf) -> io::Result<TokenFile> {
        let read = Read { header: header(&path)?, stale_at: Instant::now() + FRESH };
        Ok(TokenFile { path: path.into(), read: Arc::new(Mutex::new(read)) })
    }

    /// Puts the token on a request.
    pub(super) fn authorize(&self, headers: &mut HeaderMap) {
        let mut read = self.read.lock();
        if Instant::now() >= read.stale_at {
            match header(&self.path) {
                Ok(header) => read.header = header,
                // Whoever takes the file away has given the token for good.
                Err(error) => {
                    tracing::warn!(path = %self.path.display(), %error, "the last token is kept");
                }
            }
            read.stale_at = Instant::now() + FRESH;
        }
        headers.insert(AUTHORIZATION, read.header.clone());
    }

    /// The server has answered: who is refused looks again before the next request.
    pub(super) fn answered(&self, status: StatusCode) {
        if status == StatusCode::UNAUTHORIZED {
            self.read.lock().stale_at = Instant::now();
        }
    }
}

fn header(path: &Path) -> io::Result<HeaderValue> {
    let token = std::fs::read_to_string(path)?;
    let unusable = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    if token.trim().is_empty() {
        return Err(unusable("it is empty"));
    }
    let mut header = HeaderValue::from_str(&format!("Bearer {}", token.trim()))
        .map_err(|_| unusable("it holds something that cannot be sent"))?;
    header.set_sensitive(true);
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(file: &TokenFile) -> String {
        let mut headers = HeaderMap::new();
        file.authorize(&mut headers);
        headers[AUTHORIZATION].to_str().unwrap().to_owned()
    }

    #[tokio::test(start_paused = true)]
    async fn a_rotated_token_is_used_within_a_minute_or_as_soon_as_the_old_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "one\n").unwrap();
        let file = TokenFile::open(path.clone()).unwrap();
        assert_eq!(sent(&file), "Bearer one");
        std::fs::write(&path, "two").unwrap();
        tokio::time::advance(FRESH - Duration::from_secs(1)).await;
        assert_eq!(sent(&file), "Bearer one");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(sent(&file), "Bearer two");
        std::fs::write(&path, "three").unwrap();
        file.answered(StatusCode::FORBIDDEN);
        assert_eq!(sent(&file), "Bearer two");
        file.clone().answered(StatusCode::UNAUTHORIZED);
        assert_eq!(sent(&file), "Bearer three");
        // What is gone, empty or no token at all changes nothing.
        for broken in ["", "  \n", "a\u{7}b"] {
            std::fs::write(&path, broken).unwrap();
            file.answered(StatusCode::UNAUTHORIZED);
            assert_eq!(sent(&file), "Bearer three", "{broken:?}");
        }
        std::fs::remove_file(&path).unwrap();
        file.answered(StatusCode::UNAUTHORIZED);
        assert_eq!(sent(&file), "Bearer three");
        assert!(!format!("{file:?}").contains("three"), "no secret in a log");
    }
}

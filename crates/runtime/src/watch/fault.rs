//! What goes wrong between a watcher and its server, and what to do about it.

use std::time::Duration;

use http::HeaderMap;
use serde_json::Value;

/// Why a request or a watch came to its end.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Fault {
    /// The request did not reach the server, or the answer broke off.
    #[error("the connection failed: {0}")]
    Connection(String),
    /// No answer in time.
    #[error("no {what} within {after:?}")]
    Timeout {
        /// What was waited for.
        what: &'static str,
        /// How long.
        after: Duration,
    },
    /// The server answered with an error.
    #[error("the server answered {code} {reason}: {message}")]
    Refused {
        /// HTTP status.
        code: u16,
        /// `reason` of the Status.
        reason: String,
        /// `message` of the Status.
        message: String,
        /// How long to wait, as the server wishes.
        retry_after: Option<Duration>,
    },
    /// The server does not have that part of the history (any more, or yet).
    #[error("the server cannot go on from there: {0}")]
    Gone(String),
    /// The server does not know how to stream a list, or ignores the wish.
    #[error("the server does not stream lists")]
    NotStreamed,
    /// A list was older than what is known already.
    #[error("a list at {listed} is older than {known}, which is known")]
    OlderList {
        /// Version of the list.
        listed: String,
        /// The newest version seen.
        known: String,
    },
    /// One event was too large.
    #[error("an event of more than {limit} bytes")]
    FrameTooLarge {
        /// The limit.
        limit: usize,
    },
    /// One page was too large.
    #[error("a page of more than {limit} bytes")]
    PageTooLarge {
        /// The limit.
        limit: usize,
    },
    /// What came is not what the Kubernetes API says.
    #[error("not understood: {0}")]
    Malformed(&'static str),
    /// The watch ended at once, with nothing in it.
    #[error("the watch ended before it began")]
    EndedAtOnce,
}

impl Fault {
    /// Whether only a new list helps.
    pub fn needs_list(&self) -> bool {
        // An event that cannot be read comes again at the same place: go around it.
        matches!(self, Fault::Gone(_) | Fault::FrameTooLarge { .. } | Fault::Malformed(_))
    }

    /// How long the server wishes not to be asked.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Fault::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Whether the request itself was found wrong.
    pub fn is_bad_request(&self) -> bool {
        matches!(self, Fault::Refused { code: 400 | 422, .. })
    }

    /// An error answer: HTTP status, headers, and a body that is a Status if all is well.
    pub fn of_answer(code: u16, headers: &HeaderMap, body: &[u8]) -> Fault {
        let status: Value = serde_json::from_slice(body).unwrap_or_default();
        let seconds =
            headers.get(http::header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        of_status(code, &status, seconds)
    }

    /// A Status in the place of an object, as error events have it.
    pub fn of_event(object: &[u8]) -> Fault {
        let status: Value = serde_json::from_slice(object).unwrap_or_default();
        let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or(500);
        of_status(code, &status, None)
    }
}

fn of_status(code: u16, status: &Value, seconds: Option<u64>) -> Fault {
    let text = |field: &str| status[field].as_str().unwrap_or_default().to_owned();
    let (reason, message) = (text("reason"), text("message"));
    let causes = status["details"]["causes"].as_array();
    let too_new = causes
        .is_some_and(|causes| causes.iter().any(|cause| cause["reason"] == "ResourceVersionTooLarge"))
        || message.starts_with("Too large resource version");
    if code == 410 || reason == "Expired" || reason == "Gone" || too_new {
        return Fault::Gone(message);
    }
    let seconds = seconds.or_else(|| status["details"]["retryAfterSeconds"].as_u64());
    Fault::Refused { code, reason, message, retry_after: seconds.map(Duration::from_secs) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_or_unreached_version_needs_a_list_and_nothing_else_does() {
        let gone = br#"{"code":410,"reason":"Expired","message":"too old resource version: 1 (5)"}"#;
        assert!(Fault::of_event(gone).needs_list());
        let too_new = br#"{"code":504,"reason":"Timeout","message":"Timeout: Too large resource version: 9, current: 5",
            "details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1}}"#;
        assert!(Fault::of_answer(504, &HeaderMap::new(), too_new).needs_list());
        assert!(!Fault::of_answer(504, &HeaderMap::new(), b"gateway").needs_list());
    }

    #[test]
    fn the_wish_to_be_left_alone_is_read_from_header_or_status() {
        let headers = HeaderMap::from_iter([(http::header::RETRY_AFTER, "7".parse().unwrap())]);
        assert_eq!(Fault::of_answer(429, &headers, b"").retry_after(), Some(Duration::from_secs(7)));
        let status = br#"{"code":429,"details":{"retryAfterSeconds":3}}"#;
        assert_eq!(Fault::of_event(status).retry_after(), Some(Duration::from_secs(3)));
    }
}

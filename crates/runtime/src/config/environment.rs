//! Settings that come from environment variables.

use std::time::Duration;

use serde::Serialize;

use super::duration;

/// How caches are filled and kept.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Informer {
    /// `INFORMER_CACHE_SIZE`: decoded objects of each kind kept beside the encoded ones. Default 10000, or what the program
    /// thinks best.
    pub cache_size: Option<usize>,
    /// `LIST_TIMEOUT`: how long one list request may take. Default 60 s.
    #[serde(serialize_with = "duration::serialize")]
    pub list_timeout: Duration,
    /// `ENABLE_INCREMENTAL_SYNC`: whether a broken watch is resumed where it ended instead of listing again.
    /// Default true.
    pub incremental_sync: bool,
}

impl Default for Informer {
    fn default() -> Informer {
        Informer { cache_size: None, list_timeout: Duration::from_secs(60), incremental_sync: true }
    }
}

/// Reads the variables; those that are not set or empty keep their default.
pub(super) fn informer(environment: &dyn Fn(&str) -> Option<String>, problems: &mut Vec<String>) -> Informer {
    let mut informer = Informer::default();
    let get =
        |name: &str| environment(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    if let Some(text) = get("INFORMER_CACHE_SIZE") {
        match text.parse() {
            Ok(size) => informer.cache_size = Some(size),
            Err(_) => {
                problems.push("INFORMER_CACHE_SIZE must be a number of objects, such as 10000".to_owned());
            }
        }
    }
    if let Some(text) = get("LIST_TIMEOUT") {
        match duration::parse(&text) {
            Ok(Duration::ZERO) => problems.push("LIST_TIMEOUT must be longer than 0".to_owned()),
            Ok(timeout) => informer.list_timeout = timeout,
            Err(message) => problems.push(format!("LIST_TIMEOUT is wrong: {message}")),
        }
    }
    if let Some(text) = get("ENABLE_INCREMENTAL_SYNC") {
        match text.to_ascii_lowercase().as_str() {
            "true" | "1" => informer.incremental_sync = true,
            "false" | "0" => informer.incremental_sync = false,
            _ => problems.push("ENABLE_INCREMENTAL_SYNC must be true or false".to_owned()),
        }
    }
    informer
}

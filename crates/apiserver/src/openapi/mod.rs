//! OpenAPI documents, made from the type table and the registry.
//!
//! `/openapi/v3` lists a document per group version, each under the hash of its bytes, so that clients can keep it for good.
//! Documents are made when asked for and kept compressed; of the others only the hash is known. Whatever is kept is
//! good for as long as the registry holds the same resources of that group version.

mod dialect;
mod document;
mod gnostic;
#[cfg(test)]
mod gnostic_tests;
mod operation;
mod parameters;
mod paths;
mod scalars;
mod schema;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io::{self, Read as _, Write};
use std::sync::Arc;

use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use http::HeaderMap;
use http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, ETAG, EXPIRES, HeaderName, HeaderValue, IF_NONE_MATCH, LOCATION, VARY,
};
use parking_lot::Mutex;
use ring::digest::{Context, SHA512};
use serde_json::{Map, Value, json};
use shoal_objects::Timestamp;

use crate::aggregate::Delegates;
use crate::negotiate;
use crate::registry::{Registry, Resource};
use crate::response::{Reply, accepts_gzip};
use crate::status::{Failure, Outcome};
use document::Subject;

const YEAR: i64 = 365 * 24 * 3600;

/// The documents made so far.
#[derive(Default)]
pub struct Documents {
    made: Mutex<HashMap<(String, Form), Made>>,
}

/// How a document is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Form {
    Json,
    /// Swagger 2 only.
    Protobuf,
}

impl Form {
    fn content_type(self) -> &'static str {
        match self {
            Form::Json => "application/json",
            Form::Protobuf => "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
        }
    }

    fn write(self, subject: &Subject, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Form::Json => document::write(subject, out),
            Form::Protobuf => document::write_protobuf(subject, out),
        }
    }
}

/// What is kept of a document.
#[derive(Clone)]
struct Made {
    /// The resources it is about, as they were.
    of: Vec<Arc<Resource>>,
    hash: Arc<str>,
    /// None until somebody asks for it.
    gzip: Option<Bytes>,
}

/// Answers a request below `/openapi`: `path` is `v2`, `v3` or `v3/...`, `hash` that of the query.
pub fn answer(
    documents: &Documents,
    registry: &Registry,
    delegates: &Delegates,
    path: &str,
    headers: &HeaderMap,
    hash: Option<&str>,
    now: Timestamp,
) -> Outcome<Reply> {
    if path == "v3" {
        // As plain text, like the real server.
        return Ok(Reply::text(200, index(documents, registry, delegates)?.to_string()));
    }
    let subject = match path.strip_prefix("v3/") {
        Some(path) => document::subject(registry, path),
        None if path == "v2" => Some(document::everything(registry)),
        None => None,
    };
    let Some(subject) = subject else { return Ok(bare(404)) };
    let form = match negotiate::accept_swagger(headers) {
        Some(true) if subject.path.is_empty() => Form::Protobuf,
        _ if negotiate::accept(headers, false).is_ok_and(negotiate::Accepted::is_json) => Form::Json,
        _ => return Ok(bare(406)),
    };
    let document = documents.get(&subject, form)?;
    let tag = format!("\"{}\"", document.hash);
    let mut reply = match hash.filter(|hash| !hash.is_empty() && !subject.path.is_empty()) {
        Some(hash) if *hash != *document.hash => {
            let mut reply = bare(301);
            add(&mut reply, LOCATION, &url(&subject.path, &document.hash));
            reply
        }
        hash => {
            let mut reply = if knows(headers, &tag) {
                Reply::full(304, "", form.content_type())
            } else {
                body(&document, form, headers)?
            };
            if hash.is_some() {
                add(&mut reply, CACHE_CONTROL, "public, immutable");
                add(&mut reply, EXPIRES, &http_date(now.plus_seconds(YEAR)));
            }
            reply
        }
    };
    add(&mut reply, ETAG, &tag);
    add(&mut reply, VARY, "Accept, Accept-Encoding");
    Ok(reply)
}

/// The real server says no more than this.
fn bare(status: u16) -> Reply {
    Reply::full(status, "", "")
}

/// Where every document is found.
fn index(documents: &Documents, registry: &Registry, delegates: &Delegates) -> Outcome<Value> {
    let mut paths = Map::new();
    for path in document::all(registry) {
        if let Some(subject) = document::subject(registry, &path) {
            let hash = documents.hash(&subject)?;
            paths.insert(path, json!({"serverRelativeURL": url(&subject.path, &hash)}));
        }
    }
    documents.forget_others(&paths);
    // Documents of group versions that others serve are theirs.
    for delegate in delegates.iter() {
        let path = paths_of(&delegate.group, &delegate.version);
        match &delegate.discovered().open_api {
            Some(url) => paths.insert(path, json!({"serverRelativeURL": url})),
            None => paths.remove(&path),
        };
    }
    Ok(json!({"paths": paths}))
}

fn paths_of(group: &str, version: &str) -> String {
    format!("apis/{group}/{version}")
}

/// Where a document that code of this process makes is found.
pub fn url_of(group: &str, version: &str, document: &[u8]) -> Option<String> {
    let hash = hash_of(|out| out.write_all(document)).ok()?;
    Some(url(&paths_of(group, version), &hash))
}

fn url(path: &str, hash: &str) -> String {
    format!("/openapi/v3/{path}?hash={hash}")
}

impl Documents {
    /// The hash of a document that need not be kept.
    fn hash(&self, subject: &Subject) -> Outcome<Arc<str>> {
        if let Some(made) = self.kept(subject, Form::Json) {
            return Ok(made.hash);
        }
        let hash = hash_of(|out| document::write(subject, out)).map_err(|e| internal(&e))?;
        self.keep(
            subject,
            Form::Json,
            Made { of: subject.resources.clone(), hash: hash.clone(), gzip: None },
        );
        Ok(hash)
    }

    /// The document, compressed.
    fn get(&self, subject: &Subject, form: Form) -> Outcome<Made> {
        if let Some(made) = self.kept(subject, form)
            && made.gzip.is_some()
        {
            return Ok(made);
        }
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        let hash = hash_of(|out| form.write(subject, &mut Both(&mut gzip, out))).map_err(|e| internal(&e))?;
        let mut bytes = gzip.finish().map_err(|e| internal(&e))?;
        bytes.shrink_to_fit();
        let made = Made { of: subject.resources.clone(), hash, gzip: Some(bytes.into()) };
        self.keep(subject, form, made.clone());
        Ok(made)
    }

    fn kept(&self, subject: &Subject, form: Form) -> Option<Made> {
        let made = self.made.lock().get(&(subject.path.clone(), form))?.clone();
        let same = made.of.len() == subject.resources.len()
            && made.of.iter().zip(&subject.resources).all(|(a, b)| Arc::ptr_eq(a, b));
        same.then_some(made)
    }

    /// Documents of groups that are not served any more; the one of everything at once has no path.
    fn forget_others(&self, paths: &Map<String, Value>) {
        self.made.lock().retain(|(path, _), _| path.is_empty() || paths.contains_key(path));
    }

    fn keep(&self, subject: &Subject, form: Form, made: Made) {
        self.made.lock().insert((subject.path.clone(), form), made);
    }
}

/// Runs a writer and hashes what it writes.
fn hash_of(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<Arc<str>> {
    let mut hashing = Hashing(Context::new(&SHA512));
    {
        // Documents come in many tiny writes.
        let mut buffered = io::BufWriter::with_capacity(16 * 1024, &mut hashing);
        write(&mut buffered)?;
        buffered.flush()?;
    }
    let hex: String = hashing.0.finish().as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
    Ok(hex.into())
}

/// Hashes what is written to it.
struct Hashing(Context);

impl Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes to two places.
struct Both<'a>(&'a mut dyn Write, &'a mut dyn Write);

impl Write for Both<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_all(bytes)?;
        self.1.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()?;
        self.1.flush()
    }
}

fn body(document: &Made, form: Form, headers: &HeaderMap) -> Outcome<Reply> {
    let gzip = document.gzip.clone().unwrap_or_default();
    if accepts_gzip(headers) {
        let mut reply = Reply::full(200, gzip, form.content_type());
        add(&mut reply, CONTENT_ENCODING, "gzip");
        return Ok(reply);
    }
    let mut plain = Vec::new();
    GzDecoder::new(gzip.as_ref()).read_to_end(&mut plain).map_err(|e| internal(&e))?;
    Ok(Reply::full(200, plain, form.content_type()))
}

/// Whether the client says that it has this version.
fn knows(headers: &HeaderMap, tag: &str) -> bool {
    let seen =
        headers.get_all(IF_NONE_MATCH).iter().filter_map(|v| v.to_str().ok()).flat_map(|v| v.split(','));
    seen.map(str::trim).any(|seen| seen == "*" || seen.strip_prefix("W/").unwrap_or(seen) == tag)
}

fn add(reply: &mut Reply, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        reply.headers.push((name, value));
    }
}

fn http_date(time: Timestamp) -> String {
    let time = jiff::Timestamp::from_microsecond(time.0).unwrap_or(jiff::Timestamp::MAX);
    jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&time).unwrap_or_default()
}

fn internal(error: &io::Error) -> Failure {
    Failure::internal(format!("writing an OpenAPI document: {error}"))
}

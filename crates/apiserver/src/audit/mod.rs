//! The audit log: who did what, one JSON line per request, in the shape of `audit.k8s.io/v1`.
//!
//! A request leaves its [`Trail`] while it is answered. At its end the trail goes into a bounded queue, and a thread of
//! its own makes the line and writes it: requests never wait for the disk. What does not fit is counted.

mod event;
mod policy;
mod writer;

pub use policy::{AuditPolicy, PolicyError};

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use bytes::Bytes;
use http::HeaderMap;
use http::request::Parts;
use parking_lot::Mutex;
use shoal_objects::{Clock, Timestamp};

use crate::access::UserInfo;
use crate::aggregate::{Delegate, RequestInfo};
use crate::negotiate::{BodyFormat, PatchKind, body_format, patch_kind};
use crate::request::Target;
use crate::serve::PeerAddress;
use crate::status::Failure;
use policy::Asked;

/// How many events may wait to be written.
const QUEUED_EVENTS: usize = 8_192;
/// How many bytes of request bodies may wait with them.
const QUEUED_BYTES: usize = 32 * 1024 * 1024;
/// Longer answers are not logged.
const ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// How much is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing.
    None,
    /// Who asked for what, and the outcome.
    Metadata,
    /// Also the object that was sent; never of Secrets, ConfigMaps and tokens.
    Request,
    /// Also what was answered, with the same exceptions.
    RequestResponse,
}

/// Where and what to log.
#[derive(Clone, Debug)]
pub struct AuditOptions {
    /// The file; older ones have a number at the end.
    pub path: PathBuf,
    /// Which requests, and how much of each.
    pub policy: AuditPolicy,
    /// A file that has grown beyond this is set aside.
    pub max_bytes: u64,
    /// How many files that were set aside are kept.
    pub keep: usize,
}

impl AuditOptions {
    /// The usual settings: 100 MiB per file, five older ones; the same level for all requests.
    pub fn new(path: PathBuf, level: Level) -> AuditOptions {
        AuditOptions::by_policy(path, AuditPolicy::of_level(level))
    }

    /// The usual settings with a policy.
    pub fn by_policy(path: PathBuf, policy: AuditPolicy) -> AuditOptions {
        AuditOptions { path, policy, max_bytes: 100 * 1024 * 1024, keep: 5 }
    }
}

/// What a request leaves behind for the log.
#[derive(Clone, Debug, Default)]
pub struct Trail {
    /// Who called.
    pub caller: Option<UserInfo>,
    /// Whom they acted as.
    pub impersonated: Option<UserInfo>,
    /// In the words of authorization.
    pub verb: String,
    /// What it was about.
    pub object: Option<ObjectRef>,
    /// What was sent, and in which format.
    body: Option<(Bytes, BodyFormat)>,
    /// Notes of authorization and admission.
    pub annotations: Vec<(String, String)>,
}

/// The object of a request.
#[derive(Clone, Debug, Default)]
pub struct ObjectRef {
    resource: String,
    group: String,
    version: String,
    subresource: String,
    namespace: String,
    /// The name; of a create as soon as it is known.
    pub name: String,
}

/// A request that has been answered, and how.
#[derive(Clone, Debug)]
struct Done {
    id: String,
    stage: &'static str,
    level: Level,
    omit_managed_fields: bool,
    uri: String,
    source: Option<String>,
    user_agent: Option<String>,
    received: Timestamp,
    now: Timestamp,
    outcome: Outcome,
    trail: Trail,
    /// What was answered, and in which format.
    answer: Option<(Bytes, BodyFormat)>,
}

#[derive(Clone, Debug, Default)]
struct Outcome {
    code: u16,
    reason: &'static str,
    message: String,
}

/// The log of a server.
pub struct AuditLog {
    policy: AuditPolicy,
    clock: Clock,
    queue: Mutex<Option<SyncSender<Box<Done>>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    figures: Arc<Figures>,
}

/// What became of events.
#[derive(Debug, Default)]
pub struct Figures {
    /// Lines written.
    pub written: AtomicU64,
    /// Events that are lost: the queue was full, or the disk.
    pub dropped: AtomicU64,
    queued_bytes: AtomicUsize,
}

/// A watch under way: its end is logged when this is dropped.
pub struct Pending {
    log: Arc<AuditLog>,
    done: Option<Done>,
}

impl AuditLog {
    /// Opens the file and starts writing.
    pub fn open(options: &AuditOptions, clock: Clock) -> io::Result<AuditLog> {
        let writer = writer::Writer::open(options)?;
        let (queue, events) = sync_channel(QUEUED_EVENTS);
        let figures = Arc::new(Figures::default());
        let counted = figures.clone();
        let run = move || write_all(&events, writer, &counted);
        let thread = std::thread::Builder::new().name("audit".to_owned()).spawn(run)?;
        Ok(AuditLog {
            policy: options.policy.clone(),
            clock,
            queue: Mutex::new(Some(queue)),
            thread: Mutex::new(Some(thread)),
            figures,
        })
    }

    /// Figures for metrics.
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    fn send(&self, done: Done) {
        let size = done.size();
        let queued = &self.figures.queued_bytes;
        if queued.fetch_add(size, Ordering::Relaxed) + size <= QUEUED_BYTES {
            let queue = self.queue.lock();
            if queue.as_ref().is_some_and(|queue| queue.try_send(Box::new(done)).is_ok()) {
                return;
            }
        }
        queued.fetch_sub(size, Ordering::Relaxed);
        self.figures.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for AuditLog {
    fn drop(&mut self) {
        // Without its sender the thread ends when all that is queued is written.
        drop(self.queue.lock().take());
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

fn write_all(events: &Receiver<Box<Done>>, mut writer: writer::Writer, figures: &Figures) {
    while let Ok(done) = events.recv() {
        figures.queued_bytes.fetch_sub(done.size(), Ordering::Relaxed);
        let line = event::line(&done);
        let counter = if writer.write(&line, done.now) { &figures.written } else { &figures.dropped };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl Done {
    fn size(&self) -> usize {
        let bytes = |body: &Option<(Bytes, BodyFormat)>| body.as_ref().map_or(0, |(body, _)| body.len());
        bytes(&self.trail.body) + bytes(&self.answer) + self.uri.len()
    }
}

impl Trail {
    /// Notes who is calling, and as whom.
    pub fn calls(&mut self, caller: &UserInfo, acting: &UserInfo) {
        self.caller = Some(caller.clone());
        self.impersonated = (caller != acting).then(|| acting.clone());
    }

    /// Notes what the request is about.
    pub fn about(&mut self, target: &Target, verb: &str) {
        verb.clone_into(&mut self.verb);
        self.object = Some(ObjectRef {
            resource: target.resource.plural.to_string(),
            group: target.resource.group.to_string(),
            version: target.resource.version.to_string(),
            subresource: target.subresource.clone(),
            namespace: target.namespace.clone(),
            name: target.name.clone(),
        });
    }

    /// Notes what a request that others answer is about.
    pub fn delegates(&mut self, delegate: &Delegate, info: &RequestInfo) {
        info.verb.clone_into(&mut self.verb);
        self.object = (!info.resource.is_empty()).then(|| ObjectRef {
            resource: info.resource.clone(),
            group: delegate.group.clone(),
            version: delegate.version.clone(),
            subresource: info.subresource.clone(),
            namespace: info.namespace.clone(),
            name: info.name.clone(),
        });
    }

    /// Notes what was sent.
    pub fn carries(&mut self, headers: &HeaderMap, body: &Bytes) {
        let confidential = self.object.as_ref().is_none_or(ObjectRef::is_confidential);
        if !body.is_empty()
            && !confidential
            && let Some(format) = format_of(headers)
        {
            self.body = Some((body.clone(), format));
        }
    }

    /// Notes a decision or finding.
    pub fn note(&mut self, key: &str, text: impl Into<String>) {
        self.annotations.push((key.to_owned(), text.into()));
    }
}

/// The format of a body, of patches too.
fn format_of(headers: &HeaderMap) -> Option<BodyFormat> {
    let patch = match patch_kind(headers) {
        Ok(PatchKind::Apply) => Some(BodyFormat::Yaml),
        Ok(_) => Some(BodyFormat::Json),
        Err(_) => None,
    };
    patch.or_else(|| body_format(headers).ok())
}

impl ObjectRef {
    /// Whether objects of this kind never go into the log.
    fn is_confidential(&self) -> bool {
        matches!(self.resource.as_str(), "secrets" | "configmaps" | "tokenreviews")
            || self.subresource == "token"
    }
}

/// How a request ended.
pub struct End<'a> {
    /// The code, or what went wrong.
    pub outcome: &'a Result<u16, Failure>,
    /// Whether events are still to come.
    pub is_watch: bool,
    /// Gives what is answered; asked only if that is to be logged.
    pub answer: &'a mut dyn FnMut() -> Option<(Bytes, BodyFormat)>,
}

/// Logs the end of a request; of a watch its beginning, and gives what logs its end.
pub fn finish(
    log: &Arc<AuditLog>,
    parts: &Parts,
    id: &str,
    received: Timestamp,
    mut trail: Trail,
    end: End<'_>,
) -> Option<Pending> {
    let End { outcome, is_watch, answer } = end;
    if trail.verb.is_empty() {
        trail.verb = parts.method.as_str().to_ascii_lowercase();
    }
    let asked = Asked {
        user: trail.caller.as_ref(),
        verb: &trail.verb,
        object: trail.object.as_ref(),
        path: parts.uri.path(),
    };
    let decision = log.policy.decide(&asked);
    if decision.level == Level::None {
        return None;
    }
    let text = |name: &str| parts.headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
    let confidential = trail.object.as_ref().is_some_and(ObjectRef::is_confidential);
    let outcome = match outcome {
        Ok(code) => Outcome { code: *code, ..Outcome::default() },
        Err(failure) => Outcome {
            code: failure.code.as_u16(),
            reason: failure.reason,
            // Messages quote values.
            message: if confidential { String::new() } else { failure.message.clone() },
        },
    };
    let level = if confidential { decision.level.min(Level::Metadata) } else { decision.level };
    if level < Level::Request {
        trail.body = None;
    }
    let answer = if level == Level::RequestResponse && !is_watch { answer() } else { None };
    let done = Done {
        id: id.to_owned(),
        stage: "ResponseComplete",
        level,
        omit_managed_fields: decision.omit_managed_fields,
        uri: parts.uri.path_and_query().map_or_else(String::new, ToString::to_string),
        source: parts.extensions.get::<PeerAddress>().map(|peer| peer.0.ip().to_string()),
        user_agent: text("user-agent"),
        received,
        now: log.clock.now(),
        outcome,
        trail,
        answer: answer.filter(|(body, _)| body.len() <= ANSWER_BYTES),
    };
    if is_watch && !decision.omits("ResponseStarted") {
        log.send(Done { stage: "ResponseStarted", ..done.clone() });
    }
    if decision.omits("ResponseComplete") {
        return None;
    }
    if is_watch {
        return Some(Pending { log: log.clone(), done: Some(done) });
    }
    log.send(done);
    None
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(mut done) = self.done.take() {
            done.now = self.log.clock.now();
            self.log.send(done);
        }
    }
}

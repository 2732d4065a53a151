//! GET of a collection with `watch`.

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use shoal_objects::{Errors, Path};
use shoal_store::{Event, EventKind, Object, Range, Watcher};
use tokio::sync::futures::OwnedNotified;
use tokio::time::{Instant, Sleep};

use crate::audit::Pending;
use crate::conversion;
use crate::encode;
use crate::handlers::{Call, all_shown, list, served, view};
use crate::kinds::options;
use crate::metrics::Gauge;
use crate::negotiate::{Encoding, View};
use crate::protobuf::{self, frames::Key};
use crate::registry::Resource;
use crate::response::{Reply, watch_type};
use crate::selection::Selection;
use crate::server::Inner;
use crate::status::{Failure, Outcome};
use crate::table::Include;

/// Without `timeoutSeconds` a watch lasts between this and twice this.
const SHORTEST: u64 = 30 * 60;
/// Nobody sees the end of a longer one, and moments further away cannot be told.
const LONGEST: u64 = 10 * 365 * 24 * 60 * 60;
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// Several events are sent together up to this size.
const CHUNK: usize = 64 * 1024;

/// A running watch. It is a cursor into the store's history: what the client has not read yet is not kept for it.
pub struct WatchBody {
    server: Arc<Inner>,
    resource: Arc<Resource>,
    namespace: String,
    selection: Selection,
    encoding: Encoding,
    view: View,
    include: Include,
    /// Column definitions go with the first Table only.
    columns_sent: bool,
    phase: Phase,
    watcher: Watcher,
    /// Events whose objects a webhook is converting.
    converting: Option<Converting>,
    bookmarks: bool,
    initial_bookmark: Option<u64>,
    bookmark_at: std::pin::Pin<Box<Sleep>>,
    ends_at: std::pin::Pin<Box<Sleep>>,
    /// Of custom kinds: ready when the kind may not be served any more.
    kinds_changed: Option<std::pin::Pin<Box<OwnedNotified>>>,
    _open: Gauge,
    audit: Option<Pending>,
}

/// An object of the store on its way into an event; of an older revision if it left the selection at a later one.
type Change = (EventKind, Arc<Object>, Option<u64>);

struct Converting {
    objects: BoxFuture<'static, Outcome<Vec<Value>>>,
    changes: Vec<Change>,
    /// Ends the initial events, if these are their last.
    then: Option<u64>,
}

enum Phase {
    Initial(std::vec::IntoIter<Arc<Object>>),
    Live,
    Closed,
}

/// Answers a watch request.
pub async fn watch(call: &Call<'_>) -> Outcome<Reply> {
    let resource = call.target.resource.clone();
    let abilities = &call.server.abilities;
    let query = &call.query;
    let include = view::for_watch(call)?;
    let timeout = query.number("timeoutSeconds")?;
    let selection = Selection::parse(&resource, query, abilities.shard_selector)?;
    let version = query.get("resourceVersion").unwrap_or_default();
    let version_match = query.get("resourceVersionMatch").unwrap_or_default();
    let mut errors = Errors::new();
    let send_initial_events = query.get("sendInitialEvents").map(|_| query.flag("sendInitialEvents"));
    let list_options = options::ListOptions {
        watch: true,
        resource_version: version,
        resource_version_match: version_match,
        continue_token: "",
        send_initial_events,
        allow_watch_bookmarks: query.flag("allowWatchBookmarks"),
    };
    options::validate_list(&list_options, &mut errors);
    if send_initial_events.is_some() && !abilities.watch_list {
        let text = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
        errors.forbidden(&Path::new("sendInitialEvents"), text);
    }
    if !errors.is_empty() {
        return Err(Failure::invalid("meta.k8s.io", "ListOptions", "", &errors));
    }
    let from: u64 = match version {
        "" => 0,
        text => text.parse().map_err(|_| {
            Failure::internal(format!(
                "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
            ))
        })?,
    };
    if let Some(custom) = resource.custom.as_ref().filter(|custom| from != 0 && from < custom.since) {
        return Ok(expired(call.accepted.encoding, from, custom.since));
    }
    let streaming_list = send_initial_events == Some(true);
    let skip_initial = send_initial_events == Some(false);
    let namespace = call.target.namespace.clone();
    let bookmarks = abilities.bookmarks && query.flag("allowWatchBookmarks");
    let store = &call.server.store;
    let mut initial = Vec::new();
    let mut start = from;
    if streaming_list || (from == 0 && !skip_initial) {
        list::await_revision(store, from).await?;
        let range = if namespace.is_empty() { Range::All } else { Range::Namespace(&namespace) };
        let listing = store.list(&resource.table, range, None, 0).await;
        start = listing.revision;
        initial = listing.objects;
        initial.retain(|o| selection.matches(o));
    } else if from == 0 {
        start = store.revision();
    }
    let Ok(watcher) = store.watch(&resource.table, start) else {
        return Ok(expired(call.accepted.encoding, start, store.compacted()));
    };
    let seconds = match timeout {
        Some(n) if n > 0 => n.unsigned_abs().min(LONGEST),
        _ => SHORTEST + call.server.entropy.below(SHORTEST),
    };
    let now = Instant::now();
    let kinds_changed = &call.server.kinds_changed;
    let kinds_changed = resource.custom.is_some().then(|| Box::pin(kinds_changed.clone().notified_owned()));
    let body = WatchBody {
        server: call.server.clone(),
        resource,
        namespace,
        selection,
        encoding: call.accepted.encoding,
        view: call.accepted.view,
        include,
        columns_sent: false,
        phase: Phase::Initial(initial.into_iter()),
        watcher,
        converting: None,
        bookmarks,
        initial_bookmark: (streaming_list && bookmarks).then_some(start),
        bookmark_at: Box::pin(tokio::time::sleep_until(now + BOOKMARK_EVERY)),
        ends_at: Box::pin(tokio::time::sleep_until(now + Duration::from_secs(seconds))),
        kinds_changed,
        _open: call.server.metrics.watcher_opened(),
        audit: None,
    };
    Ok(Reply::watch(body, call.accepted.encoding))
}

/// A watch that ends before it begins.
fn expired(encoding: Encoding, asked: u64, oldest: u64) -> Reply {
    Reply::full(200, expired_event(encoding, asked, oldest), watch_type(encoding))
}

fn expired_event(encoding: Encoding, asked: u64, oldest: u64) -> Bytes {
    let failure = Failure::expired(format!("too old resource version: {asked} ({oldest})"));
    event_of(encoding, "ERROR", &failure.to_status())
}

/// An event made of an object that is not a stored buffer.
fn event_of(encoding: Encoding, name: &str, object: &Value) -> Bytes {
    if encoding == Encoding::Protobuf {
        let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
        let encoded = protobuf::encode_response(text("apiVersion"), text("kind"), object);
        return protobuf::watch_frame(name, &encoded.unwrap_or_default()).into();
    }
    encode::event_of(name, object)
}

impl WatchBody {
    /// Has the end of the watch logged.
    pub fn log_end(&mut self, pending: Option<Pending>) {
        self.audit = pending;
    }

    /// The next piece of the stream; `None` ends it.
    pub fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if let Some(converting) = &mut self.converting {
                let objects = ready!(converting.objects.poll_unpin(cx));
                if let Some(frames) = self.converted(objects) {
                    return Poll::Ready(Some(frames));
                }
            }
            match &mut self.phase {
                Phase::Closed => return Poll::Ready(None),
                Phase::Initial(objects) => {
                    let batch: Vec<Arc<Object>> = take_bytes(objects);
                    let done = objects.as_slice().is_empty();
                    let then = if done { self.initial_bookmark.take() } else { None };
                    if done {
                        self.phase = Phase::Live;
                    }
                    let changes = batch.into_iter().map(|o| (EventKind::Created, o, None)).collect();
                    if let Some(frames) = self.frames(changes, then, false) {
                        return Poll::Ready(Some(frames));
                    }
                }
                Phase::Live => match self.watcher.poll_next(cx) {
                    Poll::Ready(Ok(batch)) => {
                        self.follow_definition();
                        let changes = batch.events.iter().filter_map(|event| self.seen(event)).collect();
                        if let Some(frames) = self.frames(changes, None, true) {
                            return Poll::Ready(Some(frames));
                        }
                    }
                    Poll::Ready(Err(_)) => {
                        self.phase = Phase::Closed;
                        let seen = self.watcher.progress();
                        return Poll::Ready(Some(expired_event(
                            self.encoding,
                            seen,
                            self.server.store.compacted(),
                        )));
                    }
                    Poll::Pending => return self.poll_timers(cx),
                },
            }
        }
    }

    /// A custom kind may be defined anew while it is watched.
    fn follow_definition(&mut self) {
        if self.resource.custom.is_none() {
            return;
        }
        let Resource { group, version, plural, .. } = &*self.resource;
        if let Some(current) = self.server.registry().find(group, version, plural) {
            self.resource = current.clone();
        }
    }

    /// Whether the kind is not served any more.
    fn is_gone(&self) -> bool {
        let Resource { group, version, plural, .. } = &*self.resource;
        self.resource.custom.is_some() && self.server.registry().find(group, version, plural).is_none()
    }

    fn poll_timers(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.ends_at.poll_unpin(cx).is_ready() {
            self.phase = Phase::Closed;
            let revision = self.watcher.progress();
            return Poll::Ready(self.bookmarks.then(|| self.bookmark(revision, false)));
        }
        while let Some(changed) = &mut self.kinds_changed
            && changed.poll_unpin(cx).is_ready()
        {
            // Listen first, look then: nothing is missed in between.
            *changed = Box::pin(self.server.kinds_changed.clone().notified_owned());
            if self.is_gone() {
                self.phase = Phase::Closed;
                return Poll::Ready(None);
            }
        }
        if self.bookmarks && self.bookmark_at.poll_unpin(cx).is_ready() {
            self.bookmark_at.as_mut().reset(Instant::now() + BOOKMARK_EVERY);
            // Have the new deadline wake this task.
            let _ = self.bookmark_at.poll_unpin(cx);
            let revision = self.watcher.progress();
            return Poll::Ready(Some(self.bookmark(revision, false)));
        }
        Poll::Pending
    }

    /// The events of some changes; nothing yet when a webhook has to convert their objects first.
    /// What was there before the watch is not kept for others.
    fn frames(&mut self, changes: Vec<Change>, then: Option<u64>, kept: bool) -> Option<Bytes> {
        if conversion::webhook(&self.resource).is_some() && !changes.is_empty() {
            let (server, resource) = (self.server.clone(), self.resource.clone());
            let stored: Vec<Arc<Object>> = changes.iter().map(|(_, object, _)| object.clone()).collect();
            let objects = async move { all_shown(&server, &resource, &stored).await }.boxed();
            self.converting = Some(Converting { objects, changes, then });
            return None;
        }
        let mut frames: Vec<Bytes> =
            changes.iter().map(|(kind, object, at)| self.frame(*kind, object, *at, kept)).collect();
        frames.extend(then.map(|revision| self.bookmark(revision, true)));
        (!frames.is_empty()).then(|| join(frames))
    }

    /// The events whose objects were converted. A watch cannot go on without them.
    fn converted(&mut self, objects: Outcome<Vec<Value>>) -> Option<Bytes> {
        let Converting { changes, then, .. } = self.converting.take()?;
        let objects = match objects {
            Ok(objects) => objects,
            Err(failure) => {
                self.phase = Phase::Closed;
                return Some(event_of(self.encoding, "ERROR", &failure.to_status()));
            }
        };
        let mut frames: Vec<Bytes> = Vec::with_capacity(objects.len() + 1);
        for ((kind, _, at), object) in changes.into_iter().zip(objects) {
            frames.push(self.event(event_name(kind), object, at));
        }
        frames.extend(then.map(|revision| self.bookmark(revision, true)));
        (!frames.is_empty()).then(|| join(frames))
    }

    /// What this watcher sees of a change: an object that starts or stops matching is added or deleted for it.
    fn seen(&self, event: &Event) -> Option<Change> {
        if !self.namespace.is_empty() {
            let in_namespace = event.object.key.strip_prefix(&*self.namespace);
            if !in_namespace.is_some_and(|rest| rest.starts_with('/')) {
                return None;
            }
        }
        let before = event.previous.as_ref().filter(|o| self.selection.matches(o)).cloned();
        match event.kind {
            EventKind::Deleted => before.map(|_| (EventKind::Deleted, event.object.clone(), None)),
            _ => match (before, self.selection.matches(&event.object)) {
                (Some(_), true) => Some((EventKind::Updated, event.object.clone(), None)),
                (None, true) => Some((EventKind::Created, event.object.clone(), None)),
                (Some(old), false) => Some((EventKind::Deleted, old, Some(event.revision))),
                (None, false) => None,
            },
        }
    }

    fn frame(&mut self, kind: EventKind, object: &Arc<Object>, at: Option<u64>, kept: bool) -> Bytes {
        let name = event_name(kind);
        if self.encoding == Encoding::Protobuf && kept {
            let key = Key {
                revision: object.revision,
                shown_at: at,
                event: name,
                view: self.view,
                resource: Arc::as_ptr(&self.resource).addr(),
            };
            let server = self.server.clone();
            return server.frames.get(key, object.value.len(), || self.made_frame(name, object, at));
        }
        if self.encoding != Encoding::Protobuf
            && self.view == View::Full
            && self.resource.shows_as_stored(object)
        {
            return match at {
                None => encode::event(&object.value, kind),
                Some(revision) => encode::event_at(&object.value, kind, revision),
            };
        }
        self.made_frame(name, object, at)
    }

    fn made_frame(&mut self, name: &str, object: &Arc<Object>, at: Option<u64>) -> Bytes {
        let value = served(&self.resource, object).unwrap_or(Value::Null);
        self.event(name, value, at)
    }

    fn event(&mut self, name: &str, mut value: Value, at: Option<u64>) -> Bytes {
        if let Some(revision) = at {
            value["metadata"]["resourceVersion"] = Value::from(revision.to_string());
        }
        event_of(self.encoding, name, &self.shown(value))
    }

    fn shown(&mut self, object: Value) -> Value {
        let headers = !std::mem::replace(&mut self.columns_sent, true);
        view::event_object(&self.server, &self.resource, self.view, self.include, object, headers)
    }

    fn bookmark(&mut self, revision: u64, ends_initial: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if ends_initial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = json!({"kind": &*self.resource.kind, "apiVersion": &*self.resource.api_version, "metadata": metadata});
        event_of(self.encoding, "BOOKMARK", &self.shown(object))
    }
}

fn event_name(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Created => "ADDED",
        EventKind::Updated => "MODIFIED",
        EventKind::Deleted => "DELETED",
    }
}

/// Takes objects worth about one chunk.
fn take_bytes(objects: &mut std::vec::IntoIter<Arc<Object>>) -> Vec<Arc<Object>> {
    let mut size = 0;
    let mut taken = Vec::new();
    while size < CHUNK
        && let Some(object) = objects.next()
    {
        size += object.value.len();
        taken.push(object);
    }
    taken
}

/// One buffer as it is, several in one copy.
fn join(mut frames: Vec<Bytes>) -> Bytes {
    if frames.len() == 1 {
        return frames.remove(0);
    }
    let mut out = BytesMut::with_capacity(frames.iter().map(Bytes::len).sum());
    for frame in &frames {
        out.extend_from_slice(frame);
    }
    out.freeze()
}

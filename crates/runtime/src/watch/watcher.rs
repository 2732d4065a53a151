//! The state machine of list and watch.
//!
//! ```text
//!        ┌────────────── a version is lost ◀──────────────┐
//!        ▼                                                │
//!   list (pages) ──▶ open a watch from its revision ──▶ follow ──┐
//!        ▲                        ▲                      │  ▲    │
//!        │ not offered            └──── cut, timed out ──┘  │    │ end of initial events
//!   streamed list ──────────────────────────────────────────┘◀───┘
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Request;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use shoal_objects::Entropy;
use tokio::time::Instant;

use super::answer::{self, Event, Kind};
use super::backoff::{Backoff, BackoffOptions};
use super::fault::Fault;
use super::frames::Frames;
use super::record::{Record, Trim};
use super::revision::Revision;
use super::source::Source;

/// A streamed list that is silent for this long is not streamed at all: the server ignores the wish.
const STREAM_PATIENCE: Duration = Duration::from_secs(10);
/// A watch that ends sooner than this with nothing in it is a failure.
const TOO_SHORT: Duration = Duration::from_secs(1);
/// A watch that was cut is opened again within so many milliseconds.
const RECONNECT: u64 = 100;
/// Pages larger than this make the next ones smaller.
const LARGE_PAGE: usize = 16 << 20;
/// Error answers are not read further than this.
const ERROR_BODY: usize = 64 << 10;

/// Settings of a watcher.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// Objects per page.
    pub page_size: u32,
    /// Longest wait for a page, or for a watch to open (`LIST_TIMEOUT`).
    pub list_timeout: Duration,
    /// Watches are ended by the server after this time and resumed.
    pub watch_timeout: Duration,
    /// A watch that the server has not ended this long after its time is dead.
    pub idle_margin: Duration,
    /// Largest event.
    pub max_frame: usize,
    /// Largest page. When one is larger, fewer objects are asked for.
    pub max_page: usize,
    /// Ask for streamed lists.
    pub streamed_lists: bool,
    /// Resume after a cut, instead of listing again (`ENABLE_INCREMENTAL_SYNC`).
    pub incremental: bool,
    /// Drop `metadata.managedFields`.
    pub drop_managed_fields: bool,
    /// Waits between failures.
    pub backoff: BackoffOptions,
    /// Spreads waits.
    pub entropy: Entropy,
}

impl Default for WatchOptions {
    fn default() -> WatchOptions {
        WatchOptions {
            page_size: 500,
            list_timeout: Duration::from_secs(60),
            watch_timeout: Duration::from_secs(290),
            idle_margin: Duration::from_secs(5),
            max_frame: 16 << 20,
            max_page: 256 << 20,
            streamed_lists: true,
            incremental: true,
            drop_managed_fields: true,
            backoff: BackoffOptions::default(),
            entropy: Entropy::system(),
        }
    }
}

/// One thing that happened to one object.
#[derive(Debug)]
pub struct Change {
    /// What.
    pub kind: Kind,
    /// The object, in its last state if it was deleted.
    pub record: Record,
}

#[cfg(test)]
impl Change {
    /// A change as it would come.
    pub(crate) fn of(kind: Kind, name: &str, version: u64) -> Change {
        let text = format!(
            r#"{{"metadata":{{"name":"{name}","uid":"uid-of-{name}","resourceVersion":"{version}"}},"data":{{}}}}"#
        );
        let bytes = Bytes::from(text);
        let trim = Trim { managed_fields: false, all_but_metadata: false };
        let mut scanner = super::span::Scanner::new(&bytes);
        let record = Record::scan(&bytes, &mut scanner, trim).unwrap_or_default();
        Change { kind, record }
    }
}

/// What a watcher tells.
#[derive(Debug)]
pub enum Step {
    /// A whole list follows, up to [`Step::Complete`]. A list that was begun and not completed does not count.
    Begin {
        /// The server was set back to an older state, and that is the truth now.
        restored: bool,
    },
    /// Objects, in order.
    Changes {
        /// What happened.
        changes: Vec<Change>,
        /// Everything up to there has been told with these; nothing in the middle of a list.
        revision: Option<Revision>,
    },
    /// The list is complete: what was not in it does not exist. Changes follow from here.
    Complete {
        /// The list shows this moment.
        revision: Revision,
        /// The shard selector that the server obeyed, if it said so.
        shard: Option<String>,
    },
    /// Everything up to there has been told.
    Progress(Revision),
    /// Something failed. The watcher goes on by itself, after waiting for so long.
    Trouble(Fault, Duration),
}

/// Lists and watches one kind for ever.
pub struct Watcher {
    client: Client,
    source: Source,
    options: WatchOptions,
    state: State,
    ready: VecDeque<Step>,
    /// Everything up to here has been told.
    revision: Option<Revision>,
    /// Whether the server streams lists, as far as is known.
    streams: bool,
    page_size: u32,
    backoff: Backoff,
    /// Between lists, when one version after the other is lost.
    list_backoff: Option<Backoff>,
    rest_until: Option<Instant>,
    /// Lists in a row that were older than what is known.
    older_lists: u32,
    /// A list was completed and nothing followed yet.
    just_listed: bool,
    /// Streamed lists in a row that broke off. Pages survive that, a stream begins anew.
    broken_streams: u32,
    received: u64,
}

enum State {
    /// Nothing is known, or not any more.
    Start,
    /// In the middle of a list.
    List { token: String, revision: Revision, shard: Option<String> },
    /// A watch is to be opened.
    Resume,
    /// A watch is open.
    Follow(Box<Open>),
}

struct Open {
    frames: Frames,
    opened: Instant,
    ends: Instant,
    /// The initial events of a streamed list are not over.
    initial: bool,
    /// Something came.
    fruitful: bool,
}

impl Watcher {
    /// A watcher that has not begun.
    pub fn new(client: Client, source: Source, options: WatchOptions) -> Watcher {
        let backoff = Backoff::new(options.backoff, options.entropy.clone());
        Watcher {
            client,
            source,
            state: State::Start,
            ready: VecDeque::new(),
            revision: None,
            streams: options.streamed_lists,
            page_size: options.page_size,
            backoff,
            list_backoff: None,
            rest_until: None,
            older_lists: 0,
            just_listed: false,
            broken_streams: 0,
            received: 0,
            options,
        }
    }

    /// Begins a new list with the next step.
    pub fn list_again(&mut self) {
        self.state = State::Start;
        self.ready.clear();
        self.rest_until = None;
    }

    /// Waits no longer after a failure. What was followed is followed on; nothing is listed for that.
    pub fn hurry(&mut self) {
        self.rest_until = None;
        self.backoff.reset();
    }

    /// Watches another part from now on, by shard selector or labels; begins a new list with the next step.
    pub fn reshard(&mut self, shard: Option<String>, labels: Option<String>) {
        self.source.scope.shard = shard;
        self.source.scope.labels = labels;
        self.list_again();
    }

    /// Watches another part from now on, and goes on from this revision without a list. Whoever asks for that has everything of the new
    /// part up to there. Where a list is under way, it begins anew.
    pub fn resume_with(&mut self, shard: Option<String>, labels: Option<String>, from: Revision) {
        let told = |step: &Step| matches!(step, Step::Begin { .. } | Step::Complete { .. });
        let listing = match &self.state {
            State::Start | State::List { .. } => true,
            State::Follow(open) => open.initial,
            State::Resume => self.revision.is_none(),
        };
        if listing || self.ready.iter().any(told) {
            return self.reshard(shard, labels);
        }
        self.source.scope.shard = shard;
        self.source.scope.labels = labels;
        // What is ready comes again.
        self.ready.clear();
        self.revision = Some(from);
        self.state = State::Resume;
    }

    /// The moment that the list under way will show, as far as it is known.
    pub fn listing(&self) -> Option<&Revision> {
        match &self.state {
            State::List { revision, .. } => Some(revision),
            _ => None,
        }
    }

    /// Whether a shard selector is asked for.
    pub fn selects(&self) -> bool {
        self.source.scope.shard.is_some()
    }

    /// Bytes of pages and events so far.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Whether lists are streamed, as far as is known.
    pub fn streams(&self) -> bool {
        self.streams
    }

    /// The next step. When the future is dropped nothing is lost; at most a page is asked for again.
    pub async fn next(&mut self) -> Step {
        loop {
            if let Some(step) = self.ready.pop_front() {
                return step;
            }
            if let Some(until) = self.rest_until {
                tokio::time::sleep_until(until).await;
                self.rest_until = None;
            }
            let done = match &self.state {
                State::Start if self.wants_stream() => self.open_streamed_list().await,
                State::Start | State::List { .. } => self.page().await,
                State::Resume => self.open_watch().await,
                State::Follow(_) => self.follow().await,
            };
            if let Err(fault) = done {
                self.fail(fault);
            }
        }
    }

    /// Only pages say whether a shard selector was obeyed, and only they survive a line that breaks all the time.
    fn wants_stream(&self) -> bool {
        self.streams && self.source.scope.shard.is_none() && self.broken_streams < 2
    }

    /// Decides how to go on after a failure, and says so.
    fn fail(&mut self, fault: Fault) {
        let lost = fault.needs_list() || !self.options.incremental;
        let in_list = match &self.state {
            State::Start | State::List { .. } => true,
            State::Follow(open) => open.initial,
            State::Resume => false,
        };
        if matches!(&self.state, State::Follow(open) if open.initial) {
            self.broken_streams += 1;
        }
        let was_fruitful = matches!(&self.state, State::Follow(open) if open.fruitful && !open.initial);
        match &fault {
            Fault::NotStreamed => {
                self.streams = false;
                self.state = State::Start;
                return;
            }
            Fault::PageTooLarge { .. } if self.page_size != 1 => {
                self.page_size =
                    if self.page_size == 0 { self.options.page_size } else { self.page_size / 2 }.max(1);
            }
            // The history is shorter than a list in pages takes: ask for more at once, in the end for everything.
            Fault::Gone(_) if in_list || self.just_listed => {
                self.page_size = if self.page_size > 5000 { 0 } else { self.page_size.saturating_mul(4) };
            }
            _ => {}
        }
        let keeps_page = matches!(self.state, State::List { .. }) && !fault.needs_list();
        if !keeps_page {
            self.state =
                if lost || in_list || self.revision.is_none() { State::Start } else { State::Resume };
        }
        let soon = Duration::from_millis(self.options.entropy.below(RECONNECT));
        let wait = match fault {
            // Cut in the middle of good work: come back soon, but not all watches at the same moment.
            Fault::Connection(_) if was_fruitful => soon,
            // The server answers, so list now; but when lists do not help, not one after the other.
            Fault::Gone(_) => match &mut self.list_backoff {
                Some(backoff) => backoff.next(),
                none => {
                    *none = Some(Backoff::new(self.options.backoff, self.options.entropy.clone()));
                    soon
                }
            },
            _ => self.backoff.next().max(fault.retry_after().unwrap_or_default()),
        };
        self.rest_until = Some(Instant::now() + wait);
        self.ready.push_back(Step::Trouble(fault, wait));
    }

    async fn page(&mut self) -> Result<(), Fault> {
        let token = match &self.state {
            State::List { token, .. } => Some(token.as_str()),
            _ => None,
        };
        let request = self.source.list_request(self.page_size, token)?;
        let limit = self.options.max_page;
        let whole = async { collect(send(&self.client, request).await?, limit).await };
        let bytes = within("page", self.options.list_timeout, whole).await?;
        let page = answer::page(&bytes, self.trim())?;
        self.received += bytes.len() as u64;
        self.adapt_page_size(bytes.len());
        let (revision, shard) = match std::mem::replace(&mut self.state, State::Start) {
            State::List { revision, shard, .. } => (revision, shard),
            _ => {
                self.begin(&page.revision)?;
                (page.revision, page.shard)
            }
        };
        self.push_changes(
            page.items.into_iter().map(|record| Change { kind: Kind::Present, record }).collect(),
        );
        match page.next {
            Some(token) => self.state = State::List { token, revision, shard },
            None => self.complete(revision, shard),
        }
        Ok(())
    }

    /// A list has shown its revision: is it believed?
    fn begin(&mut self, revision: &Revision) -> Result<(), Fault> {
        let older = self.revision.as_ref().filter(|known| revision.is_older_than(known)).cloned();
        if let Some(known) = &older {
            self.older_lists += 1;
            // Asked for the newest state, a server that says the same twice has been set back to an older state.
            if self.older_lists < 2 {
                return Err(Fault::OlderList { listed: revision.to_string(), known: known.to_string() });
            }
        }
        self.older_lists = 0;
        self.ready.push_back(Step::Begin { restored: older.is_some() });
        Ok(())
    }

    fn complete(&mut self, revision: Revision, shard: Option<String>) {
        self.backoff.reset();
        self.broken_streams = 0;
        self.revision = Some(revision.clone());
        self.just_listed = true;
        self.ready.push_back(Step::Complete { revision, shard });
        if !matches!(self.state, State::Follow(_)) {
            self.state = State::Resume;
        }
    }

    fn adapt_page_size(&mut self, bytes: usize) {
        if bytes > LARGE_PAGE && self.page_size > 1 {
            self.page_size = (self.page_size / 2).max(1);
        }
    }

    async fn open_streamed_list(&mut self) -> Result<(), Fault> {
        let seconds = self.watch_seconds();
        let request = self.source.streamed_list_request(seconds)?;
        match self.open(request, seconds, true).await {
            Err(fault) if fault.is_bad_request() => Err(Fault::NotStreamed),
            Err(fault) => Err(fault),
            Ok(()) => {
                self.ready.push_back(Step::Begin { restored: false });
                Ok(())
            }
        }
    }

    async fn open_watch(&mut self) -> Result<(), Fault> {
        let Some(revision) = self.revision.clone() else {
            self.state = State::Start;
            return Ok(());
        };
        let seconds = self.watch_seconds();
        let request = self.source.watch_request(&revision, seconds)?;
        self.open(request, seconds, false).await
    }

    async fn open(&mut self, request: Request<Body>, seconds: u64, initial: bool) -> Result<(), Fault> {
        let body = within("watch", self.options.list_timeout, send(&self.client, request)).await?;
        let opened = Instant::now();
        self.state = State::Follow(Box::new(Open {
            frames: Frames::new(body, self.options.max_frame),
            opened,
            ends: opened + Duration::from_secs(seconds) + self.options.idle_margin,
            initial,
            fruitful: false,
        }));
        Ok(())
    }

    /// Watches of many clients shall not end at the same time.
    fn watch_seconds(&self) -> u64 {
        let seconds = self.options.watch_timeout.as_secs().max(1);
        seconds - self.options.entropy.below(seconds / 10 + 1)
    }

    async fn follow(&mut self) -> Result<(), Fault> {
        let trim = self.trim();
        let State::Follow(open) = &mut self.state else {
            return Ok(());
        };
        let patience =
            if open.initial { (Instant::now() + STREAM_PATIENCE).min(open.ends) } else { open.ends };
        let lines = match tokio::time::timeout_at(patience, open.frames.next()).await {
            Ok(lines) => lines?,
            Err(_) if open.initial => return Err(Fault::NotStreamed),
            Err(_) => {
                let after = open.opened.elapsed();
                return Err(Fault::Timeout { what: "end of the watch", after });
            }
        };
        if lines.is_empty() {
            return self.ended();
        }
        self.received += lines.iter().map(|line| line.len() as u64 + 1).sum::<u64>();
        let mut changes = Vec::with_capacity(lines.len());
        for line in &lines {
            match answer::event(line, trim) {
                Ok(Event::Object(kind, record)) => changes.push(self.change(kind, record)),
                Ok(Event::Bookmark(record)) => {
                    self.push_changes(std::mem::take(&mut changes));
                    self.bookmark(&record)?;
                }
                Ok(Event::Error(fault)) | Err(fault) => {
                    self.push_changes(changes);
                    return Err(fault);
                }
            }
        }
        self.push_changes(changes);
        Ok(())
    }

    fn change(&mut self, kind: Kind, record: Record) -> Change {
        let State::Follow(open) = &mut self.state else {
            return Change { kind, record };
        };
        open.fruitful = true;
        if open.initial {
            let kind = if kind == Kind::Added { Kind::Present } else { kind };
            return Change { kind, record };
        }
        self.advance(record.revision());
        Change { kind, record }
    }

    fn advance(&mut self, revision: Revision) {
        self.backoff.reset();
        self.list_backoff = None;
        self.just_listed = false;
        let goes_back = self.revision.as_ref().is_some_and(|known| revision.is_older_than(known));
        if !goes_back && !revision.is_empty() {
            self.revision = Some(revision);
        }
    }

    fn bookmark(&mut self, record: &Record) -> Result<(), Fault> {
        let revision = record.revision();
        let State::Follow(open) = &mut self.state else {
            return Ok(());
        };
        open.fruitful = true;
        if !open.initial {
            // Bookmarks never go back, unless the server was set back to an older state: a list will tell.
            if self.revision.as_ref().is_some_and(|known| revision.is_older_than(known)) {
                return Err(Fault::Gone(format!("the server is at {revision}")));
            }
            self.advance(revision.clone());
            self.ready.push_back(Step::Progress(revision));
            return Ok(());
        }
        if !record.ends_initial_events() {
            return Err(Fault::NotStreamed);
        }
        open.initial = false;
        if let Some(known) = self.revision.as_ref().filter(|known| revision.is_older_than(known)) {
            let fault = Fault::OlderList { listed: revision.to_string(), known: known.to_string() };
            // Pages say their revision first, so they can tell a server that was set back.
            self.streams = false;
            self.older_lists = 1;
            self.state = State::Start;
            return Err(fault);
        }
        self.complete(revision, None);
        Ok(())
    }

    /// The server has ended the watch.
    fn ended(&mut self) -> Result<(), Fault> {
        let State::Follow(open) = &self.state else {
            return Ok(());
        };
        if open.initial {
            return Err(Fault::Connection("a streamed list broke off".to_owned()));
        }
        if !open.fruitful && open.opened.elapsed() < TOO_SHORT {
            return Err(Fault::EndedAtOnce);
        }
        self.state = if self.options.incremental { State::Resume } else { State::Start };
        Ok(())
    }

    fn push_changes(&mut self, changes: Vec<Change>) {
        if changes.is_empty() {
            return;
        }
        let revision = match &self.state {
            State::Follow(open) if !open.initial => self.revision.clone(),
            _ => None,
        };
        self.ready.push_back(Step::Changes { changes, revision });
    }

    fn trim(&self) -> Trim {
        Trim { managed_fields: self.options.drop_managed_fields, all_but_metadata: self.source.metadata_only }
    }
}

/// The newest revision of a collection, by a read that no cache may answer from the past.
pub async fn newest_revision(
    client: &Client,
    source: &Source,
    options: &WatchOptions,
) -> Result<Revision, Fault> {
    let source = Source { metadata_only: true, ..source.clone() };
    let request = source.list_request(1, None)?;
    let whole = async { collect(send(client, request).await?, options.max_page).await };
    let bytes = within("list", options.list_timeout, whole).await?;
    Ok(answer::page(&bytes, Trim { managed_fields: true, all_but_metadata: true })?.revision)
}

/// Sends a request; answers that are errors become faults.
async fn send(client: &Client, request: Request<Body>) -> Result<Body, Fault> {
    let response = client.send(request).await.map_err(|error| Fault::Connection(error.to_string()))?;
    let (head, body) = response.into_parts();
    if head.status.is_success() {
        return Ok(body);
    }
    let text = collect(body, ERROR_BODY).await.unwrap_or_default();
    Err(Fault::of_answer(head.status.as_u16(), &head.headers, &text))
}

async fn collect(mut body: Body, limit: usize) -> Result<Bytes, Fault> {
    let mut whole = BytesMut::new();
    let mut first: Option<Bytes> = None;
    while let Some(frame) = body.frame().await {
        let Ok(chunk) = frame.map_err(|error| Fault::Connection(error.to_string()))?.into_data() else {
            continue;
        };
        if whole.len() + first.as_ref().map_or(0, Bytes::len) + chunk.len() > limit {
            return Err(Fault::PageTooLarge { limit });
        }
        match first.take() {
            // One chunk is the common case of short answers: no copy.
            None if whole.is_empty() => first = Some(chunk),
            None => whole.extend_from_slice(&chunk),
            Some(begin) => {
                whole.extend_from_slice(&begin);
                whole.extend_from_slice(&chunk);
            }
        }
    }
    Ok(first.unwrap_or_else(|| whole.freeze()))
}

async fn within<T>(
    what: &'static str,
    after: Duration,
    work: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    tokio::time::timeout(after, work).await.unwrap_or(Err(Fault::Timeout { what, after }))
}

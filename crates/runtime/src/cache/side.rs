//! Lists of a part beside the watch of the whole cache: what a replica gains is listed alone, then the watch goes on with the larger
//! selector. So a gain costs what came, not everything that is held.
//!
//! That is exact because no object ever changes its part. The list shows moment S, the watch has told everything up to moment P of what it
//! was asked for. Asked from the earlier of the two on, the new watch repeats some news, which [`Writer`](super::writer::Writer) knows
//! as such, and misses none.

use std::collections::VecDeque;

use kube::Client;
use tokio::task::JoinSet;

use super::informer::Part;
use super::writer::Filter;
use crate::watch::{Change, Revision, Source, Step, WatchOptions, Watcher};

/// A part that is to be listed.
pub(crate) struct Side {
    /// The number of this change, for [`Core::listed`](super::informer::Core::listed).
    pub number: u64,
    /// What the server is asked for.
    pub part: Part,
    /// Which objects these are.
    pub covers: Filter,
    /// What the watch goes on with; none if it has had these objects all the time.
    pub then: Option<Part>,
}

/// A part as it was listed.
pub(crate) struct Listed {
    pub changes: Vec<Change>,
    pub revision: Revision,
    /// The shard selector that the server obeyed, if it said so.
    pub shard: Option<String>,
    /// Bytes that came.
    pub received: u64,
}

/// Lists one part after the other, in the order in which they were asked for.
pub(crate) struct Sides {
    client: Client,
    source: Source,
    options: WatchOptions,
    waiting: VecDeque<Side>,
    task: JoinSet<Listed>,
}

impl Sides {
    pub fn new(client: Client, source: Source, options: WatchOptions) -> Sides {
        Sides { client, source, options, waiting: VecDeque::new(), task: JoinSet::new() }
    }

    /// Lists this part after those before.
    pub fn add(&mut self, side: Side) {
        self.waiting.push_back(side);
        self.start();
    }

    /// Whether nothing is to be listed.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// A list of everything has begun.
    pub fn clear(&mut self) {
        self.waiting.clear();
        self.task = JoinSet::new();
    }

    /// The watch shall go on with this, whatever was said before.
    pub fn then(&mut self, part: &Part) {
        self.waiting.iter_mut().for_each(|side| side.then = Some(part.clone()));
    }

    fn start(&mut self) {
        let Some(side) = self.waiting.front().filter(|_| self.task.is_empty()) else { return };
        let mut source = self.source.clone();
        source.scope.shard.clone_from(&side.part.shard);
        source.scope.labels.clone_from(&side.part.labels);
        self.task.spawn(list(Watcher::new(self.client.clone(), source, self.options.clone())));
    }

    /// The next part that was listed. Nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> (Side, Listed) {
        loop {
            self.start();
            match self.task.join_next().await {
                Some(Ok(listed)) => {
                    if let Some(side) = self.waiting.pop_front() {
                        return (side, listed);
                    }
                }
                // Panicked; the next start tries again.
                Some(Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }
}

/// One whole list, however often it takes.
async fn list(mut watcher: Watcher) -> Listed {
    let mut all = Vec::new();
    loop {
        match watcher.next().await {
            Step::Begin { .. } => all.clear(),
            Step::Changes { changes, .. } => all.extend(changes),
            Step::Complete { revision, shard } => {
                return Listed { changes: all, revision, shard, received: watcher.received() };
            }
            Step::Progress(_) | Step::Trouble(..) => {}
        }
    }
}

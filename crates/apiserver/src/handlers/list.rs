//! GET of a collection.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::{BufMut, Bytes, BytesMut};
use serde_json::{Value, json};
use shoal_objects::Errors;
use shoal_store::{Listing, Object, Range, Store};

use crate::handlers::{Call, all_shown, view};
use crate::kinds::options;
use crate::registry::Resource;
use crate::response::{Reply, reply};
use crate::selection::Selection;
use crate::status::{Failure, Outcome};
use crate::{encode, negotiate::View};

/// How long a read waits for a revision that is not there yet.
const FUTURE_WAIT: Duration = Duration::from_secs(3);
/// How many objects are looked at in one step when a selector is given.
const SELECT_STEP: usize = 1_000;
/// Chunks of streamed lists.
const CHUNK: usize = 128 * 1024;

/// A list that is written while it is read.
pub struct ListBody {
    head: Option<Bytes>,
    items: std::vec::IntoIter<Arc<Object>>,
    /// Bytes of the type in front of each object that list items leave out.
    skip: usize,
    first: bool,
    done: bool,
}

/// The selected objects and what goes into the list's metadata.
pub struct Selected {
    /// Revision the list shows.
    pub revision: u64,
    /// The objects.
    pub objects: Vec<Arc<Object>>,
    /// Token for the next page.
    pub next: Option<String>,
    /// How many follow, where that is known.
    pub remaining: Option<usize>,
}

/// Answers a list request.
pub async fn list(call: &Call<'_>) -> Outcome<Reply> {
    let resource = &*call.target.resource;
    let selection = Selection::parse(resource, &call.query, call.server.abilities.shard_selector)?;
    let selected = select(call, &selection).await?;
    let mut metadata = json!({"resourceVersion": selected.revision.to_string()});
    if let Some(next) = &selected.next {
        metadata["continue"] = Value::from(next.as_str());
    }
    if let Some(remaining) = selected.remaining {
        metadata["remainingItemCount"] = Value::from(remaining);
    }
    if call.accepted.view != View::Full {
        let objects = all_shown(call.server, resource, &selected.objects).await?;
        return reply(call, 200, &view::list(call, &objects, metadata)?);
    }
    if let Some(shard) = &selection.shard {
        metadata["shardInfo"] = shard.shard_info();
    }
    // Lists of custom kinds always have the token, and items with their type.
    let custom = resource.custom.is_some();
    if custom && selected.next.is_none() {
        metadata["continue"] = "".into();
    }
    if call.accepted.is_json() && selected.objects.iter().all(|o| resource.shows_as_stored(o)) {
        let head = format!(
            "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",\"metadata\":{metadata},\"items\":[",
            resource.list_kind, resource.api_version
        );
        return Ok(Reply::list(ListBody {
            head: Some(head.into()),
            items: selected.objects.into_iter(),
            skip: if custom { 1 } else { encode::type_length(&resource.kind, &resource.api_version) },
            first: true,
            done: false,
        }));
    }
    let mut items = all_shown(call.server, resource, &selected.objects).await?;
    strip_types(resource, &mut items);
    let kind = &*resource.list_kind;
    reply(
        call,
        200,
        &json!({"kind": kind, "apiVersion": &*resource.api_version, "metadata": metadata, "items": items}),
    )
}

/// Items of lists of built-in kinds leave out their type.
pub fn strip_types(resource: &Resource, items: &mut [Value]) {
    if resource.custom.is_some() {
        return;
    }
    for item in items.iter_mut().filter_map(Value::as_object_mut) {
        item.remove("kind");
        item.remove("apiVersion");
    }
}

/// Finds what a list, or a deletecollection, is about.
pub async fn select(call: &Call<'_>, selection: &Selection) -> Outcome<Selected> {
    let query = &call.query;
    let limit = query.number("limit")?.map_or(0, |n| usize::try_from(n).unwrap_or(0));
    let version = query.get("resourceVersion").unwrap_or_default();
    let version_match = query.get("resourceVersionMatch").unwrap_or_default();
    let mut errors = Errors::new();
    let list_options = options::ListOptions {
        watch: false,
        resource_version: version,
        resource_version_match: version_match,
        continue_token: query.get("continue").unwrap_or_default(),
        send_initial_events: query.get("sendInitialEvents").map(|_| query.flag("sendInitialEvents")),
        allow_watch_bookmarks: false,
    };
    options::validate_list(&list_options, &mut errors);
    if !errors.is_empty() {
        return Err(Failure::invalid("meta.k8s.io", "ListOptions", "", &errors));
    }
    let resource = &*call.target.resource;
    let namespace = call.target.namespace.as_str();
    let namespace =
        if namespace.is_empty() { selection.single_namespace().unwrap_or_default() } else { namespace };
    if let Some(token) = query.get("continue").filter(|t| !t.is_empty()) {
        if !version.is_empty() && version != "0" {
            return Err(Failure::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let (revision, after) = decode_continue(token)?;
        if !namespace.is_empty() && !after.starts_with(&format!("{namespace}/")) {
            return Err(Failure::bad_request("invalid continue token: it belongs to another collection"));
        }
        return page(call, resource, selection, namespace, Some(revision), Some(after), limit).await;
    }
    let asked: u64 = match version {
        "" => 0,
        text => text.parse().map_err(|_| {
            Failure::bad_request(format!(
                "invalid resource version: resourceVersion: Invalid value: {text:?}: \
                 strconv.ParseUint: parsing {text:?}: invalid syntax"
            ))
        })?,
    };
    let store = &call.server.store;
    await_revision(store, asked).await?;
    let at = match (version, version_match) {
        (_, "Exact") => Some(asked),
        ("0", _) => call.server.stale_revision(),
        _ => None,
    };
    page(call, resource, selection, namespace, at, None, limit).await
}

/// Waits for a revision that is not there yet, but not for long.
pub async fn await_revision(store: &Store, revision: u64) -> Outcome<()> {
    if revision > store.revision()
        && tokio::time::timeout(FUTURE_WAIT, store.wait_for(revision)).await.is_err()
    {
        return Err(Failure::too_large_resource_version(revision, store.revision()));
    }
    Ok(())
}

/// Collects one page; with a selector the store is read on until the page is full.
async fn page(
    call: &Call<'_>,
    resource: &Resource,
    selection: &Selection,
    namespace: &str,
    at: Option<u64>,
    mut after: Option<String>,
    limit: usize,
) -> Outcome<Selected> {
    let single = selection.single_name().map(|name| resource.key(namespace, name));
    let range = match &single {
        Some(key) if !resource.namespaced || !namespace.is_empty() => Range::Key(key),
        _ if resource.namespaced && !namespace.is_empty() => Range::Namespace(namespace),
        _ => Range::All,
    };
    let mut objects: Vec<Arc<Object>> = Vec::new();
    let mut at = at;
    loop {
        // A selector may pass over most objects: read on in large steps, not in the size of the page.
        let step = if limit == 0 || selection.is_everything() { limit } else { limit.max(SELECT_STEP) };
        let listing = read(call, resource, at, range, after.as_deref(), step).await?;
        let Listing { revision, objects: found, mut remaining } = listing;
        let mut found = found.into_iter();
        for object in found.by_ref() {
            after = Some(object.key.to_string());
            if selection.matches(&object) {
                objects.push(object);
            }
            if limit != 0 && objects.len() == limit {
                break;
            }
        }
        remaining += found.len();
        if remaining == 0 || limit == 0 {
            return Ok(Selected { revision, objects, next: None, remaining: None });
        }
        if objects.len() == limit {
            let next = after.as_deref().map(|key| encode_continue(revision, key));
            let remaining = selection.is_everything().then_some(remaining);
            return Ok(Selected { revision, objects, next, remaining });
        }
        // Later pages, and further reads for this one, show the same state.
        at = Some(revision);
    }
}

async fn read(
    call: &Call<'_>,
    resource: &Resource,
    at: Option<u64>,
    range: Range<'_>,
    after: Option<&str>,
    limit: usize,
) -> Outcome<Listing> {
    let store = &call.server.store;
    match at {
        None => Ok(store.list(&resource.table, range, after, limit).await),
        Some(revision) => store.list_at(revision, &resource.table, range, after, limit).await.map_err(|_| {
            let mut failure = Failure::expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new \
                 list without the continue parameter, or use the continue token in this response to retrieve the \
                 remainder of the results. Continuing with the provided token results in an inconsistent list - objects \
                 that were created, modified, or deleted between the time the first chunk was returned and now may show \
                 up in the list.",
            );
            match after {
                Some(key) => failure.list_continue = Some(encode_continue(store.revision(), key)),
                None => failure.message = format!("The resourceVersion for the provided list is too old: {revision}"),
            }
            failure
        }),
    }
}

fn encode_continue(revision: u64, key: &str) -> String {
    URL_SAFE_NO_PAD.encode(json!({"v": "meta.k8s.io/v1", "rv": revision, "start": key}).to_string())
}

fn decode_continue(token: &str) -> Outcome<(u64, String)> {
    let bad = || Failure::bad_request("invalid continue token: continue key is not valid");
    let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| bad())?;
    let value: Value = serde_json::from_slice(&bytes).map_err(|_| bad())?;
    match (value["v"].as_str(), value["rv"].as_u64(), value["start"].as_str()) {
        (Some("meta.k8s.io/v1"), Some(revision), Some(start)) => Ok((revision, start.to_owned())),
        _ => Err(bad()),
    }
}

impl ListBody {
    /// The next piece of the list.
    pub fn next_chunk(&mut self) -> Option<Bytes> {
        if self.done {
            return None;
        }
        let mut out = BytesMut::with_capacity(CHUNK + 4096);
        if let Some(head) = self.head.take() {
            out.put(head);
        }
        for object in self.items.by_ref() {
            if !self.first {
                out.put_u8(b',');
            }
            self.first = false;
            out.put_u8(b'{');
            out.put_slice(&encode::object_slice(&object.value)[self.skip..]);
            if out.len() >= CHUNK {
                return Some(out.freeze());
            }
        }
        self.done = true;
        out.put_slice(b"]}\n");
        Some(out.freeze())
    }

    /// How many items are left.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether no items are left.
    pub fn is_empty(&self) -> bool {
        self.items.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forged_continue_tokens_are_refused() {
        let good = encode_continue(7, "ns/a");
        assert_eq!(decode_continue(&good).unwrap(), (7, "ns/a".to_owned()));
        for bad in ["", "nonsense", "e30", &URL_SAFE_NO_PAD.encode(r#"{"v":"x","rv":1,"start":"a"}"#)] {
            assert!(decode_continue(bad).is_err(), "{bad}");
        }
    }
}

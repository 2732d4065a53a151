//! Deleting all objects of some kinds in a namespace.

use std::collections::BTreeMap;

use futures::StreamExt as _;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams};
use kube::core::{PartialObjectMeta, Request};
use kube::{Client, Resource as _, ResourceExt as _};

use crate::discovery::Kind;

/// Kinds that are looked at at the same time.
const AT_ONCE: usize = 8;
/// Objects that are looked at to tell what holds them.
const SHOWN: u32 = 500;

/// What is left of a kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Remains {
    /// The kind.
    pub kind: Kind,
    /// How many objects.
    pub count: u64,
    /// How many of them have each finalizer.
    pub finalizers: BTreeMap<String, u64>,
    /// Why nothing could be deleted or counted.
    pub error: Option<String>,
}

/// Deletes everything of these kinds and tells what is left, in the order of their names.
pub async fn kinds(client: &Client, namespace: &str, kinds: Vec<Kind>) -> Vec<Remains> {
    let each = kinds.into_iter().map(|kind| async move {
        match sweep(client, namespace, &kind).await {
            Ok(Some((count, finalizers))) => Some(Remains { kind, count, finalizers, error: None }),
            Ok(None) => None,
            // The kind has gone, or cannot be listed.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 405) => None,
            Err(error) => {
                let error = Some(error.to_string());
                Some(Remains { kind, count: 0, finalizers: BTreeMap::new(), error })
            }
        }
    });
    let mut left: Vec<Remains> =
        futures::stream::iter(each).buffer_unordered(AT_ONCE).filter_map(std::future::ready).collect().await;
    left.sort_by(|a, b| {
        (&a.kind.resource.plural, &a.kind.resource.group)
            .cmp(&(&b.kind.resource.plural, &b.kind.resource.group))
    });
    left
}

type Left = (u64, BTreeMap<String, u64>);

async fn sweep(client: &Client, namespace: &str, kind: &Kind) -> Result<Option<Left>, kube::Error> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &kind.resource);
    let some = ListParams::default().limit(SHOWN);
    let found = api.list_metadata(&some).await?;
    if found.items.is_empty() {
        return Ok(None);
    }
    let params = DeleteParams::background();
    if kind.can(&["deletecollection"]) {
        let path = DynamicObject::url_path(&kind.resource, Some(namespace));
        let request = Request::new(path).delete_collection(&params, &ListParams::default());
        let request = request.map_err(kube::Error::BuildRequest)?.map(kube::client::Body::from);
        // The answer lists what was deleted, and nobody wants to read that.
        let answer = client.send(request).await?;
        if !answer.status().is_success() {
            tracing::debug!(kind = kind.resource.plural, status = %answer.status(), "not deleted");
        }
    } else {
        for object in &found.items {
            match api.delete(&object.name_any(), &params).await {
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                other => drop(other?),
            }
        }
    }
    let left = api.list_metadata(&some).await?;
    if left.items.is_empty() {
        return Ok(None);
    }
    let more = left.metadata.remaining_item_count.and_then(|more| u64::try_from(more).ok()).unwrap_or(0);
    Ok(Some((left.items.len() as u64 + more, finalizers(&left.items))))
}

fn finalizers(objects: &[PartialObjectMeta<DynamicObject>]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for finalizer in objects.iter().flat_map(|object| object.metadata.finalizers.iter().flatten()) {
        *counts.entry(finalizer.clone()).or_insert(0) += 1;
    }
    counts
}

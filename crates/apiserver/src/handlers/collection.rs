//! DELETE of a collection.

use serde_json::json;
use shoal_objects::meta;

use crate::handlers::delete::{Deleted, delete_stored, read_options};
use crate::handlers::{Call, list, view};
use crate::negotiate::View;
use crate::response::{Reply, reply};
use crate::selection::Selection;
use crate::status::Outcome;

/// Deletes what is selected and answers with what was there.
pub async fn delete(call: &Call<'_>) -> Outcome<Reply> {
    let resource = &*call.target.resource;
    let selection = Selection::parse(resource, &call.query, call.server.abilities.shard_selector)?;
    let options = read_options(call)?;
    let selected = list::select(call, &selection).await?;
    let mut items = Vec::with_capacity(selected.objects.len());
    for object in selected.objects {
        let before = call.served(&object).await?;
        match delete_stored(call, object, &options).await {
            Ok(Deleted::Gone(_)) => items.push(before),
            Ok(Deleted::Pending(marked)) => items.push(marked),
            // Somebody else was faster: it is gone, as was asked for.
            Err(failure) if failure.code == http::StatusCode::NOT_FOUND => {}
            Err(failure) => return Err(failure),
        }
    }
    let metadata = json!({"resourceVersion": selected.revision.to_string()});
    if call.accepted.view != View::Full {
        return reply(call, 200, &view::list(call, &items, metadata)?);
    }
    list::strip_types(resource, &mut items);
    debug_assert!(items.iter().all(|i| !meta::name(i).is_empty()));
    let list = json!({
        "kind": &*resource.list_kind,
        "apiVersion": &*resource.api_version,
        "metadata": metadata,
        "items": items,
    });
    reply(call, 200, &list)
}

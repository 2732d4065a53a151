//! GET of one object.

use crate::handlers::{Call, list};
use crate::response::Reply;
use crate::status::{Failure, Outcome};

/// Answers with the object.
pub async fn get(call: &Call<'_>) -> Outcome<Reply> {
    let store = &call.server.store;
    let version = call.query.get("resourceVersion").unwrap_or_default();
    if !version.is_empty() {
        let asked: u64 = version.parse().map_err(|_| {
            Failure::bad_request(format!(
                "invalid resource version: resourceVersion: Invalid value: {version:?}: \
                 strconv.ParseUint: parsing {version:?}: invalid syntax"
            ))
        })?;
        list::await_revision(store, asked).await?;
        if asked == 0
            && let Some(old) = call.server.stale_revision()
        {
            let (resource, target) = (&call.target.resource, &call.target);
            let key = resource.key(&target.namespace, &target.name);
            let found = store.get_at(old, &resource.table, &key).await.ok().flatten();
            let found = found.ok_or_else(|| Failure::not_found(resource, &target.name))?;
            return call.answer_stored(200, &found).await;
        }
    }
    call.answer_stored(200, &*call.stored().await?).await
}

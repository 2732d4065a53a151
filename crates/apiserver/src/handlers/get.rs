//! GET of one object.

use std::time::Duration;

use crate::handlers::Call;
use crate::response::Reply;
use crate::status::{Failure, Outcome};

/// How long a read waits for a revision that is not there yet.
const FUTURE_WAIT: Duration = Duration::from_secs(3);

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
        if asked > store.revision() && tokio::time::timeout(FUTURE_WAIT, store.wait_for(asked)).await.is_err()
        {
            return Err(Failure::too_large_resource_version(asked, store.revision()));
        }
        if asked == 0
            && let Some(old) = call.server.stale_revision()
        {
            let (resource, target) = (&call.target.resource, &call.target);
            let key = resource.key(&target.namespace, &target.name);
            let found = store.get_at(old, &resource.table, &key).await.ok().flatten();
            let found = found.ok_or_else(|| Failure::not_found(resource, &target.name))?;
            return call.answer_stored(200, &found);
        }
    }
    call.answer_stored(200, &*call.stored().await?)
}

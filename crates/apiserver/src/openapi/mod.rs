//! OpenAPI v3 documents, made from the type table and the registry.

use http::HeaderMap;

use crate::registry::Registry;
use crate::response::Reply;
use crate::status::Outcome;

/// Answers requests below `/openapi`.
pub fn answer(_registry: &Registry, _path: &str, _headers: &HeaderMap, _hash: Option<&str>) -> Outcome<Reply> {
    Ok(Reply::text(404, "404 page not found\n"))
}

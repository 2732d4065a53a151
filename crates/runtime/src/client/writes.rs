//! Every write is on record: who (controller), what (verb and object), why (key and trigger).
//!
//! A worker says why it works with [`because`]; the client's requests inside find it there. Records are log lines of
//! target `audit` and hold no bodies, so no secret gets into them.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Uri};
use tokio::time::Instant;

use crate::apply::Fence;
use crate::key::ObjectKey;

tokio::task_local! {
    static CAUSE: Cause;
}

/// Why requests are made.
#[derive(Clone, Debug, Default)]
pub struct Cause {
    /// The controller at work.
    pub controller: Arc<str>,
    /// The object that it looks after.
    pub key: Option<ObjectKey>,
    /// What made it work: `added`, `modified`, `deleted`, `resync`, `retry`, …
    pub trigger: Arc<str>,
    /// Writes are refused unless this permits them.
    pub fence: Option<Fence>,
}

/// Runs `work` with a cause. Tasks that `work` spawns are outside: give them the [`cause`] again.
pub async fn because<F: Future>(cause: Cause, work: F) -> F::Output {
    CAUSE.scope(cause, work).await
}

/// The cause of the current task.
pub fn cause() -> Option<Cause> {
    CAUSE.try_with(Clone::clone).ok()
}

/// A write under way.
pub(super) struct Record {
    write: Write,
    begun: Instant,
}

/// What a request writes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Write {
    verb: &'static str,
    group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
    dry_run: bool,
}

/// Nothing for requests that only read; an error when the fence is down.
pub(super) fn begin(method: &Method, uri: &Uri) -> Result<Option<Record>, tower::BoxError> {
    let Some(write) = describe(method, uri) else { return Ok(None) };
    if let Ok(Some(fence)) = CAUSE.try_with(|cause| cause.fence.clone()) {
        fence.check()?;
    }
    Ok(Some(Record { write, begun: Instant::now() }))
}

impl Record {
    pub(super) fn end<B>(self, result: &Result<http::Response<B>, tower::BoxError>) {
        let cause = cause().unwrap_or_default();
        let Write { verb, group, resource, subresource, namespace, name, dry_run } = self.write;
        let (status, error) = match result {
            Ok(response) => (response.status().as_u16(), String::new()),
            Err(error) => (0, error.to_string()),
        };
        let millis = u64::try_from(Duration::as_millis(&self.begun.elapsed())).unwrap_or(u64::MAX);
        tracing::info!(
            target: "audit",
            controller = &*cause.controller,
            key = cause.key.map(|key| key.to_string()).unwrap_or_default(),
            trigger = &*cause.trigger,
            verb, group, resource, subresource, namespace, name, dry_run, status, error, millis,
            "write"
        );
    }
}

fn describe(method: &Method, uri: &Uri) -> Option<Write> {
    let verb = match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => return None,
    };
    let mut write = Write {
        verb,
        dry_run: uri.query().is_some_and(|query| query.contains("dryRun=")),
        ..Write::default()
    };
    let parts: Vec<&str> = uri.path().split('/').filter(|part| !part.is_empty()).collect();
    let rest = match parts[..] {
        ["api", _, ref rest @ ..] => rest,
        ["apis", group, _, ref rest @ ..] => {
            group.clone_into(&mut write.group);
            rest
        }
        _ => &[],
    };
    // `namespaces/a` and its subresources are the namespace itself.
    let (namespace, rest) = match rest {
        ["namespaces", namespace, resource, rest @ ..] if !matches!(*resource, "status" | "finalize") => {
            (*namespace, [&[*resource], rest].concat())
        }
        rest => ("", rest.to_vec()),
    };
    namespace.clone_into(&mut write.namespace);
    let part = |index: usize| rest.get(index).copied().unwrap_or_default().to_owned();
    (write.resource, write.name, write.subresource) = (part(0), part(1), part(2));
    if verb == "delete" && write.name.is_empty() {
        write.verb = "deletecollection";
    }
    Some(write)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(method: &Method, uri: &str) -> (&'static str, String) {
        let w = describe(method, &uri.parse().unwrap()).unwrap();
        let place = [w.group, w.resource, w.subresource, w.namespace, w.name].join("|");
        (w.verb, place)
    }

    #[test]
    fn requests_are_told_as_verb_and_object() {
        assert_eq!(
            write(&Method::POST, "/api/v1/namespaces/a/configmaps?x=y"),
            ("create", "|configmaps||a|".to_owned())
        );
        assert_eq!(
            write(&Method::PUT, "/apis/apps/v1/namespaces/a/deployments/d/status"),
            ("update", "apps|deployments|status|a|d".to_owned())
        );
        assert_eq!(write(&Method::PATCH, "/api/v1/namespaces/a"), ("patch", "|namespaces|||a".to_owned()));
        assert_eq!(
            write(&Method::PUT, "/api/v1/namespaces/a/finalize"),
            ("update", "|namespaces|finalize||a".to_owned())
        );
        assert_eq!(write(&Method::DELETE, "/api/v1/nodes/n"), ("delete", "|nodes|||n".to_owned()));
        assert_eq!(
            write(&Method::DELETE, "/api/v1/namespaces/a/pods"),
            ("deletecollection", "|pods||a|".to_owned())
        );
        assert_eq!(write(&Method::POST, "/"), ("create", "||||".to_owned()));
        assert_eq!(describe(&Method::GET, &"/api/v1/pods".parse().unwrap()), None);
        assert!(describe(&Method::POST, &"/api/v1/pods?dryRun=All".parse().unwrap()).unwrap().dry_run);
    }
}

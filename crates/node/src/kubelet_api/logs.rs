//! `/containerLogs/NAMESPACE/POD/CONTAINER`.

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use shoal_objects::Timestamp;
use tokio::sync::mpsc;

use super::answer::{Answer, Query, streamed, text};
use crate::agent::Node;
use crate::logs::{Options, Reader, stream};
use crate::pod::container::log_path;
use crate::pod::worker::View;

pub async fn answer(node: &Node, view: &Arc<View>, container: &str, query: &Query) -> Response<Answer> {
    let pod = view.pod.borrow().clone();
    let name = pod.metadata.name.clone().unwrap_or_default();
    let (init, main) = crate::pod::plan::containers(&pod);
    let extra = crate::pod::plan::ephemeral(&pod);
    if !init.iter().chain(main).chain(&extra).any(|known| known.name == container) {
        let message = format!("container {container:?} not found in pod {name:?}");
        return text(StatusCode::NOT_FOUND, &message);
    }
    let number = |name: &str| query.get(name).and_then(|value| value.parse::<i64>().ok());
    let since = number("sinceSeconds").map(|seconds| node.clock.now().plus_seconds(-seconds));
    let since_time = query.get("sinceTime").and_then(|value| value.parse::<jiff::Timestamp>().ok());
    let previous = query.is_set(&["previous"]);
    let options = Options {
        follow: query.is_set(&["follow"]) && !previous,
        tail: number("tailLines").and_then(|lines| usize::try_from(lines).ok()),
        since: since.or(since_time.map(|time| Timestamp(time.as_microsecond()))),
        timestamps: query.is_set(&["timestamps"]),
        limit: number("limitBytes").and_then(|bytes| u64::try_from(bytes).ok()),
        stream: query.get("stream").filter(|stream| *stream != "All").map(str::to_owned),
    };
    let attempt = view.attempts.lock().get(container).copied();
    let attempt = attempt.map(|attempt| if previous { attempt - 1 } else { attempt });
    let Some(attempt) = attempt.filter(|attempt| *attempt >= 0) else {
        let message = match previous {
            true => format!("previous terminated container {container:?} in pod {name:?} not found"),
            false => format!(
                "container {container:?} in pod {name:?} is waiting to start: {}",
                waiting(&pod, container)
            ),
        };
        return text(StatusCode::BAD_REQUEST, &message);
    };
    let reader = match Reader::open(&log_path(&view.dir, container, attempt), options) {
        Ok(reader) => reader,
        Err(_) if previous => {
            let message = format!("previous terminated container {container:?} in pod {name:?} not found");
            return text(StatusCode::BAD_REQUEST, &message);
        }
        Err(error) => return text(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    };
    let log = view.runs.lock().get(container).map(|run| run.log.clone()).filter(|_| !previous);
    let (sender, pieces) = mpsc::channel::<Bytes>(4);
    tokio::spawn(async move {
        let closed = sender.clone();
        let reading = stream(reader, log, |piece| {
            let sender = sender.clone();
            async move { sender.send(Bytes::from(piece)).await.is_ok() }
        });
        // A reader that went away is noticed although nothing is written.
        tokio::select! { _ = reading => {}, () = closed.closed() => {} }
    });
    streamed(pieces)
}

/// Why a container has no log yet.
fn waiting(pod: &k8s_openapi::api::core::v1::Pod, container: &str) -> String {
    let status = pod.status.clone().unwrap_or_default();
    let all = status.init_container_statuses.into_iter().chain(status.container_statuses);
    let all = all.chain(status.ephemeral_container_statuses).flatten();
    let state = all.into_iter().find(|status| status.name == container).and_then(|status| status.state);
    let reason = state.and_then(|state| state.waiting).and_then(|waiting| waiting.reason);
    match reason.as_deref() {
        Some("ErrImagePull" | "ImagePullBackOff") => "trying and failing to pull image".to_owned(),
        Some(reason) => reason.to_owned(),
        None => "ContainerCreating".to_owned(),
    }
}

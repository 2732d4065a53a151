//! The requests that follow from decisions.

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::{Client, Resource};
use serde_json::{Value, json};
use shoal_objects::clock;
use shoal_runtime::cache::Uid;
use shoal_runtime::client::send_unread;
use shoal_runtime::{Lister, ObjectKey};

use super::claims::Chosen;
use super::queue::Pending;
use crate::persistentvolume::{BOUND_BY_CONTROLLER, SELECTED_NODE};

/// How long a claim may take to get its volume.
const VOLUME_PATIENCE: Duration = Duration::from_secs(600);
const VOLUME_PAUSE: Duration = Duration::from_millis(100);

/// What came of a request.
pub(super) enum Done {
    /// The pod has its node, which was chosen at that time.
    Bound(Pending, Arc<str>, clock::Timestamp),
    /// It has not.
    Unbound(Pending, String),
    /// Something was told, or could not be.
    Told,
}

fn path(key: &ObjectKey, part: &str) -> String {
    format!("{}/{}{part}", Pod::url_path(&(), Some(&key.namespace)), key.name)
}

fn request(
    method: http::Method,
    path: &str,
    kind: &str,
    body: &Value,
) -> Result<Request<Vec<u8>>, kube::Error> {
    let body = serde_json::to_vec(body).map_err(kube::Error::SerdeError)?;
    Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::CONTENT_TYPE, kind)
        .body(body)
        .map_err(kube::Error::HttpError)
}

/// Binds the pod, once its claims have their volumes.
pub(super) async fn bind(
    client: Client,
    pod: Pending,
    node: Arc<str>,
    volumes: Vec<Chosen>,
    claims: Lister<PersistentVolumeClaim>,
    chosen: clock::Timestamp,
) -> Done {
    match try_bind(&client, &pod, &node, &volumes, &claims).await {
        Ok(()) => Done::Bound(pod, node, chosen),
        Err(error) => Done::Unbound(pod, error),
    }
}

async fn try_bind(
    client: &Client,
    pod: &Pending,
    node: &str,
    volumes: &[Chosen],
    claims: &Lister<PersistentVolumeClaim>,
) -> Result<(), String> {
    for chosen in volumes {
        let (path, patch) = give(chosen, node);
        let request = request(http::Method::PATCH, &path, "application/merge-patch+json", &patch);
        send_unread(client, request.map_err(text)?).await.map_err(text)?;
    }
    let bound = |chosen: &Chosen| {
        let claim = claims.get(&chosen.claim);
        let spec = claim.as_ref().and_then(|claim| claim.spec.as_ref());
        spec.is_some_and(|spec| spec.volume_name.as_ref().is_some_and(|volume| !volume.is_empty()))
    };
    let all_bound = async {
        while !volumes.iter().all(bound) {
            tokio::time::sleep(VOLUME_PAUSE).await;
        }
    };
    if tokio::time::timeout(VOLUME_PATIENCE, all_bound).await.is_err() {
        return Err("binding volumes: context deadline exceeded".to_owned());
    }
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding",
        "metadata": {"name": &*pod.key.name, "namespace": &*pod.key.namespace, "uid": pod.uid.to_string()},
        "target": {"kind": "Node", "name": node}
    });
    let request = request(http::Method::POST, &path(&pod.key, "/binding"), "application/json", &binding);
    send_unread(client, request.map_err(text)?).await.map_err(text)
}

/// A volume that is there is given to the claim, if it is still as it was. For one that has to be made, the claim says where.
fn give(chosen: &Chosen, node: &str) -> (String, Value) {
    let claim = &chosen.claim;
    match &chosen.volume {
        Some(volume) => {
            let reference = json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "namespace": &*claim.namespace, "name": &*claim.name, "uid": chosen.uid
            });
            let notes = json!({BOUND_BY_CONTROLLER: "yes"});
            let metadata = json!({"resourceVersion": volume.version, "annotations": notes});
            let path = format!("{}/{}", PersistentVolume::url_path(&(), None), volume.name);
            (path, json!({"metadata": metadata, "spec": {"claimRef": reference}}))
        }
        None => {
            let all = PersistentVolumeClaim::url_path(&(), Some(&claim.namespace));
            let path = format!("{all}/{}", claim.name);
            (path, json!({"metadata": {"annotations": {SELECTED_NODE: node}}}))
        }
    }
}

fn text(error: kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message,
        error => error.to_string(),
    }
}

/// What is said of a pod without a place, and where a place is being made.
pub(super) fn unschedulable(
    pod: &Pending,
    message: &str,
    since: Timestamp,
    nominated: Option<&str>,
) -> Value {
    let mut patch = json!({
        "metadata": {"uid": pod.uid.to_string()},
        "status": {"conditions": [{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
            "lastProbeTime": null, "lastTransitionTime": whole_seconds(since)
        }]}
    });
    if let Some(node) = nominated {
        patch["status"]["nominatedNodeName"] = json!(node);
    }
    patch
}

fn whole_seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or_default().to_string()
}

/// Writes a status.
pub(super) async fn status(client: Client, key: ObjectKey, patch: Value) -> Done {
    let kind = "application/strategic-merge-patch+json";
    let sent = match request(http::Method::PATCH, &path(&key, "/status"), kind, &patch) {
        Ok(request) => send_unread(&client, request).await,
        Err(error) => Err(error),
    };
    if let Err(error) = sent {
        tracing::debug!(pod = %key, %error, "why a pod has no node could not be told");
    }
    Done::Told
}

/// Tells pods why they have to go, and deletes them.
pub(super) async fn evict(client: Client, victims: Vec<(ObjectKey, Uid)>, now: Timestamp) -> Done {
    for (key, uid) in victims {
        let patch = json!({
            "metadata": {"uid": uid.to_string()},
            "status": {"conditions": [{
                "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
                "message": "default-scheduler: preempting to accommodate a higher priority pod",
                "lastProbeTime": null, "lastTransitionTime": whole_seconds(now)
            }]}
        });
        status(client.clone(), key.clone(), patch).await;
        let options = json!({"preconditions": {"uid": uid.to_string()}});
        let sent = match request(http::Method::DELETE, &path(&key, ""), "application/json", &options) {
            Ok(request) => send_unread(&client, request).await,
            Err(error) => Err(error),
        };
        if let Err(error) = sent {
            tracing::debug!(pod = %key, %error, "a pod that has to go could not be deleted");
        }
    }
    Done::Told
}

/// A pod, for events.
pub(super) fn reference(key: &ObjectKey, uid: &Uid) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some(key.namespace.to_string()),
        name: Some(key.name.to_string()),
        uid: Some(uid.to_string()),
        ..ObjectReference::default()
    }
}

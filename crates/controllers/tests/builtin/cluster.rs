//! A whole API server, some controllers, and a node that does what the image of a pod says.

use std::sync::atomic::{AtomicU32, Ordering};

use k8s_openapi::api::core::v1::{Event, Pod, ServiceAccount};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use shoal_runtime::{Action, Context, Controller, Manager, Object, Result};
use shoal_testkit::{Cluster, eventually};

/// Starts a cluster with these controllers.
pub async fn start(controllers: Vec<Controller>) -> Client {
    let cluster = Cluster::start().await;
    // Without the account that pods run as, none is admitted.
    create::<ServiceAccount>(&cluster.client(), json!({"metadata": {"name": "default"}})).await;
    let mut manager =
        Manager::builder("controllers").client(cluster.client()).embedded().build().await.unwrap();
    for controller in controllers {
        manager.add(controller);
    }
    manager.add(kubelet());
    tokio::spawn(manager.run());
    cluster.client()
}

/// A node for all pods.
pub fn kubelet() -> Controller {
    Controller::of::<Pod>("kubelet").reconcile(run_pod)
}

/// Plays the node: a pod runs, waits, ends well or badly as its image says. One that is deleted ends at once.
async fn run_pod(context: Context<Pod>) -> Result<Action> {
    static ADDRESSES: AtomicU32 = AtomicU32::new(1);
    let Some(pod) = context.object() else { return Ok(Action::done()) };
    let pods: Api<Pod> = Api::namespaced(context.client().clone(), &context.key().namespace);
    if pod.metadata.deletion_timestamp.is_some() {
        let _ = pods.delete(&context.key().name, &DeleteParams::default().grace_period(0)).await;
        return Ok(Action::done());
    }
    let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
    let image = pod.spec.as_ref().unwrap().containers[0].image.clone().unwrap();
    let (wanted, ready, code) = match image.as_str() {
        "wait" => return Ok(Action::done()),
        "succeeds" => ("Succeeded", "False", Some(0)),
        "fails" => ("Failed", "False", Some(1)),
        _ => ("Running", "True", None),
    };
    if phase == wanted {
        return Ok(Action::done());
    }
    let number = ADDRESSES.fetch_add(1, Ordering::Relaxed);
    let ip = format!("10.1.{}.{}", number / 250 % 250, number % 250 + 1);
    let time = "2024-01-01T00:00:00Z";
    let state = match code {
        Some(code) => json!({"terminated": {"exitCode": code, "finishedAt": time}}),
        None => json!({"running": {}}),
    };
    let container =
        json!({"name": "c", "image": image, "imageID": "", "ready": true, "restartCount": 0, "state": state});
    let status = json!({"status": {"phase": wanted, "podIP": ip, "podIPs": [{"ip": ip}], "startTime": time,
        "containerStatuses": [container],
        "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": time}]}});
    let patched =
        pods.patch_status(&context.key().name, &PatchParams::default(), &Patch::Merge(status)).await;
    match patched {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Action::done()),
        other => other.map(|_| Action::done()).map_err(Into::into),
    }
}

/// The objects of a kind in the namespace `default`.
pub fn api<K>(client: &Client) -> Api<K>
where
    K: Object + kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
{
    Api::default_namespaced(client.clone())
}

/// Creates an object.
pub async fn create<K>(client: &Client, object: Value) -> K
where
    K: Object + kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
{
    api::<K>(client).create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
}

/// Changes an object.
pub async fn patch<K: Clone + DeserializeOwned + std::fmt::Debug>(api: &Api<K>, name: &str, patch: Value) {
    api.patch(name, &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
}

/// Waits until an object, as JSON, is as it should be; gives it.
pub async fn until<K>(api: &Api<K>, name: &str, holds: impl Fn(&Value) -> bool) -> Value
where
    K: Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    eventually("the object is as it should be", || async {
        let object = serde_json::to_value(api.get_opt(name).await.unwrap()).unwrap();
        holds(&object).then_some(object)
    })
    .await
}

/// Waits until all objects, as JSON, are as they should be; gives them.
pub async fn until_all<K>(api: &Api<K>, holds: impl Fn(&[Value]) -> bool) -> Vec<Value>
where
    K: Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    eventually("the objects are as they should be", || async {
        let list = api.list(&ListParams::default()).await.unwrap();
        let objects: Vec<Value> =
            list.items.iter().map(|object| serde_json::to_value(object).unwrap()).collect();
        holds(&objects).then_some(objects)
    })
    .await
}

/// Waits until an event of this reason is told, with a message that contains this text.
pub async fn until_told(client: &Client, reason: &str, text: &str) {
    let told = |event: &Value| {
        event["reason"] == reason && event["message"].as_str().is_some_and(|message| message.contains(text))
    };
    until_all(&api::<Event>(client), |events| events.iter().any(told)).await;
}

/// The condition of this type.
pub fn condition<'a>(object: &'a Value, type_: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    conditions.iter().find(|condition| condition["type"] == type_).unwrap_or(&Value::Null)
}

/// A pod template with this image.
pub fn template(app: &str, image: &str) -> Value {
    json!({"metadata": {"labels": {"app": app}}, "spec": {"containers": [{"name": "c", "image": image}]}})
}

/// The names of objects.
pub fn names(objects: &[Value]) -> Vec<&str> {
    objects.iter().filter_map(|object| object["metadata"]["name"].as_str()).collect()
}

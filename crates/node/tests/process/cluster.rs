//! A cluster with one node.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};
use shoal_node::addresses::Addresses;
use shoal_node::agent::{self, Config};
use shoal_node::images::ImageTable;
use shoal_objects::{Clock, Entropy};
use shoal_runtime::Stop;
use shoal_runtime::manager::Stopper;
use shoal_testkit::Cluster;
use tempfile::TempDir;
use tokio::task::JoinHandle;

pub struct World {
    pub client: Client,
    pub dir: TempDir,
    agent: Option<(Stopper, JoinHandle<()>)>,
}

impl World {
    pub async fn start() -> World {
        let client = Cluster::start().await.client();
        let mut world = World { client, dir: tempfile::tempdir().unwrap(), agent: None };
        world
            .create("v1", "ServiceAccount", "serviceaccounts", json!({"metadata": {"name": "default"}}))
            .await;
        let authority = json!({"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": "none"}});
        world.create("v1", "ConfigMap", "configmaps", authority).await;
        world.start_agent();
        world
    }

    pub fn start_agent(&mut self) {
        let entropy = Entropy::system();
        let config = Config {
            name: "n1".to_owned(),
            dir: self.dir.path().to_owned(),
            program: vec![env!("CARGO_BIN_EXE_shoal-sandbox").to_owned()],
            images: ImageTable::built_in(),
            addresses: Addresses::new(&entropy),
            api_server: None,
            keep_pods: false,
            server: None,
            clock: Clock::system(),
            entropy,
        };
        let (stopper, stop) = Stop::channel();
        let client = self.client.clone();
        let task = tokio::spawn(async move { agent::run(config, client, stop).await.unwrap() });
        self.agent = Some((stopper, task));
    }

    pub async fn stop_agent(&mut self) {
        if let Some((stopper, task)) = self.agent.take() {
            stopper.stop();
            task.await.unwrap();
        }
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    pub async fn create(&self, version: &str, kind: &str, plural: &str, mut object: Value) {
        object["apiVersion"] = version.into();
        object["kind"] = kind.into();
        let path = match version {
            "v1" => format!("/api/v1/namespaces/default/{plural}"),
            _ => format!("/apis/{version}/namespaces/default/{plural}"),
        };
        let body = serde_json::to_vec(&object).unwrap();
        let request =
            http::Request::post(path).header("content-type", "application/json").body(body).unwrap();
        let _: Value = self.client.request(request).await.unwrap();
    }

    /// Creates a pod on the node.
    pub async fn run(&self, name: &str, mut spec: Value) {
        spec["nodeName"] = "n1".into();
        if spec["terminationGracePeriodSeconds"].is_null() {
            spec["terminationGracePeriodSeconds"] = 5.into();
        }
        let pod = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
        self.pods().create(&PostParams::default(), &pod).await.unwrap();
    }

    pub async fn shell(&self, name: &str, script: &str, policy: &str) {
        let container = json!({"name": "main", "image": "busybox", "command": ["sh", "-c", script]});
        self.run(name, json!({"restartPolicy": policy, "containers": [container]})).await;
    }

    pub async fn pod(&self, name: &str) -> Value {
        let found = self.pods().get_opt(name).await.unwrap();
        found.map_or(Value::Null, |pod| serde_json::to_value(pod).unwrap())
    }

    /// Waits until a pod is as wanted.
    pub async fn until(&self, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let end = tokio::time::Instant::now() + Duration::from_secs(40);
        loop {
            let pod = self.pod(name).await;
            if wanted(&pod) {
                return pod;
            }
            assert!(tokio::time::Instant::now() < end, "still not {what}: {:#}", pod["status"]);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub async fn until_phase(&self, name: &str, phase: &str) -> Value {
        self.until(name, phase, |pod| pod["status"]["phase"] == phase).await
    }

    pub async fn until_ready(&self, name: &str) -> Value {
        self.until(name, "ready", |pod| condition(pod, "Ready") == "True").await
    }

    pub async fn delete(&self, name: &str) {
        self.pods().delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub async fn until_gone(&self, name: &str) {
        self.until(name, "gone", Value::is_null).await;
    }

    /// The log of a run of a container.
    pub fn log(&self, pod: &Value, container: &str, attempt: i32) -> String {
        let uid = pod["metadata"]["uid"].as_str().unwrap();
        let dir = self.dir.path().join("pods").join(uid);
        let path = shoal_node::pod::container::log_path(&dir, container, attempt);
        let mut reader = shoal_node::logs::Reader::open(Path::new(&path), Default::default()).unwrap();
        String::from_utf8(reader.read(1 << 20).unwrap()).unwrap()
    }

    /// Waits until the first log of a container is as wanted.
    pub async fn until_log(&self, pod: &str, container: &str, wanted: impl Fn(&str) -> bool) {
        self.until(pod, "logged", |pod| !pod.is_null() && wanted(&self.log(pod, container, 0))).await;
    }

    pub async fn event_reasons(&self, pod: &str) -> Vec<String> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), "default");
        let all = events.list(&ListParams::default()).await.unwrap();
        let mine = all.items.into_iter().filter(|event| event.involved_object.name.as_deref() == Some(pod));
        mine.filter_map(|event| event.reason).collect()
    }
}

pub fn condition(pod: &Value, type_: &str) -> String {
    let all = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = all.iter().find(|condition| condition["type"] == type_);
    found.and_then(|condition| condition["status"].as_str()).unwrap_or_default().to_owned()
}

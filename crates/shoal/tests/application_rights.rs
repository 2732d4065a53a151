//! The rights of `shoal manifests application` are enough for all that the operator does: it runs under exactly these roles, with a
//! token of its account.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod process;

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{Request, StatusCode};
use kube::Client;
use process::{objects, prints};
use serde_json::{Value, json};
use shoal_controllers::all::{self, Settings};
use shoal_controllers::scheduler::Scheduler;
use shoal_node::simulated;
use shoal_objects::Entropy;
use shoal_runtime::manager::Stopper;
use shoal_runtime::{Manager, ShardingOptions};
use shoal_testkit::Cluster;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tower::ServiceExt as _;

const NAMESPACE: &str = "operator-system";
const APPLICATION: &str = "/apis/apps.example.com/v1alpha1/namespaces/default/applications/web";
/// Simulated time that a step of the story may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Requests that were refused for lack of a right.
type Refused = Arc<Mutex<Vec<String>>>;

/// What stays the same in every run.
fn manifests() -> Vec<Value> {
    objects(&prints(&["manifests", "application"]))
}

/// A client with a token of the operator's account, which remembers what it was refused.
async fn account(cluster: &Cluster, refused: &Refused) -> Client {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/application-operator/token");
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 86_400}});
    let answer = cluster.http().post(&path, &request).await;
    assert_eq!(answer.status, 201, "{}", answer.json());
    let bearer = format!("Bearer {}", answer.json()["status"]["token"].as_str().unwrap());
    let (server, refused, admin) = (cluster.server().clone(), refused.clone(), cluster.http());
    let touched = Arc::new(AtomicBool::new(false));
    let service = tower::service_fn(move |mut request: Request<kube::client::Body>| {
        request.headers_mut().insert(AUTHORIZATION, bearer.parse().unwrap());
        let what = format!("{} {}", request.method(), request.uri().path());
        let (server, refused, admin, touched) =
            (server.clone(), refused.clone(), admin.clone(), touched.clone());
        async move {
            // Somebody else is faster once: what was read is old then, and is read again.
            if what == format!("PATCH {APPLICATION}") && !touched.swap(true, Ordering::Relaxed) {
                admin.merge(APPLICATION, &json!({"metadata": {"annotations": {"touched": "yes"}}})).await;
            }
            let response = server.oneshot(request).await?;
            if response.status() == StatusCode::FORBIDDEN {
                refused.lock().unwrap().push(what);
            }
            Ok::<_, Infallible>(response)
        }
    });
    Client::new(service, NAMESPACE)
}

struct World {
    cluster: Cluster,
    refused: Refused,
    replicas: Vec<(Stopper, JoinHandle<()>)>,
    _folder: tempfile::TempDir,
}

impl World {
    /// A cluster with everything, and two replicas of the operator under these roles.
    async fn start(manifests: &[Value]) -> World {
        let cluster = Cluster::builder().seed(7).start().await;
        for object in manifests {
            let answer = cluster.http().apply(object).await;
            assert_eq!(answer.status, 201, "{object}: {}", answer.json());
        }
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings {
            clock: cluster.clock(),
            entropy: Entropy::seeded(7),
            root_ca: None,
            volumes: Some(folder.path().to_owned()),
            ..Settings::default()
        };
        let mut manager = Manager::builder("controllers")
            .client(cluster.client())
            .clock(cluster.clock())
            .entropy(Entropy::seeded(8))
            .embedded()
            .build()
            .await
            .unwrap();
        all::register(&mut manager, &settings, |_| true);
        manager.add(Scheduler::default());
        simulated::add(&mut manager, simulated::Options { nodes: 3, ..simulated::Options::default() });
        tokio::spawn(manager.run());
        let refused = Refused::default();
        let mut replicas = Vec::new();
        for (seed, name) in [(1, "one"), (2, "two")] {
            let mut manager = Manager::builder("application-operator")
                .client(account(&cluster, &refused).await)
                .clock(cluster.clock())
                .entropy(Entropy::seeded(seed))
                .embedded()
                .sharded(ShardingOptions::new().name(name).namespace(NAMESPACE))
                .build()
                .await
                .unwrap();
            shoal_application::register(&mut manager, shoal_application::Settings::default());
            let stopper = manager.stopper();
            // Without its rights it may well give up.
            let running = async { drop(manager.run().await) };
            replicas.push((stopper, tokio::spawn(running)));
        }
        World { cluster, refused, replicas, _folder: folder }
    }

    /// Waits for something about the Application. Ends early, with what was refused, once something is.
    async fn until(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Result<(), String> {
        let end = Instant::now() + PATIENCE;
        loop {
            let found = self.cluster.http().get(APPLICATION).await.json();
            if let Some(refused) = self.refused.lock().unwrap().first() {
                return Err(format!("refused: {refused}"));
            }
            if holds(&found) {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(format!("still not {what}: {found}"));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn edit(&self, patch: Value) {
        let answer = self.cluster.http().merge(APPLICATION, &patch).await;
        assert_eq!(answer.status, 200, "{}", answer.json());
    }

    async fn create(&self, spec: &Value) {
        let (collection, _) = APPLICATION.rsplit_once('/').unwrap();
        let object = json!({"apiVersion": "apps.example.com/v1alpha1", "kind": "Application",
            "metadata": {"name": "web"}, "spec": spec});
        let answer = self.cluster.http().post(collection, &object).await;
        assert_eq!(answer.status, 201, "{}", answer.json());
    }

    /// Everything that can happen to an Application, in a row.
    async fn story(&mut self) -> Result<(), String> {
        let running = |app: &Value| {
            app["status"]["phase"] == "Running"
                && app["status"]["observedGeneration"] == app["metadata"]["generation"]
        };
        let gone = |app: &Value| app["kind"] == "Status";
        // With everything that can be made for it.
        self.create(&everything()).await;
        self.until("Running", running).await?;
        // Without: what was made goes.
        self.edit(
            json!({"spec": {"scaling": null, "podDisruptionBudget": null, "storage": null, "network": null,
            "configFiles": null, "security": null, "port": null, "healthCheck": null}}),
        )
        .await;
        self.until("Running without extras", running).await?;
        self.edit(json!({"spec": {"replicas": 4}})).await;
        self.until("Running with four", |app| running(app) && app["status"]["readyReplicas"] == 4).await?;
        self.edit(json!({"spec": {"image": "web:2"}})).await;
        self.until("Running the new image", |app| running(app) && app["status"]["image"] == "web:2").await?;
        // An image that never starts is taken back.
        let never = json!({"simulated.shoal.dev/waiting": "ErrImagePull"});
        self.edit(json!({"spec": {"image": "web:3", "podAnnotations": never, "progressDeadlineSeconds": 5}}))
            .await;
        self.until("rolled back", |app| app["status"]["failedRevision"].is_string()).await?;
        self.delete().await?;
        self.until("gone", gone).await?;
        // What was kept is taken up again; then it stays without owner, or goes with its owner.
        self.create(&everything()).await;
        self.until("Running again", running).await?;
        self.edit(json!({"spec": {"deletionPolicy": "Orphan"}})).await;
        self.until("seen", running).await?;
        self.delete().await?;
        self.until("gone, its children not", gone).await?;
        // A replica that goes gives back what it has.
        for (stopper, running) in self.replicas.drain(..) {
            stopper.stop();
            let _ = running.await;
        }
        match self.refused.lock().unwrap().first() {
            Some(refused) => Err(format!("refused: {refused}")),
            None => Ok(()),
        }
    }

    async fn delete(&self) -> Result<(), String> {
        let answer = self.cluster.http().delete(APPLICATION).await;
        if answer.status.is_success() { Ok(()) } else { Err(answer.json().to_string()) }
    }
}

fn everything() -> Value {
    json!({
        "image": "web:1",
        "replicas": 2,
        "port": 8080,
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
        "healthCheck": {"readinessProbe": {"httpGet": {"path": "/", "port": 8080}}},
        "scaling": {"minReplicas": 2, "maxReplicas": 4, "targetCPUUtilizationPercentage": 70},
        "storage": {"persistentVolumeClaims": [
            {"name": "kept", "size": "1Gi", "accessModes": ["ReadWriteMany"], "mountPath": "/kept"},
            {"name": "lost", "size": "1Gi", "accessModes": ["ReadWriteMany"], "mountPath": "/lost", "retention": "Delete"},
        ]},
        "network": {"ingress": {"host": "web.example.com"}, "networkPolicy": {}},
        "security": {"serviceAccount": "web"},
        "configFiles": [{"path": "/etc/web/web.conf", "content": "colour = blue"}],
        "podDisruptionBudget": {"maxUnavailable": 1},
    })
}

#[tokio::test(start_paused = true)]
async fn the_rights_of_the_manifests_are_enough() {
    let mut world = World::start(&manifests()).await;
    world.story().await.unwrap();
    // And not more than that: what has nothing to do with Applications is out of reach.
    let user = format!("system:serviceaccount:{NAMESPACE}:application-operator");
    let intruder = world.cluster.http_as(&user, &["system:serviceaccounts", "system:authenticated"]);
    for path in [
        "/api/v1/secrets",
        "/api/v1/namespaces/operator-system/secrets",
        "/api/v1/nodes",
        "/api/v1/persistentvolumes",
        "/apis/coordination.k8s.io/v1/leases",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    ] {
        assert_eq!(intruder.get(path).await.status, 403, "{path}");
    }
}

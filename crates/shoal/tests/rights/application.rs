//! The operator of Applications.

use std::sync::Arc;
use std::time::Duration;

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

use crate::account::{PATIENCE, Record, client};
use crate::asked::{not_needed, rights, without};
use crate::process::{objects, prints};

const NAMESPACE: &str = "operator-system";
const ACCOUNT: &str = "application-operator";
const APPLICATION: &str = "/apis/apps.example.com/v1alpha1/namespaces/default/applications/web";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/operator-system/leases";

fn manifests() -> Vec<Value> {
    objects(&prints(&["manifests", "application"]))
}

struct World {
    cluster: Cluster,
    record: Arc<Record>,
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
        let record = Arc::<Record>::default();
        let mut replicas = Vec::new();
        for (seed, name) in [(1, "one"), (2, "two")] {
            let client = client(&cluster, (NAMESPACE, ACCOUNT), APPLICATION, &record).await;
            shoal_application::api::install(&client).await.unwrap();
            let mut manager = Manager::builder(ACCOUNT)
                .client(client)
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
        World { cluster, record, replicas, _folder: folder }
    }

    /// Waits for something about the Application.
    async fn until(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Result<(), String> {
        self.until_at(APPLICATION, what, holds).await
    }

    /// Waits for something about what is found there. Ends early, with what was refused, once something is.
    async fn until_at(&self, path: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Result<(), String> {
        self.record.until(&self.cluster, path, what, holds).await
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
        // Replicas go to the autoscaler and come back.
        let scaling = everything()["scaling"].clone();
        self.edit(json!({"spec": {"scaling": scaling}})).await;
        self.until("Running, scaled by load", running).await?;
        self.edit(json!({"spec": {"scaling": null}})).await;
        self.until("Running, scaled by hand", running).await?;
        // An image that never starts is taken back.
        let never = json!({"simulated.shoal.dev/waiting": "ErrImagePull"});
        self.edit(json!({"spec": {"image": "web:3", "podAnnotations": never, "progressDeadlineSeconds": 5}}))
            .await;
        self.until("rolled back", |app| app["status"]["failedRevision"].is_string()).await?;
        self.delete().await?;
        self.until("gone", gone).await?;
        // A replica vanishes; the other takes over, and clears away what it has left.
        let (_, vanishes) = self.replicas.remove(0);
        vanishes.abort();
        let alone = |leases: &Value| leases["items"].as_array().is_some_and(|leases| leases.len() == 1);
        self.until_at(LEASES, "alone", alone).await?;
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
        match self.record.refused() {
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
async fn the_rights_of_the_operator_are_enough_and_none_is_too_much() {
    let manifests = manifests();
    let mut world = World::start(&manifests).await;
    world.story().await.unwrap();
    let idle = not_needed(&rights(&manifests), &world.record.asked());
    assert!(idle.is_empty(), "nobody would miss: {idle:#?}");
    // What has nothing to do with Applications is out of reach.
    let user = format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}");
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

/// The sums are right: what is needed by them is missed indeed.
#[tokio::test(start_paused = true)]
async fn a_right_that_is_taken_away_is_missed() {
    for (right, refused) in [
        ("create deployments.apps", "PATCH /apis/apps/v1/namespaces/default/deployments/web"),
        ("watch services", "GET /api/v1/services"),
        (
            "update applications/status.apps.example.com",
            "PUT /apis/apps.example.com/v1alpha1/namespaces/default/applications/web/status",
        ),
        ("create events", "POST /api/v1/namespaces/default/events"),
        (
            "create leases.coordination.k8s.io in operator-system",
            "POST /apis/coordination.k8s.io/v1/namespaces/operator-system/leases",
        ),
    ] {
        let mut world = World::start(&without(&manifests(), right)).await;
        assert_eq!(world.story().await.unwrap_err(), format!("refused: {refused}"), "{right}");
        world.replicas.drain(..).for_each(|(_, running)| running.abort());
    }
}

#[tokio::test(start_paused = true)]
async fn a_child_that_may_not_be_made_is_told_in_the_status() {
    let world = World::start(&without(&manifests(), "create deployments.apps")).await;
    world.create(&everything()).await;
    let told = |app: &Value| {
        let conditions = app["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|condition| {
            condition["reason"] == "Refused"
                && condition["message"].as_str().unwrap().contains("cannot create resource")
        })
    };
    let end = Instant::now() + PATIENCE;
    while !told(&world.cluster.http().get(APPLICATION).await.json()) {
        assert!(Instant::now() < end, "{}", world.cluster.http().get(APPLICATION).await.json()["status"]);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

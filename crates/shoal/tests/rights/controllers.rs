//! The controllers of the control plane. They look after kinds that do not exist yet, therefore most of their rights are for all kinds;
//! what they create is listed one by one.

use std::sync::Arc;

use serde_json::{Value, json};
use shoal_controllers::all::{self, Settings};
use shoal_controllers::scheduler::Scheduler;
use shoal_node::simulated;
use shoal_objects::Entropy;
use shoal_runtime::Manager;
use shoal_runtime::manager::Stopper;
use shoal_testkit::Cluster;
use tokio::task::JoinHandle;

use crate::account::{Record, client};
use crate::asked::{not_needed, rights, without};
use crate::process::{objects, prints};

const ACCOUNT: (&str, &str) = ("shoal-system", "shoal-controllers");
/// Asked in the middle of another request: nothing shows it but its absence.
const ESCALATE: &str = "escalate clusterroles.rbac.authorization.k8s.io";

fn manifests() -> Vec<Value> {
    objects(&prints(&["manifests", "controllers"]))
}

struct World {
    cluster: Cluster,
    record: Arc<Record>,
    stopper: Stopper,
    running: JoinHandle<()>,
}

impl World {
    /// A cluster with a scheduler and nodes, and the controllers under these roles, as `shoal run controllers` makes them.
    async fn start(manifests: &[Value]) -> World {
        let cluster = Cluster::builder().seed(7).start().await;
        for object in manifests {
            let answer = cluster.http().apply(object).await;
            assert_eq!(answer.status, 201, "{object}: {}", answer.json());
        }
        let mut others = Manager::builder("others")
            .client(cluster.client())
            .clock(cluster.clock())
            .entropy(Entropy::seeded(8))
            .embedded()
            .build()
            .await
            .unwrap();
        others.add(Scheduler::default());
        simulated::add(&mut others, simulated::Options { nodes: 2, ..simulated::Options::default() });
        tokio::spawn(others.run());
        let record = Arc::<Record>::default();
        let mut manager = Manager::builder("kube-controller-manager")
            .client(client(&cluster, ACCOUNT, "", &record).await)
            .clock(cluster.clock())
            .entropy(Entropy::seeded(9))
            .embedded()
            .leader_election()
            .lease_namespace("kube-system")
            .build()
            .await
            .unwrap();
        let settings = Settings {
            clock: cluster.clock(),
            entropy: Entropy::seeded(7),
            root_ca: Some("a certificate".to_owned()),
            ..Settings::default()
        };
        all::register(&mut manager, &settings, |_| true);
        let stopper = manager.stopper();
        // Without its rights it may well give up.
        let running = tokio::spawn(async { drop(manager.run().await) });
        World { cluster, record, stopper, running }
    }

    /// Waits for something about an object. Ends early, with what was refused, once something is.
    async fn until(&self, path: &str, holds: impl Fn(&Value) -> bool) -> Result<(), String> {
        self.record.until(&self.cluster, path, "as it should be", holds).await
    }

    /// Something for every controller to do.
    async fn story(self) -> Result<(), String> {
        for object in everything() {
            let answer = self.cluster.http().apply(&object).await;
            assert_eq!(answer.status, 201, "{object}: {}", answer.json());
        }
        let apps = "/apis/apps/v1/namespaces/a";
        for workload in ["deployments/web", "statefulsets/db"] {
            self.until(&format!("{apps}/{workload}"), |found| found["status"]["readyReplicas"] == 2).await?;
        }
        self.until(&format!("{apps}/daemonsets/agent"), |found| found["status"]["numberReady"] == 2).await?;
        let template = json!({"spec": {"template": {"metadata": {"labels": {"round": "two"}}}}});
        self.cluster.http().merge(&format!("{apps}/deployments/web"), &template).await;
        let updated = |found: &Value| {
            found["status"]["updatedReplicas"] == 2
                && found["status"]["replicas"] == 2
                && found["status"]["observedGeneration"] == found["metadata"]["generation"]
        };
        self.until(&format!("{apps}/deployments/web"), updated).await?;
        let some = |found: &Value| found["items"].as_array().is_some_and(|items| !items.is_empty());
        self.until("/apis/batch/v1/namespaces/a/jobs", some).await?;
        self.until("/apis/discovery.k8s.io/v1/namespaces/a/endpointslices", some).await?;
        self.until("/api/v1/namespaces/a/endpoints/web", |found| found["subsets"].is_array()).await?;
        self.until("/api/v1/namespaces/a/configmaps/kube-root-ca.crt", |found| found["data"].is_object())
            .await?;
        self.until("/apis/rbac.authorization.k8s.io/v1/clusterroles/sum", |found| {
            some(&json!({"items": found["rules"]}))
        })
        .await?;
        self.until("/api/v1/namespaces/a/resourcequotas/few", |found| found["status"]["used"].is_object())
            .await?;
        self.cluster.http().delete(&format!("{apps}/deployments/web")).await;
        let none = |found: &Value| !some(&json!({"items": found["items"]}));
        self.until(&format!("{apps}/replicasets"), none).await?;
        self.cluster.http().delete("/api/v1/namespaces/a").await;
        self.until("/api/v1/namespaces/a", |found| found["kind"] == "Status").await?;
        self.stopper.stop();
        let _ = self.running.await;
        match self.record.refused() {
            Some(refused) => Err(format!("refused: {refused}")),
            None => Ok(()),
        }
    }
}

fn everything() -> Vec<Value> {
    let container = json!({"name": "main", "image": "web:1"});
    let template =
        |app: &str| json!({"metadata": {"labels": {"app": app}}, "spec": {"containers": [container]}});
    let selector = |app: &str| json!({"matchLabels": {"app": app}});
    let object = |version: &str, kind: &str, name: &str, spec: Value| json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "a"}, "spec": spec});
    let claims = json!([{"metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]);
    // Volumes for these claims; whoever runs the controllers as pods has others who make them.
    let volume = |name: &str| {
        json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/tmp/x"}}})
    };
    let role = "rbac.authorization.k8s.io/v1";
    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}),
        volume("one"),
        volume("two"),
        object("v1", "ResourceQuota", "few", json!({"hard": {"pods": "50"}})),
        object("v1", "Service", "web", json!({"selector": {"app": "web"}, "ports": [{"port": 80}]})),
        object(
            "apps/v1",
            "Deployment",
            "web",
            json!({"replicas": 2, "selector": selector("web"), "template": template("web")}),
        ),
        object(
            "apps/v1",
            "StatefulSet",
            "db",
            json!({"replicas": 2, "serviceName": "db", "selector": selector("db"), "template": template("db"),
                "volumeClaimTemplates": claims}),
        ),
        object(
            "apps/v1",
            "DaemonSet",
            "agent",
            json!({"selector": selector("agent"), "template": template("agent")}),
        ),
        object(
            "policy/v1",
            "PodDisruptionBudget",
            "web",
            json!({"maxUnavailable": 1, "selector": selector("web")}),
        ),
        object(
            "batch/v1",
            "CronJob",
            "often",
            json!({"schedule": "* * * * *", "jobTemplate": {"spec": {"template":
                {"spec": {"restartPolicy": "Never", "containers": [container]}}}}}),
        ),
        // More than the controllers may do themselves.
        json!({"apiVersion": role, "kind": "ClusterRole", "metadata": {"name": "part", "labels": {"sum": "yes"}},
            "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]}]}),
        json!({"apiVersion": role, "kind": "ClusterRole", "metadata": {"name": "sum"},
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"sum": "yes"}}]}, "rules": []}),
    ]
}

#[tokio::test(start_paused = true)]
async fn the_rights_of_the_controllers_are_enough_and_none_is_too_much() {
    let manifests = manifests();
    let world = World::start(&manifests).await;
    let record = world.record.clone();
    world.story().await.unwrap();
    let mut idle = not_needed(&rights(&manifests), &record.asked());
    idle.retain(|right| right != ESCALATE);
    assert!(idle.is_empty(), "nobody would miss: {idle:#?}");
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_give_more_than_they_have_controllers_cannot_sum_up_roles() {
    let world = World::start(&without(&manifests(), ESCALATE)).await;
    let refused = world.story().await.unwrap_err();
    assert!(refused.contains("/clusterroles/"), "{refused}");
}

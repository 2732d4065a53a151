use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// A Deployment and its ReplicaSets, with the part of the cluster that makes pods played by `tick`.
struct World {
    deployment: Deployment,
    sets: Vec<ReplicaSet>,
    /// Of each ReplicaSet's pods, those that are available.
    second: i64,
}

fn deployment(replicas: i32, strategy: Value) -> Deployment {
    serde_json::from_value(json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default", "uid": "d", "generation": 1},
        "spec": {
            "replicas": replicas, "progressDeadlineSeconds": 600, "revisionHistoryLimit": 2,
            "selector": {"matchLabels": {"app": "web"}}, "strategy": strategy,
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "1"}]}}
        }
    }))
    .unwrap()
}

fn rolling(surge: i32, unavailable: i32) -> Value {
    json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}})
}

impl World {
    fn new(replicas: i32, strategy: Value) -> World {
        World { deployment: deployment(replicas, strategy), sets: Vec::new(), second: 1000 }
    }

    fn image(&mut self, image: &str) {
        self.deployment.spec.as_mut().unwrap().template.spec.as_mut().unwrap().containers[0].image =
            Some(image.to_owned());
        *self.deployment.metadata.generation.as_mut().unwrap() += 1;
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_second(self.second).unwrap()
    }

    /// One reconcile, acted out.
    fn step(&mut self) -> Plan {
        self.second += 1;
        let view = View {
            deployment: &self.deployment,
            sets: self.sets.iter().collect(),
            pods: Vec::new(),
            now: self.now(),
        };
        let plan = plan(&view);
        if let Some(mut set) = plan.create.clone() {
            set.metadata.creation_timestamp = Some(Time(self.now()));
            set.metadata.uid = Some(format!("uid-{}", self.sets.len()));
            set.metadata.generation = Some(1);
            self.sets.push(set);
        }
        for change in &plan.change {
            let set =
                self.sets.iter_mut().find(|set| set.metadata.name.as_ref() == Some(&change.name)).unwrap();
            if let Some(replicas) = change.replicas {
                set.spec.as_mut().unwrap().replicas = Some(replicas);
            }
            set.metadata.annotations.get_or_insert_default().extend(change.annotations.clone());
        }
        self.sets.retain(|set| !plan.delete.contains(set.metadata.name.as_ref().unwrap()));
        if let Some(revision) = &plan.revision {
            let annotations = self.deployment.metadata.annotations.get_or_insert_default();
            annotations.insert(sets::REVISION.to_owned(), revision.clone());
        }
        self.deployment.status = Some(plan.status.clone());
        plan
    }

    /// ReplicaSets get their pods; at most `ready` more become available in each.
    fn tick(&mut self, ready: i32) {
        for set in &mut self.sets {
            let wanted = size(set);
            let available = (rollout::available(set) + ready).min(wanted);
            let generation = set.metadata.generation;
            set.status = serde_json::from_value(json!({
                "replicas": wanted, "readyReplicas": available, "availableReplicas": available,
                "observedGeneration": generation, "terminatingReplicas": 0
            }))
            .unwrap();
        }
    }

    fn sizes(&self) -> Vec<i32> {
        self.sets.iter().map(size).collect()
    }

    /// Steps until nothing is left to do; checks the promises of the strategy at every step.
    fn settle(&mut self, ready: i32) {
        let wanted = rollout::replicas(&self.deployment);
        let (most, least) = (
            wanted + rollout::max_surge(&self.deployment),
            wanted - rollout::max_unavailable(&self.deployment),
        );
        let started: i32 = self.sets.iter().map(rollout::available).sum();
        for _ in 0..400 {
            let plan = self.step();
            assert!(self.sizes().iter().sum::<i32>() <= most.max(started), "{:?}", self.sizes());
            // What is deleted was chosen among those not needed: shrinking never goes below what must be available.
            let available: i32 = self.sets.iter().map(|set| rollout::available(set).min(size(set))).sum();
            assert!(available >= least.min(started), "{available} {:?}", self.sizes());
            let idle = plan.create.is_none() && plan.change.is_empty() && plan.delete.is_empty();
            if idle && status::is_complete(&self.deployment, &plan.status) {
                return;
            }
            self.tick(ready);
        }
        panic!("the rollout does not end: {:?}", self.sizes());
    }

    fn progressing(&self) -> (String, String) {
        let conditions = self.deployment.status.as_ref().unwrap().conditions.clone().unwrap();
        let condition = conditions::find(&conditions, PROGRESSING).unwrap();
        (condition.status.clone(), condition.reason.clone().unwrap())
    }
}

#[test]
fn a_first_rollout_makes_one_replica_set_of_full_size() {
    let mut world = World::new(3, rolling(1, 1));
    let plan = world.step();
    let set = plan.create.unwrap();
    let name = set.metadata.name.clone().unwrap();
    assert_eq!(plan.scaled, [format!("Scaled up replica set {name} from 0 to 3")]);
    let annotations = set.metadata.annotations.unwrap();
    assert_eq!(annotations[sets::DESIRED], "3");
    assert_eq!(annotations[sets::MAXIMUM], "4");
    assert_eq!(annotations[sets::REVISION], "1");
    assert_eq!(world.progressing().1, "NewReplicaSetCreated");
    world.settle(3);
    assert_eq!(world.progressing(), ("True".to_owned(), "NewReplicaSetAvailable".to_owned()));
    let quiet = world.step();
    assert_eq!(
        (quiet.create, quiet.change, quiet.revision),
        (None, Vec::new(), None),
        "nothing to do is nothing done"
    );
}

#[test]
fn an_old_template_that_comes_back_gets_the_next_revision_and_remembers() {
    let mut world = World::new(2, rolling(1, 0));
    world.settle(2);
    world.image("2");
    world.settle(2);
    world.image("1");
    world.settle(2);
    assert_eq!(world.sets.len(), 2);
    assert_eq!(sets::annotation(&world.sets[0], sets::REVISION), Some("3"));
    assert_eq!(sets::annotation(&world.sets[0], sets::REVISION_HISTORY), Some("1"));
    assert_eq!(world.sizes(), [2, 0]);
}

#[test]
fn history_beyond_the_limit_is_deleted_oldest_first() {
    let mut world = World::new(1, rolling(1, 0));
    for image in ["1", "2", "3", "4", "5"] {
        world.image(image);
        world.settle(1);
    }
    let mut revisions: Vec<_> = world.sets.iter().map(sets::revision).collect();
    revisions.sort_unstable();
    assert_eq!(revisions, [3, 4, 5]);
}

#[test]
fn a_stuck_rollout_is_told_after_its_deadline_and_recovers() {
    let mut world = World::new(2, rolling(1, 0));
    world.settle(2);
    world.image("bad");
    world.step();
    world.tick(0);
    let plan = world.step();
    assert!(plan.again.unwrap() <= Duration::from_secs(601));
    world.tick(0);
    world.step();
    world.second += 700;
    world.step();
    assert_eq!(world.progressing(), ("False".to_owned(), "ProgressDeadlineExceeded".to_owned()));
    world.tick(2);
    world.settle(2);
    assert_eq!(world.progressing(), ("True".to_owned(), "NewReplicaSetAvailable".to_owned()));
}

#[test]
fn a_paused_deployment_changes_size_but_not_template() {
    let mut world = World::new(2, rolling(1, 0));
    world.settle(2);
    world.deployment.spec.as_mut().unwrap().paused = Some(true);
    world.image("2");
    world.deployment.spec.as_mut().unwrap().replicas = Some(4);
    world.step();
    assert_eq!(world.sizes(), [4]);
    assert_eq!(world.progressing(), ("Unknown".to_owned(), "DeploymentPaused".to_owned()));
    world.deployment.spec.as_mut().unwrap().paused = Some(false);
    world.tick(4);
    world.settle(4);
    assert_eq!(world.sizes(), [0, 4]);
}

#[test]
fn recreate_waits_until_old_pods_are_gone() {
    let mut world = World::new(2, json!({"type": "Recreate"}));
    world.settle(2);
    world.image("2");
    world.step();
    assert_eq!(world.sizes(), [0]);
    let uid = world.sets[0].metadata.uid.clone();
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "p", "deletionTimestamp": "2024-01-01T00:00:00Z", "ownerReferences":
            [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": uid, "controller": true}]},
        "status": {"phase": "Running"}
    }))
    .unwrap();
    let view = View {
        deployment: &world.deployment,
        sets: world.sets.iter().collect(),
        pods: vec![&pod],
        now: world.now(),
    };
    assert_eq!(plan(&view).create, None, "the old pod still holds what it uses");
    world.tick(0);
    world.step();
    assert_eq!(world.sizes(), [0, 2]);
}

#[test]
fn scaling_during_a_rollout_keeps_the_shares() {
    let mut world = World::new(10, rolling(3, 2));
    world.settle(10);
    world.image("2");
    world.step();
    world.tick(0);
    world.step();
    assert_eq!(world.sizes(), [8, 3], "the new one may use the surge, the old one what may be unavailable");
    world.tick(0);
    world.step();
    world.tick(0);
    assert_eq!(world.sizes(), [8, 5]);
    assert!(world.step().change.is_empty(), "nothing moves until new pods are available");
    world.deployment.spec.as_mut().unwrap().replicas = Some(15);
    world.step();
    let sizes = world.sizes();
    assert_eq!(sizes.iter().sum::<i32>(), 18, "{sizes:?}");
    assert!(sizes[0] > 8 && sizes[1] > 5, "{sizes:?}");
}

#[test]
fn percentages_round_up_for_surge_and_down_for_unavailability() {
    let percent =
        |text: &str| k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::String(text.to_owned());
    assert_eq!(rollout::resolve(&percent("25%"), 10, true), 3);
    assert_eq!(rollout::resolve(&percent("25%"), 10, false), 2);
    assert_eq!(rollout::resolve(&percent("nonsense"), 10, false), 0);
    let none = deployment(
        1,
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": "25%"}}),
    );
    assert_eq!((rollout::max_surge(&none), rollout::max_unavailable(&none)), (0, 1));
}

proptest! {
    #[test]
    fn every_rollout_ends_within_its_fences(
        replicas in 0..15_i32, surge in 0..5_i32, unavailable in 0..5_i32, ready in 1..4_i32, images in prop::collection::vec(0..4_u8, 1..5),
    ) {
        let mut world = World::new(replicas, rolling(surge, unavailable));
        world.settle(ready);
        for image in images {
            world.image(&format!("image-{image}"));
            // Sometimes the next template comes while the last one is still on its way.
            if image % 2 == 0 {
                world.step();
                world.tick(ready);
            }
        }
        world.settle(ready);
        let current = sets::current(&world.deployment, &world.sets.iter().collect::<Vec<_>>()).unwrap();
        prop_assert_eq!(size(current), replicas);
    }
}

use serde_json::{Value, json};

use super::*;

/// A set and its pods; `act` plays the API server, `run` the nodes.
struct World {
    set: StatefulSet,
    pods: Vec<Pod>,
    current: Revision,
    update: Revision,
    made: usize,
}

fn template(image: &str) -> PodTemplateSpec {
    serde_json::from_value(json!({
        "metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "c", "image": image}]}
    }))
    .unwrap()
}

impl World {
    fn new(replicas: i32, extra: Value) -> World {
        let mut spec = json!({
            "replicas": replicas, "serviceName": "hl", "selector": {"matchLabels": {"app": "db"}},
            "template": template("1"),
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]
        });
        spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let set =
            json!({"metadata": {"name": "db", "namespace": "a", "uid": "s", "generation": 1}, "spec": spec});
        let revision = Revision { name: "db-1".to_owned(), template: template("1") };
        World {
            set: serde_json::from_value(set).unwrap(),
            pods: Vec::new(),
            current: revision.clone(),
            update: revision,
            made: 0,
        }
    }

    fn plan(&self) -> Plan {
        let now = Timestamp::from_second(1_000_000).unwrap();
        plan(&View {
            set: &self.set,
            pods: self.pods.iter().collect(),
            current: &self.current,
            update: &self.update,
            now,
        })
    }

    /// Carries out the next steps; gives their words.
    fn act(&mut self) -> Vec<String> {
        let plan = self.plan();
        let mut words = Vec::new();
        for step in plan.steps {
            match step {
                Step::Create(ordinal, mut pod) => {
                    words.push(format!("create {ordinal} of {}", revision(&pod)));
                    self.made += 1;
                    pod.metadata.uid = Some(self.made.to_string());
                    self.pods.push(*pod);
                }
                Step::Mend(pod) => words.push(format!("mend {}", pod.metadata.name.unwrap())),
                Step::Delete(name, uid) => {
                    words.push(format!("delete {name}"));
                    self.pods.retain(|pod| pod.metadata.uid.as_ref() != Some(&uid));
                }
            }
        }
        if plan.status.current_revision == plan.status.update_revision {
            self.current = self.update.clone();
        }
        self.set.status = Some(plan.status);
        words
    }

    fn run(&mut self) {
        for pod in &mut self.pods {
            pod.status = serde_json::from_value(json!({"phase": "Running", "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:00:01Z"}]}))
            .unwrap();
        }
    }

    /// Acts and runs until nothing is left to do.
    fn settle(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        for _ in 0..50 {
            self.run();
            let words = self.act();
            if words.is_empty() {
                return all;
            }
            all.extend(words);
        }
        panic!("no end: {all:?}");
    }

    fn image(&mut self, image: &str) {
        self.update = Revision { name: format!("db-{image}"), template: template(image) };
    }
}

#[test]
fn pods_come_up_one_after_the_other_and_go_from_the_top() {
    let mut world = World::new(3, json!({}));
    assert_eq!(world.act(), ["create 0 of db-1"]);
    assert!(world.act().is_empty(), "the next one waits until this one serves");
    assert_eq!(world.settle(), ["create 1 of db-1", "create 2 of db-1"]);
    world.set.spec.as_mut().unwrap().replicas = Some(1);
    assert_eq!(world.settle(), ["delete db-2", "delete db-1"]);
}

#[test]
fn parallel_sets_wait_for_nobody() {
    let mut world = World::new(3, json!({"podManagementPolicy": "Parallel"}));
    assert_eq!(world.act().len(), 3);
    world.set.spec.as_mut().unwrap().replicas = Some(0);
    assert_eq!(world.act(), ["delete db-2", "delete db-1", "delete db-0"]);
}

#[test]
fn a_pod_has_its_name_claims_and_labels() {
    let mut world = World::new(1, json!({"ordinals": {"start": 5}}));
    world.act();
    let pod = &world.pods[0];
    let spec = pod.spec.as_ref().unwrap();
    assert_eq!(pod.metadata.name.as_deref(), Some("db-5"));
    assert_eq!(spec.hostname.as_deref(), Some("db-5"));
    assert_eq!(spec.subdomain.as_deref(), Some("hl"));
    assert_eq!(
        spec.volumes.as_ref().unwrap()[0].persistent_volume_claim.as_ref().unwrap().claim_name,
        "data-db-5"
    );
    let labels = pod.metadata.labels.as_ref().unwrap();
    assert_eq!(labels["apps.kubernetes.io/pod-index"], "5");
    assert_eq!(labels["statefulset.kubernetes.io/pod-name"], "db-5");
    let claims = identity::claims(&world.set, 5);
    assert_eq!(claims[0].metadata.name.as_deref(), Some("data-db-5"));
    assert_eq!(claims[0].metadata.labels.as_ref().unwrap()["app"], "db");
}

#[test]
fn an_update_goes_from_the_top_and_stops_at_the_partition() {
    let mut world = World::new(
        3,
        json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}}),
    );
    world.settle();
    world.image("2");
    assert_eq!(world.settle(), ["delete db-2", "create 2 of db-2"]);
    let status = world.set.status.clone().unwrap();
    assert_eq!((status.current_replicas, status.updated_replicas), (Some(2), Some(1)));
    assert_eq!(status.current_revision.as_deref(), Some("db-1"));
    let rolling = world.set.spec.as_mut().unwrap().update_strategy.as_mut().unwrap();
    rolling.rolling_update.as_mut().unwrap().partition = Some(0);
    let words = world.settle();
    assert_eq!(words, ["delete db-1", "create 1 of db-2", "delete db-0", "create 0 of db-2"]);
    assert_eq!(world.plan().status.current_revision.as_deref(), Some("db-2"));
}

#[test]
fn an_update_waits_for_a_pod_that_is_ill() {
    let mut world = World::new(3, json!({}));
    world.settle();
    world.image("bad");
    assert_eq!(world.act(), ["delete db-2"]);
    assert_eq!(world.act(), ["create 2 of db-bad"]);
    assert!(world.act().is_empty(), "db-1 stays while db-2 does not serve");
    world.image("3");
    assert!(world.act().is_empty() || world.pods.iter().filter(|pod| runs(pod)).count() >= 2);
}

#[test]
fn on_delete_replaces_only_what_the_user_deletes() {
    let mut world = World::new(2, json!({"updateStrategy": {"type": "OnDelete"}}));
    world.settle();
    world.image("2");
    assert!(world.act().is_empty());
    world.pods.retain(|pod| pod.metadata.name.as_deref() != Some("db-0"));
    assert_eq!(world.act(), ["create 0 of db-2"]);
}

#[test]
fn a_pod_that_ended_makes_way_for_its_successor() {
    let mut world = World::new(1, json!({}));
    world.settle();
    world.pods[0].status.as_mut().unwrap().phase = Some("Failed".to_owned());
    assert_eq!(world.act(), ["delete db-0"]);
    assert_eq!(world.act(), ["create 0 of db-1"]);
}

#[test]
fn names_of_others_are_not_ours() {
    let world = World::new(1, json!({}));
    for (name, expected) in [
        ("db-0", Some(0)),
        ("db-12", Some(12)),
        ("db-01", None),
        ("db--1", None),
        ("db-x", None),
        ("dbx-1", None),
    ] {
        let pod = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        assert_eq!(identity::ordinal(&world.set, &pod), expected, "{name}");
    }
}

use serde_json::{Value, json};

use super::super::record::Exit;
use super::*;

const NOW: Timestamp = Timestamp(1_000_000_000);

fn pod(spec: Value) -> Pod {
    serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
}

fn two(policy: &str) -> Pod {
    pod(json!({"restartPolicy": policy, "containers": [{"name": "a"}, {"name": "b"}]}))
}

fn running() -> Record {
    let mut record = Record::default();
    record.began("id", NOW, false, false);
    record
}

fn ended(code: i32) -> Record {
    let mut record = running();
    record.ended(Exit { code, started_at: Some(NOW), finished_at: NOW, ..Exit::default() });
    record
}

fn records(all: &[(&str, Record)]) -> Records {
    all.iter().map(|(name, record)| ((*name).to_owned(), record.clone())).collect()
}

fn actions(pod: &Pod, all: &[(&str, Record)], ending: bool) -> Vec<Action> {
    plan(pod, &records(all), ending, NOW).actions
}

fn start(name: &str) -> Action {
    Action::Start(name.to_owned())
}

fn stop(name: &str) -> Action {
    Action::Stop(name.to_owned())
}

#[test]
fn init_containers_run_one_after_the_other_and_before_the_others() {
    let pod = pod(json!({"initContainers": [{"name": "i1"}, {"name": "i2"}], "containers": [{"name": "a"}]}));
    assert_eq!(actions(&pod, &[], false), [start("i1")]);
    assert_eq!(actions(&pod, &[("i1", running())], false), []);
    assert_eq!(actions(&pod, &[("i1", ended(0))], false), [start("i2")]);
    assert_eq!(actions(&pod, &[("i1", ended(0)), ("i2", ended(0))], false), [start("a")]);
    assert_eq!(actions(&pod, &[("i1", ended(1))], false), [start("i1")]);
    let done = [("i1", ended(0)), ("i2", ended(0)), ("a", ended(1))];
    assert_eq!(actions(&pod, &done, false), [start("a")]);
}

#[test]
fn a_failed_init_container_ends_a_pod_that_never_restarts() {
    let pod = pod(
        json!({"restartPolicy": "Never", "initContainers": [{"name": "i"}], "containers": [{"name": "a"}]}),
    );
    assert_eq!(actions(&pod, &[("i", ended(1))], false), [Action::Finish]);
}

#[test]
fn sidecars_start_first_go_on_and_stop_last() {
    let sidecar = json!({"name": "s", "restartPolicy": "Always"});
    let pod = pod(
        json!({"restartPolicy": "Never", "initContainers": [sidecar, {"name": "i"}], "containers": [{"name": "a"}]}),
    );
    assert_eq!(actions(&pod, &[], false), [start("s")]);
    let mut starting = running();
    starting.started = false;
    assert_eq!(actions(&pod, &[("s", starting)], false), []);
    assert_eq!(actions(&pod, &[("s", running())], false), [start("i")]);
    assert_eq!(actions(&pod, &[("s", running()), ("i", ended(0))], false), [start("a")]);
    let all = |s: Record, a: Record| [("s", s), ("i", ended(0)), ("a", a)];
    assert_eq!(actions(&pod, &all(ended(1), running()), false), [start("s")]);
    assert_eq!(actions(&pod, &all(running(), ended(0)), false), [stop("s")]);
    assert_eq!(actions(&pod, &all(ended(0), ended(0)), false), [Action::Finish]);
    assert_eq!(actions(&pod, &all(running(), running()), true), [stop("a")]);
}

#[test]
fn restart_policies_decide_who_starts_again() {
    let all = [("a", ended(0)), ("b", ended(1))];
    assert_eq!(actions(&two("Always"), &all, false), [start("a"), start("b")]);
    assert_eq!(actions(&two("OnFailure"), &all, false), [start("b")]);
    assert_eq!(actions(&two("Never"), &all, false), [Action::Finish]);
    assert_eq!(actions(&two("Never"), &[("a", running()), ("b", ended(1))], false), []);
    assert_eq!(actions(&two("OnFailure"), &[("a", ended(0)), ("b", ended(0))], false), [Action::Finish]);
}

#[test]
fn a_container_that_ends_again_and_again_waits() {
    let mut record = ended(1);
    record.ended(Exit { code: 1, finished_at: NOW, ..Exit::default() });
    let plan = plan(&two("Always"), &records(&[("a", record.clone()), ("b", running())]), false, NOW);
    assert_eq!(plan.actions, [Action::BackOff("a".to_owned())]);
    assert_eq!(plan.wake_at, Some(NOW.plus_seconds(10)));
    let later = super::plan(
        &two("Always"),
        &records(&[("a", record), ("b", running())]),
        false,
        NOW.plus_seconds(10),
    );
    assert_eq!(later.actions, [start("a")]);
}

#[test]
fn an_image_that_cannot_be_had_is_tried_later() {
    let mut record = Record::default();
    record.refused("ErrImagePull", "no", NOW);
    let plan = plan(&two("Never"), &records(&[("a", record), ("b", running())]), false, NOW);
    assert_eq!(plan.actions, [Action::ImageBackOff("a".to_owned())]);
    assert_eq!(plan.wake_at, Some(NOW.plus_seconds(10)));
}

#[test]
fn an_ending_pod_stops_everything_once_and_starts_nothing() {
    let pod = two("Always");
    assert_eq!(actions(&pod, &[("a", running())], true), [stop("a")]);
    let mut stopping = running();
    stopping.stopping = true;
    assert_eq!(actions(&pod, &[("a", stopping)], true), []);
    assert_eq!(actions(&pod, &[("a", ended(137))], true), [Action::Finish]);
    assert_eq!(actions(&pod, &[], true), [Action::Finish]);
}

use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use proptest::prelude::*;
use serde_json::{Value, json};
use shoal_runtime::status::{condition, is_true};

use super::*;

fn app(status: Value) -> Application {
    let object = json!({"metadata": {"name": "web", "namespace": "default", "uid": "1", "generation": 1},
        "spec": {"image": "a", "replicas": 2}, "status": status});
    serde_json::from_value(object).unwrap()
}

/// A Deployment that has a template of this revision, and says this of itself.
fn deployment(revision: &str, status: Value) -> Deployment {
    let template = json!({"metadata": {"labels": {"apps.example.com/revision": revision}},
        "spec": {"containers": [{"name": "web", "image": revision}]}});
    let spec = json!({"replicas": 2, "selector": {}, "template": template});
    serde_json::from_value(json!({"metadata": {"generation": 3}, "spec": spec, "status": status})).unwrap()
}

fn counts(total: i32, updated: i32, available: i32) -> Value {
    json!({"observedGeneration": 3, "replicas": total, "updatedReplicas": updated, "readyReplicas": available,
        "availableReplicas": available})
}

fn overdue() -> Value {
    let mut status = counts(3, 1, 2);
    status["conditions"] = json!([{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded",
        "message": "it took too long"}]);
    status
}

fn template(revision: &str) -> (PodTemplateSpec, String) {
    (deployment(revision, json!({})).spec.unwrap().template, revision.to_owned())
}

fn assessed(
    app: &Application,
    choice: &Choice,
    deployment: Option<&Deployment>,
    problem: Option<Problem>,
) -> ApplicationStatus {
    assess(&Observed {
        app,
        problem,
        choice,
        deployment,
        autoscaler: None,
        service: None,
        claims: &[],
        children: Vec::new(),
        now: Timestamp::from_second(1_800_000_000).unwrap(),
    })
}

fn plain(revision: &str) -> Choice {
    choose(&app(json!(null)), template(revision), &Rollout::Ahead, None, None)
}

#[test]
fn a_rollout_is_judged_by_what_its_controller_has_seen() {
    let of = |deployment: &Deployment| rollout(Some(deployment), "new");
    assert_eq!(rollout(None, "new"), Rollout::Ahead);
    assert_eq!(of(&deployment("old", counts(2, 2, 2))), Rollout::Ahead);
    let mut unseen = counts(2, 2, 2);
    unseen["observedGeneration"] = json!(2);
    assert_eq!(of(&deployment("new", unseen)), Rollout::Ahead);
    assert_eq!(of(&deployment("new", counts(2, 1, 2))), Rollout::UnderWay { done: 1, wanted: 2 });
    assert_eq!(
        of(&deployment("new", counts(3, 2, 3))),
        Rollout::UnderWay { done: 2, wanted: 2 },
        "an old pod is left"
    );
    assert_eq!(of(&deployment("new", counts(2, 2, 1))), Rollout::UnderWay { done: 1, wanted: 2 });
    assert_eq!(of(&deployment("new", counts(2, 2, 2))), Rollout::Complete);
    assert_eq!(of(&deployment("new", overdue())), Rollout::Overdue("it took too long".to_owned()));
}

#[test]
fn phases_come_in_order() {
    let phase = |app: &Application, choice: &Choice, deployment: Option<&Deployment>| {
        assessed(app, choice, deployment, None)
    };
    let first = phase(&app(json!(null)), &plain("1"), None);
    assert_eq!(first.phase, Some(Phase::Creating));
    let running = phase(&app(json!(first)), &plain("1"), Some(&deployment("1", counts(2, 2, 2))));
    assert_eq!(running.phase, Some(Phase::Running));
    assert_eq!((running.last_good_revision.as_deref(), running.settled_replicas), (Some("1"), Some(2)));
    assert!(is_true(&running.conditions, "Ready") && condition(&running.conditions, "Reconciling").is_none());
    let updating = phase(&app(json!(running)), &plain("2"), Some(&deployment("2", counts(3, 1, 2))));
    assert_eq!(updating.phase, Some(Phase::Updating));
    assert!(!is_true(&updating.conditions, "Ready") && is_true(&updating.conditions, "Reconciling"));
    let updated = phase(&app(json!(updating)), &plain("2"), Some(&deployment("2", counts(2, 2, 2))));
    assert_eq!(updated.phase, Some(Phase::Running));
    let mut more = deployment("2", counts(2, 2, 2));
    more.spec.as_mut().unwrap().replicas = Some(5);
    let scaling = phase(&app(json!(updated)), &plain("2"), Some(&more));
    assert_eq!((scaling.phase, scaling.ready.as_str()), (Some(Phase::Scaling), "2/5"));
    let ill = phase(&app(json!(updated)), &plain("2"), Some(&deployment("2", counts(2, 2, 1))));
    assert_eq!(ill.phase, Some(Phase::Running), "a pod that fails is replaced");
    assert!(!is_true(&ill.conditions, "Ready") && is_true(&ill.conditions, "Degraded"));
    let reasons = |before: &ApplicationStatus, after: &ApplicationStatus| {
        notes(Some(before), after).iter().map(|note| note.reason).collect::<Vec<_>>()
    };
    assert_eq!(reasons(&first, &running), ["Running"]);
    assert_eq!(reasons(&running, &updating), ["RolloutStarted"]);
    assert_eq!(reasons(&updating, &updated), ["RolloutComplete"]);
    assert_eq!(reasons(&updated, &scaling), ["ScalingStarted"]);
    assert_eq!(reasons(&scaling, &updated), ["ScalingComplete"]);
    assert_eq!(reasons(&updated, &ill), ["Unhealthy"]);
    assert_eq!(reasons(&ill, &updated), ["Healthy"]);
    assert_eq!(reasons(&updated, &updated), Vec::<&str>::new());
}

#[test]
fn a_template_that_fails_is_left_for_the_last_that_worked() {
    let before = app(json!({"phase": "Updating", "lastGoodRevision": "1", "settledReplicas": 2}));
    let bad = deployment("2", overdue());
    let state = rollout(Some(&bad), "2");
    let choice = choose(&before, template("2"), &state, None, Some(template("1")));
    assert!(choice.is_new && choice.is_rolled_back());
    assert_eq!(choice.applied, "1");
    let failed = assessed(&before, &choice, Some(&bad), None);
    assert_eq!(failed.phase, Some(Phase::Failed));
    assert_eq!(failed.failed_revision.as_deref(), Some("2"));
    for type_ in ["Stalled", "RolledBack", "Degraded", "Available"] {
        assert!(is_true(&failed.conditions, type_), "{type_}");
    }
    let told: Vec<&str> = notes(before.status.as_ref(), &failed).iter().map(|note| note.reason).collect();
    assert_eq!(told, ["RolledBack"]);

    // The next look knows, and does not try the bad one again.
    let after = app(json!(failed));
    let again = choose(&after, template("2"), &Rollout::Ahead, None, Some(template("1")));
    assert!(!again.is_new && again.applied == "1");
    let back = assessed(&after, &again, Some(&deployment("1", counts(2, 2, 2))), None);
    assert_eq!((back.phase, back.failed_revision.as_deref()), (Some(Phase::Failed), Some("2")));
    assert_eq!(notes(after.status.as_ref(), &back), Vec::new());

    // Another specification is tried at once, and recovers.
    let mended = choose(&app(json!(back)), template("3"), &Rollout::Ahead, None, Some(template("1")));
    assert_eq!((mended.applied.as_str(), &mended.failure), ("3", &None));
    let well = assessed(&app(json!(back)), &mended, Some(&deployment("3", counts(2, 2, 2))), None);
    assert_eq!((well.phase, well.failed_revision.clone()), (Some(Phase::Running), None));
    let reasons = |before: &ApplicationStatus, after: &ApplicationStatus| {
        notes(Some(before), after).iter().map(|note| note.reason).collect::<Vec<_>>()
    };
    assert_eq!(reasons(&back, &well), ["Recovered"]);
    let on_its_way = assessed(&app(json!(back)), &mended, Some(&deployment("3", counts(3, 1, 2))), None);
    assert_eq!((on_its_way.phase, on_its_way.recovering), (Some(Phase::Updating), true));
    assert_eq!(reasons(&back, &on_its_way), ["RolloutStarted"]);
    let well = assessed(&app(json!(on_its_way)), &mended, Some(&deployment("3", counts(2, 2, 2))), None);
    assert!(!well.recovering);
    assert_eq!(reasons(&on_its_way, &well), ["Recovered", "RolloutComplete"]);
}

#[test]
fn without_one_that_worked_or_when_told_so_nothing_is_put_back() {
    let before = app(json!({"phase": "Creating"}));
    let bad = deployment("1", overdue());
    let choice = choose(&before, template("1"), &rollout(Some(&bad), "1"), None, None);
    assert!(choice.is_new && !choice.is_rolled_back());
    let failed = assessed(&before, &choice, Some(&bad), None);
    assert_eq!(failed.phase, Some(Phase::Failed));
    assert!(!is_true(&failed.conditions, "RolledBack"));
    // It comes up after all.
    let choice = choose(&app(json!(failed)), template("1"), &Rollout::Complete, None, None);
    let well = assessed(&app(json!(failed)), &choice, Some(&deployment("1", counts(2, 2, 2))), None);
    assert_eq!((well.phase, well.failed_revision), (Some(Phase::Running), None));

    let mut unwilling = app(json!({"phase": "Updating", "lastGoodRevision": "0"}));
    unwilling.spec.rollback.enabled = false;
    let choice =
        choose(&unwilling, template("1"), &Rollout::Overdue(String::new()), None, Some(template("0")));
    assert!(choice.failure.is_some() && choice.applied == "1");
}

#[test]
fn a_template_that_has_worked_is_not_blamed() {
    let before = app(json!({"phase": "Running", "lastGoodRevision": "1"}));
    let trouble = Some(Problem::new("CrashLoop", "again"));
    let state = Rollout::UnderWay { done: 0, wanted: 2 };
    let choice = choose(&before, template("1"), &state, trouble, Some(template("1")));
    assert_eq!((choice.failure, choice.is_new), (None, false));
}

#[test]
fn pods_that_will_not_come_up_are_told_from_those_that_take_their_time() {
    let now = Timestamp::from_second(1_800_000_100).unwrap();
    let pod = |age: i64, container: Value| -> Pod {
        let made = Timestamp::from_second(1_800_000_100 - age).unwrap().to_string();
        let mut status =
            json!({"name": "web", "image": "a", "imageID": "", "ready": false, "restartCount": 0});
        for (key, value) in container.as_object().unwrap() {
            status[key] = value.clone();
        }
        serde_json::from_value(json!({"metadata": {"name": "p", "creationTimestamp": made},
            "status": {"containerStatuses": [status]}}))
        .unwrap()
    };
    let waiting = |reason: &str| json!({"state": {"waiting": {"reason": reason}}});
    let reason = |pod: Pod| trouble(&[pod], 3, now).map(|problem| problem.reason);
    assert_eq!(reason(pod(5, waiting("ContainerCreating"))), None);
    assert_eq!(reason(pod(5, waiting("ErrImagePull"))), None);
    assert_eq!(reason(pod(60, waiting("ErrImagePull"))), Some("ImagePullFailed"));
    assert_eq!(reason(pod(1, waiting("InvalidImageName"))), Some("ImageUnusable"));
    assert_eq!(reason(pod(1, json!({"restartCount": 2}))), None);
    assert_eq!(reason(pod(1, json!({"restartCount": 3}))), Some("CrashLoop"));
    assert_eq!(reason(pod(1, json!({"restartCount": 9, "ready": true}))), None);
    assert_eq!(trouble(&[], 3, now), None);
}

#[test]
fn the_transition_time_of_a_condition_moves_with_its_status_only() {
    let choice = plain("1");
    let first = assessed(&app(json!(null)), &choice, None, None);
    let mut later = app(json!(first));
    later.metadata.generation = Some(7);
    let second = assessed(&later, &choice, None, None);
    let (a, b) =
        (condition(&first.conditions, "Ready").unwrap(), condition(&second.conditions, "Ready").unwrap());
    assert_eq!(a.last_transition_time, b.last_transition_time);
    assert_eq!(b.observed_generation, Some(7));
    assert_eq!(second.observed_generation, Some(7));
}

fn standing() -> impl Strategy<Value = Standing> {
    let flags = proptest::array::uniform6(any::<bool>());
    let count = || 0..4_i32;
    (flags, count(), proptest::option::of(count()), count(), count()).prop_map(
        |(flags, desired, settled, ready, existing)| {
            let [deleting, paused, stuck, ever_good, template_is_good, complete] = flags;
            Standing {
                deleting,
                paused,
                stuck,
                ever_good,
                template_is_good,
                complete,
                desired,
                settled,
                ready,
                existing,
            }
        },
    )
}

proptest! {
    /// Every standing has a phase, and the same one each time; what is more urgent wins.
    #[test]
    fn the_phase_is_total_and_keeps_its_order(standing in standing()) {
        let now = phase(&standing);
        prop_assert_eq!(now, phase(&standing));
        prop_assert_eq!(now == Phase::Deleting, standing.deleting);
        if !standing.deleting {
            prop_assert_eq!(now == Phase::Paused, standing.paused);
            if !standing.paused {
                prop_assert_eq!(now == Phase::Failed, standing.stuck);
            }
        }
        if now == Phase::Running {
            prop_assert!(standing.ever_good && standing.template_is_good);
        }
    }

    /// Looking twice at the same things says the same and tells nothing new.
    #[test]
    fn a_second_look_changes_nothing(
        total in 0..4_i32, updated in 0..4_i32, available in 0..4_i32,
        revision in "[12]", good in proptest::option::of("[12]"), failed in proptest::option::of("[12]"),
        late in any::<bool>(), problem in any::<bool>(),
    ) {
        let mut status = counts(total, updated, available);
        if late {
            status["conditions"] = overdue()["conditions"].clone();
        }
        let live = deployment("1", status);
        let problem = problem.then(|| Problem::new("Refused", "no"));
        let look = |app: &Application| {
            let state = rollout(Some(&live), &revision);
            let good = app.status.as_ref().and_then(|status| status.last_good_revision.as_deref()).map(template);
            let choice = choose(app, template(&revision), &state, None, good);
            assessed(app, &choice, Some(&live), problem.clone())
        };
        let before = app(json!({"lastGoodRevision": good, "failedRevision": failed}));
        // A failure that is new is written down first, and acted upon next.
        let first = look(&app(json!(look(&before))));
        let second = look(&app(json!(first)));
        prop_assert_eq!(&first, &second);
        prop_assert_eq!(notes(Some(&first), &second), Vec::new());
    }
}

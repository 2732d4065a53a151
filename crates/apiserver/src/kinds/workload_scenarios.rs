//! Recorded answers of a real server, for everything that makes pods except pods themselves.
#![allow(clippy::needless_pass_by_value, reason = "literals are easier to read where they are used")]

use serde_json::{Value, json};
use shoal_objects::Errors;

use super::{Rules, rules};

/// What a create makes of the object, and what is wrong with it.
pub fn create(rules: Rules, object: &Value) -> (Value, Errors) {
    let mut object = object.clone();
    (rules.default)(&mut object);
    (rules.prepare_create)(&mut object);
    let mut errors = Errors::new();
    (rules.validate)(&object, &mut errors);
    (object, errors)
}

/// What an update from the first to the second object makes, and what is wrong with it.
pub fn update(rules: Rules, old: &Value, new: &Value) -> (Value, Errors) {
    let mut new = new.clone();
    (rules.default)(&mut new);
    (rules.prepare_update)(&mut new, old);
    let mut errors = Errors::new();
    (rules.validate)(&new, &mut errors);
    (rules.validate_update)(&new, old, &mut errors);
    (new, errors)
}

fn merged(object: &Value, patch: &Value) -> Value {
    let mut object = object.clone();
    merge(&mut object, patch);
    object
}

fn merge(into: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            into.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut into[key], value);
        }
    }
}

fn template(labels: Value, more: Value) -> Value {
    let pod = json!({"automountServiceAccountToken": false, "containers": [{"name": "app", "image": "img.test/app:1"}]});
    json!({"metadata": {"labels": labels}, "spec": merged(&pod, &more)})
}

fn defaulted_pod_spec(restart: &str) -> Value {
    json!({
        "automountServiceAccountToken": false,
        "containers": [{
            "image": "img.test/app:1", "imagePullPolicy": "IfNotPresent", "name": "app", "resources": {},
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        }],
        "dnsPolicy": "ClusterFirst",
        "restartPolicy": restart,
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
    })
}

fn deployment(more: Value) -> Value {
    let spec = json!({"selector": {"matchLabels": {"app": "web"}}, "template": template(json!({"app": "web"}), json!({}))});
    json!({"metadata": {"name": "a"}, "spec": merged(&spec, &more)})
}

fn deployments() -> Rules {
    rules("apps", "v1", "deployments")
}

fn refused(rules: Rules, object: &Value, message: &str) {
    assert_eq!(create(rules, object).1.to_string(), message);
}

#[test]
fn a_deployment_gets_its_defaults() {
    let (made, errors) = create(deployments(), &deployment(json!({"replicas": 0})));
    assert!(errors.is_empty(), "{errors}");
    assert_eq!(
        made["spec"],
        json!({
            "progressDeadlineSeconds": 600,
            "replicas": 0,
            "revisionHistoryLimit": 10,
            "selector": {"matchLabels": {"app": "web"}},
            "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}, "type": "RollingUpdate"},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": defaulted_pod_spec("Always")},
        })
    );
    let strategy =
        |more| create(deployments(), &deployment(json!({"strategy": more}))).0["spec"]["strategy"].clone();
    assert_eq!(strategy(json!({"type": "Recreate"})), json!({"type": "Recreate"}));
    assert_eq!(
        strategy(json!({"rollingUpdate": {"maxSurge": 2}})),
        json!({"rollingUpdate": {"maxSurge": 2, "maxUnavailable": "25%"}, "type": "RollingUpdate"})
    );
}

#[test]
fn a_bad_deployment_is_refused_with_the_real_causes() {
    let no_match = "spec.template.metadata.labels: Invalid value: {\"app\":\"web\"}: `selector` does not match template `labels`";
    for (more, message) in [
        (json!({"selector": {"matchLabels": {"app": "other"}}}), no_match),
        (json!({"selector": null}), &*format!("[spec.selector: Required value, {no_match}]")),
        (json!({"replicas": -1}), "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
        (
            json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}}),
            "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0",
        ),
        (
            json!({"strategy": {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}}),
            "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
        ),
        (
            json!({"strategy": {"rollingUpdate": {"maxSurge": "150x"}}}),
            "spec.strategy.rollingUpdate.maxSurge: Invalid value: \"150x\": a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')",
        ),
        (
            json!({"template": {"spec": {"restartPolicy": "Never"}}}),
            "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
        ),
        (
            json!({"progressDeadlineSeconds": 5, "minReadySeconds": 10}),
            "spec.progressDeadlineSeconds: Invalid value: 5: must be greater than minReadySeconds",
        ),
    ] {
        refused(deployments(), &deployment(more), message);
    }
}

#[test]
fn the_selector_of_a_deployment_is_fixed() {
    let old = create(deployments(), &deployment(json!({}))).0;
    let patch = json!({"spec": {"selector": {"matchLabels": {"app": "z"}}, "template": {"metadata": {"labels": {"app": "z"}}}}});
    let errors = update(deployments(), &old, &merged(&old, &patch)).1;
    assert_eq!(
        errors.to_string(),
        "spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"z\"}}: field is immutable"
    );
    let (_, errors) = update(deployments(), &old, &merged(&old, &json!({"spec": null})));
    let mut causes: Vec<_> = errors.0.iter().map(|e| (e.field.as_str(), e.reason.as_str())).collect();
    causes.sort_unstable();
    assert_eq!(
        causes,
        [
            ("spec.selector", "FieldValueInvalid"),
            ("spec.selector", "FieldValueRequired"),
            ("spec.template.metadata.labels", "FieldValueInvalid"),
            ("spec.template.spec.containers", "FieldValueRequired"),
        ]
    );
}

#[test]
fn a_stateful_set_gets_its_defaults_and_keeps_most_of_its_spec() {
    let sets = rules("apps", "v1", "statefulsets");
    let body = json!({"metadata": {"name": "a"}, "spec": {
        "serviceName": "hl",
        "selector": {"matchLabels": {"app": "db"}},
        "template": template(json!({"app": "db"}), json!({})),
        "replicas": 0,
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}],
    }});
    let (made, errors) = create(sets, &body);
    assert!(errors.is_empty(), "{errors}");
    assert_eq!(
        made["spec"],
        json!({
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
            "podManagementPolicy": "OrderedReady",
            "replicas": 0,
            "revisionHistoryLimit": 10,
            "selector": {"matchLabels": {"app": "db"}},
            "serviceName": "hl",
            "template": {"metadata": {"labels": {"app": "db"}}, "spec": defaulted_pod_spec("Always")},
            "updateStrategy": {"rollingUpdate": {"partition": 0}, "type": "RollingUpdate"},
            "volumeClaimTemplates": [{
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeMode": "Filesystem"},
                "status": {"phase": "Pending"},
            }],
        })
    );
    for patch in [json!({"serviceName": "other"}), json!({"podManagementPolicy": "Parallel"})] {
        let errors = update(sets, &made, &merged(&made, &json!({"spec": patch}))).1;
        assert_eq!(
            errors.to_string(),
            "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
        );
    }
    let patch =
        json!({"spec": {"minReadySeconds": 4, "updateStrategy": {"rollingUpdate": {"partition": 2}}}});
    assert!(update(sets, &made, &merged(&made, &patch)).1.is_empty());
    let bad = merged(&body, &json!({"spec": {"updateStrategy": {"type": "Nope"}}}));
    let errors = create(sets, &bad).1;
    assert_eq!(errors.0.len(), 1);
    assert_eq!(errors.0[0].field, "spec.updateStrategy");
    assert!(errors.0[0].message.ends_with("must be 'RollingUpdate' or 'OnDelete'"));
}

fn job(more: Value) -> Value {
    let spec = json!({"template": {"metadata": {}, "spec": template(json!({}), json!({"restartPolicy": "Never"}))["spec"]}, "suspend": true});
    json!({"metadata": {"name": "a", "uid": "u-1"}, "spec": merged(&spec, &more)})
}

#[test]
fn a_job_gets_its_defaults_and_a_selector_of_its_own() {
    let jobs = rules("batch", "v1", "jobs");
    let labels = json!({
        "batch.kubernetes.io/controller-uid": "u-1",
        "batch.kubernetes.io/job-name": "a",
        "controller-uid": "u-1",
        "job-name": "a",
    });
    let (made, errors) = create(jobs, &job(json!({})));
    assert!(errors.is_empty(), "{errors}");
    assert_eq!(made["metadata"]["labels"], labels);
    assert_eq!(
        made["spec"],
        json!({
            "backoffLimit": 6,
            "completionMode": "NonIndexed",
            "completions": 1,
            "manualSelector": false,
            "parallelism": 1,
            "podReplacementPolicy": "TerminatingOrFailed",
            "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u-1"}},
            "suspend": true,
            "template": {"metadata": {"labels": labels}, "spec": defaulted_pod_spec("Never")},
        })
    );
    let queue = create(jobs, &job(json!({"parallelism": 2}))).0;
    assert_eq!(queue["spec"].get("completions"), None);
    assert_eq!(queue["spec"]["parallelism"], 2);
    let wrong = job(json!({"template": {"metadata": {"labels": {"controller-uid": "x"}}}}));
    let errors = create(jobs, &wrong).1;
    assert_eq!(errors.0.len(), 1);
    assert_eq!(errors.0[0].field, "spec.template.metadata.labels[controller-uid]");
}

#[test]
fn what_a_job_runs_is_fixed_but_where_may_change_until_it_starts() {
    let jobs = rules("batch", "v1", "jobs");
    let made = create(jobs, &job(json!({}))).0;
    let changed = merged(&made, &json!({"spec": {"completions": 2}}));
    let errors = update(jobs, &made, &changed).1;
    assert_eq!(errors.to_string(), "spec.completions: Invalid value: 2: field is immutable");
    let moved = merged(&made, &json!({"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}}));
    assert!(update(jobs, &made, &moved).1.is_empty());
    let started = merged(&made, &json!({"status": {"startTime": "2024-01-01T00:00:00Z"}}));
    let errors = update(jobs, &started, &moved).1;
    assert_eq!(errors.0[0].field, "spec.template");
    refused(
        jobs,
        &job(json!({"template": {"spec": {"restartPolicy": "Always"}}})),
        "spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"",
    );
}

fn cron_job(more: Value) -> Value {
    let pod = template(json!({}), json!({"restartPolicy": "OnFailure"}));
    let spec =
        json!({"schedule": "*/5 * * * *", "jobTemplate": {"spec": {"template": {"spec": pod["spec"]}}}});
    json!({"metadata": {"name": "c"}, "spec": merged(&spec, &more)})
}

#[test]
fn a_cron_job_gets_its_defaults_and_only_its_pod_template_those_of_its_jobs() {
    let (made, errors) =
        create(rules("batch", "v1", "cronjobs"), &cron_job(json!({"timeZone": "Europe/Berlin"})));
    assert!(errors.is_empty(), "{errors}");
    assert_eq!(
        made["spec"],
        json!({
            "concurrencyPolicy": "Allow",
            "failedJobsHistoryLimit": 1,
            "jobTemplate": {"metadata": {}, "spec": {"template": {"metadata": {}, "spec": defaulted_pod_spec("OnFailure")}}},
            "schedule": "*/5 * * * *",
            "successfulJobsHistoryLimit": 3,
            "suspend": false,
            "timeZone": "Europe/Berlin",
        })
    );
}

#[test]
fn a_bad_cron_job_is_refused_with_the_real_causes() {
    for (more, message) in [
        (
            json!({"schedule": "not a schedule"}),
            "spec.schedule: Invalid value: \"not a schedule\": expected exactly 5 fields, found 3: [not a schedule]",
        ),
        (
            json!({"timeZone": "Mars/Olympus"}),
            "spec.timeZone: Invalid value: \"Mars/Olympus\": unknown time zone Mars/Olympus",
        ),
        (
            json!({"schedule": "TZ=UTC 0 * * * *"}),
            "spec.schedule: Invalid value: \"TZ=UTC 0 * * * *\": cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
        ),
        (
            json!({"concurrencyPolicy": "Sometimes", "failedJobsHistoryLimit": -1}),
            "[spec.concurrencyPolicy: Unsupported value: \"Sometimes\": supported values: \"Allow\", \"Forbid\", \"Replace\", spec.failedJobsHistoryLimit: Invalid value: -1: must be greater than or equal to 0]",
        ),
    ] {
        refused(rules("batch", "v1", "cronjobs"), &cron_job(more), message);
    }
    let mut long = cron_job(json!({}));
    long["metadata"]["name"] = json!("n".repeat(53));
    let name = "n".repeat(53);
    let message = format!("metadata.name: Invalid value: \"{name}\": must be no more than 52 characters");
    refused(rules("batch", "v1", "cronjobs"), &long, &message);
}

#[test]
fn a_bad_disruption_budget_is_refused_with_the_real_causes() {
    let budgets = rules("policy", "v1", "poddisruptionbudgets");
    let budget = |spec: Value| json!({"metadata": {"name": "b"}, "spec": spec});
    let good = budget(json!({"minAvailable": "50%", "selector": {"matchLabels": {"a": "b"}}}));
    assert_eq!(create(budgets, &good), (good.clone(), Errors::new()));
    let both = budget(json!({"minAvailable": 1, "maxUnavailable": 1, "selector": {}}));
    let errors = create(budgets, &both).1;
    assert_eq!((errors.0.len(), errors.0[0].field.as_str()), (1, "spec"));
    refused(
        budgets,
        &budget(
            json!({"minAvailable": "150%", "selector": {"matchExpressions": [{"key": "a", "operator": "Nope"}]}}),
        ),
        "[spec.minAvailable: Invalid value: \"150%\": must not be greater than 100%, spec.selector.matchExpressions[0].operator: Invalid value: \"Nope\": not a valid selector operator]",
    );
}

#[test]
fn the_template_generation_of_a_daemon_set_counts_changes_of_its_template() {
    let sets = rules("apps", "v1", "daemonsets");
    let body = json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template(json!({"a": "b"}), json!({}))}});
    let (made, errors) = create(sets, &body);
    assert!(errors.is_empty(), "{errors}");
    let key = "deprecated.daemonset.template.generation";
    assert_eq!(made["metadata"]["annotations"][key], "1");
    assert_eq!(
        made["spec"]["updateStrategy"],
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}})
    );
    let changed = merged(&body, &json!({"spec": {"template": {"spec": {"hostNetwork": true}}}}));
    assert_eq!(update(sets, &made, &changed).0["metadata"]["annotations"][key], "2");
    assert_eq!(update(sets, &made, &body).0["metadata"]["annotations"][key], "1");
}

#[test]
fn a_replication_controller_takes_selector_and_labels_from_its_template() {
    let controllers = rules("", "v1", "replicationcontrollers");
    let body =
        json!({"metadata": {"name": "r"}, "spec": {"template": template(json!({"a": "b"}), json!({}))}});
    let (made, errors) = create(controllers, &body);
    assert!(errors.is_empty(), "{errors}");
    assert_eq!(made["spec"]["selector"], json!({"a": "b"}));
    assert_eq!(made["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(made["spec"]["replicas"], 1);
    refused(
        controllers,
        &json!({"metadata": {"name": "r"}}),
        "[spec.selector: Required value, spec.template: Required value]",
    );
}

#[test]
fn nothing_panics_on_empty_or_strange_objects() {
    let strange = [
        json!({}),
        json!({"spec": {}}),
        json!({"spec": {"template": {}}}),
        json!({"spec": {"containers": [{}], "initContainers": [{}], "ephemeralContainers": [{}], "volumes": [{}]}}),
        json!({"spec": [], "metadata": 1, "status": "x"}),
        json!({"spec": {"template": {"spec": {"containers": [1], "volumes": ["x"]}}, "selector": 3, "metrics": [1]}}),
        json!(null),
    ];
    for (group, version, resource) in [
        ("", "v1", "pods"),
        ("", "v1", "podtemplates"),
        ("", "v1", "replicationcontrollers"),
        ("apps", "v1", "deployments"),
        ("apps", "v1", "replicasets"),
        ("apps", "v1", "statefulsets"),
        ("apps", "v1", "daemonsets"),
        ("apps", "v1", "controllerrevisions"),
        ("batch", "v1", "jobs"),
        ("batch", "v1", "cronjobs"),
        ("policy", "v1", "poddisruptionbudgets"),
        ("autoscaling", "v1", "horizontalpodautoscalers"),
        ("autoscaling", "v2", "horizontalpodautoscalers"),
    ] {
        let rules = rules(group, version, resource);
        for object in &strange {
            let (made, _) = create(rules, object);
            let mut errors = Errors::new();
            (rules.validate)(object, &mut errors);
            (rules.validate_update)(object, &made, &mut errors);
            (rules.validate_update)(&made, object, &mut errors);
            (rules.validate_status)(object, &made, &mut errors);
            (rules.prepare_status)(&mut object.clone(), &made);
            update(rules, &made, object);
        }
    }
}

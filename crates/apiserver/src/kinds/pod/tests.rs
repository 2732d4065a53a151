//! Recorded answers of a real server about pods.
#![allow(clippy::needless_pass_by_value, reason = "literals are easier to read where they are used")]

use serde_json::{Value, json};
use shoal_objects::{Errors, Timestamp};

use super::*;
use crate::kinds::workload_scenarios::{create, update};

fn pod(spec: Value) -> Value {
    json!({"metadata": {"name": "a"}, "spec": spec})
}

fn one_container(more: Value) -> Value {
    let mut spec = json!({"containers": [{"name": "app", "image": "img.test/app:1"}]});
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    pod(spec)
}

fn refused(object: &Value, message: &str) {
    assert_eq!(create(RULES, object).1.to_string(), message);
}

#[test]
fn a_minimal_pod_gets_its_defaults() {
    let (made, errors) = create(RULES, &one_container(json!({})));
    assert!(errors.is_empty(), "{errors}");
    assert_eq!(
        made["spec"],
        json!({
            "containers": [{
                "image": "img.test/app:1", "imagePullPolicy": "IfNotPresent", "name": "app", "resources": {},
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            }],
            "dnsPolicy": "ClusterFirst",
            "enableServiceLinks": true,
            "restartPolicy": "Always",
            "schedulerName": "default-scheduler",
            "securityContext": {},
            "terminationGracePeriodSeconds": 30,
        })
    );
    assert_eq!(made["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
}

#[test]
fn the_tag_decides_how_an_image_is_pulled() {
    for (image, policy) in [
        ("img.test/app", "Always"),
        ("img.test/app:latest", "Always"),
        ("localhost:5000/app", "Always"),
        ("app:latest@sha256:00", "Always"),
        ("img.test/app:1", "IfNotPresent"),
        ("img.test/app@sha256:0000", "IfNotPresent"),
        ("localhost:5000/app:1", "IfNotPresent"),
        ("App", "IfNotPresent"),
        ("", "IfNotPresent"),
    ] {
        assert_eq!(defaults::pull_policy(image), policy, "{image}");
    }
}

#[test]
fn probes_ports_variables_and_volumes_get_their_defaults() {
    let made = create(
        RULES,
        &pod(json!({
            "hostNetwork": true,
            "serviceAccount": "robot",
            "containers": [{
                "name": "app",
                "image": "x",
                "ports": [{"containerPort": 80}],
                "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "livenessProbe": {"httpGet": {"port": 80}},
                "readinessProbe": {"grpc": {"port": 80}, "periodSeconds": 2},
            }],
            "volumes": [
                {"name": "a"},
                {"name": "b", "secret": {"secretName": "s"}},
                {"name": "c", "hostPath": {"path": "/x"}},
                {"name": "d", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
            ],
        })),
    );
    assert!(made.1.is_empty(), "{}", made.1);
    let spec = &made.0["spec"];
    let container = &spec["containers"][0];
    assert_eq!(container["ports"], json!([{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]));
    assert_eq!(container["env"][0]["valueFrom"]["fieldRef"]["apiVersion"], "v1");
    assert_eq!(
        container["livenessProbe"],
        json!({
            "failureThreshold": 3, "periodSeconds": 10, "successThreshold": 1, "timeoutSeconds": 1,
            "httpGet": {"path": "/", "port": 80, "scheme": "HTTP"},
        })
    );
    assert_eq!(container["readinessProbe"]["periodSeconds"], 2);
    assert_eq!(container["readinessProbe"]["grpc"], json!({"port": 80, "service": ""}));
    assert_eq!(spec["serviceAccountName"], "robot");
    assert_eq!(
        spec["volumes"],
        json!([
            {"name": "a", "emptyDir": {}},
            {"name": "b", "secret": {"secretName": "s", "defaultMode": 420}},
            {"name": "c", "hostPath": {"path": "/x", "type": ""}},
            {"name": "d", "projected": {"defaultMode": 420, "sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}]}},
        ])
    );
}

#[test]
fn limits_become_requests_and_nothing_is_finer_than_a_thousandth() {
    let made = |resources: Value| {
        let made = create(
            RULES,
            &pod(json!({"containers": [{"name": "c", "image": "x:1", "resources": resources}]})),
        )
        .0;
        (made["spec"]["containers"][0]["resources"].clone(), made["status"]["qosClass"].clone())
    };
    let (resources, class) = made(
        json!({"requests": {"cpu": "0.0001", "memory": "1k"}, "limits": {"memory": "1M", "cpu": "100u"}}),
    );
    assert_eq!(
        resources,
        json!({"limits": {"cpu": "1m", "memory": "1M"}, "requests": {"cpu": "1m", "memory": "1k"}})
    );
    assert_eq!(class, "Burstable");
    let (resources, class) = made(json!({"limits": {"cpu": "2", "memory": "1073741824"}}));
    assert_eq!(resources["requests"], json!({"cpu": "2", "memory": "1073741824"}));
    assert_eq!(class, "Guaranteed");
}

#[test]
fn a_bad_pod_is_refused_with_the_real_causes() {
    refused(&pod(json!({"containers": []})), "spec.containers: Required value");
    refused(
        &pod(json!({"containers": [{"name": "app"}, {"name": "app", "image": "x"}]})),
        "[spec.containers[0].image: Required value, spec.containers[1].name: Duplicate value: \"app\"]",
    );
    let container = json!({
        "name": "App_1", "image": "x:1", "ports": [{"containerPort": 70000, "name": "TOO_LONG_PORT_NAME_X"}],
        "env": [{"name": "a=b", "value": "1"}], "imagePullPolicy": "Sometimes",
    });
    refused(
        &pod(json!({"containers": [container]})),
        "[spec.containers[0].name: Invalid value: \"App_1\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?'), spec.containers[0].ports[0].name: Invalid value: \"TOO_LONG_PORT_NAME_X\": must be no more than 15 characters, spec.containers[0].ports[0].name: Invalid value: \"TOO_LONG_PORT_NAME_X\": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-), spec.containers[0].ports[0].name: Invalid value: \"TOO_LONG_PORT_NAME_X\": must contain at least one letter (a-z), spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive, spec.containers[0].env[0].name: Invalid value: \"a=b\": a valid environment variable name must consist only of printable ASCII characters other than '=', spec.containers[0].imagePullPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"IfNotPresent\", \"Never\"]",
    );
    refused(
        &one_container(
            json!({"restartPolicy": "Maybe", "dnsPolicy": "Nope", "terminationGracePeriodSeconds": -1}),
        ),
        "[spec.restartPolicy: Unsupported value: \"Maybe\": supported values: \"Always\", \"OnFailure\", \"Never\", spec.dnsPolicy: Unsupported value: \"Nope\": supported values: \"ClusterFirstWithHostNet\", \"ClusterFirst\", \"Default\", \"None\"]",
    );
    let container = json!({
        "name": "a", "image": "x:1", "volumeMounts": [{"name": "none", "mountPath": "/a"}],
        "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}},
    });
    refused(
        &pod(json!({"containers": [container]})),
        "[spec.containers[0].volumeMounts[0].name: Not found: \"none\", spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1]",
    );
    refused(
        &one_container(json!({"nodeSelector": {"bad key": "v"}, "tolerations": [{"operator": "Wrong"}]})),
        "[spec.nodeSelector: Invalid value: \"bad key\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]'), spec.tolerations[0].operator: Invalid value: \"Wrong\": operator must be Exists when `key` is empty, which means \"match all values and all keys\", spec.tolerations[0].operator: Unsupported value: \"Wrong\": supported values: \"Equal\", \"Exists\"]",
    );
    refused(
        &one_container(
            json!({"activeDeadlineSeconds": 0, "volumes": [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]}),
        ),
        "[spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type, spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive]",
    );
}

#[test]
fn only_sidecars_among_init_containers_have_probes() {
    let init = |more: Value| {
        let mut container = json!({"name": "i", "image": "x:1", "startupProbe": {"tcpSocket": {"port": 1}}});
        for (key, value) in more.as_object().unwrap() {
            container[key] = value.clone();
        }
        one_container(json!({"initContainers": [container]}))
    };
    assert!(create(RULES, &init(json!({"restartPolicy": "Always"}))).1.is_empty());
    refused(
        &init(json!({})),
        "spec.initContainers[0].startupProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
    );
    refused(
        &init(json!({"restartPolicy": "Always", "name": "app"})),
        "spec.initContainers[0].name: Duplicate value: \"app\"",
    );
}

#[test]
fn affinity_and_spreading_are_checked() {
    refused(
        &one_container(json!({
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}},
                "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 0, "podAffinityTerm": {"topologyKey": "z"}}]},
            },
            "topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "z", "whenUnsatisfiable": "Never"}],
            "schedulingGates": [{"name": "a"}, {"name": "a"}],
        })),
        "[spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Required value: must have at least one node selector term, spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 0: must be in the range 1-100, spec.schedulingGates[1]: Duplicate value: \"a\", spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero, spec.topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: \"Never\": supported values: \"DoNotSchedule\", \"ScheduleAnyway\"]",
    );
}

#[test]
fn a_gated_pod_says_so_and_label_keys_become_part_of_the_selector() {
    let mut body = one_container(json!({
        "schedulingGates": [{"name": "wait"}],
        "topologySpreadConstraints": [{
            "maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"a": "b"}}, "matchLabelKeys": ["rev", "none"],
        }],
    }));
    body["metadata"]["labels"] = json!({"rev": "1"});
    let (made, errors) = create(RULES, &body);
    assert!(errors.is_empty(), "{errors}");
    assert_eq!(made["status"]["conditions"][0]["reason"], "SchedulingGated");
    assert_eq!(
        made["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchExpressions"],
        json!([{"key": "rev", "operator": "In", "values": ["1"]}])
    );
}

fn change(edit: impl Fn(&mut Value)) -> Errors {
    let old = create(RULES, &one_container(json!({"tolerations": [{"key": "t", "operator": "Exists"}]}))).0;
    let mut new = old.clone();
    edit(&mut new["spec"]);
    update(RULES, &old, &new).1
}

#[test]
fn image_deadline_and_more_tolerations_may_change() {
    let errors = change(|spec| {
        spec["containers"][0]["image"] = json!("img.test/app:2");
        spec["tolerations"] = json!([{"key": "k", "operator": "Exists"}, {"key": "t", "operator": "Exists"}]);
        spec["activeDeadlineSeconds"] = json!(60);
    });
    assert!(errors.is_empty(), "{errors}");
}

#[test]
fn other_fields_of_a_pod_are_fixed() {
    let only_spec = |errors: &Errors| {
        assert_eq!(errors.0.len(), 1, "{errors}");
        assert_eq!(
            (errors.0[0].field.as_str(), errors.0[0].reason.as_str()),
            ("spec", "FieldValueForbidden")
        );
        assert!(errors.0[0].message.starts_with("Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n@@ "));
    };
    only_spec(&change(|spec| spec["containers"][0]["command"] = json!(["x"])));
    let errors = change(|spec| spec["nodeName"] = json!("somewhere"));
    only_spec(&errors);
    assert!(errors.0[0].message.contains("\n+  \"nodeName\": \"somewhere\",\n"), "{errors}");
    let errors =
        change(|spec| spec["containers"].as_array_mut().unwrap().push(json!({"name": "b", "image": "x:1"})));
    assert_eq!(
        errors.to_string(),
        "spec.containers: Forbidden: pod updates may not add or remove containers"
    );
    let errors = change(|spec| spec["tolerations"] = json!([]));
    assert_eq!(
        errors.to_string(),
        "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"
    );
    let errors = change(|spec| spec["schedulingGates"] = json!([{"name": "g"}]));
    assert_eq!(
        errors.to_string(),
        "spec.schedulingGates: Forbidden: only deletion is allowed, but found new scheduling gate 'g'"
    );
}

#[test]
fn a_deadline_only_shrinks_and_a_negative_grace_period_only_becomes_one() {
    let old = create(
        RULES,
        &one_container(json!({"activeDeadlineSeconds": 60, "terminationGracePeriodSeconds": -1})),
    )
    .0;
    let changed = |name: &str, value: i64| {
        let mut new = old.clone();
        new["spec"][name] = json!(value);
        update(RULES, &old, &new).1
    };
    assert_eq!(
        changed("activeDeadlineSeconds", 90).to_string(),
        "spec.activeDeadlineSeconds: Invalid value: 90: must be less than or equal to previous value"
    );
    assert!(changed("activeDeadlineSeconds", 30).is_empty());
    assert!(changed("terminationGracePeriodSeconds", 1).is_empty());
    assert_eq!(changed("terminationGracePeriodSeconds", 2).0.len(), 1);
}

#[test]
fn a_binding_names_the_node_once() {
    let mut made = create(RULES, &one_container(json!({}))).0;
    let to = |node: &str| json!({"metadata": {"name": "a", "annotations": {"a": "b"}}, "target": {"kind": "Node", "name": node}});
    let now = Timestamp(0);
    bind(&mut made, &to("n"), now).unwrap();
    assert_eq!(made["spec"]["nodeName"], "n");
    assert_eq!(made["metadata"]["annotations"], json!({"a": "b"}));
    let condition = json!({"lastProbeTime": null, "lastTransitionTime": "1970-01-01T00:00:00Z", "status": "True", "type": "PodScheduled"});
    assert_eq!(made["status"]["conditions"], json!([condition]));
    assert_eq!(
        bind(&mut made, &to("m"), now),
        Err(BindError::Conflict("pod a is already assigned to node \"n\"".to_owned()))
    );
    match bind(&mut made, &to(""), now) {
        Err(BindError::Invalid(errors)) => assert_eq!(errors.to_string(), "target.name: Required value"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_status_update_keeps_the_class_and_shows_all_addresses() {
    let old = create(RULES, &one_container(json!({}))).0;
    let mut new = old.clone();
    new["status"] = json!({"phase": "Running", "podIP": "10.1.1.1"});
    (RULES.default)(&mut new);
    (RULES.prepare_status)(&mut new, &old);
    assert_eq!(
        new["status"],
        json!({"phase": "Running", "podIP": "10.1.1.1", "podIPs": [{"ip": "10.1.1.1"}], "qosClass": "BestEffort"})
    );
}

#[test]
fn ephemeral_containers_are_added_and_never_changed() {
    let old = create(RULES, &one_container(json!({}))).0;
    let with = |containers: Value| {
        let mut new = old.clone();
        new["spec"]["ephemeralContainers"] = containers;
        new["spec"]["nodeName"] = json!("ignored");
        (RULES.default)(&mut new);
        prepare_ephemeral_containers(&mut new, &old);
        new
    };
    let debug = with(json!([{"name": "debug", "image": "x:1", "targetContainerName": "app"}]));
    assert_eq!(debug["spec"].get("nodeName"), None);
    let check = |new: &Value, old: &Value| {
        let mut errors = Errors::new();
        validate_ephemeral_containers_update(new, old, &mut errors);
        errors
    };
    assert!(check(&debug, &old).is_empty());
    let errors = check(&old, &debug);
    assert_eq!(errors.0[0].field, "spec.ephemeralContainers");
    let changed = with(json!([{"name": "debug", "image": "x:2", "ports": [{"containerPort": 1}]}]));
    let fields: Vec<String> = check(&changed, &debug).0.into_iter().map(|e| e.field).collect();
    assert_eq!(fields, ["spec.ephemeralContainers[0].ports", "spec.ephemeralContainers"]);
}

#[test]
fn a_resize_changes_cpu_and_memory_within_the_class() {
    let resources = |cpu: &str| json!({"requests": {"cpu": cpu}});
    let sized = |cpu: &str| {
        create(
            RULES,
            &pod(json!({"containers": [{"name": "c", "image": "x:1", "resources": resources(cpu)}]})),
        )
        .0
    };
    let (old, mut new) = (sized("1"), sized("2"));
    new["spec"]["nodeName"] = json!("ignored");
    prepare_resize(&mut new, &old);
    assert_eq!(new["spec"]["containers"][0]["resources"]["requests"]["cpu"], "2");
    assert_eq!(new["spec"].get("nodeName"), None);
    let mut errors = Errors::new();
    validate_resize(&new, &old, &mut errors);
    assert!(errors.is_empty(), "{errors}");
    new["spec"]["containers"][0]["resources"] = json!({});
    validate_resize(&new, &old, &mut errors);
    let fields: Vec<&str> = errors.0.iter().map(|e| e.field.as_str()).collect();
    assert_eq!(fields, ["spec", "spec.containers[0].resources.requests"]);
}

#[test]
fn a_container_that_ended_for_good_does_not_run_again() {
    let old = |restart: &str, code: i64| {
        let mut pod = create(RULES, &one_container(json!({"restartPolicy": restart}))).0;
        pod["status"]["containerStatuses"] =
            json!([{"name": "app", "state": {"terminated": {"exitCode": code}}}]);
        pod
    };
    let restart = |old: Value| {
        let mut new = old.clone();
        new["status"]["containerStatuses"] = json!([{"name": "app", "state": {"running": {}}}]);
        let mut errors = Errors::new();
        (RULES.validate_status)(&new, &old, &mut errors);
        errors.to_string()
    };
    let refused =
        "status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state";
    assert_eq!(restart(old("Never", 0)), refused);
    assert_eq!(restart(old("OnFailure", 0)), refused);
    assert_eq!(restart(old("OnFailure", 1)), "[]");
    assert_eq!(restart(old("Always", 0)), "[]");
}

#[test]
fn a_pod_with_resources_of_its_own_asks_for_what_its_containers_need() {
    let made = create(
        RULES,
        &pod(json!({
            "resources": {"limits": {"cpu": "4", "memory": "1Gi"}},
            "containers": [
                {"name": "a", "image": "x:1", "resources": {"requests": {"cpu": "500m"}}},
                {"name": "b", "image": "x:1", "resources": {"requests": {"cpu": "1"}}},
            ],
            "initContainers": [{"name": "i", "image": "x:1", "resources": {"requests": {"cpu": "1"}}}],
        })),
    );
    assert!(made.1.is_empty(), "{}", made.1);
    assert_eq!(made.0["spec"]["resources"]["requests"], json!({"cpu": "1500m", "memory": "1Gi"}));
    assert_eq!(made.0["status"]["qosClass"], "Burstable");
}

use proptest::prelude::*;
use serde_json::json;
use shoal_objects::Value;
use shoal_objects::schema::TypeId;

use super::*;
use crate::builtin::{self, random};

fn type_of(group: &str, version: &str, kind: &str) -> TypeId {
    builtin::type_of(group, version, kind).expect(kind)
}

fn conformed(group: &str, version: &str, kind: &str, object: Value) -> Result<(Value, Vec<String>), String> {
    let mut object = object;
    let unknown = conform(builtin::types(), type_of(group, version, kind), &mut object)?;
    Ok((object, unknown))
}

#[test]
fn the_last_of_two_fields_wins_and_is_noted() {
    let (value, duplicates) =
        parse_json(br#"{"data":{"a":"1","a":"2"},"l":[{},{"x":{"y":1,"y":2}}],"data":{}}"#).expect("json");
    assert_eq!(value, json!({"data": {}, "l": [{}, {"x": {"y": 2}}]}));
    assert_eq!(duplicates, ["data.a", "l[1].x.y", "data"]);
}

#[test]
fn malformed_json_is_refused_in_the_words_of_go() {
    for (text, words) in [
        (r#"{"a":"#, "unexpected end of JSON input"),
        ("", "unexpected end of JSON input"),
        ("{} x", "invalid character 'x' after top-level value"),
        ("{a:1}", "invalid character 'a' looking for beginning of object key string"),
        (r#"{"a" 1}"#, "invalid character '1' after object key"),
        (r#"{"a":1 "b":2}"#, "invalid character '\"' after object key:value pair"),
        ("[1 2]", "invalid character '2' after array element"),
        ("[1,]", "invalid character ']' looking for beginning of value"),
        ("trve", "invalid character 'v' in literal true (expecting 'u')"),
        ("-x", "invalid character 'x' in numeric literal"),
        ("\"a\nb\"", "invalid character '\\n' in string literal"),
        (r#""\x""#, "invalid character 'x' in string escape code"),
    ] {
        assert_eq!(parse_json(text.as_bytes()), Err(words.to_owned()), "{text}");
    }
    assert_eq!(parse_json("[".repeat(100_000).as_bytes()), Err("exceeded max depth".to_owned()));
}

#[test]
fn yaml_is_read_like_yaml_1_1() {
    let text = b"kind: ConfigMap\nmode: 0644\non: yes\nkeys:\n  1: one\ntwice:\n  a: x\n  a: z\nnothing: ~\n";
    let (value, duplicates) = parse_yaml(text).expect("yaml");
    assert_eq!(value["mode"], 420);
    assert_eq!(value["keys"], json!({"1": "one"}));
    assert_eq!(value["twice"], json!({"a": "z"}));
    assert_eq!(value["nothing"], Value::Null);
    assert_eq!(duplicates, ["twice.a"]);
}

#[test]
fn hostile_yaml_is_refused() {
    assert!(parse_yaml(b"a: 1\n---\nb: 2\n").is_err(), "two documents");
    let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in 1..12 {
        let references = vec![format!("*a{}", level - 1); 10].join(",");
        bomb.push_str(&format!("a{level}: &a{level} [{references}]\n"));
    }
    assert!(parse_yaml(bomb.as_bytes()).is_err(), "aliases of aliases");
    assert!(parse_yaml("[".repeat(10_000).as_bytes()).is_err(), "deep nesting");
    assert!(parse_yaml(&[0xff, 0xfe, 0x00]).is_err(), "not text");
}

#[test]
fn unknown_fields_are_dropped_and_named_with_their_place() {
    let deployment = json!({"spec": {"replica": 1, "template": {"spec": {"containers": [
        {"name": "a", "imagePullpolicy": "Never", "ports": [{"containerport": 1}]}]}}}});
    let (object, unknown) = conformed("apps", "v1", "Deployment", deployment).expect("deployment");
    assert_eq!(
        unknown,
        [
            "spec.replica",
            "spec.template.spec.containers[0].imagePullpolicy",
            "spec.template.spec.containers[0].ports[0].containerport"
        ]
    );
    assert_eq!(object["spec"]["template"]["spec"]["containers"][0]["ports"], json!([{}]));
}

#[test]
fn wrong_types_are_refused_in_the_words_of_go() {
    for (spec, words) in [
        (json!({"replicas": "x"}), "string into Go struct field DeploymentSpec.spec.replicas of type int32"),
        (
            json!({"replicas": 1.5}),
            "number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            json!({"replicas": 3_000_000_000u64}),
            "number 3000000000 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (json!({"paused": 1}), "number into Go struct field DeploymentSpec.spec.paused of type bool"),
        (json!([]), "array into Go struct field Deployment.spec of type v1.DeploymentSpec"),
        (
            json!({"template": {"spec": {"containers": {}}}}),
            "object into Go struct field PodSpec.spec.template.spec.containers of type []v1.Container",
        ),
        (
            json!({"template": {"spec": {"containers": [{"name": 1}]}}}),
            "number into Go struct field Container.spec.template.spec.containers.name of type string",
        ),
        (
            json!({"selector": {"matchLabels": {"a": 1}}}),
            "number into Go struct field LabelSelector.spec.selector.matchLabels of type string",
        ),
    ] {
        let error = conformed("apps", "v1", "Deployment", json!({"spec": spec})).expect_err(words);
        assert_eq!(error, format!("json: cannot unmarshal {words}"));
    }
    let error = conformed("", "v1", "ConfigMap", json!([])).expect_err("a list");
    assert_eq!(error, "json: cannot unmarshal array into Go value of type v1.ConfigMap");
}

#[test]
fn empty_values_are_kept_only_where_go_has_pointers() {
    let (object, _) = conformed(
        "",
        "v1",
        "Pod",
        json!({"metadata": {"labels": {}, "name": "", "creationTimestamp": null, "generation": 0, "finalizers": []},
               "spec": {"hostNetwork": false, "automountServiceAccountToken": false, "nodeName": "", "priority": 0,
                        "runtimeClassName": "", "securityContext": {}, "containers": []},
               "status": null}),
    )
    .expect("pod");
    assert_eq!(
        object,
        json!({"metadata": {}, "spec": {"automountServiceAccountToken": false, "priority": 0, "runtimeClassName": "",
                                        "securityContext": {}, "containers": []}, "status": {}})
    );
}

#[test]
fn plain_structs_appear_even_when_absent() {
    let (object, _) =
        conformed("apps", "v1", "Deployment", json!({"spec": {"template": {"spec": {"containers": [{}]}}}}))
            .expect("deployment");
    assert_eq!(
        object,
        json!({"metadata": {}, "status": {}, "spec": {"strategy": {}, "template": {"metadata": {}, "spec": {
            "containers": [{"resources": {}}]}}}})
    );
}

#[test]
fn what_go_always_writes_is_completed() {
    let completed = |group, version, kind, object: Value| {
        let mut object = object;
        complete(builtin::types(), type_of(group, version, kind), &mut object);
        object
    };
    assert_eq!(
        completed("policy", "v1", "PodDisruptionBudget", json!({}))["status"],
        json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0})
    );
    assert_eq!(completed("rbac.authorization.k8s.io", "v1", "Role", json!({}))["rules"], Value::Null);
    let node = completed("", "v1", "Node", json!({}));
    assert_eq!(node["status"]["daemonEndpoints"], json!({"kubeletEndpoint": {"Port": 0}}));
    assert_eq!(node["status"]["nodeInfo"]["kubeletVersion"], "");
    let pod =
        completed("", "v1", "Pod", json!({"status": {"conditions": [{"type": "X", "status": "True"}]}}));
    let condition = json!({"type": "X", "status": "True", "lastProbeTime": null, "lastTransitionTime": null});
    assert_eq!(pod["status"]["conditions"][0], condition);
    assert_eq!(
        completed("apps", "v1", "StatefulSet", json!({}))["status"],
        json!({"replicas": 0, "availableReplicas": 0})
    );
}

#[test]
fn times_are_checked_and_written_in_utc() {
    let lease =
        |time: &str| conformed("coordination.k8s.io", "v1", "Lease", json!({"spec": {"renewTime": time}}));
    let written = |time: &str| lease(time).expect(time).0["spec"]["renewTime"].clone();
    assert_eq!(written("2024-05-01T10:00:05.000000Z"), "2024-05-01T10:00:05.000000Z");
    assert_eq!(written("2024-02-29T00:30:00.123456+01:00"), "2024-02-28T23:30:00.123456Z");
    assert_eq!(
        lease("2024-05-01T10:00:05Z"),
        Err("parsing time \"2024-05-01T10:00:05Z\" as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse \"Z\" as \".000000\""
            .to_owned())
    );

    let pod = |time: &str| conformed("", "v1", "Pod", json!({"status": {"startTime": time}}));
    let written = |time: &str| pod(time).expect(time).0["status"]["startTime"].clone();
    assert_eq!(written("2024-05-01T10:00:05.75-02:30"), "2024-05-01T12:30:05Z");
    assert_eq!(written("0001-01-01T00:00:00Z"), Value::Null);
    let layout = "2006-01-02T15:04:05Z07:00";
    for (time, words) in [
        ("", format!("parsing time \"\" as \"{layout}\": cannot parse \"\" as \"2006\"")),
        ("2024-05-01", format!("parsing time \"2024-05-01\" as \"{layout}\": cannot parse \"\" as \"T\"")),
        ("2024-13-01T00:00:00Z", "parsing time \"2024-13-01T00:00:00Z\": month out of range".to_owned()),
        ("2023-02-29T00:00:00Z", "parsing time \"2023-02-29T00:00:00Z\": day out of range".to_owned()),
        ("2023-02-28T00:00:00Zx", "parsing time \"2023-02-28T00:00:00Zx\": extra text: \"x\"".to_owned()),
        (
            "2023-02-28T00:00:0é",
            format!("parsing time \"2023-02-28T00:00:0é\" as \"{layout}\": cannot parse \"0é\" as \"05\""),
        ),
    ] {
        assert_eq!(pod(time), Err(words));
    }
}

#[test]
fn quantities_bytes_and_ports_are_checked() {
    let pod = |limits: Value| {
        let pod = json!({"spec": {"containers": [{"resources": {"limits": limits}}]}});
        conformed("", "v1", "Pod", pod)
            .map(|(pod, _)| pod["spec"]["containers"][0]["resources"]["limits"].clone())
    };
    assert_eq!(
        pod(json!({"cpu": "1000m", "memory": 1073741824})),
        Ok(json!({"cpu": "1", "memory": "1073741824"}))
    );
    assert!(
        pod(json!({"cpu": "abc"}))
            .is_err_and(|e| e.starts_with("quantities must match the regular expression"))
    );
    assert!(pod(json!({"cpu": {}})).is_err());

    let secret = |text: &str| {
        conformed("", "v1", "Secret", json!({"data": {"k": text}}))
            .map(|(secret, _)| secret["data"]["k"].clone())
    };
    assert_eq!(secret("AP8Q"), Ok(json!("AP8Q")));
    assert_eq!(secret("AP\n8Q"), Ok(json!("AP8Q")));
    assert_eq!(secret("AB=="), Ok(json!("AA==")));
    assert_eq!(secret(""), Ok(json!("")));
    assert_eq!(secret("a!cd"), Err("illegal base64 data at input byte 1".to_owned()));

    let service =
        |port: Value| conformed("", "v1", "Service", json!({"spec": {"ports": [{"targetPort": port}]}}));
    assert!(service(json!("http")).is_ok() && service(json!(80)).is_ok());
    assert_eq!(
        service(json!(true)).expect_err("a bool"),
        "json: cannot unmarshal bool into Go value of type int32"
    );
}

#[test]
fn nulls_inside_collections_become_zero_values() {
    let (map, _) = conformed("", "v1", "ConfigMap", json!({"data": {"a": null}})).expect("config map");
    assert_eq!(map["data"], json!({"a": ""}));
    let (pod, _) = conformed("", "v1", "Pod", json!({"spec": {"containers": [null]}})).expect("pod");
    assert_eq!(pod["spec"]["containers"], json!([{"resources": {}}]));
}

#[test]
fn schemas_of_custom_resources_may_be_objects_lists_or_flags() {
    let schema = json!({"properties": {"a": {"items": {"type": "string", "bogus": 1}, "additionalProperties": false}},
                        "default": {"any": [null]}, "bogus": 1});
    let crd = json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": schema}}]}});
    let (crd, unknown) =
        conformed("apiextensions.k8s.io", "v1", "CustomResourceDefinition", crd).expect("crd");
    assert_eq!(
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"],
        json!({"properties": {"a": {"items": {"type": "string"}, "additionalProperties": false}}, "default": {"any": [null]}})
    );
    assert_eq!(unknown, ["spec.versions[0].schema.openAPIV3Schema.bogus"]);
}

#[test]
fn nesting_is_limited() {
    let mut schema = json!({});
    for _ in 0..1_000 {
        schema = json!({"not": schema});
    }
    let crd = json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": schema}}]}});
    // Dropping a value this deep recurses too; it is leaked on purpose.
    let mut crd = std::mem::ManuallyDrop::new(crd);
    let id = type_of("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    assert_eq!(conform(builtin::types(), id, &mut crd), Err("exceeded max depth".to_owned()));
}

/// Objects in the recorded answers of the real server, with placeholders replaced by values of their shape.
fn recorded_answers() -> Vec<(String, Value)> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/oracle/scenarios");
    let mut answers = Vec::new();
    for entry in std::fs::read_dir(directory).expect("recorded scenarios") {
        let path = entry.expect("entry").path();
        let text = std::fs::read(&path).expect("scenario");
        let scenario: Value = serde_json::from_slice(&text).expect("JSON");
        let name = path.file_stem().expect("name").to_string_lossy().into_owned();
        collect_answers(&scenario["steps"], &name, &mut answers);
    }
    answers
}

fn collect_answers(steps: &Value, name: &str, answers: &mut Vec<(String, Value)>) {
    for step in steps.as_array().into_iter().flatten() {
        let expected = &step["expect"];
        let events = expected["events"].as_array().into_iter().flatten().map(|event| &event["object"]);
        for body in events.chain([&expected["body"]]) {
            let whole =
                body["kind"].is_string() && body["apiVersion"].is_string() && step.get("drop").is_none();
            if whole
                && body["kind"] != "Status"
                && !body["kind"].as_str().is_some_and(|k| k.ends_with("List"))
            {
                answers.push((name.to_owned(), without_placeholders(body)));
            }
        }
        collect_answers(&step["steps"], name, answers);
    }
}

fn without_placeholders(value: &Value) -> Value {
    match value {
        Value::String(text) => match text.as_str() {
            "<time>" => "2024-05-01T10:00:00Z".into(),
            "<microtime>" => "2024-05-01T10:00:00.000000Z".into(),
            port if port.starts_with("<port:") => 30_000.into(),
            other => other.into(),
        },
        Value::Array(items) => items.iter().map(without_placeholders).collect(),
        Value::Object(map) => match (map.get("$soft"), map.get("$unordered")) {
            (Some(inner), _) | (_, Some(inner)) => without_placeholders(inner),
            _ => Value::Object(map.iter().map(|(k, v)| (k.clone(), without_placeholders(v))).collect()),
        },
        other => other.clone(),
    }
}

#[test]
fn what_the_real_server_answers_needs_no_change() {
    let mut checked = 0;
    for (scenario, answer) in recorded_answers() {
        let (group, version) = match answer["apiVersion"].as_str().expect("apiVersion").split_once('/') {
            Some(parts) => parts,
            None => ("", answer["apiVersion"].as_str().expect("apiVersion")),
        };
        let Some(id) = builtin::type_of(group, version, answer["kind"].as_str().expect("kind")) else {
            continue;
        };
        let mut object = answer.clone();
        let unknown = conform(builtin::types(), id, &mut object).expect(&scenario);
        assert_eq!(unknown, Vec::<String>::new(), "{scenario}");
        complete(builtin::types(), id, &mut object);
        assert_eq!(object, answer, "{scenario}");
        checked += 1;
    }
    assert!(checked > 150, "{checked}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn conforming_twice_changes_nothing_more(seed in any::<u64>(), pick in any::<prop::sample::Index>()) {
        let mut kinds: Vec<_> = builtin::kinds().collect();
        kinds.sort_by_key(|(.., id)| id.0);
        let (_, _, kind, id) = kinds[pick.index(kinds.len())];
        let mut object = random::object(id, seed);
        conform(builtin::types(), id, &mut object).expect(kind);
        let once = object.clone();
        prop_assert_eq!(conform(builtin::types(), id, &mut object), Ok(Vec::new()));
        prop_assert_eq!(&object, &once);
        complete(builtin::types(), id, &mut object);
        let completed = object.clone();
        complete(builtin::types(), id, &mut object);
        prop_assert_eq!(&object, &completed);
        // What completing adds is no news to decoding: only zero values and nulls.
        conform(builtin::types(), id, &mut object).expect(kind);
        complete(builtin::types(), id, &mut object);
        prop_assert_eq!(object, completed);
    }

    #[test]
    fn arbitrary_text_never_panics(text in r#"[\[\]{}:,"a0-9.eE\\ \n&*|>-]{0,40}"#) {
        let parsed = parse_json(text.as_bytes());
        prop_assert_eq!(parsed.is_ok(), serde_json::from_str::<Value>(&text).is_ok());
        if parsed.is_ok() {
            prop_assert_eq!(syntax::complaint(text.as_bytes()), None);
        }
        let _ = parse_yaml(text.as_bytes());
    }

    #[test]
    fn objects_of_another_kind_never_panic(seed in any::<u64>(), one in any::<prop::sample::Index>(), other in any::<prop::sample::Index>()) {
        let kinds: Vec<_> = builtin::kinds().collect();
        let mut object = random::object(kinds[one.index(kinds.len())].3, seed);
        let _ = conform(builtin::types(), kinds[other.index(kinds.len())].3, &mut object);
    }
}

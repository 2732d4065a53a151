use super::*;

fn new_errors(metadata: &Value) -> Vec<String> {
    let mut errors = Errors::new();
    let obj = json!({ "metadata": metadata });
    validate_metadata(&obj, &Path::new("metadata"), true, names::dns1123_subdomain, &mut errors);
    errors.0.iter().map(ToString::to_string).collect()
}

fn update_errors(new: &Value, old: &Value) -> Vec<String> {
    let mut errors = Errors::new();
    validate_metadata_update(&json!({ "metadata": new }), &json!({ "metadata": old }), &mut errors);
    errors.0.iter().map(ToString::to_string).collect()
}

#[test]
fn a_name_and_a_namespace_are_wanted() {
    assert_eq!(
        new_errors(&json!({})),
        [
            "metadata.name: Required value: name or generateName is required",
            "metadata.namespace: Required value"
        ]
    );
    assert!(new_errors(&json!({"name": "Upper", "namespace": "n"}))[0].starts_with(
        "metadata.name: Invalid value: \"Upper\": a lowercase RFC 1123 subdomain must consist of lower case"
    ));
    let mut errors = Errors::new();
    let obj = json!({"metadata": {"name": "a", "namespace": "n"}});
    validate_metadata(&obj, &Path::new("metadata"), false, names::dns1123_subdomain, &mut errors);
    assert_eq!(errors.to_string(), "metadata.namespace: Forbidden: not allowed on this type");
}

#[test]
fn a_generated_name_may_end_in_a_dash_for_now() {
    let check = |prefix: &str| {
        let mut errors = Errors::new();
        let obj = json!({"metadata": {"generateName": prefix}});
        validate_generate_name(&obj, &Path::new("metadata"), names::dns1123_label, &mut errors);
        errors.0.len()
    };
    assert_eq!((check(""), check("a-"), check("-"), check("S-")), (0, 0, 1, 1));
}

#[test]
fn labels_and_annotations_are_checked_by_key_and_value() {
    let found = new_errors(&json!({
        "name": "a", "namespace": "n",
        "labels": {"bad key!": "v", "ok": "not ok", "a/b/c": "x", "l": "x".repeat(64)},
        "annotations": {"bad key": "v", "UPPER.io/x": "fine"}
    }));
    assert_eq!(found.len(), 5, "{found:?}");
    assert!(found[0].starts_with("metadata.labels: Invalid value: \"a/b/c\": a valid label key must"));
    assert!(found[1].starts_with("metadata.labels: Invalid value: \"bad key!\": name part must"));
    assert!(found[2].ends_with("\": must be no more than 63 bytes"));
    assert!(found[3].starts_with("metadata.labels: Invalid value: \"not ok\": a valid label must"));
    assert!(found[4].starts_with("metadata.annotations: Invalid value: \"bad key\": name part must"));
    let found = new_errors(
        &json!({"name": "a", "namespace": "n", "annotations": {"k": "x".repeat(ANNOTATIONS_MAX_BYTES)}}),
    );
    assert_eq!(found, ["metadata.annotations: Too long: may not be more than 262144 bytes"]);
}

#[test]
fn finalizers_need_a_domain_and_must_not_contradict_each_other() {
    let with =
        |finalizers: Value| new_errors(&json!({"name": "a", "namespace": "n", "finalizers": finalizers}));
    assert_eq!(
        with(json!(["noslash"])),
        [
            "metadata.finalizers[0]: Invalid value: \"noslash\": name is neither a standard finalizer name nor is it \
          fully qualified"
        ]
    );
    let found = with(json!(["bad fin/x"]));
    assert!(
        found[0].starts_with("metadata.finalizers: Invalid value: \"bad fin/x\": prefix part a lowercase")
    );
    assert_eq!(found.len(), 1);
    assert_eq!(
        with(json!(["orphan", "foregroundDeletion"])),
        ["metadata.finalizers: Invalid value: [\"orphan\",\"foregroundDeletion\"]: finalizer orphan and \
          foregroundDeletion cannot be both set"]
    );
}

#[test]
fn owners_are_complete_and_only_one_controls() {
    let with = |owners: Value| new_errors(&json!({"name": "a", "namespace": "n", "ownerReferences": owners}));
    assert_eq!(
        with(json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "", "uid": ""}])),
        [
            "metadata.ownerReferences.name: Invalid value: \"\": must not be empty",
            "metadata.ownerReferences.uid: Invalid value: \"\": must not be empty"
        ]
    );
    assert_eq!(
        with(json!([
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a", "uid": "u1", "controller": true},
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "b", "uid": "u2", "controller": true}
        ])),
        [
            "metadata.ownerReferences: Invalid value: [{\"apiVersion\":\"apps/v1\",\"kind\":\"ReplicaSet\",\"name\":\"a\",\
          \"uid\":\"u1\",\"controller\":true},{\"apiVersion\":\"apps/v1\",\"kind\":\"ReplicaSet\",\"name\":\"b\",\
          \"uid\":\"u2\",\"controller\":true}]: Only one reference can have Controller set to true. Found \"true\" in \
          references for ReplicaSet/a and ReplicaSet/b"
        ]
    );
    assert_eq!(with(json!([{"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "u"}])).len(), 1);
}

#[test]
fn managed_fields_have_a_known_form() {
    let found = new_errors(&json!({"name": "a", "namespace": "n", "managedFields": [
        {"operation": "Guess", "fieldsType": "V0", "manager": "x\u{7}"}, {"operation": "Apply", "manager": "ok"}
    ]}));
    assert_eq!(found.len(), 3);
    assert_eq!(
        found[0],
        "metadata.managedFields[0].operation: Invalid value: \"Guess\": must be `Apply` or `Update`"
    );
}

#[test]
fn identity_never_changes() {
    let old = json!({"name": "a", "namespace": "n", "uid": "u", "creationTimestamp": "t", "generation": 3});
    assert!(update_errors(&old, &old).is_empty());
    let found =
        update_errors(&json!({"name": "b", "namespace": "m", "uid": "v", "deletionTimestamp": "d"}), &old);
    assert_eq!(
        found,
        [
            "metadata.generation: Invalid value: 0: must not be decremented",
            "metadata.name: Invalid value: \"b\": field is immutable",
            "metadata.namespace: Invalid value: \"m\": field is immutable",
            "metadata.uid: Invalid value: \"v\": field is immutable",
            "metadata.creationTimestamp: Invalid value: null: field is immutable",
            "metadata.deletionTimestamp: Invalid value: \"d\": field is immutable"
        ]
    );
}

#[test]
fn a_dying_object_takes_no_new_finalizers() {
    let old = json!({"deletionTimestamp": "t", "finalizers": ["x.test/f"]});
    let new = json!({"deletionTimestamp": "t", "finalizers": ["x.test/f", "x.test/new"]});
    assert_eq!(
        update_errors(&new, &old),
        [
            "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new \
          finalizers []string{\"x.test/new\"}"
        ]
    );
    assert!(update_errors(&json!({"deletionTimestamp": "t"}), &old).is_empty());
}

#[test]
fn wrong_types_do_no_harm() {
    for odd in
        [json!(null), json!([]), json!({"labels": [1], "finalizers": {"a": 1}, "ownerReferences": [7, null]})]
    {
        new_errors(&odd);
        update_errors(&odd, &odd);
    }
}

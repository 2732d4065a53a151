use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::builtin::random;
use crate::decode::{conform, parse_json};

/// A message as the recorded scenarios write it: a list of `[field number, value]`.
fn encode_message(message: &Value, out: &mut Vec<u8>) {
    for pair in message.as_array().expect("fields") {
        let tag = pair[0].as_u64().expect("tag") as u32;
        match &pair[1] {
            Value::String(text) => wire::put_bytes(out, tag, text.as_bytes()),
            Value::Bool(flag) => wire::put_number(out, tag, i64::from(*flag)),
            Value::Number(n) => wire::put_number(out, tag, n.as_i64().expect("number")),
            Value::Object(map) => wire::put_bytes(out, tag, &unhex(map["hex"].as_str().expect("hex"))),
            inner => wire::nested(out, tag, |out| encode_message(inner, out)),
        }
    }
}

fn unhex(text: &str) -> Vec<u8> {
    let digit = |i: usize| u8::from_str_radix(&text[i..i + 2], 16).expect("hex");
    (0..text.len()).step_by(2).map(digit).collect()
}

fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut out = PREFIX.to_vec();
    wire::nested(&mut out, 1, |out| {
        wire::put_bytes(out, 1, api_version.as_bytes());
        wire::put_bytes(out, 2, kind.as_bytes());
    });
    wire::put_bytes(&mut out, 2, raw);
    out
}

fn body(api_version: &str, kind: &str, message: &Value) -> Vec<u8> {
    let mut raw = Vec::new();
    encode_message(message, &mut raw);
    envelope(api_version, kind, &raw)
}

fn decoded(api_version: &str, kind: &str, message: &Value) -> Value {
    let mut object = decode_request(&body(api_version, kind, message)).expect(kind);
    let id = type_of(api_version, kind).expect(kind);
    let unknown = conform(builtin::types(), id, &mut object).expect(kind);
    assert_eq!(unknown, Vec::<String>::new());
    object
}

#[test]
fn recorded_requests_are_understood() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/oracle/scenarios/protobuf-requests.json");
    let (scenario, _) = parse_json(&std::fs::read(path).expect("scenario")).expect("JSON");
    let mut seen = Vec::new();
    for step in scenario["steps"].as_array().expect("steps") {
        let hex = &step["hex"];
        if hex.is_object() {
            let (api_version, kind) =
                (hex["apiVersion"].as_str().expect("v"), hex["kind"].as_str().expect("kind"));
            seen.push(decoded(api_version, kind, &hex["message"]));
        }
    }
    assert_eq!(
        seen,
        [
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "pb", "labels": {"l": "1"}}, "data": {"k": "v"}}),
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "pb"}, "spec": {
                "holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": "2024-05-01T10:00:00.123456Z",
                "leaseTransitions": 0}}),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"generateName": "gen-", "annotations": {"a.test/x": "y"}},
                "data": {"k": "AP8Q"}, "immutable": true, "type": "example.test/t"}),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "pb"}, "data": {"k": "v2"}}),
            json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "propagationPolicy": "Background"}),
        ]
    );
}

#[test]
fn zero_values_of_plain_fields_vanish_and_those_of_pointers_stay() {
    // spec: 1 replicas = 0, 5 minReadySeconds = 0, 7 paused = false; metadata: 1 name, 7 generation = 0, 8 creationTimestamp.
    let message =
        json!([[1, [[1, "d"], [2, ""], [7, 0], [8, []]]], [2, [[1, 0], [5, 0], [7, false]]], [3, [[1, 0]]]]);
    assert_eq!(
        decoded("apps/v1", "Deployment", &message),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
               "spec": {"replicas": 0, "strategy": {}, "template": {"metadata": {}, "spec": {}}}, "status": {}})
    );
}

#[test]
fn embedded_messages_are_inlined() {
    // volumes (1): 1 name, 2 volumeSource { 2 emptyDir, 19 configMap { 1 localObjectReference { 1 name } } }
    let volumes = json!([[
        2,
        [
            [1, [[1, "a"], [2, [[2, []]]]]],
            [1, [[1, "b"], [2, [[19, [[1, [[1, "cm"]]]]]]]]],
            // containers (2): 1 name, 10 livenessProbe { 1 handler { 2 httpGet { 1 path, 2 port { 2 int } } }, 2 initialDelaySeconds }
            [2, [[1, "c"], [10, [[1, [[2, [[1, "/"], [2, [[1, 0], [2, 80], [3, ""]]]]]]], [2, 0]]]]],
        ]
    ]]);
    let pod = decoded("v1", "Pod", &volumes);
    assert_eq!(
        pod["spec"]["volumes"],
        json!([{"name": "a", "emptyDir": {}}, {"name": "b", "configMap": {"name": "cm"}}])
    );
    assert_eq!(pod["spec"]["containers"][0]["livenessProbe"], json!({"httpGet": {"path": "/", "port": 80}}));
}

#[test]
fn maps_of_lists_negative_numbers_and_packed_numbers_are_read() {
    // spec: 4 groups? SubjectAccessReviewSpec: 3 user, 5 extra { 1 key, 2 { 1 items } }
    let review = decoded(
        "authorization.k8s.io/v1",
        "SubjectAccessReview",
        &json!([[2, [[3, "u"], [5, [[1, "k"], [2, [[1, "a"], [1, "b"]]]]]]]]),
    );
    assert_eq!(review["spec"], json!({"user": "u", "extra": {"k": ["a", "b"]}}));

    // spec.securityContext (14): 4 supplementalGroups packed, 2 runAsUser = -1
    let pod = decoded("v1", "Pod", &json!([[2, [[14, [[2, -1], [4, {"hex": "01ac02"}], [4, 7]]]]]]));
    assert_eq!(pod["spec"]["securityContext"], json!({"runAsUser": -1, "supplementalGroups": [1, 300, 7]}));
}

#[test]
fn a_message_in_two_parts_is_merged_and_unknown_fields_are_skipped() {
    let map = decoded(
        "v1",
        "ConfigMap",
        &json!([[1, [[1, "a"]]], [99, "x"], [98, 7], [1, [[3, "ns"], [97, "y"]]]]),
    );
    assert_eq!(map["metadata"], json!({"name": "a", "namespace": "ns"}));
}

#[test]
fn what_is_not_protobuf_is_refused_cleanly() {
    assert_eq!(decode_request(&unhex("deadbeef")), Err(ProtoError::NotProtobuf));
    assert_eq!(
        ProtoError::NotProtobuf.to_string(),
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
    );
    let refused = |raw: &[u8]| decode_request(&envelope("v1", "ConfigMap", raw)).expect_err("refused");
    assert_eq!(refused(&[0x0a, 0xff, 0x01]), ProtoError::Truncated, "a length that lies");
    assert_eq!(
        refused(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]),
        ProtoError::Truncated
    );
    assert_eq!(refused(&[0x0a]), ProtoError::Truncated);
    assert_eq!(refused(&[0xff; 12]), ProtoError::Overflow);
    assert_eq!(refused(&[0x0b]), ProtoError::IllegalWireType(3), "groups");
    assert_eq!(refused(&[0x00, 0x00]), ProtoError::Tag(0));
    assert_eq!(refused(&[0x08, 0x01]), ProtoError::WireType { found: 0, field: "metadata".to_owned() });
    let unknown = decode_request(&envelope("x.test/v1", "Widget", &[]));
    assert!(matches!(unknown, Err(ProtoError::UnknownKind { kind, .. }) if kind == "Widget"));
}

#[test]
fn nesting_is_limited() {
    // JSONSchemaProps: 28 is `not`, itself a JSONSchemaProps.
    let not = builtin::types()
        .find("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps")
        .and_then(|id| builtin::types().get(id).field("not"))
        .expect("not");
    let mut message = Vec::new();
    for _ in 0..10_000 {
        let mut outer = Vec::new();
        wire::put_bytes(&mut outer, not.tag, &message);
        message = outer;
    }
    let mut raw = Vec::new();
    // spec 2, versions 7, schema 4, openAPIV3Schema 1
    wire::nested(&mut raw, 2, |out| {
        wire::nested(out, 7, |out| wire::nested(out, 4, |out| wire::put_bytes(out, 1, &message)));
    });
    let crd = decode_request(&envelope("apiextensions.k8s.io/v1", "CustomResourceDefinition", &raw));
    assert_eq!(crd, Err(ProtoError::Depth));
}

#[test]
fn a_watch_event_is_framed_with_its_length() {
    let object = encode_response("v1", "ConfigMap", &json!({"metadata": {"name": "a"}})).expect("ConfigMap");
    let frame = watch_frame("ADDED", &object);
    assert_eq!(u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]]) as usize, frame.len() - 4);
    assert!(frame.windows(object.len()).any(|window| window == object));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_can_be_read_again(seed in any::<u64>(), pick in any::<prop::sample::Index>()) {
        // A WatchEvent has no apiVersion and kind of its own.
        let has_protobuf = |(_, _, kind, id): &(_, _, &str, _)| *kind != "WatchEvent" && !tags::of(*id).is_empty();
        let mut kinds: Vec<_> = builtin::kinds().filter(has_protobuf).collect();
        kinds.sort_by_key(|(.., id)| id.0);
        let (group, version, kind, id) = kinds[pick.index(kinds.len())];
        let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };

        let mut object = random::object(id, seed);
        conform(builtin::types(), id, &mut object).expect(kind);
        let body = encode_response(&api_version, kind, &object).expect(kind);
        let mut read = decode_request(&body).expect(kind);
        conform(builtin::types(), id, &mut read).expect(kind);
        object["apiVersion"] = api_version.into();
        object["kind"] = kind.into();
        prop_assert_eq!(read, object);
    }

    #[test]
    fn arbitrary_bytes_never_panic(raw in prop::collection::vec(any::<u8>(), 0..200), pick in any::<prop::sample::Index>()) {
        let kinds: Vec<_> = builtin::kinds().collect();
        let (group, version, kind, _) = kinds[pick.index(kinds.len())];
        let _ = decode_request(&envelope(&format!("{group}/{version}"), kind, &raw));
        let _ = decode_request(&raw);
    }

    #[test]
    fn damaged_messages_never_panic(seed in any::<u64>(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let id = type_of("v1", "Pod").expect("Pod");
        let object = random::object(id, seed);
        let mut body = encode_response("v1", "Pod", &object).expect("Pod");
        let at = at.index(body.len());
        body[at] = byte;
        if let Ok(mut read) = decode_request(&body) {
            let _ = conform(builtin::types(), id, &mut read);
        }
        let _ = decode_request(&body[..at]);
    }
}

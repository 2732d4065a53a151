use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use http::{HeaderMap, HeaderValue, Response};
use serde_json::{Value, json};
use shoal_objects::Timestamp;
use shoal_objects::schema::Shape;

use super::*;
use crate::body::Body;
use crate::builtin;

const ORACLE: &str = include_str!("../../../../tests/oracle/scenarios/openapi-v3.json");

/// Shared by tests that do not look into it.
static DOCUMENTS: LazyLock<Documents> = LazyLock::new(Documents::default);
static REGISTRY: LazyLock<Registry> = LazyLock::new(Registry::builtin);

fn ask(
    documents: &Documents,
    path: &str,
    headers: &[(HeaderName, &str)],
    hash: Option<&str>,
) -> Response<Body> {
    let headers: HeaderMap =
        headers.iter().map(|(k, v)| (k.clone(), HeaderValue::from_str(v).expect("header"))).collect();
    let reply = answer(documents, &REGISTRY, &Delegates::default(), path, &headers, hash, Timestamp(0))
        .expect("answer");
    reply.finish(&headers, &[])
}

fn header(response: &Response<Body>, name: HeaderName) -> &str {
    response.headers().get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
}

fn bytes(response: Response<Body>) -> Bytes {
    let Body::Full(bytes) = response.into_body() else { unreachable!("a whole body") };
    bytes
}

/// All documents, made once for all tests; the empty path is Swagger 2.
static ALL: LazyLock<BTreeMap<String, Value>> = LazyLock::new(|| {
    let registry = &*REGISTRY;
    let mut subjects: Vec<Subject> = paths().iter().filter_map(|p| document::subject(registry, p)).collect();
    subjects.push(document::everything(registry));
    let parsed = subjects.into_iter().map(|subject| {
        let mut text = Vec::new();
        document::write(&subject, &mut text).expect("document");
        assert!(text.len() < 4_000_000, "{}: {}", subject.path, text.len());
        (subject.path, serde_json::from_slice(&text).expect("JSON"))
    });
    parsed.collect()
});

fn get(path: &str) -> &'static Value {
    ALL.get(path).expect(path)
}

fn paths() -> BTreeSet<String> {
    document::all(&REGISTRY)
}

/// `/#` asks for the length, which lists alone have.
fn pick(document: &Value, pointer: &str) -> Value {
    match pointer.strip_suffix("/#") {
        Some(list) => {
            document.pointer(list).and_then(Value::as_array).map(|l| l.len().into()).unwrap_or_default()
        }
        None => document.pointer(pointer).cloned().unwrap_or_default(),
    }
}

/// Texts that may differ are compared for being there.
fn assert_like(expected: &Value, actual: &Value, place: &str) {
    match (expected, actual) {
        (Value::Object(e), _) if e.contains_key("$soft") => assert!(actual.is_string(), "{place}: {actual}"),
        (Value::Object(e), Value::Object(a)) => {
            let keys = |m: &Map<String, Value>| m.keys().cloned().collect::<BTreeSet<_>>();
            assert_eq!(keys(e), keys(a), "{place}");
            e.iter().for_each(|(k, v)| assert_like(v, &a[k], &format!("{place}/{k}")));
        }
        _ => assert_eq!(expected, actual, "{place}"),
    }
}

#[test]
fn documents_say_what_the_real_server_says() {
    let scenario: Value = serde_json::from_str(ORACLE).expect("scenario");
    for step in scenario["steps"].as_array().expect("steps") {
        let path = step["http"].as_str().and_then(|h| h.strip_prefix("GET /openapi/")).expect("GET");
        let response = ask(&DOCUMENTS, path, &[], None);
        assert_eq!(response.status().as_u16(), step["expect"]["status"], "{path}");
        let content_type = step["expect"]["headers"]["Content-Type"].as_str().unwrap_or_default();
        assert_eq!(header(&response, http::header::CONTENT_TYPE), content_type, "{path}");
        let expected = step["expect"]["body"].as_object().into_iter().flatten();
        let document: Value = serde_json::from_slice(&bytes(response)).unwrap_or_default();
        for (pointer, expected) in expected {
            assert_like(expected, &pick(&document, pointer), pointer);
        }
    }
}

#[test]
fn every_reference_resolves_in_its_document() {
    for path in paths() {
        let document = get(&path);
        let mut named = BTreeSet::new();
        document::references(document, &mut named);
        for name in named {
            assert!(document["components"]["schemas"][&name].is_object(), "{path}: {name}");
        }
    }
    let swagger = get("");
    let mut named = BTreeSet::new();
    document::references(swagger, &mut named);
    assert!(named.len() > 300);
    for name in named {
        assert!(swagger["definitions"][&name].is_object(), "v2: {name}");
    }
}

#[test]
fn every_resource_that_can_be_patched_says_so_with_field_validation() {
    for (group, version) in REGISTRY.group_versions() {
        let root = paths::root(group, version);
        let document = get(&root[1..]);
        let here = REGISTRY.iter().filter(|r| *r.group == *group && *r.version == *version);
        for resource in here.filter(|r| r.allows("patch")) {
            let scope = if resource.namespaced { "/namespaces/{namespace}" } else { "" };
            let patch = &document["paths"][format!("{root}{scope}/{}/{{name}}", resource.plural)]["patch"];
            let expected = json!({"group": group, "version": version, "kind": *resource.kind});
            assert_eq!(patch["x-kubernetes-group-version-kind"], expected);
            let parameters = patch["parameters"].as_array().into_iter().flatten();
            let names: Vec<&str> = parameters.filter_map(|p| p["name"].as_str()).collect();
            assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation", "force"], "{}", resource.plural);
        }
    }
}

#[test]
fn operation_ids_are_unique_and_every_verb_has_an_operation() {
    let mut ids = BTreeSet::new();
    let mut count = 0;
    for (_, item) in get("")["paths"].as_object().into_iter().flatten() {
        for (_, operation) in item.as_object().into_iter().flatten().filter(|(k, _)| *k != "parameters") {
            count += 1;
            ids.insert(operation["operationId"].as_str().unwrap_or_default().to_owned());
        }
    }
    assert_eq!(ids.len(), count);
    for id in [
        "readAppsV1NamespacedDeploymentScale",
        "listCoreV1PodForAllNamespaces",
        "deleteRbacAuthorizationV1CollectionNamespacedRole",
        "connectCoreV1GetNamespacedPodExec",
        "createCoreV1NamespacedServiceAccountToken",
        "watchCoreV1NamespaceList",
        "replaceCoreV1NamespaceFinalize",
        "getCodeVersion",
    ] {
        assert!(ids.contains(id), "{id}");
    }
}

#[test]
fn the_index_leads_to_documents_that_may_be_kept_for_good() {
    let index: Value = serde_json::from_slice(&bytes(ask(&DOCUMENTS, "v3", &[], None))).expect("JSON");
    let listed: BTreeSet<String> =
        index["paths"].as_object().into_iter().flatten().map(|(k, _)| k.clone()).collect();
    assert_eq!(listed, paths());
    for path in ["apis/autoscaling/v2", "apis/apps", "version"] {
        let url = index["paths"][path]["serverRelativeURL"].as_str().expect(path);
        let hash = url.strip_prefix(&format!("/openapi/v3/{path}?hash=")).expect(url);
        assert_eq!(hash.len(), 128);
        let response = ask(&DOCUMENTS, &format!("v3/{path}"), &[], Some(hash));
        assert_eq!(response.status(), 200);
        assert_eq!(header(&response, ETAG), format!("\"{hash}\""));
        assert_eq!(header(&response, CACHE_CONTROL), "public, immutable");
        assert_eq!(header(&response, EXPIRES), "Fri, 01 Jan 1971 00:00:00 GMT");
    }
}

#[test]
fn an_outdated_hash_leads_to_the_present_one() {
    let documents = &DOCUMENTS;
    let present = ask(documents, "v3/apis/policy/v1", &[], None);
    assert_eq!(header(&present, CACHE_CONTROL), "no-cache, private");
    let response = ask(documents, "v3/apis/policy/v1", &[], Some("OLD"));
    assert_eq!(response.status(), 301);
    let hash = header(&present, ETAG).trim_matches('"');
    assert_eq!(header(&response, LOCATION), format!("/openapi/v3/apis/policy/v1?hash={hash}"));
}

#[test]
fn a_client_that_has_the_document_gets_no_body() {
    let documents = &DOCUMENTS;
    let tag = header(&ask(documents, "v3/apis/policy/v1", &[], None), ETAG).to_owned();
    for seen in [tag.clone(), format!("W/{tag}"), format!("\"x\", {tag}"), "*".to_owned()] {
        let response = ask(documents, "v3/apis/policy/v1", &[(IF_NONE_MATCH, &seen)], None);
        assert_eq!(response.status(), 304, "{seen}");
        assert!(bytes(response).is_empty());
    }
    assert_eq!(ask(documents, "v3/apis/policy/v1", &[(IF_NONE_MATCH, "\"x\"")], None).status(), 200);
}

#[test]
fn only_json_is_offered_and_protobuf_of_swagger() {
    let documents = &DOCUMENTS;
    let protobuf = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf";
    let status =
        |path: &str, accept: &str| ask(documents, path, &[(http::header::ACCEPT, accept)], None).status();
    assert_eq!(status("v3/version", "application/json"), 200);
    assert_eq!(status("v3/version", "*/*"), 200);
    assert_eq!(status("v3/version", &format!("{protobuf}, application/json")), 200);
    assert_eq!(status("v3/version", protobuf), 406);
    assert_eq!(status("v2", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"), 200);
    assert_eq!(status("v3/apis/apps/v1", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"), 406);
    assert_eq!(status("v1", "application/json"), 404);
    assert_eq!(status("v3/apis/apps/v2", "application/json"), 404);
}

#[test]
fn documents_are_kept_compressed_and_only_when_asked_for() {
    let documents = &Documents::default();
    let headers = [(http::header::ACCEPT_ENCODING, "gzip")];
    let subject = document::subject(&REGISTRY, "apis/policy/v1").expect("policy");
    documents.hash(&subject).expect("hash");
    assert!(documents.kept(&subject, Form::Json).is_some_and(|m| m.gzip.is_none()));
    let packed = ask(documents, "v3/apis/policy/v1", &headers, None);
    assert_eq!(header(&packed, CONTENT_ENCODING), "gzip");
    let packed = bytes(packed);
    assert!(documents.kept(&subject, Form::Json).is_some_and(|m| m.gzip.as_ref() == Some(&packed)));
    let plain = bytes(ask(documents, "v3/apis/policy/v1", &[], None));
    assert!(packed.len() * 4 < plain.len(), "{} {}", packed.len(), plain.len());
    let mut unpacked = Vec::new();
    GzDecoder::new(packed.as_ref()).read_to_end(&mut unpacked).expect("gzip");
    assert_eq!(unpacked, plain);
}

#[test]
fn a_document_is_made_again_when_its_resources_change() {
    let documents = Documents::default();
    let mut subject = document::subject(&REGISTRY, "apis/policy/v1").expect("policy");
    let first = documents.hash(&subject).expect("hash");
    assert!(documents.kept(&subject, Form::Json).is_some());
    let taken = subject.resources.pop().expect("resource");
    assert!(documents.kept(&subject, Form::Json).is_none());
    assert_ne!(documents.hash(&subject).expect("hash"), first);
    subject.resources.push(taken);
    assert_eq!(documents.hash(&subject).expect("hash"), first, "the same resources give the same hash");
}

#[test]
fn hand_written_enums_and_defaults_are_about_text_fields() {
    let types = builtin::types();
    let enums = schema::read_enums(include_str!("enums.txt"));
    let named = enums.keys().copied().chain(schema::DEFAULTS.iter().map(|(name, _)| *name));
    for name in named {
        let (owner, field) = name.rsplit_once('.').expect(name);
        let id = types.find(&format!("io.k8s.api.{owner}")).expect(name);
        let field = types.get(id).field(field).expect(name);
        let text = Shape::String;
        assert!(
            field.shape == text || field.shape == Shape::List(Box::new(text)),
            "{name}: {:?}",
            field.shape
        );
    }
    for (name, words) in enums {
        assert!(words.split(' ').is_sorted(), "{name}: {words}");
    }
}

#[test]
fn zero_values_are_defaults_where_go_has_plain_values() {
    let document = get("apis/apps/v1");
    let schemas = &document["components"]["schemas"];
    let status = &schemas["io.k8s.api.apps.v1.DaemonSetStatus"]["properties"];
    assert_eq!(status["numberReady"]["default"], 0);
    assert_eq!(status["numberAvailable"]["default"], Value::Null);
    assert_eq!(
        status["conditions"]["items"],
        json!({"allOf": [{"$ref": "#/components/schemas/io.k8s.api.apps.v1.DaemonSetCondition"}], "default": {}})
    );
    let condition = &schemas["io.k8s.api.apps.v1.DaemonSetCondition"]["properties"];
    assert_eq!(condition["status"]["default"], "");
    assert_eq!(condition["lastTransitionTime"]["default"], Value::Null);
    let limits = &schemas["io.k8s.api.core.v1.ResourceRequirements"]["properties"]["limits"];
    let quantity = json!({"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.api.resource.Quantity"});
    assert_eq!(limits["additionalProperties"], quantity);
}

#[test]
fn schemas_of_custom_resources_are_described_with_their_own_models() {
    let document = get("apis/apiextensions.k8s.io/v1");
    let package = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1";
    let schemas = &document["components"]["schemas"];
    let properties = &schemas[format!("{package}.JSONSchemaProps")]["properties"];
    let reference = |name: &str| format!("#/components/schemas/{package}.{name}");
    assert_eq!(properties["items"]["allOf"][0]["$ref"], Value::Null, "no description, so a plain reference");
    assert_eq!(properties["items"]["$ref"], reference("JSONSchemaPropsOrArray"));
    assert_eq!(
        properties["properties"]["additionalProperties"]["allOf"][0]["$ref"],
        reference("JSONSchemaProps")
    );
    assert!(schemas[format!("{package}.JSON")].is_object());
}

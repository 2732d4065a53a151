//! Whatever a client sends, the answer is a Status with the right code: no panic, no hang, nothing stored.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use base64::Engine as _;
use bytes::Bytes;
use http::Request;
use http_body::Frame;
use http_body_util::StreamBody;
use proptest::prelude::*;
use serde_json::{Value, json};
use shoal_apiserver::access::UserInfo;
use shoal_testkit::{Cluster, Http};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const JSON: (&str, &str) = ("content-type", "application/json");

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

/// The request is refused with this code, by a Status, and leaves nothing behind.
async fn refused(
    http: &Http,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
    code: u16,
) {
    let before = http.get(MAPS).await.json()["metadata"]["resourceVersion"].clone();
    let answer = http.send(method, path, headers, body).await;
    assert_eq!(answer.status, code, "{method} {path}: {}", String::from_utf8_lossy(&answer.body));
    let status = answer.json();
    assert_eq!(
        (status["kind"].as_str(), status["status"].as_str()),
        (Some("Status"), Some("Failure")),
        "{path}"
    );
    assert_eq!(status["code"], code);
    assert_eq!(
        http.get(MAPS).await.json()["metadata"]["resourceVersion"],
        before,
        "{method} {path} wrote something"
    );
}

#[tokio::test]
async fn broken_json_and_yaml_are_refused() {
    let http = Cluster::start().await.http();
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let nested = format!("{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"data\":{deep}}}");
    let bodies: Vec<Vec<u8>> = vec![
        b"".to_vec(),
        b"{".to_vec(),
        b"[]".to_vec(),
        b"null".to_vec(),
        b"\"text\"".to_vec(),
        b"{\"kind\":\"ConfigMap\"".to_vec(),
        b"{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\"} trailing".to_vec(),
        b"{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"data\":{\"a\":1e400}}".to_vec(),
        deep.clone().into_bytes(),
        nested.into_bytes(),
        vec![0; 1000],
    ];
    for body in bodies {
        refused(&http, "POST", MAPS, &[JSON], body, 400).await;
    }
    let bomb = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n\
         d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n\
         g: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f]\nkind: ConfigMap\napiVersion: v1\n";
    for yaml in ["a: [", "{{{", bomb, "a: 1\n---\nb: 2\n", "\u{0}"] {
        refused(&http, "POST", MAPS, &[("content-type", "application/yaml")], yaml.to_owned(), 400).await;
    }
}

#[tokio::test]
async fn bytes_that_are_no_text_are_replaced_as_go_does() {
    let http = Cluster::start().await.http();
    let body = b"{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"a\"},\"data\":{\"k\":\"\xff\xfe\"}}";
    assert_eq!(http.send("POST", MAPS, &[JSON], body.to_vec()).await.status, 201);
    assert_eq!(http.get(&format!("{MAPS}/a")).await.json()["data"]["k"], "\u{fffd}\u{fffd}");
}

#[tokio::test]
async fn bodies_above_three_mebibytes_are_refused_and_just_below_are_read() {
    let http = Cluster::start().await.http();
    let limit = 3 * 1024 * 1024;
    refused(&http, "POST", MAPS, &[JSON], vec![b' '; limit + 1], 413).await;
    // Read completely, and then found to be no object.
    refused(&http, "POST", MAPS, &[JSON], vec![b' '; limit], 400).await;
}

#[tokio::test]
async fn wrong_kinds_groups_names_and_namespaces_are_refused() {
    let http = Cluster::start().await.http();
    let wrong = [
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}),
        json!({"apiVersion": "apps/v1", "kind": "ConfigMap", "metadata": {"name": "a"}}),
        json!({"apiVersion": "v2", "kind": "ConfigMap", "metadata": {"name": "a"}}),
        json!({"apiVersion": 1, "kind": "ConfigMap"}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": 7}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": "x"}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "other"}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": ["x"]}),
    ];
    for body in wrong {
        refused(&http, "POST", MAPS, &[JSON], body.to_string(), 400).await;
    }
    refused(&http, "POST", MAPS, &[("content-type", "text/plain")], map("a").to_string(), 415).await;
    refused(&http, "POST", MAPS, &[JSON, ("accept", "text/csv")], map("a").to_string(), 406).await;
    refused(&http, "GET", "/api/v1/nothings", &[], "", 404).await;
    refused(&http, "GET", "/apis/apps/v7/deployments", &[], "", 404).await;
    refused(&http, "PUT", MAPS, &[JSON], map("a").to_string(), 405).await;
    refused(&http, "DELETE", "/api/v1/namespaces", &[], "", 405).await;
}

#[tokio::test]
async fn path_tricks_name_nothing() {
    let http = Cluster::start().await.http();
    http.post(MAPS, &map("a")).await;
    let tricks = [
        "/api/v1/namespaces/default/configmaps/../configmaps/a",
        "/api/v1/namespaces/default/configmaps/%2e%2e/secrets/a",
        "/api/v1/namespaces/default%2fconfigmaps/a",
        "/api/v1/namespaces/default/configmaps/a%2f..%2fb",
        "/api/v1/namespaces/default/configmaps/%00",
        "/api/v1/namespaces/default/configmaps/%ff",
        "/api/v1//namespaces/default/configmaps/a",
        "//api/v1/namespaces/default/configmaps/a",
        "/api/v1/namespaces//configmaps/a",
    ];
    for path in tricks {
        let answer = http.get(path).await;
        assert_eq!(answer.status, 404, "{path}");
    }
}

#[tokio::test]
async fn hostile_selectors_are_refused_quickly() {
    let http = Cluster::start().await.http();
    let long = "a,".repeat(20_000);
    let parens = "a%20in%20(".repeat(5_000);
    let labels = ["%3D", "a%3D%3D%3Db", "a%20in", "(((((", "a%3D%01", "!!a", "a%20notin%20b", &parens];
    for selector in labels {
        refused(&http, "GET", &format!("{MAPS}?labelSelector={selector}"), &[], "", 400).await;
    }
    assert_eq!(http.get(&format!("{MAPS}?labelSelector={long}")).await.status, 400);
    for selector in ["a", "%3D", "spec.x%3D1", "metadata.name%3Da%5C", "metadata.name%20in%20(a)"] {
        refused(&http, "GET", &format!("{MAPS}?fieldSelector={selector}"), &[], "", 400).await;
    }
}

#[tokio::test(start_paused = true)]
async fn odd_resource_versions_get_the_codes_of_the_real_server() {
    let http = Cluster::start().await.http();
    for version in ["abc", "-1", "1.5", "%20", "18446744073709551616", "0x10"] {
        refused(&http, "GET", &format!("{MAPS}?resourceVersion={version}"), &[], "", 400).await;
        refused(&http, "GET", &format!("{MAPS}?watch=1&resourceVersion={version}"), &[], "", 500).await;
    }
    refused(&http, "GET", &format!("{MAPS}?resourceVersion=999999999999"), &[], "", 504).await;
    for token in ["nonsense", "e30", "%00", "eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ", &"A".repeat(60_000)] {
        refused(&http, "GET", &format!("{MAPS}?limit=1&continue={token}"), &[], "", 400).await;
    }
}

#[tokio::test(start_paused = true)]
async fn numbers_at_the_edge_of_their_types_harm_nothing() {
    let http = Cluster::start().await.http();
    http.post(MAPS, &map("a")).await;
    for number in [i64::MIN, -1, 0, i64::MAX] {
        let watch = http.open("GET", &format!("{MAPS}?watch=1&timeoutSeconds={number}"), &[], "").await;
        assert_eq!(watch.status(), 200, "{number}");
        assert_eq!(http.get(&format!("{MAPS}?limit={number}")).await.status, 200, "{number}");
        let path = format!("{MAPS}/a?dryRun=All&gracePeriodSeconds={number}");
        assert!(http.delete(&path).await.status.as_u16() < 500, "{number}");
    }
    for number in ["9223372036854775808", "1e3", "nan", "0x1"] {
        refused(&http, "GET", &format!("{MAPS}?limit={number}"), &[], "", 400).await;
        refused(&http, "GET", &format!("{MAPS}?watch=1&timeoutSeconds={number}"), &[], "", 400).await;
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_forever_for_a_version_that_never_comes() {
    let http = Cluster::start().await.http();
    for query in
        ["", "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"]
    {
        let path = format!("{MAPS}?{query}&resourceVersion=999999999999");
        refused(&http, "GET", &path, &[], "", 504).await;
    }
    refused(&http, "GET", &format!("{MAPS}/a?resourceVersion=999999999999"), &[], "", 504).await;
}

#[tokio::test]
async fn a_forged_continue_token_shows_nothing_but_its_own_collection() {
    let http = Cluster::start().await.http();
    http.post(MAPS, &map("a")).await;
    for (start, code) in [
        ("default/a", 200),
        ("default/zzz", 200),
        ("default/", 200),
        ("kube-system/a", 400),
        ("default", 400),
        ("", 400),
        ("default0", 400),
        ("\u{10ffff}", 400),
    ] {
        let token = json!({"v": "meta.k8s.io/v1", "rv": 8, "start": start}).to_string();
        let token = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(token);
        for selector in
            ["", "fieldSelector=metadata.name%3Da", "labelSelector=x", "fieldSelector=metadata.name%3D%2500"]
        {
            let answer = http.get(&format!("{MAPS}?limit=2&continue={token}&{selector}")).await;
            assert_eq!(answer.status, code, "{start:?} {selector}");
            for item in answer.json()["items"].as_array().into_iter().flatten() {
                assert_eq!(item["metadata"]["namespace"], "default");
            }
        }
        for path in [
            "/api/v1/configmaps",
            "/api/v1/namespaces",
            "/api/v1/namespaces?fieldSelector=metadata.name%3Ddefault",
        ] {
            let join = if path.contains('?') { '&' } else { '?' };
            assert_eq!(
                http.get(&format!("{path}{join}limit=2&continue={token}")).await.status,
                200,
                "{start:?}"
            );
        }
    }
}

/// A body that comes one byte in a while, and never ends.
fn dripping() -> StreamBody<impl futures::Stream<Item = Result<Frame<Bytes>, std::io::Error>> + Send> {
    StreamBody::new(futures::stream::unfold((), |()| async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Some((Ok(Frame::data(Bytes::from_static(b" "))), ()))
    }))
}

#[tokio::test(start_paused = true)]
async fn clients_that_drip_their_body_are_let_go_and_take_no_place_from_others() {
    let cluster = Cluster::start().await;
    let http = cluster.http();
    // More of them than requests may be under way.
    let drips: Vec<_> = (0..2_500)
        .map(|_| {
            let server = cluster.server().clone();
            let user = UserInfo::authenticated("slow", &["system:masters"]);
            let request =
                Request::post(MAPS).extension(user).header(JSON.0, JSON.1).body(dripping()).unwrap();
            tokio::spawn(async move { server.handle(request).await.status().as_u16() })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(http.post(MAPS, &map("quick")).await.status, 201);
    let begun = tokio::time::Instant::now();
    for drip in drips {
        assert_eq!(drip.await.unwrap(), 408);
    }
    assert!(begun.elapsed() < Duration::from_secs(61));
}

/// Paths of many kinds; a fuzzed body may mean anything to them.
const COLLECTIONS: [&str; 8] = [
    MAPS,
    "/api/v1/namespaces/default/pods",
    "/api/v1/namespaces/default/services",
    "/apis/apps/v1/namespaces/default/deployments",
    "/apis/batch/v1/namespaces/default/cronjobs",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
];

const FORMATS: [&str; 7] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

fn any_json() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "metadata",
        "name",
        "labels",
        "spec",
        "containers",
        "data",
        "a",
        "$patch",
        "delete",
        "op",
        "path",
        "/",
        "/a/-",
        "value",
        "status",
        "finalizers",
        "ownerReferences",
        "$setElementOrder/containers",
        "$retainKeys",
        "replace",
        "",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word.clone().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((word.clone(), inner), 0..6).prop_map(|members| members
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect()),
        ]
    })
}

fn any_body() -> impl Strategy<Value = Vec<u8>> {
    let protobuf =
        prop::collection::vec(any::<u8>(), 0..60).prop_map(|bytes| [b"k8s\0", &bytes[..]].concat());
    prop_oneof![
        4 => any_json().prop_map(|value| value.to_string().into_bytes()),
        1 => prop::collection::vec(any::<u8>(), 0..60),
        1 => protobuf,
        1 => "[-{}\\[\\]&*:|>#'\" \na]{0,40}".prop_map(String::into_bytes),
    ]
}

thread_local! {
    /// One cluster in simulated time for all cases of a test.
    static SHARED: (tokio::runtime::Runtime, Http) = {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let http = runtime.block_on(async {
            let http = Cluster::start().await.http();
            assert_eq!(http.post(MAPS, &map("a")).await.status, 201);
            http
        });
        (runtime, http)
    };
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_body_makes_the_server_fail(
        body in any_body(),
        collection in prop::sample::select(&COLLECTIONS[..]),
        method in prop::sample::select(vec!["POST", "PUT", "PATCH", "DELETE", "GET"]),
        format in prop::sample::select(&FORMATS[..]),
    ) {
        SHARED.with(|(runtime, http)| runtime.block_on(async {
            let path = if method == "POST" { collection.to_owned() } else { format!("{collection}/a") };
            let answer = http.send(method, &path, &[("content-type", format)], body).await;
            let code = answer.status.as_u16();
            // The real server answers strategic patches that it did not foresee as a mistake of its own.
            let excused = format == "application/strategic-merge-patch+json" && code == 500;
            prop_assert!(code < 500 || excused, "{}: {}", code, String::from_utf8_lossy(&answer.body));
            prop_assert!(serde_json::from_slice::<Value>(&answer.body).is_ok());
            Ok(())
        }))?;
    }

    #[test]
    fn no_query_makes_the_server_fail(
        parameter in prop::sample::select(vec![
            "labelSelector", "fieldSelector", "shardSelector", "limit", "continue", "resourceVersion", "timeoutSeconds",
            "resourceVersionMatch", "sendInitialEvents", "watch", "dryRun", "fieldManager", "pretty",
        ]),
        value in prop_oneof!["[-a-z!=(),<>/. 0-9%'|\\\\]{0,30}", any::<String>()],
        watching in any::<bool>(),
    ) {
        SHARED.with(|(runtime, http)| runtime.block_on(async {
            let value = percent_encoding::utf8_percent_encode(&value, percent_encoding::NON_ALPHANUMERIC).to_string();
            let watch = if watching { "&watch=1" } else { "" };
            let answer = http.open("GET", &format!("{MAPS}?{parameter}={value}{watch}"), &[], "").await;
            let code = answer.status().as_u16();
            // The real server calls a malformed version of a watch and a malformed shard its own mistake.
            let excused = matches!(parameter, "resourceVersion" | "shardSelector") && [500, 504].contains(&code);
            prop_assert!(code < 500 || excused, "{code}");
            Ok(())
        }))?;
    }
}

#[tokio::test]
async fn json_patches_beyond_ten_thousand_operations_are_refused() {
    let http = Cluster::start().await.http();
    http.post(MAPS, &map("a")).await;
    let patch = |n: usize| {
        let operations: Vec<Value> = (0..n)
            .map(|i| json!({"op": "add", "path": "/metadata/annotations", "value": {"i": i.to_string()}}))
            .collect();
        Value::from(operations).to_string()
    };
    let kind = [("content-type", "application/json-patch+json")];
    let path = format!("{MAPS}/a");
    let fits = http.send("PATCH", &path, &kind, patch(10_000)).await;
    assert_eq!(fits.status, 200);
    refused(&http, "PATCH", &path, &kind, patch(10_001), 413).await;
}

#[tokio::test]
async fn broken_protobuf_is_refused() {
    let http = Cluster::start().await.http();
    let kind = [("content-type", "application/vnd.kubernetes.protobuf")];
    let envelope = |body: &[u8]| [b"k8s\0", body].concat();
    let bodies = [
        b"".to_vec(),
        b"k8s\0".to_vec(),
        b"not protobuf at all".to_vec(),
        envelope(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f]), // a length beyond the end
        envelope(&[0x0a, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01]), // an overlong varint
        envelope(&[0x0b]),                                                                   // a group
        envelope(&[0x0a, 0x04, 0x0a, 0x02, b'v', b'1', 0x12, 0x02, 0x0a, 0x7f]),
    ];
    for body in bodies {
        refused(&http, "POST", MAPS, &kind, body, 400).await;
    }
}

/// A field with a length in front.
fn message(field: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![field << 3 | 2];
    let mut length = body.len();
    while length >= 0x80 {
        out.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(body);
    out
}

/// An object in protobuf as clients send it.
fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let type_meta = [message(1, api_version.as_bytes()), message(2, kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), message(1, &type_meta), message(2, raw)].concat()
}

#[tokio::test]
async fn protobuf_that_is_deep_cut_or_large_is_refused() {
    let http = Cluster::start().await.http();
    let kind = [("content-type", "application/vnd.kubernetes.protobuf")];
    // A schema within a schema: versions[0].schema.openAPIV3Schema.not.not…
    let mut schema = message(5, b"object");
    for _ in 0..10_000 {
        schema = message(30, &schema);
        assert!(schema.len() < 100_000);
    }
    let version = [message(1, b"v1"), message(4, &message(1, &schema))].concat();
    let deep =
        envelope("apiextensions.k8s.io/v1", "CustomResourceDefinition", &message(2, &message(7, &version)));
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let answer = http.send("POST", definitions, &kind, deep).await;
    assert_eq!((answer.status.as_u16(), &answer.json()["kind"]), (400, &json!("Status")));
    // Groups within groups, and nothing but beginnings.
    for group in [vec![0x1b; 10_000], vec![0x0a; 10_000], vec![0x12; 1_000_000]] {
        refused(&http, "POST", MAPS, &kind, envelope("v1", "ConfigMap", &group), 400).await;
    }

    let metadata = [message(1, b"cut"), message(11, &[message(1, b"l"), message(2, b"v")].concat())].concat();
    let data = message(2, &[message(1, b"key"), message(2, b"value")].concat());
    let whole = envelope("v1", "ConfigMap", &[message(1, &metadata), data].concat());
    for cut in 0..whole.len() {
        let answer = http.send("POST", MAPS, &kind, whole[..cut].to_vec()).await;
        assert!(answer.status.is_client_error(), "{cut}: {}", answer.status);
    }
    // Every byte another one: whatever it means then, the server goes on.
    for at in 0..whole.len() {
        for byte in [0x00, 0x7f, 0x80, 0xff] {
            let mut changed = whole.clone();
            changed[at] = byte;
            let answer = http.send("POST", &format!("{MAPS}?dryRun=All"), &kind, changed).await;
            assert!(answer.status.as_u16() < 500, "{at} {byte}: {}", answer.status);
        }
    }
    assert_eq!(http.send("POST", MAPS, &kind, whole).await.status, 201);
    let large = envelope("v1", "ConfigMap", &message(2, &vec![b'a'; 3 << 20]));
    refused(&http, "POST", MAPS, &kind, large, 413).await;
}

#[tokio::test]
async fn exactly_one_of_many_writers_wins_each_round() {
    let cluster = Cluster::start().await;
    let http = cluster.http();
    http.post(MAPS, &map("a")).await;
    for round in 0..20 {
        let current = http.get(&format!("{MAPS}/a")).await.json();
        let writers = (0..8).map(|writer| {
            let (http, mut next) = (http.clone(), current.clone());
            next["data"] = json!({"winner": format!("{round}-{writer}")});
            tokio::spawn(async move { http.put(&format!("{MAPS}/a"), &next).await.status.as_u16() })
        });
        let mut codes = Vec::new();
        for writer in writers.collect::<Vec<_>>() {
            codes.push(writer.await.unwrap());
        }
        codes.sort_unstable();
        assert_eq!(codes, [200, 409, 409, 409, 409, 409, 409, 409], "round {round}");
    }
}
